"""One node asks twice under one ``interrupt_id``: ADK has one answer for both."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.events import RequestInput
from google.adk.runners import InMemoryRunner
from google.adk.workflow import START, FunctionNode, RetryConfig, Workflow
from google.genai import types


def asking(*questions: RequestInput, **settings: Any) -> Workflow:
    """A node that asks these, and returns what it is told."""
    entries = 0

    async def ask(ctx: Any, node_input: Any) -> Any:
        nonlocal entries
        if ctx.resume_inputs:
            yield dict(ctx.resume_inputs)
            return
        entries += 1
        is_tried_again = "retry_config" in settings
        for question in questions[-1:] if is_tried_again and entries > 1 else questions:
            yield question
        if is_tried_again and entries == 1:
            raise RuntimeError("not yet")

    node = FunctionNode(func=ask, name="ask", rerun_on_resume=True, **settings)
    return Workflow(name="flow", edges=[(START, node)])


def asked(message: str, interrupt_id: str = "q") -> RequestInput:
    return RequestInput(interrupt_id=interrupt_id, message=message)


async def test_plain_adk_takes_one_answer_for_both() -> None:
    runner = InMemoryRunner(asking(asked("who?"), asked("when?")), app_name="plain")
    session = await runner.session_service.create_session(app_name="plain", user_id="u")

    async def run(part: types.Part, **more: Any) -> list[Any]:
        message = types.Content(role="user", parts=[part])
        events = runner.run_async(user_id="u", session_id=session.id, new_message=message, **more)
        return [event async for event in events]

    events = await run(types.Part(text="go"))
    calls = [call for event in events for call in event.get_function_calls()]
    assert [(call.id, call.args["message"]) for call in calls] == [("q", "who?"), ("q", "when?")]
    answer = types.FunctionResponse(id="q", name=calls[0].name, response={"result": "me"})
    events = await run(types.Part(function_response=answer), invocation_id=events[-1].invocation_id)
    assert [event.output for event in events if event.output] == [{"q": "me"}]


async def test_two_questions_of_one_id_fail_and_say_why(make_app: Any) -> None:
    """Only the second was shown; its answer was that to the first as well."""
    out = await make_app(asking(asked("who?"), asked("when?"))).invoke(user_id="u", message="go")
    assert (out.status, out.error.type, out.waits) == ("failed", "UnsupportedNode", ())
    assert "'q'" in out.error.message and "interrupt_id" in out.error.remedy


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_the_same_question_twice_is_one(make_app: Any, mode: str) -> None:
    app = make_app(asking(asked("who?"), asked("who?")), mode=mode)
    out = await app.invoke(user_id="u", message="go")
    assert [wait.message for wait in out.waits] == ["who?"]
    out = await app.resume(out.execution_id, {out.waits[0].id: "me"})
    assert (out.status, out.output) == ("completed", {"q": "me"})


async def test_two_questions_of_two_ids_are_two(make_app: Any) -> None:
    app = make_app(asking(asked("who?"), asked("when?", "r")))
    out = await app.invoke(user_id="u", message="go")
    assert [wait.message for wait in out.waits] == ["who?", "when?"]
    given = {wait.id: wait.message for wait in out.waits}
    out = await app.resume(out.execution_id, given)
    assert (out.status, out.output) == ("completed", {"q": "who?", "r": "when?"})


async def test_what_a_failed_entry_asked_is_not_asked_any_more(make_app: Any) -> None:
    again = RetryConfig(max_attempts=2, initial_delay=0.01, jitter=0)
    root = asking(asked("who?"), asked("when?"), asked("who, again?"), retry_config=again)
    app = make_app(root)
    out = await app.invoke(user_id="u", message="go")
    assert [wait.message for wait in out.waits] == ["who, again?"]
    out = await app.resume(out.execution_id, {out.waits[0].id: "me"})
    assert (out.status, out.output) == ("completed", {"q": "me"})
