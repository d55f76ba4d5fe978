"""Small agents: fresh objects for each App, bodies counted in a list."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow

from durable_adk.testing import ScriptedModel, calls, says

Log = list[Any]


def talker(*script: Any, name: str = "talker", **fields: Any) -> LlmAgent:
    """An agent that only answers."""
    return LlmAgent(name=name, model=ScriptedModel(script=script or (says("hello"),)), **fields)


def payer(log: Log, *, name: str = "payer", amount: int = 7) -> LlmAgent:
    """Calls a tool that must be confirmed, then says so."""

    def pay(amount: int) -> dict[str, Any]:
        """Pay somebody."""
        log.append(("pay", name, amount))
        return {"paid": amount}

    return talker(
        calls(("pay", {"amount": amount})),
        says(f"{name} done"),
        name=name,
        tools=[FunctionTool(pay, require_confirmation=True)],
    )


def plain_payer(log: Log, *script: Any) -> LlmAgent:
    """Calls a tool at once."""

    def pay(amount: int) -> dict[str, Any]:
        """Pay somebody."""
        log.append(("pay", amount))
        return {"paid": amount}

    return talker(*(script or (calls(("pay", {"amount": 1})), says("paid"))), tools=[pay])


def waiter(log: Log) -> LlmAgent:
    """Calls a tool that runs long."""

    def ticket(title: str) -> None:
        """Open a ticket; somebody answers later."""
        log.append(("ticket", title))

    return talker(
        calls(("ticket", {"title": "leak"})),
        says("the ticket is closed"),
        name="waiter",
        tools=[LongRunningFunctionTool(ticket)],
    )


def two_and_a_question(log: Log) -> Workflow:
    """Two agents that need a confirmation, a node that asks; all in parallel, then a join."""

    async def ask(ctx: Any, node_input: Any) -> Any:
        if "which" in ctx.resume_inputs:
            yield {"colour": ctx.resume_inputs["which"]}
            return
        yield RequestInput(
            interrupt_id="which",
            message="which colour?",
            payload={"shown": True},
            response_schema={"type": "string"},
        )

    def end(node_input: Any) -> dict[str, Any]:
        log.append(("end",))
        return {"joined": sorted(node_input)}

    parts = (
        payer(log, name="a", amount=1),
        payer(log, name="b", amount=2),
        FunctionNode(func=ask, name="ask", rerun_on_resume=True),
    )
    join = JoinNode(name="join")
    return Workflow(name="flow", edges=[(START, parts), (parts, join), (join, end)])


def yes(*waits: Any) -> dict[str, Any]:
    """Confirm every confirmation, and answer every question with text."""
    return {
        wait.id: {"confirmed": True} if wait.kind == "adk_request_confirmation" else "red"
        for wait in waits
    }
