"""From a message to its outcome, in memory and on a real server."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any, ClassVar

import pytest
from google.adk.agents import RunConfig
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types

from durable_adk import (
    AnswerConflict,
    App,
    ConfigError,
    InputConflict,
    InvalidAnswer,
    SessionBusy,
    Unavailable,
    WaitClosed,
)
from durable_adk.engine.service import Engine
from durable_adk.model.execution import Execution, Status
from durable_adk.testing import ManualClock, calls, memory_client, says
from tests.app import agents
from tests.app.agents import yes
from tests.app.conftest import ON, MakeApp

Place = dict[str, Any]


def at(place: Place, root: Any, **given: Any) -> App:
    return App("desk", root_agent=root, config=ON, **place, **given)


async def test_a_plain_agent_answers(place: Place) -> None:
    async with at(place, agents.talker()) as app:
        out = await app.invoke(user_id="u", session_id="s", message="hi")
    assert (out.status, out.response, out.user_id, out.session_id) == (
        "completed",
        "hello",
        "u",
        "s",
    )
    assert (out.error, out.waits) == (None, ())
    assert [event.author for event in out.events] == ["user", "talker"]
    assert {event.invocation_id for event in out.events} == {out.execution_id}
    json.dumps(out.to_dict())


async def test_a_frontier_is_shown_whole_and_answered_at_once(place: Place) -> None:
    log: agents.Log = []
    async with at(place, agents.two_and_a_question(log)) as app:
        out = await app.invoke(user_id="u", session_id="s", message="go")
        assert out.status == "suspended"
        assert len(out.waits) == 3
        assert log == []
        done = await app.resume(out.execution_id, yes(*out.waits), by="me")
    assert (done.status, done.execution_id) == ("completed", out.execution_id)
    assert done.output == {"joined": ["a", "ask", "b"]}
    assert sorted(log) == [("end",), ("pay", "a", 1), ("pay", "b", 2)]


async def test_a_wait_shows_what_it_asks(place: Place) -> None:
    async with at(place, agents.two_and_a_question([])) as app:
        out = await app.invoke(user_id="u", session_id="s", message="go")
    confirm, _, question = sorted(out.waits, key=lambda wait: (wait.kind, wait.node_path))
    assert confirm.kind == "adk_request_confirmation"
    assert confirm.node_path == "flow@1/a@1"
    assert confirm.operation_path == "agent#1/a#1"
    assert confirm.tool_call is not None
    assert (confirm.tool_call.name, confirm.tool_call.args) == ("pay", {"amount": 1})
    assert confirm.message
    assert (question.kind, question.message, question.payload) == (
        "adk_request_input",
        "which colour?",
        {"shown": True},
    )
    assert question.response_schema == {"type": "string"}
    assert question.tool_call is None
    assert question.operation_path == "agent#1/ask#1"
    for wait in out.waits:
        assert wait.id.startswith(f"{out.execution_id}~")
        assert (wait.execution_id, wait.user_id, wait.session_id) == (out.execution_id, "u", "s")
        assert wait.expires_at is None
    assert len({wait.id for wait in out.waits}) == 3


async def test_the_resume_schema_names_every_wait(make_app: MakeApp) -> None:
    app = make_app(agents.two_and_a_question([]))
    out = await app.invoke(user_id="u", message="go")
    assert out.resume_schema["required"] == [wait.id for wait in out.waits]
    done = await app.resume(out.execution_id, yes(*out.waits))
    assert done.resume_schema["required"] == []


async def test_another_app_goes_on_where_the_first_one_stopped(place: Place) -> None:
    log: agents.Log = []
    async with at(place, agents.payer(log)) as app:
        out = await app.invoke(user_id="u", session_id="s", message="pay")
    async with at(place, agents.payer(log)) as app:
        done = await app.resume(out.execution_id, yes(*out.waits))
    assert (done.response, log) == ("payer done", [("pay", "payer", 7)])


async def test_a_denied_tool_never_runs(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.payer(log))
    out = await app.invoke(user_id="u", message="pay")
    done = await app.resume(out.execution_id, {out.waits[0].id: {"confirmed": False}})
    assert (done.status, log) == ("completed", [])


async def test_a_long_running_tool_waits_for_its_result(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.waiter(log))
    out = await app.invoke(user_id="u", message="open")
    (wait,) = out.waits
    assert wait.tool_call is not None
    assert (wait.kind, wait.tool_call.name) == ("adk_request_input", "ticket")
    done = await app.resume(out.execution_id, {wait.id: {"state": "closed"}})
    assert (done.response, log) == ("the ticket is closed", [("ticket", "leak")])


# ---------------------------------------------------------------- ids and repeats


async def test_without_ids_each_call_is_a_new_execution_in_a_new_session(
    make_app: MakeApp,
) -> None:
    app = make_app(agents.talker())
    outs = [await app.invoke(user_id="u", message="hi") for _ in range(2)]
    assert len({out.execution_id for out in outs}) == 2
    assert len({out.session_id for out in outs}) == 2


@pytest.mark.parametrize("session_id", ["s", None])
async def test_the_same_execution_id_and_input_is_the_same_outcome(
    place: Place, session_id: str | None
) -> None:
    log: agents.Log = []
    async with at(place, agents.plain_payer(log)) as app:
        given: Any = {"user_id": "u", "session_id": session_id, "execution_id": "e", "message": "x"}
        outs = await asyncio.gather(*(app.invoke(**given) for _ in range(3)))
        again = await app.invoke(**given)
    assert {out.execution_id for out in outs} == {"e"}
    assert all(out == again for out in outs)
    assert log == [("pay", 1)]


async def test_a_repeat_without_a_session_finds_the_one_it_began_in(make_app: MakeApp) -> None:
    app = make_app(agents.talker())
    first = await app.invoke(user_id="u", session_id="s", execution_id="e", message="x")
    assert await app.invoke(user_id="u", execution_id="e", message="x") == first


@pytest.mark.parametrize(
    "changed",
    [{"message": "y"}, {"session_id": "s2"}, {"user_id": "u2"}, {"state_delta": {"a": 1}}],
    ids=str,
)
async def test_the_same_execution_id_with_another_input_is_a_conflict(
    make_app: MakeApp, changed: dict[str, Any]
) -> None:
    app = make_app(agents.talker())
    given: Any = {"user_id": "u", "session_id": "s", "execution_id": "e", "message": "x"}
    await app.invoke(**given)
    with pytest.raises(InputConflict):
        await app.invoke(**{**given, **changed})
    with pytest.raises(InputConflict):
        await app.submit(**{**given, **changed})


async def test_a_suspended_session_refuses_a_message_and_lists_what_is_open(
    make_app: MakeApp,
) -> None:
    app = make_app(agents.payer([]))
    out = await app.invoke(user_id="u", session_id="s", message="pay")
    with pytest.raises(SessionBusy) as caught:
        await app.invoke(user_id="u", session_id="s", message="and?")
    assert caught.value.execution_id == out.execution_id
    assert caught.value.waits == tuple(wait.id for wait in out.waits)


async def test_names_and_namespaces_separate_executions(make_app: MakeApp) -> None:
    await make_app(agents.talker()).invoke(user_id="u", execution_id="e", message="x")
    for other in (
        make_app(agents.talker(), name="other"),
        make_app(agents.talker(), config={**ON, "namespace": "blue"}),
    ):
        assert (await other.executions.list()).items == ()
        out = await other.invoke(user_id="u", execution_id="e", message="y")
        assert out.status == "completed"


# ---------------------------------------------------------------- what a message brings


async def test_content_with_an_image_arrives_byte_for_byte(make_app: MakeApp) -> None:
    image = bytes(range(256))
    seen: list[Any] = []

    def script(request: Any, _turn: int) -> Any:
        seen.extend(request.contents[-1].parts)
        return says("seen")

    agent = agents.talker()
    agent.model.script = script  # type: ignore[union-attr]
    content = types.Content(
        role="user", parts=[types.Part.from_bytes(data=image, mime_type="image/png")]
    )
    out = await make_app(agent).invoke(user_id="u", message=content)
    assert out.response == "seen"
    assert seen[0].inline_data.data == image
    assert out.events[0].content.parts[0].inline_data.data == image


async def test_state_set_with_a_message_stays_in_the_session(place: Place) -> None:
    state = {"n": 1, "pair": (1, b"\xff"), "big": 2**70}
    async with at(place, agents.talker()) as app:
        await app.invoke(user_id="u", session_id="s", message="hi", state_delta=state)
        await app.invoke(user_id="u", session_id="s", message="hi", state_delta={"m": 2})
        found = (await app.sessions.get("u", "s")).state
    assert found == {**state, "m": 2}


async def test_turns_of_a_session_see_the_ones_before(make_app: MakeApp) -> None:
    agent = agents.talker()
    agent.model.script = lambda request, _turn: says(str(len(request.contents)))  # type: ignore[union-attr]
    app = make_app(agent)
    responses = [
        (await app.invoke(user_id="u", session_id="s", message="hi")).response for _ in range(3)
    ]
    assert responses == ["1", "3", "5"]


async def test_run_config_reaches_adk(make_app: MakeApp) -> None:
    app = make_app(agents.plain_payer([], calls(("pay", {"amount": 1}))))
    out = await app.invoke(user_id="u", message="hi", run_config=RunConfig(max_llm_calls=2))
    assert out.error is not None
    assert out.error.type == "LlmCallsLimitExceededError"


async def test_plugins_are_called_as_without_the_library(make_app: MakeApp) -> None:
    class Seen(BasePlugin):
        names: ClassVar[list[str]] = []

        async def before_tool_callback(self, *, tool: Any, **_: Any) -> None:
            self.names.append(tool.name)

    app = make_app(agents.plain_payer([]), plugins=[Seen(name="seen")])
    await app.invoke(user_id="u", message="hi")
    assert Seen.names == ["pay"]


# ---------------------------------------------------------------- failures


def failing(log: agents.Log, *, times: int) -> Any:
    """A model that raises ``times`` times, then answers."""
    agent = agents.talker()

    def script(_request: Any, _turn: int) -> Any:
        log.append("call")
        return ValueError("no luck") if len(log) <= times else says("at last")

    agent.model.script = script  # type: ignore[union-attr]
    return agent


async def test_a_failed_attempt_leaves_the_execution_queued(make_app: MakeApp) -> None:
    app = make_app(failing([], times=1), config={**ON, "retry": {"backoff": "60s"}})
    out = await app.invoke(user_id="u", session_id="s", execution_id="e", message="hi")
    assert out.status == "queued"
    assert out.error is not None
    assert (out.error.type, out.error.message) == ("ValueError", "no luck")
    assert out.raise_for_status() is out


async def test_the_same_call_again_goes_on_with_it(make_app: MakeApp) -> None:
    app = make_app(failing([], times=1), config={**ON, "retry": {"backoff": "60s"}})
    given: Any = {"user_id": "u", "session_id": "s", "execution_id": "e", "message": "hi"}
    await app.invoke(**given)
    out = await app.invoke(**given)
    assert (out.status, out.response, out.error) == ("completed", "at last", None)


async def test_the_next_message_of_the_session_finishes_it_first(make_app: MakeApp) -> None:
    app = make_app(failing([], times=1), config={**ON, "retry": {"backoff": "60s"}})
    first = await app.invoke(user_id="u", session_id="s", message="one")
    second = await app.invoke(user_id="u", session_id="s", message="two")
    assert (second.status, second.response) == ("completed", "at last")
    assert (await app.executions.get(first.execution_id)).status == "completed"


async def test_recover_goes_on_when_the_back_off_has_passed() -> None:
    clock = ManualClock()
    app = App(
        "desk",
        root_agent=failing([], times=1),
        config={**ON, "retry": {"backoff": "60s"}},
        mongodb=memory_client(),
        clock=clock,
    )
    async with app:
        out = await app.invoke(user_id="u", message="hi")
        assert await app.recover() == ()
        clock.advance(60_001)
        (recovered,) = await app.recover()
        assert (recovered.execution_id, recovered.status) == (out.execution_id, "completed")
        assert await app.recover() == ()


async def test_after_the_last_attempt_it_has_failed(make_app: MakeApp) -> None:
    config = {**ON, "retry": {"max_attempts": 2, "backoff": 0, "backoff_max": 0}}
    app = make_app(failing([], times=99), config=config)
    given: Any = {"user_id": "u", "session_id": "s", "execution_id": "e", "message": "hi"}
    assert (await app.invoke(**given)).status == "queued"
    out = await app.invoke(**given)
    assert out.status == "failed"
    assert out.error is not None
    assert out.error.type == "ValueError"


# ---------------------------------------------------------------- answers


async def test_half_of_a_frontier_is_refused_with_what_is_missing(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.two_and_a_question(log))
    out = await app.invoke(user_id="u", message="go")
    first, *missing = out.waits
    with pytest.raises(InvalidAnswer) as caught:
        await app.resume(out.execution_id, yes(first))
    assert caught.value.problems.keys() == {wait.id for wait in missing}
    assert (await app.waits.list()).items == out.waits
    assert log == []


async def test_single_answers_are_kept_and_the_last_one_makes_it_runnable(place: Place) -> None:
    log: agents.Log = []
    async with at(place, agents.two_and_a_question(log)) as app:
        out = await app.invoke(user_id="u", session_id="s", message="go")
        receipts = [
            await app.answer(wait.id, yes(wait)[wait.id], by="me") for wait in reversed(out.waits)
        ]
        assert [(r.open, r.runnable) for r in receipts] == [(2, False), (1, False), (0, True)]
        assert {r.execution_id for r in receipts} == {out.execution_id}
        assert log == []
        (done,) = await app.recover()
        assert (done.status, sorted(log)[0]) == ("completed", ("end",))


async def test_with_everything_answered_resume_needs_no_map(make_app: MakeApp) -> None:
    app = make_app(agents.payer([]))
    out = await app.invoke(user_id="u", message="pay")
    await app.answer(out.waits[0].id, {"confirmed": True})
    assert (await app.resume(out.execution_id)).response == "payer done"


async def test_the_same_answer_again_is_the_same_outcome(place: Place) -> None:
    log: agents.Log = []
    async with at(place, agents.payer(log)) as app:
        out = await app.invoke(user_id="u", session_id="s", message="pay")
        both = await asyncio.gather(
            *(app.resume(out.execution_id, yes(*out.waits)) for _ in range(2))
        )
        later = await app.resume(out.execution_id, yes(*out.waits))
    assert both[0] == both[1] == later
    assert log == [("pay", "payer", 7)]


async def test_another_answer_is_a_conflict_and_runs_nothing(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.payer(log))
    out = await app.invoke(user_id="u", message="pay")
    await app.answer(out.waits[0].id, {"confirmed": False})
    for _ in range(2):
        with pytest.raises(AnswerConflict):
            await app.resume(out.execution_id, yes(*out.waits))
        await app.recover()
    assert log == []


# ---------------------------------------------------------------- operating


async def test_submit_queues_and_a_pass_runs_it(place: Place) -> None:
    async with at(place, agents.talker()) as app:
        record = await app.submit(user_id="u", session_id="s", execution_id="e", message="hi")
        assert (record.id, record.status, record.attempt) == ("e", "queued", 0)
        assert await app.submit(
            user_id="u", session_id="s", execution_id="e", message="hi"
        ) == dataclasses.replace(record)
        (out,) = await app.recover()
        assert (out.execution_id, out.response) == ("e", "hello")


async def test_a_pass_leaves_out_what_somebody_else_went_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def taken(engine: Engine, _limit: int) -> tuple[Execution, ...]:
        return (dataclasses.replace(await engine.get("e"), status=Status.RUNNING),)

    async with App("desk", root_agent=agents.talker(), config=ON, mongodb=memory_client()) as app:
        await app.submit(user_id="u", execution_id="e", message="hi")
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "recover", taken)
            assert await app.recover() == ()
        (out,) = await app.recover()
        assert out.status == "completed"


async def test_a_worker_runs_what_is_submitted_until_it_is_stopped(place: Place) -> None:
    async with at(place, agents.talker()) as app:
        worker = app.worker()
        running = asyncio.create_task(worker.run())
        for number in range(3):
            await app.submit(user_id="u", execution_id=str(number), message="hi")
        for number in range(3):
            out = await app.invoke(user_id="u", execution_id=str(number), message="hi", timeout=20)
            assert out.response == "hello"
        worker.stop()
        await asyncio.wait_for(running, 20)


async def test_a_cancelled_execution_is_ended_and_its_waits_are_closed(place: Place) -> None:
    async with at(place, agents.payer([])) as app:
        out = await app.invoke(user_id="u", session_id="s", message="pay")
        record = await app.cancel(out.execution_id, "changed my mind")
        assert record.status == "cancelled"
        assert record.error is not None and record.error.type == "Cancelled"  # as of one that runs
        assert (await app.waits.list()).items == ()
        with pytest.raises(WaitClosed):
            await app.resume(out.execution_id, yes(*out.waits))
        assert (await app.cancel(out.execution_id)).status == "cancelled"


async def test_what_is_given_up_has_failed_with_the_reason(make_app: MakeApp) -> None:
    app = make_app(agents.payer([]))
    out = await app.invoke(user_id="u", message="pay")
    record = await app.give_up(out.execution_id, "nobody answers")
    assert record.status == "failed"
    assert record.error is not None
    assert record.error.type == "GivenUp"
    assert "nobody answers" in record.error.message


async def test_retry_makes_a_backing_off_execution_due(make_app: MakeApp) -> None:
    app = make_app(failing([], times=1), config={**ON, "retry": {"backoff": "60s"}})
    out = await app.invoke(user_id="u", message="hi")
    assert (await app.retry(out.execution_id)).status == "queued"
    (done,) = await app.recover()
    assert done.response == "at last"


async def test_a_timeout_only_stops_waiting(make_app: MakeApp) -> None:
    agent, go_on = agents.talker(), asyncio.Event()

    async def slow(callback_context: Any) -> None:
        await go_on.wait()

    agent.before_agent_callback = slow
    app = make_app(agent)
    given: Any = {"user_id": "u", "session_id": "s", "execution_id": "e", "message": "hi"}
    with pytest.raises(Unavailable, match="no outcome"):
        await app.invoke(**given, timeout=0.05)
    go_on.set()
    assert (await app.invoke(**given)).response == "hello"


async def test_a_cancelled_caller_only_detaches(make_app: MakeApp) -> None:
    agent, entered, go_on = agents.talker(), asyncio.Event(), asyncio.Event()

    async def slow(callback_context: Any) -> None:
        entered.set()
        await go_on.wait()

    agent.before_agent_callback = slow
    app = make_app(agent)
    given: Any = {"user_id": "u", "session_id": "s", "execution_id": "e", "message": "hi"}
    caller = asyncio.create_task(app.invoke(**given))
    await entered.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()
    assert (await app.invoke(**given)).response == "hello"


async def test_closing_releases_what_runs_and_another_app_goes_on(place: Place) -> None:
    entered = asyncio.Event()
    agent = agents.talker()

    async def never(callback_context: Any) -> None:
        entered.set()
        await asyncio.Event().wait()

    agent.before_agent_callback = never
    app = at(place, agent)
    await app.open()
    caller = asyncio.create_task(
        app.invoke(user_id="u", session_id="s", execution_id="e", message="hi")
    )
    await entered.wait()
    await app.close()
    assert (await caller).status == "queued"
    async with at(place, agents.talker()) as app:
        (out,) = await app.recover()
    assert (out.execution_id, out.response) == ("e", "hello")


async def test_a_worker_that_runs_is_not_run_again() -> None:
    async with App("desk", root_agent=agents.talker(), config=ON, mongodb=memory_client()) as app:
        worker = app.worker()
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0)
        with pytest.raises(ConfigError, match="runs already"):
            await worker.run()
        worker.stop()  # reaches the one that runs
        await running
        await worker.run()  # stopped: it returns at once
