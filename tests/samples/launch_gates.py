"""Approvals in parallel branches of a graph: two tools and a question, one message answers all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import JoinNode, Workflow

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> Workflow:
    def arm(system: str) -> dict[str, str]:
        """Arm a system of the rocket."""
        ledger.add("tool", "arm", system)
        return {"armed": system}

    def engineer(system: str) -> LlmAgent:
        name = f"{system}_engineer"
        return LlmAgent(
            name=name,
            model=scripted(
                ledger, name, calls(("arm", {"system": system})), says(f"{system} armed")
            ),
            tools=[FunctionTool(arm, require_confirmation=True)],
        )

    async def weather(node_input: str) -> AsyncIterator[RequestInput]:
        yield RequestInput(message="How is the sky?")

    def launch(node_input: dict[str, Any]) -> str:
        ledger.add("node", "launch")
        return ", ".join(str(node_input[name]) for name in sorted(node_input))

    join = JoinNode(name="join")
    gates = (engineer("fuel"), engineer("radio"), weather)
    return Workflow(name="launch_gates", edges=[("START", gates), (gates, join), (join, launch)])


def reply(asked: Any) -> Any:
    return {"confirmed": True} if asked.tool else "clear"


SAMPLE = Sample(
    build=build,
    messages=("go",),
    reply=reply,
    waits=(3,),
    in_flight=4,
    rows={
        ("model", "fuel_engineer"): 2,
        ("model", "radio_engineer"): 2,
        ("tool", "arm", "fuel"): 1,
        ("tool", "arm", "radio"): 1,
        ("node", "launch"): 1,
    },
    last="fuel armed, radio armed, clear",
    stock="of the branches that one message answers only the first goes on as answered",
)
