"""``DurableRunner`` beside the installed ``Runner`` of ADK: the same calls, the same events."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.adk.agents import RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types

from durable_adk import App, ConfigError, DurableRunner
from durable_adk.testing import calls, memory_client, says
from tests.app import agents

Events = list[Any]
Turn = Callable[[Events], dict[str, Any]]
"""What was yielded before -> arguments of ``run_async``."""


@dataclass
class Case:
    """One agent, its turns, and what both runners must do with them.

    Attributes:
        raises: What the last turn raises, if it does.
    """

    build: Callable[[agents.Log], Any]
    turns: list[Turn]
    raises: type[BaseException] | None = None
    state: dict[str, Any] = field(default_factory=dict)


def says_text(text: str = "hi", **given: Any) -> Turn:
    def turn(_before: Events) -> dict[str, Any]:
        return {"new_message": message(types.Part(text=text)), **given}

    return turn


def message(*parts: types.Part, role: str = "user") -> types.Content:
    return types.Content(role=role, parts=list(parts))


def response(call: Any, given: dict[str, Any], *, id_: str | None = None) -> types.Part:
    return types.Part(
        function_response=types.FunctionResponse(id=id_ or call.id, name=call.name, response=given)
    )


def asked(events: Events, name: str = "adk_request_confirmation") -> list[Any]:
    return [c for e in events for c in e.get_function_calls() if c.name == name]


def answers(given: dict[str, Any], name: str = "adk_request_confirmation", **more: Any) -> Turn:
    def turn(before: Events) -> dict[str, Any]:
        found = {call.id: call for call in asked(before, name)}  # partial and final are one call
        parts = [response(call, given) for call in found.values()]
        return {"new_message": message(*parts), **more}

    return turn


def streamer(_log: agents.Log) -> Any:
    return agents.talker(says("hel", partial=True), says("lo", partial=True), says("hello"))


def stateful(_log: agents.Log) -> Any:
    def note(text: str, tool_context: Any) -> str:
        """Take a note."""
        tool_context.state["note"] = text
        tool_context.state["user:notes"] = tool_context.state.get("user:notes", 0) + 1
        return tool_context.state["colour"]

    return agents.talker(
        calls(("note", {"text": "first"})),
        says("noted"),
        says("again"),
        tools=[note],
        output_key="last",
    )


def committee(log: agents.Log) -> Any:
    def ask_committee(project: str) -> dict[str, str]:
        """Ask."""
        log.append(("ask", project))
        return {"status": "pending"}

    def choose(request: Any, _turn: int) -> Any:
        response = request.contents[-1].parts[0].function_response
        if response is None:
            return calls(("ask_committee", {"project": "choir"}))
        return says(f"the committee: {response.response['status']}")

    agent = agents.talker(tools=[LongRunningFunctionTool(ask_committee)])
    agent.model.script = choose
    return agent


def committee_and_payment(log: agents.Log) -> Any:
    """Asks a committee, which answers later, and wants to pay."""

    def ask_committee(project: str) -> dict[str, str]:
        """Ask."""
        log.append(("ask", project))
        return {"status": "pending"}

    def pay(amount: int) -> str:
        """Pay."""
        log.append(("pay", amount))
        return "paid"

    def choose(request: Any, turn: int) -> Any:
        if turn == 0:
            return calls(("ask_committee", {"project": "choir"}), ("pay", {"amount": 1}))
        found = [
            (part.function_response.name, part.function_response.response)
            for content in request.contents
            for part in content.parts
            if part.function_response
        ]
        return says(f"seen: {found}")

    tools = [LongRunningFunctionTool(ask_committee), FunctionTool(pay, require_confirmation=True)]
    agent = agents.talker(tools=tools)
    agent.model.script = choose
    return agent


def late_beside(before: Events) -> dict[str, Any]:
    """The payment's confirmation and what the committee said, in one message."""
    (confirmation,), (committee,) = asked(before), asked(before, "ask_committee")
    parts = [response(confirmation, {"confirmed": True}), response(committee, PENDING)]
    return {"new_message": message(*parts)}


def fails_late(log: agents.Log) -> Any:
    return agents.plain_payer(log, calls(("pay", {"amount": 1})), ZeroDivisionError("no luck"))


SSE = RunConfig(streaming_mode=StreamingMode.SSE)
TAGGED = RunConfig(custom_metadata={"request": "r-1"})
PENDING = {"status": "approved"}

CASES: dict[str, Case] = {
    "text": Case(lambda _: agents.talker(), [says_text(), says_text("and?")]),
    "tool": Case(agents.plain_payer, [says_text()]),
    "state delta": Case(
        stateful,
        [says_text(state_delta={"colour": "red", "app:all": 1}), says_text()],
        state={"colour": "red", "note": "first", "user:notes": 1, "app:all": 1, "last": "noted"},
    ),
    "the user's message": Case(
        lambda _: agents.talker(),
        [says_text(yield_user_message=True, state_delta={"a": 1}, run_config=TAGGED)],
        state={"a": 1},
    ),
    "a message of another role": Case(
        lambda _: agents.talker(),
        [
            lambda _: {
                "new_message": message(types.Part(text="hi"), role="model"),
                "yield_user_message": True,
            }
        ],
    ),
    "streaming": Case(streamer, [says_text(run_config=SSE)]),
    "metadata": Case(agents.plain_payer, [says_text(run_config=TAGGED)]),
    "an error of the model": Case(fails_late, [says_text()], raises=ZeroDivisionError),
    "a confirmation": Case(agents.payer, [says_text(), answers({"confirmed": True})]),
    "a confirmation, with its message": Case(
        agents.payer, [says_text(), answers({"confirmed": True}, yield_user_message=True)]
    ),
    "state with an answer": Case(
        agents.payer,
        [says_text(), answers({"confirmed": True}, state_delta={"by": "ada", "user:seen": 1})],
        state={"by": "ada", "user:seen": 1},
    ),
    "a denial": Case(agents.payer, [says_text(), answers({"confirmed": False})]),
    "a tool that runs long": Case(
        agents.waiter, [says_text(), answers({"state": "closed"}, "ticket")]
    ),
    "a late result beside an answer": Case(
        committee_and_payment, [says_text(), late_beside, says_text("and?")]
    ),
    "a late result beside an answer, with state": Case(
        committee_and_payment,
        [says_text(), lambda before: {**late_beside(before), "state_delta": {"by": "ada"}}],
        state={"by": "ada"},
    ),
    "a late result": Case(committee, [says_text(), answers(PENDING, "ask_committee")]),
}


# ---------------------------------------------------------------- both runners


@asynccontextmanager
async def plain(root: Any, **given: Any) -> AsyncIterator[Any]:
    async with Runner(
        agent=root,
        app_name="desk",
        session_service=InMemorySessionService(),
        auto_create_session=True,
        **given,
    ) as runner:
        yield runner


@asynccontextmanager
async def durable(root: Any, place: dict[str, Any] | None = None) -> AsyncIterator[Any]:
    place = {"mongodb": memory_client()} if place is None else place
    async with DurableRunner(agent=root, app_name="desk", **place) as runner:
        yield runner


@pytest.fixture(params=["memory", "mongod"])
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Where a runner keeps its data: new and empty for each test."""
    if request.param == "memory":
        return {"mongodb": memory_client()}
    uri = request.getfixturevalue("replica_set_uri")
    database = request.getfixturevalue("database")
    return {"mongodb": uri, "database": f"{database}_{uuid.uuid4().hex[:8]}"}


@dataclass
class Seen:
    """What a client saw, and what was left behind."""

    turns: list[list[Any]]
    stored: list[Any]
    state: dict[str, Any]
    effects: agents.Log
    raised: BaseException | None


async def seen(opened: Any, log: agents.Log, case: Case) -> Seen:
    async with opened as runner:
        yielded: list[Events] = []
        raised: BaseException | None = None
        for turn in case.turns:
            arguments = turn([event for events in yielded for event in events])
            yielded.append([])
            try:
                async for event in runner.run_async(user_id="u", session_id="s", **arguments):
                    yielded[-1].append(event.model_copy(deep=True))
            except ZeroDivisionError as error:
                raised = error
        session = await runner.session_service.get_session(
            app_name="desk", user_id="u", session_id="s"
        )
    names: dict[str, str] = {}
    return Seen(
        turns=[[shown(event, names) for event in events] for events in yielded],
        stored=[shown(event, names) for event in session.events],
        state=session.state,
        effects=log,
        raised=raised,
    )


def shown(event: Any, names: dict[str, str]) -> Any:
    """An event without times; ids by the order in which they appear, the same for all events.

    A stored confirmation always has a ``payload`` here, which is not shown if it is null.
    """
    data = event.model_dump(mode="json", exclude_none=True, exclude={"id", "timestamp"})

    def known(found: str) -> str:
        return names.setdefault(found, f"#{len(names)}")

    def without_ids(value: Any, key: str = "") -> Any:
        match value:
            case {"confirmed": confirmed, "payload": None} if len(value) == 2:
                return {"confirmed": confirmed}
            case dict() if key == "requested_tool_confirmations":
                return {known(name): without_ids(one) for name, one in value.items()}
            case dict():
                return {name: without_ids(one, name) for name, one in value.items()}
            case list():
                return [without_ids(one, key) for one in value]
            case str() if key in ("id", "invocation_id", "long_running_tool_ids", "call_id"):
                return known(value)
            case _:
                return value

    return without_ids(data)


@pytest.mark.parametrize("name", CASES)
async def test_the_same_calls_give_the_same_events_and_leave_the_same(
    name: str, place: dict[str, Any]
) -> None:
    case = CASES[name]
    plain_log: agents.Log = []
    durable_log: agents.Log = []
    ours = await seen(durable(case.build(durable_log), place), durable_log, case)
    theirs = await seen(plain(case.build(plain_log)), plain_log, case)
    assert ours.turns == theirs.turns
    assert ours.stored == theirs.stored
    assert ours.state == theirs.state
    assert ours.state == ours.state | case.state
    assert ours.effects == theirs.effects
    assert type(ours.raised) is type(theirs.raised) is (case.raises or type(None))


# ---------------------------------------------------------------- parameters and members


PUBLIC = [
    name
    for name, member in inspect.getmembers(Runner, inspect.isfunction)
    if not name.startswith("_") or name in ("__init__", "__aenter__", "__aexit__")
]
OTHERWISE = {("__init__", "session_service"), ("__init__", "auto_create_session")}
"""Defaults that differ: a session service is not needed, and sessions are made."""


@pytest.mark.parametrize("name", PUBLIC)
def test_every_method_takes_what_adk_takes(name: str) -> None:
    ours = inspect.signature(getattr(DurableRunner, name)).parameters
    for parameter in inspect.signature(getattr(Runner, name)).parameters.values():
        assert parameter.name in ours, f"{name} lacks {parameter.name}"
        assert ours[parameter.name].kind is parameter.kind
        if (name, parameter.name) not in OTHERWISE:
            assert ours[parameter.name].default == parameter.default
    theirs = inspect.signature(getattr(Runner, name)).parameters
    added = [p for n, p in ours.items() if n not in theirs]
    assert [p.name for p in added if p.default is p.empty] == []


async def test_a_runner_has_every_attribute_that_adks_has() -> None:
    async with plain(agents.talker()) as theirs, durable(agents.talker()) as ours:
        app = App(
            "desk", root_agent=agents.talker(), config=agents_config(), mongodb=memory_client()
        )
        await run(app.runner, says_text())
        for runner in (ours, app.runner):
            assert set(vars(theirs)) <= set(vars(runner))
            assert type(runner.app) is type(theirs.app)
        await app.close()


def agents_config() -> dict[str, Any]:
    return {"features": {"durable_workflow": True}}


def test_live_runs_are_refused() -> None:
    runner = DurableRunner(agent=agents.talker(), app_name="desk", mongodb=memory_client())
    with pytest.raises(ConfigError, match="not yet"):
        runner.run_live(user_id="u", session_id="s", live_request_queue=None)


# ---------------------------------------------------------------- what is not the same


async def run(runner: Any, turn: Turn, before: Events = []) -> Events:  # noqa: B006
    named = {"user_id": "u", "session_id": "s", **turn(before)}
    return [event async for event in runner.run_async(**named)]


def all_at_once(before: Events) -> dict[str, Any]:
    """Answers to every question and confirmation, in one message."""
    parts = [response(call, {"result": "red"}) for call in asked(before, "adk_request_input")]
    parts += [response(call, {"confirmed": True}) for call in asked(before)]
    return {"new_message": message(*parts)}


@pytest.mark.parametrize("is_durable", [False, True])
async def test_branches_answered_in_one_message_are_kept_and_lost_by_adk(is_durable: bool) -> None:
    """ADK gives the answers to the first branch only: both payments are lost."""
    log: agents.Log = []
    root = agents.two_and_a_question(log)
    async with durable(root) if is_durable else plain(root) as runner:
        events = await run(runner, says_text())
        await run(runner, all_at_once, events)
    paid = [("pay", "a", 1), ("pay", "b", 2)]
    assert log == [*(paid if is_durable else []), ("end",)]


async def test_an_answer_by_its_wait_id_gives_the_events_of_one_by_its_call_id() -> None:
    case = CASES["a confirmation"]
    expected = await seen(durable(case.build([])), [], case)
    log: agents.Log = []
    client = memory_client()
    async with (
        App("desk", root_agent=agents.talker(), config=agents_config(), mongodb=client) as inbox,
        DurableRunner(agent=agents.payer(log), app_name="desk", mongodb=client) as runner,
    ):

        async def by_wait_id(before: Events) -> types.Content:
            (wait,) = (await inbox.waits.list()).items
            (call,) = asked(before)
            return message(response(call, {"confirmed": True}, id_=wait.id))

        first = await run(runner, says_text())
        answer = await by_wait_id(first)
        second = await run(runner, lambda _: {"new_message": answer})
    names: dict[str, str] = {}
    turns = [[shown(event, names) for event in events] for events in (first, second)]
    assert turns == expected.turns
    assert log == [("pay", "payer", 7)]


@pytest.mark.parametrize("is_durable", [False, True])
async def test_an_aborted_run_ends_with_a_response_to_the_call_that_it_left(
    is_durable: bool,
) -> None:
    """What the response says differs: ADK's has an error code."""
    log: agents.Log = []
    abort = asyncio.Event()
    events: Events = []
    root = agents.plain_payer(log)
    async with durable(root) if is_durable else plain(root) as runner:
        named = {"user_id": "u", "session_id": "s", **says_text()([])}
        async for event in runner.run_async(**named, abort_signal=abort):
            abort.set()
            events.append(event)
        session = await runner.session_service.get_session(
            app_name="desk", user_id="u", session_id="s"
        )
    made, *closing = events
    (call,) = made.get_function_calls()
    assert [r.id for event in closing for r in event.get_function_responses()] == [call.id]
    assert [event.id for event in session.events[1:]] == [event.id for event in events]
    assert log == []


# ---------------------------------------------------------------- the other ways to run


async def test_run_debug_gives_the_same_events(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["hi", "and?"]
    async with plain(agents.plain_payer([])) as theirs, durable(agents.plain_payer([])) as ours:
        expected = await theirs.run_debug(texts, session_id="d", verbose=True)
        printed = capsys.readouterr().out
        found = await ours.run_debug(texts, session_id="d", verbose=True)
        assert without_adk_ids(capsys.readouterr().out) == without_adk_ids(printed)
        names: dict[str, str] = {}
        others: dict[str, str] = {}
        assert [shown(e, names) for e in found] == [shown(e, others) for e in expected]
        session = await ours.session_service.get_session(
            app_name="desk", user_id="debug_user_id", session_id="d"
        )
        assert len(session.events) == len(found) + len(texts)


def without_adk_ids(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if "adk-" not in line]


def test_the_synchronous_run_gives_the_same_events(replica_set_uri: str, database: str) -> None:
    place = {"mongodb": replica_set_uri, "database": f"{database}_{uuid.uuid4().hex[:8]}"}
    log: agents.Log = []
    ours = DurableRunner(agent=stateful(log), app_name="desk", **place)
    theirs = Runner(
        agent=stateful([]),
        app_name="desk",
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )
    named = {
        "user_id": "u",
        "session_id": "s",
        "new_message": message(types.Part(text="hi")),
        "state_delta": {"colour": "red"},
        "run_config": TAGGED,
    }
    both = [
        [shown(event, names) for event in runner.run(**named)]
        for runner, names in ((ours, {}), (theirs, {}))
    ]
    assert both[0] == both[1]


async def test_closing_closes_toolsets_as_adk_does() -> None:
    class Counting(BaseToolset):
        closed = 0

        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            return []

        async def close(self) -> None:
            self.closed += 1

    for opened in (plain, durable):
        toolset = Counting()
        async with opened(agents.talker(tools=[toolset])) as runner:
            await run(runner, says_text())
        assert toolset.closed == 1
