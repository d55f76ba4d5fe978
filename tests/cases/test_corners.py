"""Corners that a first version got wrong; each is a kind, not only its example."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.events import Event, RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, RetryConfig, Workflow

from durable_adk import step
from durable_adk.adk.scripted_model import calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import Tools, agent


def failing_once(ledger: Any, *script: Any, **fields: Any) -> Any:
    """An agent whose last model turn fails once: a second attempt stands on the records."""
    fails = [RuntimeError("down")]

    def choose(_request: Any, turn: int) -> Any:
        if turn < len(script):
            return script[turn]
        return fails.pop() if fails else says("done")

    root = agent(ledger, "root", **fields)
    root.model.script = choose
    return root


async def test_parallel_agents_whose_models_give_the_same_call_id_each_get_their_approval(
    make_app, ledger
) -> None:
    tools = Tools(ledger)
    parts = tuple(
        agent(
            ledger,
            name,
            calls(("pay", {"amount": amount}, "call_0")),
            says(f"{name} done"),
            tools=[tools.confirmed_pay],
        )
        for name, amount in (("a", 1), ("b", 2))
    )
    join = JoinNode(name="join")
    app = make_app(Workflow(name="flow", edges=[(START, parts), (parts, join)]))
    out = await app.invoke(user_id="u", message="go")
    out = await app.resume(out.execution_id, approve(out))
    assert out.status == "completed", out.error
    assert sorted(row[2] for row in ledger.rows() if row[:2] == ("tool", "pay")) == [1, 2]


async def test_what_a_tool_changed_before_it_failed_is_back_on_a_later_attempt(
    make_app, ledger, clock
) -> None:
    def charge(q: str, tool_context: Any) -> str:
        """Charge, note it, and fail."""
        tool_context.state["charged"] = q
        raise ValueError("no receipt")

    root = failing_once(
        ledger,
        calls(("charge", {"q": "x"})),
        tools=[charge],
        on_tool_error_callback=lambda **_: {"error": "no receipt"},
    )
    app = make_app(root)
    await app.invoke(user_id="u", session_id="s", message="go")
    clock.advance(60_000)
    (out,) = await app.recover()
    assert out.status == "completed", out.error
    assert (await app.sessions.get(user_id="u", session_id="s")).state["charged"] == "x"


async def test_what_a_node_emitted_before_it_failed_is_back_on_a_later_attempt(
    make_app, ledger, clock
) -> None:
    async def flaky(node_input: Any, ctx: Any) -> Any:
        tries = ctx.state.get("tries", 0) + 1
        yield Event(state={"tries": tries})
        if tries < 3:
            raise ValueError("not yet")
        yield "worked"

    node = FunctionNode(
        func=flaky,
        name="flaky",
        retry_config=RetryConfig(max_attempts=3, initial_delay=0.0, jitter=0.0),
    )
    root = failing_once(ledger)
    flow = Workflow(name="flow", edges=[(START, node), (node, root)])
    app = make_app(flow)
    await app.invoke(user_id="u", session_id="s", message="go")
    clock.advance(60_000)
    (out,) = await app.recover()
    assert out.status == "completed", out.error
    states = [
        e.actions.state_delta["tries"] for e in out.events if "tries" in e.actions.state_delta
    ]
    assert states == [1, 2, 3]


async def test_steps_in_callbacks_of_parallel_calls_belong_to_their_call(
    make_app, ledger, clock
) -> None:
    """Whichever call is faster in which attempt."""
    slow = ["a"]

    async def audit(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        if args["q"] in slow:
            await asyncio.sleep(0.02)
        got = await step("audit", lambda q: q, args["q"])
        ledger.add("audited", args["q"], got)
        if slow == ["a"] and args["q"] == "b":
            slow[:] = ["b"]
            raise RuntimeError("the first attempt ends here")

    tools = Tools(ledger)
    script = [calls(("look", {"q": "a"}), ("look", {"q": "b"})), says("done")]
    app = make_app(agent(ledger, "root", *script, tools=[tools.look], after_tool_callback=audit))
    await app.invoke(user_id="u", message="go")
    clock.advance(60_000)
    (out,) = await app.recover()
    assert out.status == "completed", out.error
    assert {(row[1], row[2]) for row in ledger.rows() if row[0] == "audited"} == {
        ("a", "a"),
        ("b", "b"),
    }


async def test_a_step_is_not_handed_to_other_arguments(make_app, ledger, clock) -> None:
    amounts = [1, 2]

    async def charges(callback_context: Any) -> None:
        await step("charge", lambda amount: amount, amounts.pop(0))

    app = make_app(failing_once(ledger, before_agent_callback=charges))
    out = await app.invoke(user_id="u", message="go")
    clock.advance(60_000)
    (out,) = await app.recover()
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_temporary_state_lives_as_long_as_one_run_in_both_modes(
    make_app, ledger, mode
) -> None:
    def first(node_input: Any, ctx: Any) -> str:
        ctx.state["temp:vip"] = True
        return "first"

    async def ask(ctx: Any, node_input: Any) -> Any:
        if "q" in ctx.resume_inputs:
            yield "answered"
            return
        yield RequestInput(interrupt_id="q", message="?")

    def last(node_input: Any, ctx: Any) -> str:
        return str(ctx.state.get("temp:vip"))

    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    flow = Workflow(name="flow", edges=[(START, first), (first, asker), (asker, last)])
    app = make_app(flow, mode=mode)
    out = await app.invoke(user_id="u", message="go")
    out = await app.resume(out.execution_id, approve(out))
    assert (out.status, out.output) == ("completed", "None")


def charging(ledger: Any, *, charge: str = "charge", ask: str = "ask", extra: bool = False) -> Any:
    """A node with an effect, perhaps another, then one that asks."""

    def effect(node_input: Any) -> str:
        ledger.add("effect")
        return "paid"

    def inserted(node_input: Any) -> str:
        ledger.add("inserted")
        return "more"

    async def asks(ctx: Any, node_input: Any) -> Any:
        if "q" in ctx.resume_inputs:
            yield "answered"
            return
        yield RequestInput(interrupt_id="q", message="?")

    paid = FunctionNode(func=effect, name=charge)
    asker = FunctionNode(func=asks, name=ask, rerun_on_resume=True)
    if extra:
        more = FunctionNode(func=inserted, name="more")
        edges: list[Any] = [(START, more), (more, paid), (paid, asker)]
    else:
        edges = [(START, paid), (paid, asker)]
    return Workflow(name="flow", edges=edges)


@pytest.mark.parametrize("changed", [{"charge": "bill"}, {"ask": "query"}, {"extra": True}])
@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_changed_code_is_stuck_before_any_second_effect_and_goes_on_after_a_rollback(
    make_app, ledger, mode, changed
) -> None:
    out = await make_app(charging(ledger)).invoke(user_id="u", message="go")
    answers = approve(out)
    out = await make_app(charging(ledger, **changed), mode=mode).resume(out.execution_id, answers)
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
    assert ledger.rows() == [("effect",)]
    rolled_back = make_app(charging(ledger), mode=mode)
    await rolled_back.retry(out.execution_id)
    (out,) = await rolled_back.recover()
    assert out.status == "completed"
    assert ledger.rows() == [("effect",)]


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_an_approved_tool_that_was_renamed_or_takes_other_arguments_is_stuck(
    make_app, ledger, mode
) -> None:
    def root(tool: Any) -> Any:
        script = [calls(("pay", {"amount": 1})), says("done")]
        return agent(ledger, "root", *script, tools=[FunctionTool(tool, require_confirmation=True)])

    def pay(amount: int) -> str:
        """Pay."""
        ledger.add("paid")
        return "paid"

    def renamed(amount: int) -> str:
        """Pay."""
        ledger.add("paid")
        return "paid"

    def other(cents: int) -> str:
        """Pay."""
        ledger.add("paid")
        return "paid"

    other.__name__ = "pay"
    for changed in (renamed, other):
        out = await make_app(root(pay)).invoke(user_id="u", message="go")
        out = await make_app(root(changed), mode=mode).resume(out.execution_id, approve(out))
        assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
    assert ("paid",) not in ledger.rows()
