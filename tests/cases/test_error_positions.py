"""An error that ended an attempt names the call that raised it."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk import durable_tool, step
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.testing import FaultPlan
from tests.support.lives import LEASE_PASSED_MS

ONCE = {"retry": {"max_attempts": 1}}


class Declined(Exception):
    """A bank's."""


class Died(BaseException):
    """The process ends here."""


def boom(**_: Any) -> None:
    """Fail."""
    raise Declined("no")


def fails(node_input: Any) -> None:
    raise Declined("no")


def desk(name: str = "desk", *, tools: Any = (boom,), script: Any = None, **fields: Any) -> Any:
    script = script or [calls((getattr(tools[0], "name", "boom"), {})), says("done")]
    return LlmAgent(name=name, model=ScriptedModel(script=script), tools=list(tools), **fields)


def flow(func: Any, name: str) -> Workflow:
    return Workflow(name="flow", edges=[(START, FunctionNode(func=func, name=name))])


def of_model() -> Any:
    return desk(script=[Declined("no")])


def of_node() -> Any:
    return flow(fails, "charge")


def of_step() -> Any:
    async def charge(node_input: Any) -> None:
        await step("pay", fails, 1)

    return flow(charge, "charge")


def of_child() -> Any:
    async def lead(ctx: Any, node_input: Any) -> Any:
        yield await ctx.run_node(FunctionNode(func=fails, name="charge"))

    leader = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, leader)])


def of_its_own_error() -> Any:
    async def lead(node_input: Any) -> None:
        try:
            await step("pay", fails, 1)
        except Declined as error:
            raise ValueError("no money") from error

    return flow(lead, "lead")


def of_a_callback() -> Any:
    def explain(**given: Any) -> None:
        raise ValueError("no money") from given["error"]

    return desk(on_tool_error_callback=explain)


def of_an_agent_tool() -> Any:
    return desk(tools=[AgentTool(desk("inner", script=[Declined("no")]))])


def of_a_branch() -> Any:
    fine = desk("fine", script=[says("fine")])
    return ParallelAgent(name="both", sub_agents=[fine, desk()])


POSITIONS: dict[Any, str] = {
    of_model: "1|agent#1|1|model|1",
    desk: "1|agent#1/:m1.0|1|tool|1",
    of_node: "1|agent#1/charge#1|1|node|1",
    of_step: "1|agent#1/charge#1|1|step|1|pay",
    of_child: "1|agent#1/lead#1/charge#1|1|node|1",
    of_its_own_error: "1|agent#1/lead#1|1|node|1",
    of_a_callback: "1|agent#1/:m1.0|1|tool|1",
    of_an_agent_tool: "1|agent#1/:m1.0/inner#1|1|model|1",
    of_a_branch: "1|agent#1/desk~1/:m1.0|1|tool|1",
}


@pytest.mark.parametrize("root", POSITIONS)
async def test_an_error_names_the_call_that_raised_it(make_app: Any, root: Any) -> None:
    app = make_app(root(), config=ONCE)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert out.status == "failed"
    assert out.error.position == POSITIONS[root], out.error
    assert (await app.executions.get("x")).error == out.error


async def test_an_attempt_that_is_tried_again_names_it_too(make_app: Any) -> None:
    out = await make_app(of_node()).invoke(user_id="u", message="go")
    assert (out.status, out.error.position) == ("queued", POSITIONS[of_node])


async def test_what_no_call_raised_has_none(make_app: Any) -> None:
    def before(callback_context: Any) -> None:
        raise Declined("no")

    out = await make_app(desk(before_agent_callback=before), config=ONCE).invoke(
        user_id="u", message="go"
    )
    assert (out.status, out.error.type, out.error.position) == ("failed", "Declined", None)


@pytest.mark.parametrize("gives", ["raises", "nonsense"])
async def test_a_reconcile_callback_names_the_call_that_it_was_asked_about(
    make_app: Any, clock: Any, gives: str
) -> None:
    def look(doubt: Any) -> Any:
        if gives == "raises":
            raise Declined("the bank is down")
        return "perhaps"

    @durable_tool(on_unknown_outcome="ask", reconcile=look)
    def boom() -> str:
        """Pay."""
        return "paid"

    died = FaultPlan().fail("ran tool:boom", Died())
    with pytest.raises(Died):
        await make_app(desk(tools=[boom]), faults=died).invoke(user_id="u", message="go")
    clock.advance(LEASE_PASSED_MS)
    (out,) = await make_app(desk(tools=[boom])).recover()
    assert out.status == "queued", out
    assert out.error.type == ("Declined" if gives == "raises" else "InvalidAnswer")
    assert out.error.position == "1|agent#1/:m1.0|1|tool|1"
