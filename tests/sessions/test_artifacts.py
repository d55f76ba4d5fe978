"""S8: what a fork sees of its source's artifacts, and that the source does not change."""

from __future__ import annotations

import asyncio
import copy
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.artifacts import FileArtifactService, InMemoryArtifactService
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools import ToolContext
from google.genai import types
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durable_adk import App, DurableRunner, MongoArtifactService
from durable_adk.adk.artifact_lineage import LineageArtifacts
from durable_adk.adk.artifacts import Versions, recorded
from durable_adk.app.forking import fork
from durable_adk.model import codec
from durable_adk.model.execution import Ancestor, SessionRecord
from durable_adk.model.identity import Tenant, session_key
from durable_adk.store import filters
from durable_adk.testing import ScriptedModel, calls, memory_client, says

TENANT = Tenant("n", "app")
OF = {"app_name": "app", "user_id": "u"}
KINDS = ("memory", "file", "mongo")


def text(content: str) -> types.Part:
    return types.Part(text=content)


@asynccontextmanager
async def underlying(kind: str, folder: Path, uri: str, database: str) -> AsyncIterator[Any]:
    if kind == "memory":
        yield InMemoryArtifactService()
    elif kind == "file":
        yield FileArtifactService(root_dir=folder)
    else:
        async with MongoArtifactService(
            mongodb=uri, database=database, config={"namespace": f"n{os.urandom(6).hex()}"}
        ) as service:
            yield service


# ---------------------------------------------------------------- the wrapper


class Tree:
    """Sessions and forks of them, as the store knows them."""

    def __init__(self) -> None:
        self.records: dict[str, SessionRecord] = {}
        self.lookups: list[str] = []

    def add(
        self, session_id: str, source: str | None = None, versions: dict[str, int] | None = None
    ) -> None:
        lineage: tuple[Ancestor, ...] = ()
        if source is not None:
            own = Ancestor(key=self.records[source].key, session_id=source, upto=1)
            lineage = (*self.records[source].lineage, own)
        self.records[session_id] = SessionRecord(
            key=session_key(TENANT, "u", session_id),
            tenant=TENANT,
            user_id="u",
            session_id=session_id,
            state=None,
            lineage=lineage,
            artifacts=codec.encode(versions) if versions else None,
        )

    async def lookup(self, app_name: str, user_id: str, session_id: str) -> SessionRecord | None:
        self.lookups.append(session_id)
        return self.records.get(session_id) if (app_name, user_id) == ("app", "u") else None


@pytest.fixture
def tree() -> Tree:
    found = Tree()
    found.add("root")
    return found


@pytest.fixture(params=KINDS)
async def service(
    request: pytest.FixtureRequest, tmp_path: Path, replica_set_uri: str, database: str
) -> AsyncIterator[Any]:
    async with underlying(request.param, tmp_path, replica_set_uri, database) as found:
        yield found


async def shown(service: Any, session_id: str) -> dict[str, Any]:
    """Everything that a session shows, by every way of reading it."""
    where = {**OF, "session_id": session_id}
    found: dict[str, Any] = {}
    for name in await service.list_artifact_keys(**where):
        file = {**where, "filename": name}
        numbers = await service.list_versions(**file)
        infos = await service.list_artifact_versions(**file)
        newest = await service.get_artifact_version(**file)
        assert [info.version for info in infos] == numbers
        assert newest == infos[-1]
        contents = {}
        for number, info in zip(numbers, infos, strict=True):
            assert await service.get_artifact_version(**file, version=number) == info
            contents[number] = await service.load_artifact(**file, version=number)
        assert await service.load_artifact(**file) == contents[numbers[-1]]
        beyond = numbers[-1] + 1
        assert await service.load_artifact(**file, version=beyond) is None
        assert await service.get_artifact_version(**file, version=beyond) is None
        found[name] = {number: part.text for number, part in contents.items()}
    return found


async def save(service: Any, session_id: str, name: str, content: str) -> int:
    number: int = await service.save_artifact(
        **OF, session_id=session_id, filename=name, artifact=text(content)
    )
    return number


async def test_a_fork_of_a_fork_reads_each_at_its_cut(service: Any, tree: Tree) -> None:
    artifacts = LineageArtifacts(service, tree.lookup)
    for content in ("r0", "r1", "r2"):
        await save(artifacts, "root", "a", content)
    tree.add("one", "root", {"a": 1})
    assert await shown(artifacts, "one") == {"a": {0: "r0", 1: "r1"}}
    assert await save(artifacts, "one", "a", "one2") == 2
    assert await save(artifacts, "one", "b", "b0") == 0
    tree.add("two", "one", {"a": 2, "b": 0})
    assert await save(artifacts, "one", "a", "one3") == 3
    assert await save(artifacts, "two", "a", "two3") == 3
    assert await shown(artifacts, "root") == {"a": {0: "r0", 1: "r1", 2: "r2"}}
    assert await shown(artifacts, "one") == {
        "a": {0: "r0", 1: "r1", 2: "one2", 3: "one3"},
        "b": {0: "b0"},
    }
    assert await shown(artifacts, "two") == {
        "a": {0: "r0", 1: "r1", 2: "one2", 3: "two3"},
        "b": {0: "b0"},
    }


async def test_what_the_source_saves_later_is_not_there(service: Any, tree: Tree) -> None:
    artifacts = LineageArtifacts(service, tree.lookup)
    tree.add("one", "root")
    await save(artifacts, "root", "late", "x")
    assert await shown(artifacts, "one") == {}
    assert await save(artifacts, "one", "late", "own") == 0
    assert await shown(artifacts, "one") == {"late": {0: "own"}}


async def test_a_fork_deletes_for_itself(service: Any, tree: Tree) -> None:
    artifacts = LineageArtifacts(service, tree.lookup)
    await save(artifacts, "root", "a", "r0")
    tree.add("one", "root", {"a": 0})
    file = {**OF, "session_id": "one", "filename": "a"}
    await save(artifacts, "one", "a", "own")
    marks = []
    for _ in range(2):  # on a later attempt it is asked for again
        await artifacts.delete_artifact(**file)
        marks.append(await service.list_artifact_versions(**file))
        assert await shown(artifacts, "one") == {}
        assert await artifacts.load_artifact(**file) is None
        assert await artifacts.load_artifact(**file, version=0) is None
        assert await artifacts.get_artifact_version(**file) is None
        assert await artifacts.list_versions(**file) == []
    assert marks[0] == marks[1], "the mark was never away"
    assert await shown(artifacts, "root") == {"a": {0: "r0"}}
    assert await save(artifacts, "one", "a", "again") == 2
    assert await shown(artifacts, "one") == {"a": {2: "again"}}


async def test_files_of_the_user_are_the_same_in_every_fork(service: Any, tree: Tree) -> None:
    artifacts = LineageArtifacts(service, tree.lookup)
    await save(artifacts, "root", "user:a", "0")
    tree.add("one", "root", {"b": 0})
    assert await save(artifacts, "one", "user:a", "1") == 1
    assert (await shown(artifacts, "root"))["user:a"] == {0: "0", 1: "1"}


async def test_other_apps_and_unknown_sessions_pass_straight_through(
    service: Any, tree: Tree
) -> None:
    artifacts = LineageArtifacts(service, tree.lookup)
    await save(artifacts, "root", "a", "r0")
    tree.add("one", "root", {"a": 0})
    other = {**OF, "app_name": "other", "session_id": "one", "filename": "a"}
    assert await artifacts.save_artifact(**other, artifact=text("x")) == 0
    assert await save(artifacts, "nobody", "a", "x") == 0


async def test_a_reference_in_a_fork_leads_to_what_the_fork_shows(tree: Tree) -> None:
    for service in (
        InMemoryArtifactService(),
        MongoArtifactService(mongodb=memory_client(), config={}),
    ):
        artifacts = LineageArtifacts(service, tree.lookup)
        await save(artifacts, "root", "a", "r0")
        tree.add("one", "root", {"a": 0})
        await save(artifacts, "one", "a", "own")
        for number, content in enumerate(("r0", "own")):
            uri = f"artifact://apps/app/users/u/sessions/one/artifacts/a/versions/{number}"
            part = types.Part(file_data=types.FileData(file_uri=uri))
            where = {**OF, "session_id": "one", "filename": "ref"}
            await artifacts.save_artifact(**where, artifact=part)
            assert await artifacts.load_artifact(**where) == text(content)


async def test_a_uri_of_a_fork_names_what_it_shows(tree: Tree) -> None:
    service = MongoArtifactService(mongodb=memory_client(), config={})
    artifacts = LineageArtifacts(service, tree.lookup)
    await save(artifacts, "root", "a", "r0")
    tree.add("one", "root", {"a": 0})
    await save(artifacts, "one", "a", "own")
    found = await artifacts.list_artifact_versions(**OF, session_id="one", filename="a")
    assert [one.canonical_uri.rpartition("/sessions/")[2] for one in found] == [
        "one/artifacts/a/versions/0",
        "one/artifacts/a/versions/1",
    ]


def test_it_passes_for_the_users_own_and_can_be_copied(tree: Tree) -> None:
    own = InMemoryArtifactService()
    wrapped = LineageArtifacts(own, tree.lookup)
    for seen in (wrapped, recorded(wrapped), copy.copy(wrapped)):
        assert isinstance(seen, InMemoryArtifactService)
        assert seen.artifacts is own.artifacts


async def test_an_attempt_looks_each_session_up_once(tree: Tree) -> None:
    artifacts = recorded(LineageArtifacts(InMemoryArtifactService(), tree.lookup))
    tree.add("one", "root", {"a": 0})
    for _ in range(3):
        await artifacts.load_artifact(**OF, session_id="one", filename="a")
    assert sorted(tree.lookups) == ["one", "root"]


# ---------------------------------------------------------------- any tree of forks


@dataclass
class Expected:
    """What a session shows, kept the plain way: a fork copies."""

    files: dict[str, dict[int, str]] = field(default_factory=dict)
    following: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    inherited: dict[str, int] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    has_forks: bool = False

    def fork(self) -> Expected:
        self.has_forks = True
        files = {
            name: {n: content for n, content in found.items() if n <= self.newest[name]}
            for name, found in self.files.items()
            if name in self.newest
        }
        return Expected(
            files={name: found for name, found in files.items() if found},
            following={name: number + 1 for name, number in self.newest.items()},
            newest=dict(self.newest),
            inherited=dict(self.newest),
        )


MOVES = st.tuples(
    st.sampled_from(("save", "save", "save", "fork", "fork", "delete")),
    st.integers(0, 5),
    st.sampled_from(("a", "b/c")),
)


async def play(service: Any, moves: list[tuple[str, int, str]]) -> None:
    tree, expected = Tree(), {"0": Expected()}
    tree.add("0")
    artifacts = LineageArtifacts(service, tree.lookup)
    contents = (f"content {n}" for n in itertools.count())
    for move, which, name in moves:
        at = str(which % len(expected))
        session = expected[at]
        if move == "save":
            content = next(contents)
            number = session.following.get(name, 0)
            assert await save(artifacts, at, name, content) == number
            session.files.setdefault(name, {})[number] = content
            session.following[name] = number + 1
            session.newest[name] = max(number, session.newest.get(name, 0))
        elif move == "fork":
            new = str(len(expected))
            tree.add(new, at, session.newest)
            expected[new] = session.fork()
        elif name in session.inherited and not session.has_forks:
            await artifacts.delete_artifact(**OF, session_id=at, filename=name)
            if name not in session.deleted or name in session.files:
                session.following[name] = session.inherited[name] + 2
                session.deleted.add(name)
            session.files.pop(name, None)
    for session_id, session in expected.items():
        assert await shown(artifacts, session_id) == session.files


@pytest.mark.parametrize(("kind", "examples"), [("memory", 150), ("file", 30), ("mongo", 20)])
def test_any_tree_of_forks_shows_what_copies_would(
    kind: str, examples: int, tmp_path: Path, replica_set_uri: str, database: str
) -> None:
    numbers = itertools.count()
    with asyncio.Runner() as runner:

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        )
        @given(st.lists(MOVES, min_size=3, max_size=16))
        def same(moves: list[tuple[str, int, str]]) -> None:
            async def once() -> None:
                folder = tmp_path / str(next(numbers))
                async with underlying(kind, folder, replica_set_uri, database) as service:
                    await play(service, moves)

            runner.run(once())

        same()


# ---------------------------------------------------------------- what a turn says it saved


def test_parallel_saves_may_be_told_of_in_any_order() -> None:
    versions = Versions({"a": 1})
    for delta in ({"a": 3}, {"a": 2, "user:a": 7}, {"b": 0}):
        versions.note(delta)
    assert versions.newest == {"a": 3, "b": 0}


KEPT: set[str] = set()
"""Invocations whose note is saved."""


async def keep(content: str, tool_context: ToolContext) -> dict[str, Any]:
    """Save the note."""
    number = await tool_context.save_artifact("note.txt", text(content))
    KEPT.add(tool_context.invocation_id)
    return {"saved": number}


async def show(tool_context: ToolContext) -> dict[str, Any]:
    """Read the note."""
    found = await tool_context.load_artifact("note.txt")
    return {"note": found.text if found else None, "files": await tool_context.list_artifacts()}


async def ask_and_keep(content: str, tool_context: ToolContext) -> dict[str, Any]:
    """Save the note once somebody agrees."""
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint="save?")
        return {"asked": True}
    if not tool_context.tool_confirmation.confirmed:
        return {"saved": None}
    return await keep(content, tool_context)


async def boom(tool_context: ToolContext) -> None:
    """Fail once the note is saved."""
    while tool_context.invocation_id not in KEPT:
        await asyncio.sleep(0)
    raise RuntimeError("boom")


def reply(request: LlmRequest, _: int) -> LlmResponse:
    """Call what the user's words ask for, ``<tool> <content>`` each: after ``,`` one after
    another, after ``+`` in one response."""
    last = max(
        n
        for n, content in enumerate(request.contents)
        if content.role == "user" and any(part.text for part in content.parts or ())
    )
    words = "".join(part.text or "" for part in request.contents[last].parts or ())
    done = sum(
        1
        for content in request.contents[last + 1 :]
        if any(part.function_response for part in content.parts or ())
    )
    orders = [order for order in words.split(", ") if order]
    if done >= len(orders):
        return says("done")
    together = [order.partition(" ") for order in orders[done].split(" + ")]
    return calls(*((name, {"content": told} if told else {}) for name, _, told in together))


class Uploads(BasePlugin):
    """Saves the files of a message, and tells nobody."""

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: types.Content
    ) -> None:
        for part in user_message.parts or ():
            if part.inline_data is not None and invocation_context.artifact_service is not None:
                session = invocation_context.session
                await invocation_context.artifact_service.save_artifact(
                    app_name=session.app_name,
                    user_id=session.user_id,
                    session_id=session.id,
                    filename="upload.png",
                    artifact=part,
                )


def keeper(**more: Any) -> LlmAgent:
    return LlmAgent(
        name="keeper",
        model=ScriptedModel(script=reply),
        tools=[keep, show, ask_and_keep, boom],
        **more,
    )


MakeApp = Callable[..., App]


@pytest.fixture(params=KINDS)
async def app(
    request: pytest.FixtureRequest, tmp_path: Path, replica_set_uri: str, database: str
) -> AsyncIterator[App]:
    service = {
        "memory": InMemoryArtifactService,
        "file": lambda: FileArtifactService(root_dir=tmp_path),
        "mongo": MongoArtifactService,
    }[request.param]()
    async with App(
        "app",
        root_agent=keeper(),
        config={
            "features": {"durable_workflow": True},
            "namespace": f"n{os.urandom(6).hex()}",
            "shutdown": {"grace": "0s"},
            "retry": {"max_attempts": 2},
        },
        mongodb=replica_set_uri,
        database=database,
        artifact_service=service,
        plugins=[Uploads(name="uploads")],
    ) as opened:
        yield opened


async def say(app: App, message: Any, session_id: str = "s", **more: Any) -> Any:
    return await app.invoke(user_id="u", session_id=session_id, message=message, **more)


def results(out: Any) -> list[Any]:
    """What the tools returned."""
    return [
        response.response for event in out.events for response in event.get_function_responses()
    ]


def artifacts_of(app: App) -> Any:
    return app._lifecycle.artifact_service


async def test_a_fork_between_two_versions_sees_the_old_one(app: App) -> None:
    """S8."""
    first = await say(app, "keep old")
    await say(app, "keep new")
    fork = await app.sessions.fork("u", "s", after=first.execution_id)
    before = await shown(artifacts_of(app), "s")
    assert before == {"note.txt": {0: "old", 1: "new"}}

    out = await say(app, "show, keep own, show", fork.session_id)
    assert results(out) == [
        {"note": "old", "files": ["note.txt"]},
        {"saved": 1},
        {"note": "own", "files": ["note.txt"]},
    ]
    assert await shown(artifacts_of(app), fork.session_id) == {"note.txt": {0: "old", 1: "own"}}
    assert await shown(artifacts_of(app), "s") == before
    assert results(await say(app, "show"))[0]["note"] == "new"

    again = await app.sessions.fork("u", fork.session_id)
    assert results(await say(app, "show, keep third", again.session_id)) == [
        {"note": "own", "files": ["note.txt"]},
        {"saved": 2},
    ]
    assert results(await say(app, "show", fork.session_id))[0]["note"] == "own"


async def test_a_fork_inside_a_turn_has_what_that_turn_saved_until_then(app: App) -> None:
    """S8, cut at a wait: before its answer, one version; the answer saves another."""
    waiting = await say(app, "keep first, ask_and_keep second, show")
    wait = waiting.waits[0].id
    yes = {"confirmed": True}
    assert (await app.resume(waiting.execution_id, {wait: yes})).status == "completed"
    await say(app, "keep third")
    fork = await app.sessions.fork("u", "s", before=wait)
    artifacts = artifacts_of(app)
    assert await shown(artifacts, fork.session_id) == {"note.txt": {0: "first"}}
    (asked,) = (await app.waits.list(session_id=fork.session_id)).items
    out = await app.resume(fork.execution_id, {asked.id: yes})
    assert out.status == "completed"
    assert results(out)[-2:] == [{"saved": 1}, {"note": "second", "files": ["note.txt"]}]
    assert await shown(artifacts, "s") == {"note.txt": {0: "first", 1: "second", 2: "third"}}


async def test_what_was_saved_before_an_answer_is_in_a_fork_after_it(app: App) -> None:
    out = await say(app, "keep first, ask_and_keep second")
    await app.resume(out.execution_id, {out.waits[0].id: {"confirmed": False}})
    fork = await app.sessions.fork("u", "s")
    assert await shown(artifacts_of(app), fork.session_id) == {"note.txt": {0: "first"}}


async def test_what_no_event_tells_of_is_in_a_fork(app: App) -> None:
    """What a plugin saves past any context, in a turn that goes on in another attempt."""
    picture = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"png"))
    message = types.Content(role="user", parts=[picture, text("ask_and_keep note")])
    out = await say(app, message)
    await app.resume(out.execution_id, {out.waits[0].id: {"confirmed": True}})
    inside = await app.sessions.fork("u", "s", before=out.waits[0].id)
    where = {**OF, "session_id": inside.session_id}
    assert await artifacts_of(app).list_artifact_keys(**where) == ["upload.png"]
    fork = await app.sessions.fork("u", "s")
    where = {**OF, "session_id": fork.session_id}
    names = await artifacts_of(app).list_artifact_keys(**where)
    assert names == ["note.txt", "upload.png"]
    found = await artifacts_of(app).load_artifact(**where, filename="upload.png")
    assert found.inline_data.data == b"png"


async def test_a_fork_at_an_activity_has_what_was_saved_until_then(app: App) -> None:
    """S8, cut at a record inside of a step."""
    out = await say(app, "keep first, keep second, keep third")
    found = await app.executions.activities(out.execution_id)
    second = [one.id for one in found if one.name == "keep"][1]
    fork = await app.sessions.fork("u", "s", after=second)
    assert await shown(artifacts_of(app), fork.session_id) == {
        "note.txt": {0: "first", 1: "second"}
    }
    fork = await app.sessions.fork("u", "s", before=second)
    assert await shown(artifacts_of(app), fork.session_id) == {"note.txt": {0: "first"}}


async def test_what_a_turn_saved_before_it_was_cancelled_is_in_a_fork(app: App) -> None:
    """It is closed over its records, and no event comes of the call that saved."""
    out = await say(app, "keep old + boom")
    assert out.status == "queued"
    await app.cancel(out.execution_id)
    assert not any(event.actions.artifact_delta for event in await app.sessions.events("u", "s"))
    fork = await app.sessions.fork("u", "s")
    assert await shown(artifacts_of(app), fork.session_id) == {"note.txt": {0: "old"}}


async def test_turns_from_before_versions_were_kept_are_known_by_their_events(app: App) -> None:
    await say(app, "keep old")
    store = (await app._lifecycle.opened()).store
    run = (await store.latest_execution(session_key(app._lifecycle.tenant, "u", "s"))).run
    changed = await store._core.collection("steps").update_many(
        filters.starting_with(f"{run}:"), {"$unset": {"art": ""}}
    )
    assert changed.modified_count == 1
    await say(app, "show")
    fork = await app.sessions.fork("u", "s")
    assert await shown(artifacts_of(app), fork.session_id) == {"note.txt": {0: "old"}}


async def test_the_runner_of_an_app_shows_the_same_files(app: App) -> None:
    await say(app, "keep old")
    fork = await app.sessions.fork("u", "s")
    await say(app, "keep new")
    assert await shown(app.runner.artifact_service, fork.session_id) == {"note.txt": {0: "old"}}


async def test_a_runner_reads_through_the_lineage(replica_set_uri: str, database: str) -> None:
    """S8 through ``DurableRunner``."""
    runner = DurableRunner(
        app_name="app",
        agent=keeper(),
        artifact_service=MongoArtifactService(),
        mongodb=replica_set_uri,
        database=database,
        config={"namespace": f"n{os.urandom(6).hex()}"},
    )
    async with runner:

        async def tell(words: str, session_id: str) -> list[Any]:
            message = types.Content(role="user", parts=[text(words)])
            return [
                response.response
                async for event in runner.run_async(
                    user_id="u", session_id=session_id, new_message=message
                )
                for response in event.get_function_responses()
            ]

        await tell("keep old", "s")
        made = await fork(runner._lifecycle, user_id="u", session_id="s")
        await tell("keep new", "s")
        assert await tell("show, keep own", made.session_id) == [
            {"note": "old", "files": ["note.txt"]},
            {"saved": 1},
        ]
        assert await shown(runner.artifact_service, made.session_id) == {
            "note.txt": {0: "old", 1: "own"}
        }
        assert await shown(runner.artifact_service, "s") == {"note.txt": {0: "old", 1: "new"}}
