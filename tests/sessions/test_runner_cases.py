"""Answers, plain messages and forks through ``DurableRunner``: cases that a front end meets."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.adk.agents import ParallelAgent
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow
from google.genai import types

from durable_adk import (
    AnswerConflict,
    App,
    ConfigError,
    DurableRunner,
    InputConflict,
    InvalidAnswer,
    NotFound,
    SessionBusy,
)
from durable_adk.app import runner_call
from durable_adk.testing import calls, memory_client, says
from tests.app import agents
from tests.sessions.test_runner_parity import committee

ON = {"features": {"durable_workflow": True}}
Events = list[Any]


@pytest.fixture(params=["memory", "mongod"])
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Where a runner keeps its data: new and empty for each test."""
    if request.param == "memory":
        return {"mongodb": memory_client()}
    uri = request.getfixturevalue("replica_set_uri")
    database = request.getfixturevalue("database")
    return {"mongodb": uri, "database": f"{database}_{uuid.uuid4().hex[:8]}"}


@dataclass
class Desk:
    """Two runners of one agent, as two servers have, and the App beside them."""

    one: DurableRunner
    two: DurableRunner
    app: App
    log: agents.Log

    async def waits(self, session_id: str = "s") -> tuple[Any, ...]:
        return (await self.app.waits.list(session_id=session_id)).items


@pytest.fixture
async def open_desk(place: dict[str, Any]) -> AsyncIterator[Any]:
    """``await open_desk(build)``: around an agent that ``build(log)`` makes."""
    opened: list[Any] = []

    async def make(build: Any) -> Desk:
        log: agents.Log = []
        runners = [DurableRunner(agent=build(log), app_name="desk", **place) for _ in range(2)]
        app = App("desk", config=ON, **place)
        opened.extend([*runners, app])
        return Desk(*runners, app, log)

    yield make
    for each in opened:
        await each.close()


async def send(runner: Any, message: Any = "hi", session_id: str = "s", **given: Any) -> Events:
    content = message
    if isinstance(message, str):
        content = types.Content(role="user", parts=[types.Part(text=message)])
    named = {"user_id": "u", "session_id": session_id, "new_message": content, **given}
    return [event async for event in runner.run_async(**named)]


def asked(events: Events) -> list[Any]:
    return [
        call
        for event in events
        for call in event.get_function_calls()
        if call.id in (event.long_running_tool_ids or ())
    ]


def answers(*given: tuple[str, dict[str, Any]]) -> types.Content:
    """Function responses: (call or wait id, response)."""
    parts = [
        types.Part(function_response=types.FunctionResponse(id=id_, name="any", response=response))
        for id_, response in given
    ]
    return types.Content(role="user", parts=parts)


def yes(calls_: list[Any]) -> types.Content:
    red, confirmed = {"result": "red"}, {"confirmed": True}
    return answers(
        *((call.id, red if call.name == "adk_request_input" else confirmed) for call in calls_)
    )


def said(events: Events) -> list[str]:
    texts = [part.text for event in events if event.content for part in event.content.parts or []]
    return [text for text in texts if text]


# ---------------------------------------------------------------- answers


async def test_half_a_frontier_in_one_message_is_refused_with_what_is_missing(
    open_desk: Any,
) -> None:
    """W2."""
    desk = await open_desk(agents.two_and_a_question)
    waiting = asked(await send(desk.one))
    before = await desk.waits()
    first, *others = before
    for message in (answers((first.id, {"result": "red"})), answers((waiting[0].id, {}))):
        with pytest.raises(InvalidAnswer) as refused:
            await send(desk.one, message)
        missing = set(refused.value.problems)
        assert missing >= {wait.id for wait in others}
        assert all(wait.id in str(refused.value) for wait in others)
    assert await desk.waits() == before
    assert desk.log == []
    await send(desk.two, yes(waiting))
    assert sorted(desk.log) == [("end",), ("pay", "a", 1), ("pay", "b", 2)]


@pytest.mark.parametrize("at", ["one runner", "two runners"])
async def test_the_same_answer_twice_at_once_is_one_answer(open_desk: Any, at: str) -> None:
    """W3, from two tasks. From two processes: ``test_api_server.py``."""
    desk = await open_desk(agents.payer)
    waiting = asked(await send(desk.one))
    other = desk.one if at == "one runner" else desk.two
    both = await asyncio.gather(send(desk.one, yes(waiting)), send(other, yes(waiting)))
    assert said(both[0]) == said(both[1]) == ["payer done"]
    assert [event.id for event in both[0]] == [event.id for event in both[1]]
    assert desk.log == [("pay", "payer", 7)]


async def test_approve_against_deny_is_one_conflict(open_desk: Any) -> None:
    """W3."""
    desk = await open_desk(agents.payer)
    (call,) = asked(await send(desk.one))
    results = await asyncio.gather(
        send(desk.one, answers((call.id, {"confirmed": True}))),
        send(desk.two, answers((call.id, {"confirmed": False}))),
        return_exceptions=True,
    )
    refused = [isinstance(result, AnswerConflict) for result in results]
    assert sorted(refused) == [False, True]
    assert desk.log == ([] if refused[0] else [("pay", "payer", 7)])


async def test_the_message_that_is_yielded_has_the_id_that_it_is_stored_with(
    open_desk: Any,
) -> None:
    desk = await open_desk(lambda log: agents.talker(says("hello")))
    message = types.Content(role="user", parts=[types.Part(text="hi")])

    yielded = [
        event.id
        async for event in desk.one.run_async(
            user_id="u", session_id="s", new_message=message, yield_user_message=True
        )
    ]

    assert yielded == [event.id for event in await desk.app.sessions.events("u", "s")]


@pytest.mark.parametrize("root", ["agent", "composite", "flow"])
async def test_state_that_comes_with_answers_is_set_before_the_turn_goes_on(
    open_desk: Any, root: str
) -> None:
    seen: list[Any] = []

    def build(log: agents.Log) -> Any:
        made = [agents.payer(log, name=name) for name in ("a", "b")]
        for each in made:
            each.before_model_callback = lambda callback_context, llm_request: seen.append(
                callback_context.state.get("by")
            )
        if root == "flow":
            join = JoinNode(name="join")
            return Workflow(name="flow", edges=[(START, tuple(made), join)])
        return made[0] if root == "agent" else ParallelAgent(name="both", sub_agents=made)

    desk = await open_desk(build)
    await send(desk.one)
    waits = await desk.waits()
    confirmed = answers(*((wait.id, {"confirmed": True}) for wait in waits))
    await send(desk.two, confirmed, state_delta={"by": "ada", "user:seen": 1})

    assert seen == [None] * len(waits) + ["ada"] * len(waits)
    state = (await desk.app.sessions.get("u", "s")).state
    assert (state["by"], state["user:seen"]) == ("ada", 1)
    told = [e.actions.state_delta for e in await desk.app.sessions.events("u", "s")]
    assert told.count({"by": "ada", "user:seen": 1}) == 1


def effect_and_question(log: agents.Log) -> Workflow:
    def effect(node_input: Any) -> str:
        log.append(("effect",))
        return "done"

    def end(node_input: Any) -> list[str]:
        log.append(("end",))
        return sorted(node_input)

    parts = (FunctionNode(func=effect, name="effect"), agents.payer(log))
    join = JoinNode(name="join")
    return Workflow(name="flow", edges=[(START, parts), (parts, join), (join, end)])


async def test_a_plain_message_to_a_waiting_session_is_refused_with_what_is_open(
    open_desk: Any,
) -> None:
    """W11."""
    desk = await open_desk(effect_and_question)
    waiting = asked(await send(desk.one))
    (wait,) = await desk.waits()
    for runner in (desk.one, desk.two):
        with pytest.raises(SessionBusy) as busy:
            await send(runner, "hello?")
        assert busy.value.waits == (wait.id,)
        assert wait.id in str(busy.value)
    assert desk.log == [("effect",)]
    await send(desk.two, yes(waiting))
    assert desk.log == [("effect",), ("pay", "payer", 7), ("end",)]


async def test_an_execution_of_another_session_is_not_found(open_desk: Any) -> None:
    """S16, within one app: an id alone opens nothing."""
    desk = await open_desk(agents.payer)
    (call,) = asked(await send(desk.one, invocation_id="e"))
    for session_id, user in (("other", "u"), ("s", "v")):
        with pytest.raises(NotFound, match="no such execution"):
            await send(desk.one, None, session_id, invocation_id="e", user_id=user)
    await desk.app.answer((await desk.waits())[0].id, {"confirmed": True})
    assert said(await send(desk.one, None, invocation_id="e")) == ["payer done"]
    assert call.name == "adk_request_confirmation"


# ---------------------------------------------------------------- forks


def counting(log: agents.Log) -> Any:
    """Adds to its session's state in each turn, and says the number of it."""

    def count(tool_context: Any) -> dict[str, int]:
        """Count."""
        number = tool_context.state.get("turn", 0) + 1
        tool_context.state["turn"] = number
        log.append(("count", number))
        return {"number": number}

    def choose(request: Any, _turn: int) -> Any:
        response = request.contents[-1].parts[0].function_response
        return calls(("count", {})) if response is None else says(f"{response.response['number']}")

    agent = agents.talker(tools=[count])
    agent.model.script = choose
    return agent


async def test_the_first_message_of_a_fork_is_its_pending_execution(open_desk: Any) -> None:
    """S4: state at the cut; the id of the execution was settled by the fork."""
    desk = await open_desk(counting)
    service = desk.one.session_service
    await service.create_session(app_name="desk", user_id="u", session_id="s", state={"a": 1})
    await send(desk.one, invocation_id="e1")
    await send(desk.one, invocation_id="e2")
    fork = await desk.app.sessions.fork("u", "s", before="e2")
    shown = await service.get_session(app_name="desk", user_id="u", session_id=fork.session_id)
    assert shown is not None
    assert shown.state == {"a": 1, "turn": 1}
    assert {event.invocation_id for event in shown.events} == {"e1"}
    with pytest.raises(InputConflict, match="fork"):
        await send(desk.one, session_id=fork.session_id, invocation_id="mine")
    events = await send(desk.two, session_id=fork.session_id)
    assert {event.invocation_id for event in events} == {fork.execution_id}
    assert said(events) == ["2"]
    later = await send(desk.two, session_id=fork.session_id)
    assert {event.invocation_id for event in later}.isdisjoint({fork.execution_id, "e1", "e2"})
    assert said(later) == ["3"]
    source = await service.get_session(app_name="desk", user_id="u", session_id="s")
    assert source is not None
    assert source.state == {"a": 1, "turn": 2}


async def test_two_first_messages_of_a_fork_are_two_turns_or_one_is_refused(
    open_desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read that the fork has no execution yet."""
    desk = await open_desk(counting)
    barrier, next_id = asyncio.Barrier(2), runner_call.RunnerCall._next_id

    async def at_once(call: Any, *given: Any) -> str:
        found = await next_id(call, *given)
        await barrier.wait()
        return found

    await send(desk.one)
    fork = await desk.app.sessions.fork("u", "s")
    monkeypatch.setattr(runner_call.RunnerCall, "_next_id", at_once)
    results = await asyncio.gather(
        send(desk.one, "one", fork.session_id),
        send(desk.two, "two", fork.session_id),
        return_exceptions=True,
    )
    spoken = sorted(said(found) for found in results if not isinstance(found, BaseException))
    refused = [type(found) for found in results if isinstance(found, BaseException)]
    assert (spoken, refused) in (([["2"], ["3"]], []), ([["2"]], [SessionBusy]))


@pytest.mark.parametrize("by", ["call id", "wait id"])
async def test_a_fork_before_an_answer_asks_again_and_takes_its_own(
    open_desk: Any, by: str
) -> None:
    """S5 and S6: each answer goes to its own session."""
    desk = await open_desk(agents.payer)
    (call,) = asked(await send(desk.one))
    (wait,) = await desk.waits()
    fork = await desk.app.sessions.fork("u", "s", before=wait.id)
    (again,) = await desk.waits(fork.session_id)
    assert again.id != wait.id
    denied = await send(desk.one, answers((call.id, {"confirmed": False})))
    assert desk.log == []
    chosen = call.id if by == "call id" else again.id
    with pytest.raises(NotFound):  # the wait of the source is not one of the fork
        await send(desk.two, answers((wait.id, {"confirmed": True})), fork.session_id)
    approved = await send(desk.two, answers((chosen, {"confirmed": True})), fork.session_id)
    assert desk.log == [("pay", "payer", 7)]
    for events, session_id in ((denied, "s"), (approved, fork.session_id)):
        session = await desk.one.session_service.get_session(
            app_name="desk", user_id="u", session_id=session_id
        )
        assert session is not None
        ends = session.events[-len(events) :]
        assert [event.id for event in ends] == [event.id for event in events]


async def test_a_fork_after_an_answer_keeps_it_and_goes_on_by_the_ids_of_its_events(
    open_desk: Any,
) -> None:
    """S5: the fork has its source's invocation id, and an execution of its own."""
    desk = await open_desk(agents.payer)
    waiting = asked(await send(desk.one, invocation_id="e"))
    (wait,) = await desk.waits()
    await send(desk.one, yes(waiting))
    fork = await desk.app.sessions.fork("u", "s", after=wait.id)
    assert await desk.waits(fork.session_id) == ()
    events = await send(desk.two, None, fork.session_id, invocation_id="e")
    assert said(events) == ["payer done"]
    assert {event.invocation_id for event in events} == {"e"}
    assert (await desk.app.executions.get(fork.execution_id)).status == "completed"
    assert desk.log == [("pay", "payer", 7)] * 2, "the record of the payment lies after the cut"
    again = await send(desk.two, yes(waiting), fork.session_id)
    assert [event.id for event in again] == [event.id for event in events]


async def test_a_late_result_is_a_message_to_a_fork_too(open_desk: Any) -> None:
    desk = await open_desk(committee)
    events = await send(desk.one, invocation_id="e1")
    (call,) = [c for e in events for c in e.get_function_calls()]
    await send(desk.one, invocation_id="e2")
    fork = await desk.app.sessions.fork("u", "s", before="e2")
    late = answers((call.id, {"status": "approved"}))
    late.parts[0].function_response.name = call.name
    events = await send(desk.two, late, fork.session_id)
    assert said(events) == ["the committee: approved"]
    assert {event.invocation_id for event in events} == {"e1"}, "as in ADK, that of the call"
    assert (await desk.app.executions.get(fork.execution_id)).status == "completed"
    with pytest.raises(NotFound, match="nobody"):
        await send(desk.two, answers(("nobody", {})), fork.session_id)


async def test_a_late_result_is_looked_for_in_all_turns(
    open_desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S9: first in the newest ones, which hold it nearly always."""
    monkeypatch.setattr(runner_call, "_NEAR", 2)
    desk = await open_desk(committee)
    (call,) = [c for e in await send(desk.one) for c in e.get_function_calls()]
    for text in ("one", "two", "three"):
        await send(desk.one, text)
    late = answers((call.id, {"status": "approved"}))
    late.parts[0].function_response.name = call.name
    assert said(await send(desk.one, late)) != []
    with pytest.raises(NotFound, match="nobody"):
        await send(desk.one, answers(("nobody", {})))


def rewinder(log: agents.Log) -> Any:
    """Rewinds its session before the turn it is told, through the runner in ``log[0]``."""

    async def rewind(before: str, tool_context: Any) -> dict[str, str]:
        """Rewind."""
        made = await log[0].rewind_async(
            user_id="u",
            session_id=tool_context.session.id,
            rewind_before_invocation_id=before,
        )
        return made.to_dict()

    def choose(request: Any, _turn: int) -> Any:
        part = request.contents[-1].parts[0]
        if part.function_response is not None:
            return says(part.function_response.response.get("session_id", "?"))
        before = part.text.partition("before ")[2]
        return calls(("rewind", {"before": before})) if before else says("hello")

    agent = agents.talker(tools=[rewind])
    agent.model.script = choose
    return agent


async def test_a_turn_rewinds_its_session_into_a_fork(open_desk: Any) -> None:
    desk = await open_desk(rewinder)
    desk.log.append(desk.one)
    await send(desk.one, "first", invocation_id="e1")
    await send(desk.one, "second", invocation_id="e2")
    (made,) = said(await send(desk.one, "before e2", invocation_id="e3"))
    session = await desk.one.session_service.get_session(
        app_name="desk", user_id="u", session_id=made
    )
    assert session is not None
    assert {event.invocation_id for event in session.events} == {"e1"}
    assert said(await send(desk.two, "again", made)) == ["hello"]
    with pytest.raises(ConfigError, match="outside a durable invocation"):
        await desk.one.rewind_async(user_id="u", session_id="s", rewind_before_invocation_id="e2")
