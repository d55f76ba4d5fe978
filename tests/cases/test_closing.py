"""What the session holds of a turn that did not run to its end, and whether it can go on."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow

from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.testing import FaultPlan
from tests.cases.conftest import approve

ONCE = {"retry": {"max_attempts": 1}}


class Died(BaseException):
    """The process is gone: nothing may tidy up after it."""


def scripted(name: str, script: Any, prompts: list[Any] | None = None, **fields: Any) -> LlmAgent:
    """An agent whose replies a function of (turn, prompt) gives; its prompts are noted."""

    def reply(request: Any, _turn: int) -> Any:
        if prompts is not None:
            prompts.append(request.contents)
        turn = 0
        for content in request.contents:  # count the answers since the last message of the user
            parts = content.parts or []
            if content.role == "user" and any(
                p.text and not p.text.startswith("For") for p in parts
            ):
                turn = 0
            turn += any(p.function_response for p in parts)
        return script(turn)

    return LlmAgent(name=name, model=ScriptedModel(model=name, script=reply), **fields)


def broken() -> RuntimeError:
    return RuntimeError("down for good")


def shown(contents: Any) -> list[tuple[str, Any]]:
    """A prompt in short: texts, calls by name, responses by name and value."""
    found: list[tuple[str, Any]] = []
    for content in contents:
        for part in content.parts or ():
            if part.text:
                found.append(("text", part.text))
            if part.function_call:
                found.append(("call", part.function_call.name))
            if part.function_response:
                response = part.function_response
                found.append((response.name, response.response))
    return found


def assert_valid(contents: Any) -> None:
    """Every call is answered exactly once, after it, and no id is asked twice.

    In a prompt ADK leaves out the ids that it made: there the names are counted.
    """
    asked: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for content in contents:
        for part in content.parts or ():
            if call := part.function_call:
                assert not (call.id and asked[call.id]), "an id twice"
                asked[call.id or call.name] += 1
            if response := part.function_response:
                answered[response.id or response.name] += 1
                assert asked[response.id or response.name], "an answer without a call"
    assert asked == answered


async def next_prompt(app: Any, prompts: list[Any]) -> Any:
    """What the model is shown by the next message of the session."""
    prompts.clear()
    out = await app.invoke(user_id="u", session_id="s", message="and now?")
    assert out.status == "completed", out.error
    assert_valid(prompts[0])
    return shown(prompts[0])


async def state_of(app: Any) -> dict[str, Any]:
    return (await app.sessions.get(user_id="u", session_id="s")).state


# ---------------------------------------------------------------- failed for good


async def test_what_ran_after_an_answer_is_in_the_next_prompt_though_the_model_failed(
    make_app, ledger
) -> None:
    prompts: list[Any] = []
    fails = [broken()]

    def pay(amount: int) -> dict[str, int]:
        """Pay."""
        ledger.add("pay", amount)
        return {"paid": amount}

    def script(turn: int) -> Any:
        if len(prompts) == 1:
            return calls(("pay", {"amount": 1}))
        return fails.pop() if fails else says("done")

    root = scripted("root", script, prompts, tools=[FunctionTool(pay, require_confirmation=True)])
    app = make_app(root, config=ONCE)
    out = await app.invoke(user_id="u", session_id="s", message="go")
    out = await app.resume(out.execution_id, approve(out))
    assert (out.status, out.error.message) == ("failed", "down for good")
    prompts.append("the first is over")
    events = await app.sessions.events(user_id="u", session_id="s")
    answers = [r for event in events for r in event.get_function_responses()]
    assert ("adk_request_confirmation", {"confirmed": True, "payload": None}) in [
        (one.name, one.response) for one in answers
    ]

    prompts.clear()
    prompts.append("nothing is asked for again")
    out = await app.invoke(user_id="u", session_id="s", message="and now?")
    assert out.status == "completed"
    assert_valid(prompts[1])
    assert ("pay", {"paid": 1}) in shown(prompts[1])
    assert ledger.rows() == [("pay", 1)]


def paying_agent(prompts: list[Any], fails: list[Exception], **hooks: Any) -> LlmAgent:
    def pay(n: int, tool_context: Any) -> dict[str, str]:
        """Pay."""
        tool_context.state["paid"] = n
        tool_context.state["user:total"] = n
        return {"card": "4111-SECRET"}

    def script(turn: int) -> Any:
        if turn == 0 and fails:
            return calls(("pay", {"n": 1}))
        return fails[0] if fails else says("done")

    return scripted("root", script, prompts, tools=[pay], **hooks)


def redact(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> dict[str, str]:
    return {"card": "***"}


async def test_what_a_callback_made_of_a_result_and_the_state_of_a_tool_are_kept(make_app) -> None:
    prompts: list[Any] = []
    fails: list[Exception] = [broken()]
    app = make_app(paying_agent(prompts, fails, after_tool_callback=redact), config=ONCE)
    out = await app.invoke(user_id="u", session_id="s", message="go")
    assert out.status == "failed"
    assert await state_of(app) == {"paid": 1, "user:total": 1}
    fails.clear()
    prompt = await next_prompt(app, prompts)
    assert ("pay", {"card": "***"}) in prompt
    assert "SECRET" not in str(await app.sessions.events(user_id="u", session_id="s"))


async def test_what_an_error_callback_made_of_a_failure_is_kept(make_app) -> None:
    prompts: list[Any] = []
    fails = [broken()]

    def pay(n: int) -> dict[str, int]:
        """Pay."""
        raise ValueError("card declined")

    def handle(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, str]:
        return {"handled": str(error)}

    def script(turn: int) -> Any:
        if turn == 0 and fails:
            return calls(("pay", {"n": 1}))
        return fails[0] if fails else says("done")

    app = make_app(
        scripted("root", script, prompts, tools=[pay], on_tool_error_callback=handle), config=ONCE
    )
    out = await app.invoke(user_id="u", session_id="s", message="go")
    assert (out.status, out.error.message) == ("failed", "down for good")
    fails.clear()
    assert ("pay", {"handled": "card declined"}) in await next_prompt(app, prompts)


async def test_a_sibling_that_ran_keeps_its_result_and_the_one_that_failed_is_closed(
    make_app,
) -> None:
    prompts: list[Any] = []
    fails = [broken()]

    def works(n: int, tool_context: Any) -> dict[str, str]:
        """Work."""
        tool_context.state["user:worked"] = n
        return {"worked": n}

    def breaks(n: int) -> dict[str, int]:
        """Break."""
        raise fails[0]

    def script(turn: int) -> Any:
        return calls(("works", {"n": 1}), ("breaks", {"n": 2})) if fails else says("done")

    app = make_app(scripted("root", script, prompts, tools=[works, breaks]), config=ONCE)
    out = await app.invoke(user_id="u", session_id="s", message="go")
    assert out.status == "failed"
    assert (await state_of(app))["user:worked"] == 1
    fails.clear()
    prompt = await next_prompt(app, prompts)
    assert ("works", {"worked": 1}) in prompt
    assert ("breaks", {"status": "closed", "reason": "down for good"}) in prompt


async def test_what_a_node_ran_inside_itself_is_in_the_session_once(make_app) -> None:
    def look(q: str) -> str:
        """Look."""
        return q

    inner = scripted(
        "inner",
        lambda turn: calls(("look", {"q": "1"})) if turn == 0 else says("seen"),
        tools=[look],
    )

    async def outer(ctx: Any, node_input: Any) -> Any:
        return await ctx.run_node(inner, node_input="hi")

    node = FunctionNode(func=outer, name="outer", rerun_on_resume=True)
    last = scripted("last", lambda turn: broken())
    app = make_app(Workflow(name="f", edges=[(START, node), (node, last)]), config=ONCE)
    out = await app.invoke(user_id="u", session_id="s", message="go")
    assert out.status == "failed"
    events = await app.sessions.events(user_id="u", session_id="s")
    assert_valid([event.content for event in events if event.content])
    said = shown(event.content for event in events if event.content)
    assert said == [("text", "go"), ("call", "look"), ("look", {"result": "1"}), ("text", "seen")]


async def test_what_a_branch_appended_keeps_its_branch(make_app) -> None:
    def look(q: str) -> str:
        """Look."""
        return q

    def asks(turn: int) -> Any:
        return calls(("look", {"q": "secret"}, "call_0")) if turn == 0 else says("seen")

    a = scripted("a", asks, tools=[look])
    b = scripted("b", lambda t: calls(("look", {"q": "b"}, "call_0")) if t == 0 else broken())
    b.tools = [look]
    join = JoinNode(name="join")
    app = make_app(Workflow(name="f", edges=[(START, (a, b)), ((a, b), join)]), config=ONCE)
    out = await app.invoke(user_id="u", session_id="s", message="go")
    assert out.status == "failed"
    events = await app.sessions.events(user_id="u", session_id="s")
    for name in ("a", "b"):
        asked = [e for e in events if e.author == name and e.get_function_calls()]
        answers = [e for e in events if e.author == name and e.get_function_responses()]
        assert [e.branch for e in asked + answers] == [f"{name}@1"] * 2


# ---------------------------------------------------------------- cancelled, given up


async def test_a_cancelled_wait_leaves_a_session_that_goes_on(make_app, ledger) -> None:
    prompts: list[Any] = []
    waits = [True]

    def pay(n: int) -> dict[str, int]:
        """Pay."""
        ledger.add("pay")
        return {"paid": n}

    def script(turn: int) -> Any:
        return calls(("pay", {"n": 1})) if waits else says("done")

    root = scripted("root", script, prompts, tools=[FunctionTool(pay, require_confirmation=True)])
    app = make_app(root)
    out = await app.invoke(user_id="u", session_id="s", message="go")
    assert out.status == "suspended"
    count = len(prompts)
    await app.cancel(out.execution_id, "no longer wanted")
    assert (await app.executions.get(out.execution_id)).status == "cancelled"
    assert len(prompts) == count, "nothing ran"
    events = await app.sessions.events(user_id="u", session_id="s")
    closed = [r.response for e in events for r in e.get_function_responses()][-1]
    assert closed == {"status": "closed", "reason": "no longer wanted"}
    waits.clear()
    await next_prompt(app, prompts)
    assert ledger.rows() == []


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_what_a_killed_process_recorded_is_closed_as_callbacks_show_it(
    make_app, clock, mode: str
) -> None:
    """Nothing ran here: the program runs over the records and starts nothing."""
    prompts: list[Any] = []
    fails: list[Exception] = [broken()]
    plan = FaultPlan().fail("in model:root", Died(), at=2)
    root = paying_agent(prompts, fails, after_tool_callback=redact)
    dying = make_app(root, mode=mode, faults=plan)
    with contextlib.suppress(Died):
        await dying.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    plan.assert_all_struck()
    clock.advance(120_000)
    app = make_app(root, mode=mode)
    prompts.clear()
    await app.cancel("x", "enough")
    record = await app.executions.get("x")
    assert (record.status, prompts) == ("cancelled", [])
    assert await state_of(app) == {"paid": 1, "user:total": 1}
    fails.clear()
    assert ("pay", {"card": "***"}) in await next_prompt(app, prompts)


async def test_a_queued_execution_is_closed_in_every_branch_that_has_records(make_app) -> None:
    """The branch that waits for its retry does not end the other one's."""

    def look(q: str) -> str:
        """Look."""
        return q

    a = scripted("a", lambda turn: broken() if turn else calls(("look", {"q": "a"})), tools=[look])
    b = scripted("b", lambda turn: calls(("look", {"q": f"b{turn}"})) if turn < 3 else says("b"))
    b.tools = [look]
    join = JoinNode(name="join")
    app = make_app(Workflow(name="f", edges=[(START, (a, b)), ((a, b), join)]))
    out = await app.invoke(user_id="u", session_id="s", message="go")
    assert out.status == "queued"
    recorded = [
        a.name
        for a in await app.executions.activities(out.execution_id)
        if (a.kind, a.status) == ("tool", "completed")
    ]
    await app.cancel(out.execution_id)
    events = await app.sessions.events(user_id="u", session_id="s")
    assert_valid([event.content for event in events if event.content])
    answers = [r.response for e in events for r in e.get_function_responses()]
    assert len([one for one in answers if "result" in one]) == len(recorded)


async def test_a_stuck_execution_whose_code_is_another_one_can_be_given_up(make_app) -> None:
    """ADK cannot run over the records: no result is shown that a callback may have redacted."""
    prompts: list[Any] = []
    fails: list[Exception] = [broken()]
    app = make_app(paying_agent(prompts, fails, after_tool_callback=redact))
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    assert out.status == "queued"

    def refund(n: int) -> dict[str, int]:
        """Refund."""
        return {"refunded": n}

    def other(turn: int) -> Any:
        return says("done")

    def rename(callback_context: Any, llm_response: Any) -> Any:
        for part in llm_response.content.parts:
            if part.function_call:
                part.function_call.name = "refund"

    changed = scripted("root", other, prompts, tools=[refund], after_model_callback=rename)
    app = make_app(changed)
    await app.retry("x")
    (out,) = await app.recover()
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
    await app.give_up("x", "the code has changed")
    assert (await app.executions.get("x")).status == "failed"
    assert await state_of(app) == {"paid": 1, "user:total": 1}
    prompt = await next_prompt(app, prompts)
    closed = {"status": "closed", "reason": "the code has changed", "ran": True}
    assert ("pay", closed) in prompt
    assert "SECRET" not in str(prompt)


async def test_a_step_that_no_longer_fits_the_graph_can_be_given_up(make_app) -> None:
    def first(node_input: Any) -> str:
        return "one"

    async def ask(ctx: Any, node_input: Any) -> Any:
        if "q" in ctx.resume_inputs:
            yield ctx.resume_inputs["q"]
            return
        yield RequestInput(interrupt_id="q", message="?")

    def graph(name: str) -> Workflow:
        asks = FunctionNode(func=ask, name=name, rerun_on_resume=True)
        return Workflow(name="f", edges=[(START, first), (first, asks)])

    app = make_app(graph("ask"))
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    app = make_app(graph("other"))
    out = await app.resume("x", approve(out))
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
    await app.give_up("x", "renamed")
    assert (await app.executions.get("x")).status == "failed"
    events = await app.sessions.events(user_id="u", session_id="s")
    assert_valid([event.content for event in events if event.content])
    answers = [r.response for e in events for r in e.get_function_responses()]
    assert answers == [{"result": '"blue"'}], "the answer was given, and is shown"
