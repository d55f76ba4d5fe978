"""What a person agreed to, what is recorded, and what is in doubt is of a call with arguments: a
tool that lost them neither runs for it nor gets its result. It stays so until a rollback.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, FunctionNode, Workflow
from pydantic import BaseModel

from durable_adk import durable_tool
from durable_adk.adk.parameters import Fit, fit_of
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.testing import FaultPlan
from tests.support.lives import Ledger

AGREED = {"confirmed": True}
NOT_DONE = {"outcome": "not_done"}
LEASE_PASSED_MS = 120_000


class Died(BaseException):
    """The process is gone."""


def old(ledger: Ledger) -> Any:
    def pay(amount: int) -> str:
        """Pay."""
        ledger.add("pay", amount)
        return "paid"

    return pay


def without_any(ledger: Ledger) -> Any:
    def pay() -> str:
        """Pay."""
        ledger.add("pay all")
        return "paid"

    return pay


def with_context_only(ledger: Ledger) -> Any:
    def pay(tool_context: ToolContext) -> str:
        """Pay."""
        ledger.add("pay all")
        return "paid"

    return pay


def with_another(ledger: Ledger) -> Any:
    def pay(cents: int = 7) -> str:
        """Pay."""
        ledger.add("pay", cents)
        return "paid"

    return pay


def with_one_more(ledger: Ledger) -> Any:
    def pay(amount: int, note: str = "") -> str:
        """Pay."""
        ledger.add("pay", amount)
        return "paid"

    return pay


def with_anything(ledger: Ledger) -> Any:
    """Wrapped without a word of what it wraps: ADK hands it nothing."""

    def pay(*args: Any, **named: Any) -> str:
        """Pay."""
        ledger.add("pay", args, named)
        return "paid"

    return pay


LOST = [without_any, with_context_only, with_another]
both_modes = pytest.mark.parametrize("mode", ["restore", "walk"])


def gated(pay: Any) -> FunctionTool:
    return FunctionTool(pay, require_confirmation=True)


def desk(*tools: Any, args: Any = None, then: Any = None) -> LlmAgent:
    script = [calls(("pay", args or {"amount": 5})), then or says("done")]
    return LlmAgent(name="desk", model=ScriptedModel(script=script), tools=list(tools))


def in_a_row(tool: Any, given: Any = None) -> Workflow:
    def first(node_input: Any) -> Any:
        return {"amount": 5} if given is None else given

    return Workflow(name="row", edges=[(START, first), (first, tool)])


def stuck_at(out: Any, *texts: str) -> None:
    assert (out.status, out.error and out.error.type) == ("stuck", "ReplayMismatch"), out
    for text in texts:
        assert text in out.error.message


async def rolled_back(app: Any, changed: Any) -> Any:
    assert await changed.recover() == ()
    await app.retry("x")
    (out,) = await app.recover()
    return out


async def killed(make_app: Any, clock: Any, root: Any, point: str, **more: Any) -> None:
    plan = FaultPlan().fail(point, Died())
    with pytest.raises(Died):
        await make_app(root, faults=plan, **more).invoke(
            user_id="u", message="go", execution_id="x"
        )
    plan.assert_all_struck()
    clock.advance(LEASE_PASSED_MS)


# ---------------------------------------------------------------- a call of an agent


@both_modes
@pytest.mark.parametrize("changed", [*LOST, with_anything])
async def test_an_approved_call_does_not_run_without_what_was_approved(
    make_app, ledger, changed, mode
) -> None:
    app = make_app(desk(gated(old(ledger))), mode=mode)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    after = make_app(desk(gated(changed(ledger))), mode=mode)
    report = await after.executions.replay("x")
    assert not report.ok and report.difference, report.error
    assert report.difference.recorded == 'shown pay({"amount": 5})'
    assert report.difference.asked == "pay without amount"
    stuck_at(
        await after.resume("x", {out.waits[0].id: AGREED}),
        'recorded shown pay({"amount": 5}), asked pay without amount',
    )
    assert not (await after.executions.replay("x")).ok
    assert ledger.rows() == []
    out = await rolled_back(app, after)
    assert (out.status, ledger.rows()) == ("completed", [("pay", 5)])


@both_modes
@pytest.mark.parametrize("changed", LOST)
async def test_a_recorded_result_is_not_handed_to_a_tool_that_lost_its_parameters(
    make_app, ledger, clock, changed, mode
) -> None:
    """Nothing was suspended: its owner failed in the second model call."""
    down = RuntimeError("down")
    app = make_app(desk(old(ledger), then=down), mode=mode)
    await app.invoke(user_id="u", message="go", execution_id="x")
    clock.advance(60_000)
    after = make_app(desk(changed(ledger), then=says("done")), mode=mode)
    assert not (await after.executions.replay("x")).ok
    (out,) = await after.recover()
    stuck_at(out, "recorded pay(amount), asked pay(")
    assert ledger.rows() == [("pay", 5)]
    out = await rolled_back(make_app(desk(old(ledger)), mode=mode), after)
    assert (out.status, ledger.rows()) == ("completed", [("pay", 5)])


@both_modes
async def test_what_a_model_made_up_for_a_tool_without_parameters_is_no_changed_code(
    make_app, ledger, clock, mode
) -> None:
    app = make_app(desk(gated(without_any(ledger))), mode=mode)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert (await app.executions.replay("x")).ok
    out = await app.resume("x", {out.waits[0].id: AGREED})
    assert (out.status, ledger.rows()) == ("completed", [("pay all",)])
    assert (await app.executions.replay("x")).ok
    root = desk(without_any(ledger), then=RuntimeError("down"))
    await make_app(root, mode=mode).invoke(user_id="u", message="go", execution_id="y")
    clock.advance(60_000)
    root.model.script = [says("never asked"), says("done")]
    again = make_app(root, mode=mode)
    (out,) = await again.recover()
    assert (out.status, ledger.rows()) == ("completed", [("pay all",)] * 2)
    assert (await again.executions.replay("y")).ok


class Bare(BaseTool):
    """One without a function."""

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        return args


class Order(BaseModel):
    amount: int


def _all_kinds() -> dict[str, tuple[BaseTool, bool]]:
    def anything(**given: Any) -> Any:
        """Take anything."""

    def order(amount: Order) -> Any:
        """Order."""

    def steps(amount: int) -> Any:
        """Yield."""
        yield amount

    async def more_steps(amount: int) -> Any:
        """Yield."""
        yield amount

    @functools.wraps(steps)
    def wrapped(*args: Any, **named: Any) -> Any:
        return steps(*args, **named)

    def unlike(*args: Any, **named: Any) -> Any:
        """Wrapped without a word of what it wraps."""

    class Called:
        def __call__(self, amount: int) -> Any:
            """Call."""

    class Method:
        def pay(self, amount: int) -> Any:
            """Pay."""

        def none(self) -> Any:
            """Pay."""

    def two(amount: int, rate: int = 1) -> Any:
        """Pay."""

    bare, agent = Bare(name="pay", description="Pay."), desk()
    odd = Bare(name="pay", description="Pay.")
    odd.func = "no function"  # type: ignore[attr-defined]
    partial = functools.partial(two, rate=2)
    partial.__name__ = "pay"  # type: ignore[attr-defined]
    return {
        "an agent": (AgentTool(agent), True),
        "no function": (bare, True),
        "something else of that name": (odd, True),
        "anything": (FunctionTool(anything), True),
        "a model": (FunctionTool(order), True),
        "a generator": (FunctionTool(steps), True),
        "an async generator": (FunctionTool(more_steps), True),
        "wrapped": (FunctionTool(wrapped), True),
        "wrapped without a word": (FunctionTool(unlike), True),
        "called": (FunctionTool(Called()), True),
        "partial": (FunctionTool(partial), True),
        "a method": (FunctionTool(Method().pay), True),
        "a method without": (FunctionTool(Method().none), False),
        "without": (FunctionTool(lambda: None), False),
    }


KINDS = _all_kinds()


@both_modes
async def test_a_tool_that_takes_anything_stays_what_it_was(make_app, ledger, mode) -> None:
    app = make_app(desk(gated(with_anything(ledger))), mode=mode)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    out = await app.resume("x", {out.waits[0].id: AGREED})
    assert (out.status, ledger.rows()) == ("completed", [("pay", [], {})])
    assert (await app.executions.replay("x")).ok


def test_nothing_is_said_of_a_wait_that_does_not_know_what_its_tool_got() -> None:
    now = fit_of(KINDS["anything"][0], {"amount": 5})
    assert now.is_worse_than(Fit(True, (), ()))
    assert not now.is_worse_than(Fit(True, (), None))
    assert not now.is_worse_than(Fit(True, (), ("amount",)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_takes_what_it_cannot_be_seen_not_to_take(kind: str) -> None:
    tool, takes = KINDS[kind]
    assert fit_of(tool, {"amount": 5}).fits is takes
    assert fit_of(tool, {}).fits


# ---------------------------------------------------------------- a tool that is a node


def asking(body: Callable[..., Any]) -> FunctionTool:
    """One that asks in its body."""
    return FunctionTool(body)


def old_asking(ledger: Ledger) -> Any:
    def pay(amount: int, tool_context: ToolContext) -> str:
        """Pay."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="pay?")
            return "asked"
        ledger.add("pay", amount)
        return "paid"

    return pay


def asking_about_another(ledger: Ledger) -> Any:
    def pay(tool_context: ToolContext, cents: int = 7) -> str:
        """Pay."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="pay?")
            return "asked"
        ledger.add("pay", cents)
        return "paid"

    return pay


NODES: dict[str, tuple[Any, Any, Any]] = {
    "without any": (lambda o: gated(old(o)), lambda o: gated(without_any(o)), None),
    "another": (lambda o: gated(old(o)), lambda o: gated(with_another(o)), None),
    "a bare value": (lambda o: gated(old(o)), lambda o: gated(with_another(o)), 5),
    "as text": (lambda o: gated(old(o)), lambda o: gated(with_another(o)), '{"amount": 5}'),
    "asks itself": (old_asking, asking_about_another, None),
}


@both_modes
@pytest.mark.parametrize("case", NODES)
async def test_an_approved_tool_node_does_not_run_with_other_arguments(
    make_app, ledger, case, mode
) -> None:
    before, changed, given = NODES[case]

    def root(tool: Any) -> Workflow:
        return in_a_row(tool if isinstance(tool, BaseTool) else FunctionTool(tool), given)

    app = make_app(root(before(ledger)), mode=mode)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    (wait,) = out.waits
    assert wait.payload["args"] == {"amount": 5}
    assert (await app.executions.replay("x")).ok
    after = make_app(root(changed(ledger)), mode=mode)
    report = await after.executions.replay("x")
    assert not report.ok and report.difference, report.error
    assert report.difference.recorded == 'shown pay({"amount": 5})'
    assert report.difference.asked == "pay without amount"
    stuck_at(await after.resume("x", {wait.id: AGREED}), 'recorded shown pay({"amount": 5}), asked')
    assert not (await after.executions.replay("x")).ok
    assert ledger.rows() == []
    out = await rolled_back(app, after)
    assert (out.status, ledger.rows()) == ("completed", [("pay", 5)])
    assert (await app.executions.replay("x")).ok


@both_modes
async def test_a_tool_node_may_have_more_parameters_and_a_declined_one_any(
    make_app, ledger, mode
) -> None:
    app = make_app(in_a_row(gated(old(ledger))), mode=mode)
    for execution_id, changed, agrees in (("x", with_one_more, True), ("y", without_any, False)):
        out = await app.invoke(user_id="u", message="go", execution_id=execution_id)
        after = make_app(in_a_row(gated(changed(ledger))), mode=mode)
        out = await after.resume(execution_id, {out.waits[0].id: {"confirmed": agrees}})
        assert out.status == "completed", out.error
    assert ledger.rows() == [("pay", 5)]


class Doubling(BasePlugin):
    """Changes what a tool runs with, before anybody is asked; the same way each time."""

    def __init__(self, factor: int) -> None:
        super().__init__(name="doubling")
        self.factor = factor

    async def before_tool_callback(self, *, tool, tool_args, tool_context) -> None:  # type: ignore[no-untyped-def]
        if "amount" in tool_args:
            tool_args["amount"] *= self.factor


@both_modes
async def test_a_tool_node_is_compared_as_callbacks_leave_it(make_app, ledger, mode) -> None:
    app = make_app(in_a_row(gated(old(ledger))), mode=mode, plugins=[Doubling(2)])
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    (wait,) = out.waits
    assert wait.payload["args"] == {"amount": 10}
    assert (await app.executions.replay("x")).ok
    after = make_app(in_a_row(gated(old(ledger))), mode=mode, plugins=[Doubling(3)])
    stuck_at(
        await after.resume("x", {wait.id: AGREED}),
        'recorded shown pay({"amount": 10}), asked pay({"amount": 15})',
    )
    out = await rolled_back(app, after)
    assert (out.status, ledger.rows()) == ("completed", [("pay", 10)])


@both_modes
async def test_a_question_of_a_tool_node_is_no_confirmation(make_app, ledger, mode) -> None:
    """ADK hands its answer to what comes next."""

    def ask(amount: int) -> Any:
        """Ask."""
        return RequestInput(interrupt_id="q", message="?", payload={"amount": amount})

    app = make_app(in_a_row(FunctionTool(ask)), mode=mode)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert (await app.executions.replay("x")).ok
    again = await app.resume("x", {out.waits[0].id: "blue"})
    plain = (again.status, [wait.payload for wait in again.waits])
    assert plain in (("completed", []), ("suspended", [{"amount": 5}]))


@both_modes
async def test_tool_nodes_below_a_node_and_in_a_worker_are_compared(make_app, ledger, mode) -> None:
    def below(pay: Any) -> Workflow:
        async def outer(ctx: Any, node_input: Any) -> Any:
            yield await ctx.run_node(gated(pay), node_input={"amount": 5})

        made = FunctionNode(func=outer, name="outer", rerun_on_resume=True)
        return Workflow(name="row", edges=[(START, made)])

    app = make_app(below(old(ledger)), mode=mode)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    answers = {wait.id: AGREED for wait in out.waits}
    assert (await app.executions.replay("x")).ok
    after = make_app(below(with_another(ledger)), mode=mode)
    stuck_at(await after.resume("x", answers), 'shown pay({"amount": 5})')
    assert ledger.rows() == []
    out = await rolled_back(app, after)
    assert (out.status, ledger.rows()) == ("completed", [("pay", 5)])


@both_modes
@pytest.mark.parametrize("changed", [without_any, with_another])
async def test_an_approved_function_node_does_not_run_without_what_was_approved(
    make_app, ledger, changed, mode
) -> None:
    def root(pay: Any) -> Workflow:
        def first(ctx: Any, node_input: Any) -> Any:
            ctx.state["amount"] = 5
            return "go"

        def end(node_input: Any) -> str:
            return "end"

        paying = FunctionNode(func=pay, require_confirmation=True, rerun_on_resume=True)
        return Workflow(name="row", edges=[(START, first, paying, end)])

    app = make_app(root(old(ledger)), mode=mode)
    for execution_id in ("x", "y", "z"):
        out = await app.invoke(user_id="u", message="go", execution_id=execution_id)
        assert out.status == "suspended", out.error
        (wait,) = out.waits
        assert wait.payload["args"] == {"amount": 5}
        assert (await app.executions.replay(execution_id)).ok
        after = make_app(root(changed(ledger)), mode=mode)
        report = await after.executions.replay(execution_id)
        assert not report.ok and report.difference, report.error
        assert report.difference.asked == "pay without amount"
        if execution_id == "x":
            stuck_at(await after.resume("x", {wait.id: AGREED}), 'recorded shown pay({"amount": 5')
            assert not (await after.executions.replay("x")).ok
            assert ledger.rows() == []
            out = await rolled_back(app, after)
            assert (out.status, ledger.rows()) == ("completed", [("pay", 5)]), out.error
        elif execution_id == "y":
            out = await after.resume("y", {wait.id: {"confirmed": False}})
            assert out.status == "completed", out.error
        else:
            more = make_app(root(with_one_more(ledger)), mode=mode)
            assert (await more.executions.replay("z")).ok
            out = await more.resume("z", {wait.id: AGREED})
            assert (out.status, ledger.rows()) == ("completed", [("pay", 5)] * 2), out.error
    assert (await app.executions.replay("x")).ok


# ---------------------------------------------------------------- a call in doubt


def asks_if_unknown(pay: Any) -> Any:
    return durable_tool(on_unknown_outcome="ask")(pay)


DOUBTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a tool": (desk, "ran tool:pay"),
    "a tool node": (lambda pay: in_a_row(FunctionTool(pay)), "ran node:pay"),
    "a tool node that gets text": (
        lambda pay: in_a_row(FunctionTool(pay), '{"amount": 5}'),
        "ran node:pay",
    ),
}


@both_modes
@pytest.mark.parametrize("changed", LOST)
@pytest.mark.parametrize("shape", DOUBTS)
async def test_what_was_not_done_is_not_done_with_other_arguments(
    make_app, ledger, clock, shape, changed, mode
) -> None:
    build, point = DOUBTS[shape]
    await killed(make_app, clock, build(asks_if_unknown(old(ledger))), point, mode=mode)
    app = make_app(build(asks_if_unknown(old(ledger))), mode=mode)
    (out,) = await app.recover()
    assert (out.status, out.waits[0].kind) == ("suspended", "in_doubt")
    assert (await app.executions.replay("x")).ok
    after = make_app(build(asks_if_unknown(changed(ledger))), mode=mode)
    report = await after.executions.replay("x")
    assert not report.ok and report.difference, report.error
    assert report.difference.recorded == 'entered pay({"amount": 5})'
    stuck_at(
        await after.resume("x", {out.waits[0].id: NOT_DONE}),
        'recorded entered pay({"amount": 5}), asked pay without amount',
    )
    assert ledger.rows() == [("pay", 5)]
    out = await rolled_back(app, after)
    assert (out.status, ledger.rows()) == ("completed", [("pay", 5)] * 2)


@pytest.mark.parametrize("answer", [NOT_DONE, {"outcome": "done", "result": "paid"}])
@both_modes
async def test_what_a_model_made_up_stays_no_changed_code_when_it_is_in_doubt(
    make_app, ledger, clock, answer, mode
) -> None:
    def root() -> LlmAgent:
        return desk(asks_if_unknown(old(ledger)), args={"amount": 5, "made_up": 1})

    await killed(make_app, clock, root(), "ran tool:pay", mode=mode)
    app = make_app(root(), mode=mode)
    (out,) = await app.recover()
    assert (await app.executions.replay("x")).ok
    out = await app.resume("x", {out.waits[0].id: answer})
    assert out.status == "completed", out.error
    assert (await app.executions.replay("x")).ok
    assert ledger.rows() == [("pay", 5)] * (2 if answer is NOT_DONE else 1)


@both_modes
async def test_a_fork_at_a_doubt_knows_how_the_tool_took_its_arguments(
    make_app, ledger, clock, mode
) -> None:
    root = desk(asks_if_unknown(old(ledger)))
    await killed(make_app, clock, root, "ran tool:pay", mode=mode)
    app = make_app(desk(asks_if_unknown(old(ledger))), mode=mode)
    (out,) = await app.recover()
    fork = await app.sessions.fork("u", out.session_id, before=out.waits[0].id)
    (wait,) = (await app.executions.outcome(fork.execution_id)).waits
    after = make_app(desk(asks_if_unknown(with_another(ledger))), mode=mode)
    report = await after.executions.replay(fork.execution_id)
    assert not report.ok and report.difference, report.error
    stuck_at(await after.resume(fork.execution_id, {wait.id: NOT_DONE}), "asked pay without amount")
    assert ledger.rows() == [("pay", 5)]
    await app.retry(fork.execution_id)
    (again,) = [one for one in await app.recover() if one.execution_id == fork.execution_id]
    assert (again.status, ledger.rows()) == ("completed", [("pay", 5)] * 2)
    assert (await app.executions.replay(fork.execution_id)).ok
