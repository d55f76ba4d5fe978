"""``DurableRunner``: ADK's runner, durable."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.apps import App as AdkApp
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.runners import InMemoryRunner, Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, Workflow
from google.genai import types

from durable_adk import (
    AnswerConflict,
    App,
    ConfigError,
    DurableRunner,
    DurableSessionService,
    InvalidAnswer,
    NotFound,
)
from durable_adk.testing import ScriptedModel, calls, memory_client, says
from tests.app import agents
from tests.app.conftest import ON, MakeApp

Place = dict[str, Any]


def text(message: str = "hi") -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=message)])


def answers(*given: tuple[str, str, dict[str, Any]]) -> types.Content:
    """Function responses: (call or wait id, name, response)."""
    return types.Content(
        role="user",
        parts=[
            types.Part(
                function_response=types.FunctionResponse(id=id_, name=name, response=response)
            )
            for id_, name, response in given
        ],
    )


def runner_of(root: Any, place: Place | None = None, **given: Any) -> DurableRunner:
    place = {"mongodb": memory_client()} if place is None else place
    return DurableRunner(agent=root, app_name="desk", **place, **given)


async def run(runner: Any, message: Any, session_id: str = "s", **given: Any) -> list[Any]:
    found = runner.run_async(user_id="u", session_id=session_id, new_message=message, **given)
    return [event async for event in found]


def asked(events: list[Any]) -> list[Any]:
    """The function calls that wait for an answer."""
    return [
        call
        for event in events
        for call in event.get_function_calls()
        if call.id in (event.long_running_tool_ids or ())
    ]


def shape(events: list[Any]) -> list[Any]:
    """What the events say, without ids and times."""
    return [
        (
            event.author,
            event.partial,
            [
                part.text
                or (part.function_call and part.function_call.name)
                or (part.function_response and part.function_response.name)
                for part in (event.content.parts if event.content else [])
            ],
        )
        for event in events
    ]


async def in_memory(root: Any) -> Any:
    runner = InMemoryRunner(agent=root, app_name="desk")
    await runner.session_service.create_session(app_name="desk", user_id="u", session_id="s")
    return runner


def confirmation(call: Any, **response: Any) -> types.Content:
    return answers((call.id, call.name, {"confirmed": True, **response}))


# ---------------------------------------------------------------- as ADK's


def test_it_is_an_adk_runner() -> None:
    runner = runner_of(agents.talker())
    assert isinstance(runner, Runner)
    assert isinstance(runner.session_service, DurableSessionService)
    assert (runner.app_name, runner.agent.name) == ("desk", "talker")


async def test_it_yields_what_adk_yields(place: Place) -> None:
    log: agents.Log = []
    async with runner_of(agents.plain_payer(log), place) as runner:
        durable = await run(runner, text())
    plain = await run(await in_memory(agents.plain_payer([])), text())
    assert shape(durable) == shape(plain)
    assert log == [("pay", 1)]
    assert len({event.invocation_id for event in durable}) == 1


async def test_partial_events_come_as_adk_yields_them() -> None:
    def speaker() -> Any:
        speech = [says("hel", partial=True), says("lo", partial=True), says("hello")]
        return Workflow(name="flow", edges=[(START, agents.talker(speech, mode="single_turn"))])

    config = RunConfig(streaming_mode=StreamingMode.SSE)
    async with runner_of(speaker()) as runner:
        durable = await run(runner, text(), run_config=config)
    plain = await run(await in_memory(speaker()), text(), run_config=config)
    assert shape(durable) == shape(plain)


async def test_a_message_of_function_responses_resumes(place: Place) -> None:
    log: agents.Log = []
    async with runner_of(agents.payer(log), place) as runner:
        (call,) = asked(await run(runner, text()))
        assert call.name == "adk_request_confirmation"
        events = await run(runner, confirmation(call))
    assert shape(events)[-1] == ("payer", None, ["payer done"])
    assert log == [("pay", "payer", 7)]


async def test_all_branches_are_answered_in_one_message(place: Place) -> None:
    log: agents.Log = []
    async with runner_of(agents.two_and_a_question(log), place) as runner:
        waiting = asked(await run(runner, text()))
        assert len(waiting) == 3
        await run(
            runner,
            answers(
                *(
                    (call.id, call.name, {"result": "red"})
                    if call.name == "adk_request_input"
                    else (call.id, call.name, {"confirmed": True})
                    for call in waiting
                )
            ),
        )
    assert sorted(log) == [("end",), ("pay", "a", 1), ("pay", "b", 2)]


async def test_a_wait_id_does_as_well_as_a_call_id(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.payer(log))
    await run(app.runner, text())
    (wait,) = (await app.waits.list()).items
    await run(app.runner, answers((wait.id, "any", {"confirmed": True})))
    assert log == [("pay", "payer", 7)]


@pytest.mark.parametrize(
    "response",
    [
        {"confirmed": True},
        {"confirmed": True, "hint": "as shown"},
        {"response": '{"confirmed": true, "payload": null}'},
        {"confirmed": True, "payload": {"a": 1}},
    ],
    ids=str,
)
async def test_a_confirmation_may_have_every_form_that_adk_takes(response: Any) -> None:
    log: agents.Log = []
    async with runner_of(agents.payer(log)) as runner:
        (call,) = asked(await run(runner, text()))
        await run(runner, answers((call.id, call.name, response)))
    assert log == [("pay", "payer", 7)]


@pytest.mark.parametrize("response", [{"confirmed": False}, {"hint": "no"}], ids=str)
async def test_a_confirmation_that_does_not_confirm_denies(response: Any) -> None:
    log: agents.Log = []
    async with runner_of(agents.payer(log)) as runner:
        (call,) = asked(await run(runner, text()))
        await run(runner, answers((call.id, call.name, response)))
    assert log == []


async def test_a_long_running_tool_gets_its_response() -> None:
    log: agents.Log = []
    async with runner_of(agents.waiter(log)) as runner:
        (call,) = asked(await run(runner, text()))
        events = await run(runner, answers((call.id, call.name, {"state": "closed"})))
        assert shape(events)[-1] == ("waiter", None, ["the ticket is closed"])
        session = await runner.session_service.get_session(
            app_name="desk", user_id="u", session_id="s"
        )
    given = [r.response for event in session.events for r in event.get_function_responses()]
    assert {"state": "closed"} in given


async def test_the_same_answer_again_gives_the_same_events() -> None:
    log: agents.Log = []
    async with runner_of(agents.payer(log)) as runner:
        (call,) = asked(await run(runner, text()))
        first = await run(runner, confirmation(call))
        again = await run(runner, confirmation(call))
        with pytest.raises(AnswerConflict):
            await run(runner, answers((call.id, call.name, {"confirmed": False})))
    assert [event.id for event in again] == [event.id for event in first]
    assert log == [("pay", "payer", 7)]


async def test_half_an_answer_and_an_unknown_one_are_refused() -> None:
    log: agents.Log = []
    async with runner_of(agents.two_and_a_question(log)) as runner:
        call, *_ = asked(await run(runner, text()))
        with pytest.raises(InvalidAnswer):
            await run(runner, confirmation(call))
        with pytest.raises(NotFound, match="nobody"):
            await run(runner, answers(("nobody", "f", {})))
        with pytest.raises(ConfigError, match="twice"):
            await run(runner, answers((call.id, "f", {}), (call.id, "f", {})))
    assert log == []


async def test_malformed_messages_are_one_error_each() -> None:
    async with runner_of(agents.talker()) as runner:
        mixed = answers(("c", "f", {}))
        assert mixed.parts is not None
        mixed.parts.append(types.Part(text="and"))
        nameless = answers(("", "f", {}))
        for message, match in (
            (mixed, "both answers and text"),
            (nameless, "without an id"),
            (types.Content(role="user", parts=[]), "empty"),
            (None, "neither a message"),
        ):
            with pytest.raises(ConfigError, match=match):
                await run(runner, message)
        with pytest.raises(ConfigError, match="state_delta"):
            await run(runner, None, invocation_id="e", state_delta={"a": 1})


# ---------------------------------------------------------------- ids and sessions


async def test_the_invocation_id_is_the_execution_id(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.plain_payer(log))
    first = await run(app.runner, text(), invocation_id="e")
    assert {event.invocation_id for event in first} == {"e"}
    again = await run(app.runner, text(), invocation_id="e")
    assert [event.id for event in again] == [event.id for event in first]
    assert log == [("pay", 1)]
    assert (await app.executions.get("e")).status == "completed"


async def test_an_answered_execution_goes_on_by_its_id(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.payer(log))
    out = await app.invoke(user_id="u", session_id="s", message="pay")
    await app.answer(out.waits[0].id, {"confirmed": True})
    await run(app.runner, None, invocation_id=out.execution_id)
    assert log == [("pay", "payer", 7)]


async def test_the_user_message_is_yielded_on_request() -> None:
    async with runner_of(agents.talker()) as runner:
        events = await run(runner, text("hi"), yield_user_message=True)
        assert [event.author for event in events] == ["user", "talker"]
        assert events[0].content == text("hi")
        assert [e.author for e in await run(runner, text("hi"))] == ["talker"]


async def test_sessions_are_made_by_themselves_unless_told_otherwise() -> None:
    async with runner_of(agents.talker()) as runner:
        assert len(await run(runner, text(), "new")) == 1
    async with runner_of(agents.talker(), auto_create_session=False) as strict:
        with pytest.raises(SessionNotFoundError, match="new"):
            await run(strict, text(), "new")
        with pytest.raises(SessionNotFoundError, match="new"):
            await run(strict, answers(("c", "f", {})), "new")
        await strict.session_service.create_session(app_name="desk", user_id="u", session_id="new")
        assert len(await run(strict, text(), "new")) == 1


async def test_the_session_service_shows_what_executions_made() -> None:
    async with runner_of(agents.talker()) as runner:
        service = runner.session_service
        made = await service.create_session(
            app_name="desk", user_id="u", session_id="s", state={"a": 1}
        )
        assert (made.id, made.state, made.events) == ("s", {"a": 1}, [])
        await run(runner, text(), state_delta={"b": 2})
        session = await service.get_session(app_name="desk", user_id="u", session_id="s")
        assert session is not None
        assert session.state == {"a": 1, "b": 2}
        assert [event.author for event in session.events] == ["user", "talker"]
        listed = await service.list_sessions(app_name="desk", user_id="u")
        assert [each.id for each in listed.sessions] == ["s"]
        assert (
            await service.get_session(app_name="desk", user_id="u", session_id="nobody")
        ) is None
        assert (await service.get_session(app_name="other", user_id="u", session_id="s")) is None
        with pytest.raises(ConfigError, match="executions only"):
            await service.append_event(session, session.events[0])


async def test_run_debug_works() -> None:
    async with runner_of(agents.talker()) as runner:
        events = await runner.run_debug("hi", quiet=True)
    assert shape(events)[-1] == ("talker", None, ["hello"])


def test_another_session_service_is_refused_with_the_line_to_write() -> None:
    with pytest.raises(
        ConfigError, match=r"DurableRunner\(agent=\.\.\., app_name=\.\.\., mongodb="
    ):
        runner_of(agents.talker(), session_service=InMemorySessionService())


async def test_a_durable_session_service_brings_its_mongodb() -> None:
    first = runner_of(agents.talker())
    second = DurableRunner(
        agent=agents.talker(), app_name="desk", session_service=first.session_service
    )
    async with first, second:
        await run(first, text())
        session = await second.session_service.get_session(
            app_name="desk", user_id="u", session_id="s"
        )
        assert session is not None
        assert len(session.events) == 2


# ---------------------------------------------------------------- what may be passed


async def test_a_node_and_an_adk_app_are_taken_too() -> None:
    log: agents.Log = []
    place = {"mongodb": memory_client()}
    flow = agents.two_and_a_question(log)
    async with DurableRunner(node=flow, **place) as runner:
        assert runner.app_name == "flow"
        assert len(asked(await run(runner, text()))) == 3
    async with DurableRunner(
        app=AdkApp(name="desk", root_agent=agents.talker()), **place
    ) as runner:
        assert shape(await run(runner, text()))[-1][2] == ["hello"]


def test_what_adk_refuses_is_refused_as_adk_does() -> None:
    with pytest.raises(ValueError, match="app, agent, or node"):
        DurableRunner(app_name="desk", mongodb="mongodb://h")
    with pytest.raises(ValueError, match="Only one of"):
        DurableRunner(
            app_name="desk", agent=agents.talker(), node=agents.talker(), mongodb="mongodb://h"
        )


async def test_no_agent_yaml_is_read(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.yaml").write_text("nonsense: [")
    monkeypatch.chdir(tmp_path)
    async with runner_of(agents.talker(), config={"namespace": "blue"}) as runner:
        assert len(await run(runner, text())) == 1


async def test_app_runner_shares_the_executions_of_its_app(make_app: MakeApp) -> None:
    app = make_app()
    app.entrypoint(agents.talker)
    await run(app.runner, text(), invocation_id="e")
    assert app.runner is app.runner
    assert (await app.executions.get("e")).status == "completed"
    await app.close()


# ---------------------------------------------------------------- failures and aborts


class Unlucky(RuntimeError):
    """Has something that only the very object has."""

    luck = 0


async def test_the_very_exception_is_raised_and_the_execution_has_failed(place: Place) -> None:
    error = Unlucky("no luck")
    error.luck = 7
    async with App("desk", root_agent=agents.talker(error), config=ON, **place) as app:
        with pytest.raises(Unlucky) as caught:
            await run(app.runner, text(), invocation_id="e")
        assert caught.value is error
        record = await app.executions.get("e")
        assert record.status == "failed"
        assert record.error is not None
        assert (record.error.type, record.attempt) == ("Unlucky", 1)


async def test_events_before_a_failure_are_those_of_adk(make_app: MakeApp) -> None:
    async def before_the_failure(runner: Any) -> list[Any]:
        events: list[Any] = []
        with pytest.raises(Unlucky):
            async for event in runner.run_async(user_id="u", session_id="s", new_message=text()):
                events.append(event)
        return events

    def unlucky() -> Any:
        agent = agents.plain_payer([])
        agent.model.script = [agent.model.script[0], Unlucky("later")]  # type: ignore[union-attr]
        return agent

    durable = await before_the_failure(make_app(unlucky()).runner)
    plain = await before_the_failure(await in_memory(unlucky()))
    assert shape(durable) == shape(plain)
    assert len(durable) >= 2


async def test_the_same_call_after_a_failure_says_that_it_failed(make_app: MakeApp) -> None:
    app = make_app(agents.talker(Unlucky("no luck")))
    with pytest.raises(Unlucky):
        await run(app.runner, text(), invocation_id="e")
    with pytest.raises(Exception, match="is failed: Unlucky: no luck"):
        await run(app.runner, text(), invocation_id="e")


async def test_an_abort_signal_cancels_the_execution(make_app: MakeApp) -> None:
    agent, entered, abort = agents.talker(), asyncio.Event(), asyncio.Event()

    async def never(callback_context: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    agent.before_agent_callback = never
    app = make_app(agent)
    running = asyncio.create_task(run(app.runner, text(), invocation_id="e", abort_signal=abort))
    await entered.wait()
    abort.set()
    await asyncio.wait_for(running, 10)
    record = await app.executions.get("e")
    assert record.status == "cancelled"


async def test_an_abort_signal_that_is_set_already_starts_nothing(make_app: MakeApp) -> None:
    app, abort = make_app(agents.talker()), asyncio.Event()
    abort.set()
    assert await run(app.runner, text(), invocation_id="e", abort_signal=abort) == []
    with pytest.raises(NotFound):
        await app.executions.get("e")


async def test_closing_the_generator_only_detaches(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.plain_payer(log))
    stream = app.runner.run_async(
        user_id="u", session_id="s", new_message=text(), invocation_id="e"
    )
    await anext(stream)
    await stream.aclose()
    again = await run(app.runner, text(), invocation_id="e")
    assert shape(again)[-1][2] == ["paid"]
    assert log == [("pay", 1)]


def test_the_synchronous_run_works_and_may_be_repeated(replica_set_uri: str, database: str) -> None:
    runner = runner_of(
        agents.talker(), {"mongodb": replica_set_uri, "database": f"{database}_sync"}
    )
    before = threading.active_count()
    for _ in range(2):
        events = list(runner.run(user_id="u", session_id="s", new_message=text()))
        assert shape(events)[-1] == ("talker", None, ["hello"])
    assert threading.active_count() == before


def _committee(ledger: list[str]) -> LlmAgent:
    """Asks a committee with a tool that returns at once, and pays when the answer has come."""

    def ask_committee(project: str) -> dict[str, str]:
        """Ask."""
        ledger.append("ask")
        return {"status": "pending"}

    def pay(project: str) -> str:
        """Pay."""
        ledger.append("pay")
        return "paid"

    def choose(request: Any, _turn: int) -> Any:
        last = request.contents[-1].parts[0].function_response
        if last is None:
            return calls(("ask_committee", {"project": "choir"}))
        if last.name == "pay":
            return says("paid")
        if last.response["status"] == "pending":
            return says("the committee is asked")
        return calls(("pay", {"project": "choir"}))

    tools = [LongRunningFunctionTool(ask_committee), pay]
    helper = LlmAgent(
        name="helper", description="helper", model=ScriptedModel(script=choose), tools=tools
    )
    move = calls(("transfer_to_agent", {"agent_name": "helper"}))
    return LlmAgent(name="root", model=ScriptedModel(script=[move]), sub_agents=[helper])


@pytest.mark.parametrize("durable", [False, True])
async def test_a_later_result_of_a_long_running_tool_is_a_message_of_its_own(durable: bool) -> None:
    """As in plain ADK: the tool returned a value, so the turn ended and no wait is open."""
    ledger: list[str] = []
    client, sessions = memory_client(), InMemorySessionService()

    def runner() -> Any:
        named = {"agent": _committee(ledger), "app_name": "grants", "auto_create_session": True}
        if durable:
            return DurableRunner(**named, mongodb=client)
        return Runner(**named, session_service=sessions)

    async def send(part: types.Part) -> list[Any]:
        async with runner() as one:  # a new one for each message
            content = types.Content(role="user", parts=[part])
            named = {"user_id": "u", "session_id": "s", "new_message": content}
            return [event async for event in one.run_async(**named)]

    events = await send(types.Part(text="fund the choir"))
    asked = next(c for e in events for c in e.get_function_calls() if c.name == "ask_committee")
    assert ledger == ["ask"]
    late = types.FunctionResponse(id=asked.id, name=asked.name, response={"status": "approved"})
    events = await send(types.Part(function_response=late))
    assert ledger == ["ask", "pay"]
    assert [e.author for e in events] == ["helper"] * len(events)
    assert events[-1].content.parts[0].text == "paid"
