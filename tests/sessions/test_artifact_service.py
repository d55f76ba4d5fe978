"""``MongoArtifactService`` answers as ADK's own services do, on a server and in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.artifacts import BaseArtifactService, InMemoryArtifactService
from google.adk.artifacts.base_artifact_service import ArtifactVersion
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durable_adk import App, ConfigError, CorruptHistory, MongoArtifactService
from durable_adk.adk.mongo_artifacts import StoredArtifacts
from durable_adk.model.identity import Tenant, artifact_scope
from durable_adk.store.clock import ManualClock
from durable_adk.store.filters import starting_with
from durable_adk.testing import FaultPlan, Write, memory_client

Service = BaseArtifactService

NAMES = ("a.txt", "dir/ä $b.{txt}", "user:a.txt", "user:sub/c", "$where", "a.b.c", "名")
SESSIONS = ("s1", "s2", None)
OF = {"app_name": "app", "user_id": "u"}


def blob(data: bytes, mime_type: str = "image/png") -> types.Part:
    return types.Part(inline_data=types.Blob(mime_type=mime_type, data=data, display_name="d"))


def ref(path: str) -> types.Part:
    uri = f"artifact://apps/app/users/u/{path}"
    return types.Part(file_data=types.FileData(file_uri=uri, mime_type="x/y"))


PARTS: tuple[Any, ...] = (
    types.Part(text="text"),
    types.Part(text=""),
    blob(b"\x00\xff\xfe bytes"),
    types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b"")),
    types.Part(file_data=types.FileData(file_uri="https://x/y", mime_type="text/html")),
    {"inlineData": {"mimeType": "text/csv", "data": "YQ=="}},
    ref("sessions/s1/artifacts/a.txt/versions/0"),
    ref("artifacts/user:a.txt/versions/1"),
    ref("sessions/s1/artifacts/$where/versions/0"),
    ref("nowhere"),
    types.Part(),
    types.Part(function_call=types.FunctionCall(name="f", args={})),
)
METADATA = (None, {}, {"$a.b": [1, {"c": None}], "ü": "x"})

_where = {"filename": st.sampled_from(NAMES), "session_id": st.sampled_from(SESSIONS)}
_version = st.sampled_from((None, None, 0, 1, 7, -1))
CALLS = st.one_of(
    *[
        st.tuples(
            st.just("save_artifact"),
            st.fixed_dictionaries(
                {
                    **_where,
                    "artifact": st.sampled_from(PARTS),
                    "custom_metadata": st.sampled_from(METADATA),
                }
            ),
        )
    ]
    * 3,
    st.tuples(
        st.sampled_from(("load_artifact", "get_artifact_version")),
        st.fixed_dictionaries({**_where, "version": _version}),
    ),
    st.tuples(
        st.sampled_from(("list_versions", "list_artifact_versions", "delete_artifact")),
        st.fixed_dictionaries(_where),
    ),
    st.tuples(
        st.just("list_artifact_keys"),
        st.fixed_dictionaries({"session_id": st.sampled_from(SESSIONS)}),
    ),
)


def comparable(answer: object) -> object:
    """Without where and when it is stored."""
    if isinstance(answer, list):
        return [comparable(one) for one in answer]
    if isinstance(answer, ArtifactVersion):
        return answer.model_dump(exclude={"canonical_uri", "create_time"})
    return answer


async def answers(service: Service, calls: list[tuple[str, dict[str, Any]]]) -> list[object]:
    found: list[object] = []
    for method, arguments in calls:
        try:
            answer = await getattr(service, method)(**OF, **arguments)
            found.append((method, comparable(answer)))
        except InputValidationError:
            found.append((method, "refused"))
    return found


def check_same(service_of: Any, examples: int) -> None:
    with asyncio.Runner() as runner:

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        @given(st.lists(CALLS, min_size=4, max_size=14))
        def same(calls: list[tuple[str, dict[str, Any]]]) -> None:
            async def both() -> None:
                async with service_of() as service:
                    expected = await answers(InMemoryArtifactService(), calls)
                    assert await answers(service, calls) == expected

            runner.run(both())

        same()


def namespace() -> dict[str, Any]:
    return {"namespace": f"n{os.urandom(6).hex()}"}


def test_any_calls_are_answered_as_adks_own_service_does() -> None:
    check_same(lambda: MongoArtifactService(mongodb=memory_client(), config=namespace()), 120)


def test_a_real_server_answers_alike(replica_set_uri: str, database: str) -> None:
    def service() -> MongoArtifactService:
        return MongoArtifactService(mongodb=replica_set_uri, database=database, config=namespace())

    check_same(service, 25)


@pytest.fixture(params=["server", "memory"])
async def service(
    request: pytest.FixtureRequest, replica_set_uri: str, database: str
) -> AsyncIterator[MongoArtifactService]:
    client = replica_set_uri if request.param == "server" else memory_client()
    async with MongoArtifactService(
        mongodb=client, database=database, config=namespace()
    ) as opened:
        yield opened


async def save(service: Service, name: str, part: types.Part, session: str = "s1") -> int:
    return await service.save_artifact(**OF, session_id=session, filename=name, artifact=part)


async def load(
    service: Service, name: str, version: int | None = None, session: str = "s1"
) -> types.Part | None:
    return await service.load_artifact(**OF, session_id=session, filename=name, version=version)


def test_every_method_of_the_installed_base_class_is_there() -> None:
    wanted = {name for name in vars(BaseArtifactService) if not name.startswith("_")}
    assert wanted <= vars(StoredArtifacts).keys()


async def test_concurrent_saves_get_all_numbers_and_lose_nothing(
    service: MongoArtifactService,
) -> None:
    parts = [types.Part(text=f"content {n}") for n in range(20)]
    numbers = await asyncio.gather(*(save(service, "one", part) for part in parts))
    assert sorted(numbers) == list(range(20))
    for number, part in zip(numbers, parts, strict=True):
        assert await load(service, "one", number) == part


async def test_twenty_megabytes_come_back_byte_for_byte(service: MongoArtifactService) -> None:
    data = os.urandom(20 * 1024 * 1024)
    assert await save(service, "large", blob(data)) == 0
    found = await load(service, "large")
    assert found is not None
    assert found.inline_data is not None
    assert found.inline_data.data == data
    assert await left_of(service) == (1, 4)
    await service.delete_artifact(**OF, session_id="s1", filename="large")
    assert await left_of(service) == (0, 0)


async def left_of(service: MongoArtifactService) -> tuple[int, int]:
    """How many documents and chunks of session s1 there are."""
    store, name_space = await service._store()
    found = starting_with(artifact_scope(Tenant(name_space, "app"), "u", "s1") + ":")
    return (
        await store._core.collection("artifacts").count_documents(found),
        await store._core.collection("payloads").count_documents(found),
    )


async def test_a_version_says_when_it_was_made_and_can_be_referred_to() -> None:
    clock = ManualClock()
    async with MongoArtifactService(
        mongodb=memory_client(), config=namespace(), clock=clock
    ) as service:
        await save(service, "dir/a.txt", types.Part(text="one"))
        clock.advance(5_000)
        await save(service, "dir/a.txt", types.Part(text="two"))
        first, second = await service.list_artifact_versions(
            **OF, session_id="s1", filename="dir/a.txt"
        )
        assert second.create_time - first.create_time == 5
        assert first.canonical_uri.endswith("/sessions/s1/artifacts/dir/a.txt/versions/0")
        uri = first.canonical_uri
        await save(service, "b", types.Part(file_data=types.FileData(file_uri=uri)))
        assert await load(service, "b") == types.Part(text="one")


async def test_references_that_go_in_a_circle_are_refused(service: MongoArtifactService) -> None:
    await save(service, "a", ref("sessions/s1/artifacts/a/versions/0"))
    with pytest.raises(InputValidationError, match="recursion"):
        await load(service, "a")


async def test_tenants_users_and_sessions_are_apart(service: MongoArtifactService) -> None:
    await save(service, "a", types.Part(text="mine"))
    await service.save_artifact(**OF, filename="user:a", artifact=types.Part(text="all"))
    for other in (
        {**OF, "session_id": "s2"},
        {**OF, "user_id": "v", "session_id": "s1"},
        {**OF, "app_name": "other", "session_id": "s1"},
    ):
        assert await service.load_artifact(**other, filename="a") is None
    assert await service.list_artifact_keys(**OF, session_id="s2") == ["user:a"]
    assert await service.list_artifact_keys(**{**OF, "user_id": "v"}, session_id="s1") == []


async def test_the_artifacts_of_a_session_are_removed_with_it(
    service: MongoArtifactService,
) -> None:
    store, name_space = await service._store()
    await save(service, "a", blob(os.urandom(40_000)))
    await save(service, "b", types.Part(text="b"))
    await save(service, "a", types.Part(text="stays"), session="s2")
    await service.save_artifact(**OF, filename="user:a", artifact=types.Part(text="stays"))
    for _ in range(2):  # it may be repeated
        await store.delete_artifacts(Tenant(name_space, "app"), "u", "s1")
        assert await left_of(service) == (0, 0)
    assert await service.list_artifact_keys(**OF, session_id="s1") == ["user:a"]
    assert await service.list_artifact_keys(**OF, session_id="s2") == ["a", "user:a"]


async def test_a_save_whose_reply_is_lost_makes_one_version() -> None:
    plan = FaultPlan().lose_reply(Write.ARTIFACT)
    async with MongoArtifactService(
        mongodb=memory_client(), config=namespace(), faults=plan
    ) as service:
        assert await save(service, "a", types.Part(text="once")) == 0
        assert await service.list_versions(**OF, session_id="s1", filename="a") == [0]
    plan.assert_all_struck()


async def test_what_is_damaged_is_said_to_be_damaged() -> None:
    async with MongoArtifactService(mongodb=memory_client(), config=namespace()) as service:
        await save(service, "a", blob(os.urandom(40_000)))
        store, _ = await service._store()
        await store._core.collection("payloads").delete_many({})
        with pytest.raises(CorruptHistory, match="is missing"):
            await load(service, "a")


async def test_names_that_cannot_be_stored_are_refused(service: MongoArtifactService) -> None:
    for name in ("", "  ", "\ud800"):
        with pytest.raises(InputValidationError, match="filename"):
            await save(service, name, types.Part(text="x"))


async def test_without_arguments_it_uses_the_apps_own_database() -> None:
    artifacts, client = MongoArtifactService(), memory_client()
    with pytest.raises(ConfigError, match=r"App\(artifact_service=\.\.\.\)"):
        await save(artifacts, "a", types.Part(text="x"))
    config = {"features": {"durable_workflow": True}, "namespace": "here"}
    app = App(
        "app",
        config=config,
        mongodb=client,
        artifact_service=artifacts,
    )
    async with app:
        assert await save(artifacts, "a", types.Part(text="x")) == 0
    async with MongoArtifactService(mongodb=client, config={"namespace": "here"}) as alone:
        assert await load(alone, "a") == types.Part(text="x")


async def test_given_to_two_apps_each_uses_its_own_database() -> None:
    artifacts = MongoArtifactService()
    apps = [
        App(
            "app",
            config={"features": {"durable_workflow": True}},
            mongodb=memory_client(),
            artifact_service=artifacts,
        )
        for _ in range(2)
    ]
    first, second = (app._lifecycle.artifact_service for app in apps)
    try:
        await save(second, "a", types.Part(text="x"))
        assert await load(first, "a") is None
        assert await load(second, "a") == types.Part(text="x")
        assert isinstance(first, MongoArtifactService)
    finally:
        for app in apps:
            await app.close()


async def test_one_that_stands_alone_keeps_its_own_database_in_an_app() -> None:
    config = {"features": {"durable_workflow": True}, "namespace": "here"}
    client = memory_client()
    async with (
        MongoArtifactService(mongodb=memory_client(), config=namespace()) as alone,
        App("app", config=config, mongodb=client, artifact_service=alone) as app,
    ):
        await save(app._lifecycle.artifact_service, "a", types.Part(text="x"))
        assert await load(alone, "a") == types.Part(text="x")
        assert await client["durable_adk"]["durable_artifacts"].count_documents({}) == 0


def test_it_belongs_to_the_loop_that_opened_it() -> None:
    service = MongoArtifactService(mongodb=memory_client(), config=namespace())
    with asyncio.Runner() as one, asyncio.Runner() as other:
        one.run(save(service, "a", types.Part(text="x")))
        with pytest.raises(ConfigError, match="another event loop"):
            other.run(load(service, "a"))
        one.run(service.close())
        assert other.run(load(service, "a")) is not None
        other.run(service.close())


def test_a_database_without_a_mongodb_is_refused() -> None:
    with pytest.raises(ConfigError, match="without a MongoDB"):
        MongoArtifactService(database="x")
