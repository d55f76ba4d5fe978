"""``DurableSessionService``: durable sessions as ADK's session service shows them."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.cli.utils.evals import convert_session_to_eval_invocations
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from durable_adk import (
    App,
    ConfigError,
    DurableRunner,
    DurableSessionService,
    NotStorable,
)
from durable_adk.testing import calls, memory_client, says
from tests.app import agents

Place = dict[str, Any]
ON = {"features": {"durable_workflow": True}}
DESK = {"app_name": "desk", "user_id": "u"}


@pytest.fixture(params=["memory", "mongod"])
def place(request: pytest.FixtureRequest) -> Place:
    """Where sessions are kept: new and empty for each test."""
    if request.param == "memory":
        return {"mongodb": memory_client()}
    uri = request.getfixturevalue("replica_set_uri")
    database = request.getfixturevalue("database")
    return {"mongodb": uri, "database": f"{database}_{uuid.uuid4().hex[:8]}"}


@pytest.fixture
async def service(place: Place) -> AsyncIterator[DurableSessionService]:
    """One that was made by itself."""
    async with DurableSessionService(**place) as made:
        yield made


def runner_of(service: DurableSessionService, root: Any, app_name: str = "desk") -> DurableRunner:
    return DurableRunner(agent=root, app_name=app_name, session_service=service)


async def send(runner: Any, text: str = "hi", session_id: str = "s", **given: Any) -> list[Any]:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    named = {"user_id": "u", "session_id": session_id, "new_message": content, **given}
    return [event async for event in runner.run_async(**named)]


def writer(_log: agents.Log | None = None) -> Any:
    """Writes to every kind of state."""

    def note(tool_context: Any) -> str:
        """Take a note."""
        tool_context.state["note"] = 1
        tool_context.state["user:name"] = "Ada"
        tool_context.state["app:motto"] = "slow"
        tool_context.state["temp:gone"] = True
        return "noted"

    return agents.talker(calls(("note", {})), says("done"), tools=[note])


# ---------------------------------------------------------------- as ADK's services


def test_it_is_a_session_service_with_the_same_parameters() -> None:
    assert issubclass(DurableSessionService, BaseSessionService)
    public = [name for name, _ in inspect.getmembers(BaseSessionService, inspect.isfunction)]
    for name in public:
        theirs = inspect.signature(getattr(BaseSessionService, name)).parameters
        ours = inspect.signature(getattr(DurableSessionService, name)).parameters
        if name.startswith("_"):
            continue
        assert list(theirs) == list(ours), name
        assert [p.default for p in theirs.values()] == [p.default for p in ours.values()]


STATES: list[dict[str, Any] | None] = [
    None,
    {},
    {"a": 1, "b": None},
    {"a": 1, "user:name": "Ada", "app:motto": "slow", "temp:gone": 1},
    {"user:name": {"first": "Ada"}, "user:age": 36},
]


@pytest.mark.parametrize("state", STATES, ids=str)
async def test_a_created_session_has_the_state_that_adk_gives_it(
    service: DurableSessionService, state: dict[str, Any] | None
) -> None:
    memory = InMemorySessionService()
    for each in (service, memory):
        await each.create_session(**DESK, session_id="first", state={"app:old": 1, "user:old": 2})
        await each.create_session(
            app_name="desk", user_id="another", session_id="theirs", state={"user:other": 3}
        )
    ours, theirs = [
        await each.create_session(**DESK, session_id="s", state=state) for each in (service, memory)
    ]
    assert (ours.app_name, ours.user_id, ours.id) == ("desk", "u", "s")
    assert ours.state == theirs.state
    assert ours.events == []
    for session_id in ("s", "first"):
        got = await service.get_session(**DESK, session_id=session_id)
        expected = await memory.get_session(**DESK, session_id=session_id)
        assert got is not None
        assert expected is not None
        assert got.state == expected.state
    assert await service.get_user_state(**DESK) == await memory.get_user_state(**DESK)
    theirs_too = await service.get_user_state(app_name="desk", user_id="another")
    assert theirs_too == {"other": 3}


async def test_a_later_session_state_wins_over_an_earlier_one(
    service: DurableSessionService,
) -> None:
    for session_id, name in (("a", "Ada"), ("b", "Bob")):
        await service.create_session(**DESK, session_id=session_id, state={"user:name": name})
    assert await service.get_user_state(**DESK) == {"name": "Bob"}


async def test_a_run_sees_and_changes_the_shared_state_of_a_created_session(
    service: DurableSessionService,
) -> None:
    await service.create_session(**DESK, session_id="s", state={"user:name": "Bob", "a": 1})
    async with runner_of(service, agents.talker(instruction="Hello {user:name}.")) as runner:
        await send(runner)
    async with runner_of(service, writer()) as runner:
        await send(runner)
    session = await service.get_session(**DESK, session_id="s")
    assert session is not None
    shared = {"user:name": "Ada", "app:motto": "slow"}
    assert session.state == {"a": 1, "note": 1, **shared}
    other = await service.create_session(**DESK, state={"user:name": "Cleo"})
    assert other.state == {**shared, "user:name": "Cleo"}


async def test_an_id_may_be_left_out_and_is_not_used_twice(
    service: DurableSessionService,
) -> None:
    made = [await service.create_session(**DESK) for _ in range(2)]
    assert made[0].id != made[1].id
    trimmed = await service.create_session(**DESK, session_id=" s ")
    assert trimmed.id == "s"
    with pytest.raises(AlreadyExistsError, match="there is one already"):
        await service.create_session(**DESK, session_id="s")
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**DESK, session_id="s", state={"user:name": "Eve"})
    assert await service.get_user_state(**DESK) == {}


async def test_what_cannot_be_stored_is_refused_and_nothing_is_made(
    service: DurableSessionService,
) -> None:
    for state in ({"a": object()}, {"user:a": object()}, {"user:a": 1, "b": object()}):
        with pytest.raises(NotStorable):
            await service.create_session(**DESK, session_id="s", state=state)
    assert await service.get_session(**DESK, session_id="s") is None
    assert await service.get_user_state(**DESK) == {}


async def test_events_and_state_are_those_of_the_executions(
    service: DurableSessionService,
) -> None:
    assert await service.get_session(**DESK, session_id="s") is None
    async with runner_of(service, writer()) as runner:
        assert runner.session_service is service
        yielded = await send(runner)
    session = await service.get_session(**DESK, session_id="s")
    assert session is not None
    assert [event.id for event in session.events[1:]] == [event.id for event in yielded]
    assert session.events[0].content.parts[0].text == "hi"
    assert session.state == {"note": 1, "user:name": "Ada", "app:motto": "slow"}
    assert session.last_update_time >= session.events[0].timestamp


@pytest.mark.parametrize("recent", [None, 0, 1, 3, 100])
@pytest.mark.parametrize("after", [None, 0, 3, 100])
async def test_some_events_are_those_that_adk_picks(
    service: DurableSessionService, recent: int | None, after: int | None
) -> None:
    async with runner_of(service, agents.talker()) as runner:
        for text in ("one", "two", "three"):
            await send(runner, text)
    everything = await service.get_session(**DESK, session_id="s")
    assert everything is not None
    assert len(everything.events) == 6
    memory = InMemorySessionService()
    copy = await memory.create_session(**DESK, session_id="s")
    for event in everything.events:
        await memory.append_event(copy, event.model_copy(deep=True))
    since = None if after is None else (everything.events[after].timestamp if after < 6 else 1e12)
    config = GetSessionConfig(num_recent_events=recent, after_timestamp=since)
    ours = await service.get_session(**DESK, session_id="s", config=config)
    theirs = await memory.get_session(**DESK, session_id="s", config=config)
    assert ours is not None
    assert theirs is not None
    assert [event.id for event in ours.events] == [event.id for event in theirs.events]
    assert ours.state == everything.state


async def test_an_open_turn_shows_what_it_has_committed(service: DurableSessionService) -> None:
    log: agents.Log = []
    async with runner_of(service, agents.payer(log)) as runner:
        yielded = await send(runner)
        session = await service.get_session(**DESK, session_id="s")
    assert session is not None
    assert [event.id for event in session.events[1:]] == [event.id for event in yielded]
    assert log == []


async def test_sessions_are_listed_with_their_state_the_last_changed_one_last(
    service: DurableSessionService,
) -> None:
    for user, session_id in (("u", "a"), ("u", "b"), ("v", "c")):
        await service.create_session(
            app_name="desk", user_id=user, session_id=session_id, state={"of": session_id}
        )
    await service.create_session(app_name="other", user_id="u", session_id="d")
    async with runner_of(service, writer()) as runner:
        await send(runner, session_id="a")
    listed = (await service.list_sessions(**DESK)).sessions
    assert [session.id for session in listed] == ["b", "a"]
    shared = {"user:name": "Ada", "app:motto": "slow"}
    assert listed[0].state == {"of": "b", **shared}
    assert listed[1].state == {"of": "a", "note": 1, **shared}
    assert [session.events for session in listed] == [[], []]
    everybody = (await service.list_sessions(app_name="desk")).sessions
    assert {session.id for session in everybody} == {"a", "b", "c"}
    (theirs,) = [session for session in everybody if session.id == "c"]
    assert theirs.state == {"of": "c", "app:motto": "slow"}
    assert (await service.list_sessions(app_name="nobody")).sessions == []


async def test_more_sessions_than_a_page_are_listed(service: DurableSessionService) -> None:
    names = [f"s{number:02}" for number in range(35)]
    for name in names:
        await service.create_session(**DESK, session_id=name)
    listed = (await service.list_sessions(**DESK)).sessions
    assert sorted(session.id for session in listed) == names


async def test_a_deleted_session_is_gone_with_its_executions(
    place: Place, service: DurableSessionService
) -> None:
    async with runner_of(service, writer()) as runner:
        await send(runner, invocation_id="e")
        await send(runner, session_id="kept")
        await service.delete_session(**DESK, session_id="s")
        assert await service.get_session(**DESK, session_id="s") is None
        await service.delete_session(**DESK, session_id="s")  # as ADK's: nothing happens
        assert [s.id for s in (await service.list_sessions(**DESK)).sessions] == ["kept"]
        again = await send(runner)
    assert again[-1].content.parts[0].text == "done"
    async with App("desk", config=ON, **place) as app:
        assert (await app.executions.list(session_id="s")).items[0].id != "e"


async def test_an_event_cannot_be_appended(service: DurableSessionService) -> None:
    async with runner_of(service, agents.talker()) as runner:
        await send(runner)
    session = await service.get_session(**DESK, session_id="s")
    assert session is not None
    before = len(session.events)
    with pytest.raises(ConfigError, match=r"executions only; nothing was changed.*DurableRunner"):
        await service.append_event(session, Event(author="user"))
    assert len(session.events) == before
    stored = await service.get_session(**DESK, session_id="s")
    assert stored is not None
    assert stored == session
    await service.flush()


async def test_adks_own_runner_is_refused_before_anything_is_stored(
    service: DurableSessionService,
) -> None:
    log: agents.Log = []
    root = agents.plain_payer(log)
    async with Runner(
        agent=root, app_name="desk", session_service=service, auto_create_session=True
    ) as runner:
        with pytest.raises(ConfigError, match="DurableRunner"):
            await send(runner, state_delta={"a": 1})
    session = await service.get_session(**DESK, session_id="s")
    assert session is not None
    assert (session.events, session.state, log) == ([], {}, [])


async def test_evaluation_sees_what_it_sees_in_adks_sessions(
    service: DurableSessionService,
) -> None:
    found = []
    stock = Runner(
        agent=agents.payer([]),
        app_name="desk",
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )
    for runner in (stock, runner_of(service, agents.payer([]))):
        async with runner:
            (call,) = [c for e in await send(runner) for c in confirmations(e)]
            given = types.FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
            answer = types.Content(role="user", parts=[types.Part(function_response=given)])
            await send(runner, new_message=answer)
            session = await runner.session_service.get_session(**DESK, session_id="s")
        assert session is not None
        turns = convert_session_to_eval_invocations(session)
        found.append(
            [
                (
                    turn.final_response.parts[0].text,
                    [event.author for event in turn.intermediate_data.invocation_events],
                    [part.function_response.name for part in turn.user_content.parts],
                )
                for turn in turns
            ]
        )
    assert found[0] == found[1]
    assert [text for text, *_ in found[1]] == ["payer done"]


def confirmations(event: Any) -> list[Any]:
    return [c for c in event.get_function_calls() if c.name == "adk_request_confirmation"]


# ---------------------------------------------------------------- one service, many apps


async def test_it_serves_every_app_over_one_client(service: DurableSessionService) -> None:
    roots = {"desk": agents.talker(), "till": agents.talker(says("thanks"), name="till")}
    for app_name, root in roots.items():
        async with runner_of(service, root, app_name) as runner:
            await send(runner)
    for app_name, text in (("desk", "hello"), ("till", "thanks")):
        session = await service.get_session(app_name=app_name, user_id="u", session_id="s")
        assert session is not None
        assert session.app_name == app_name
        assert session.events[-1].content.parts[0].text == text
    assert await service.get_session(app_name="other", user_id="u", session_id="s") is None
    with pytest.raises(ConfigError, match="app_name"):
        await service.get_session(app_name="", user_id="u", session_id="s")


async def test_it_opens_at_its_first_call_and_again_after_close(place: Place) -> None:
    service = DurableSessionService(**place)
    await service.close()
    await service.create_session(**DESK, session_id="s", state={"a": 1})
    await service.close()
    if "database" not in place:  # a client of the user's is left open
        return
    session = await service.get_session(**DESK, session_id="s")
    assert session is not None
    assert session.state == {"a": 1}
    await service.close()


def test_a_service_without_a_mongodb_says_so_at_its_first_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MONGODB_URI", raising=False)
    service = DurableSessionService()
    with pytest.raises(ConfigError, match="no MongoDB is named"):
        asyncio.run(service.get_session(**DESK, session_id="s"))


async def test_a_runner_takes_place_and_settings_from_its_service(place: Place) -> None:
    config = {"namespace": "blue", "mongodb": {"collection_prefix": "blue_"}}
    async with DurableSessionService(**place, config=config) as service:
        async with runner_of(service, agents.talker()) as runner:
            await send(runner)
        assert await service.get_session(**DESK, session_id="s") is not None
    async with App("desk", config={**ON, **config}, **place) as app:
        assert (await app.sessions.get("u", "s")).id == "s"


@pytest.mark.parametrize(
    "given",
    [{"database": "elsewhere"}, {"config": {"namespace": "red"}}, {"mongodb": "mongodb://other"}],
    ids=str,
)
def test_a_runner_and_its_service_look_at_one_place(given: Place) -> None:
    service = DurableSessionService(mongodb="mongodb://h", database="here")
    with pytest.raises(ConfigError, match="another MongoDB"):
        DurableRunner(agent=agents.talker(), app_name="desk", session_service=service, **given)
    same: Place = {"mongodb": "mongodb://h", "database": "here"}
    DurableRunner(agent=agents.talker(), app_name="desk", session_service=service, **same)


async def test_the_service_of_a_runner_opens_and_closes_with_it(place: Place) -> None:
    async with DurableRunner(agent=agents.talker(), app_name="desk", **place) as first:
        await send(first)
        second = DurableRunner(
            agent=agents.talker(), app_name="desk", session_service=first.session_service
        )
        async with second:
            assert second.session_service is not first.session_service
            found = await second.session_service.get_session(**DESK, session_id="s")
            assert found is not None
        await first.session_service.close()  # its runner does
        assert await first.session_service.get_session(**DESK, session_id="s") is not None
