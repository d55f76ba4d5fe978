"""A loop with a checker of one's own: an agent tunes, a custom agent escalates when it is right."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent, LoopAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event, EventActions
from google.adk.tools.tool_context import ToolContext

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


class Thermostat(BaseAgent):
    """Ends the loop once the kiln is hot enough."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        hot = ctx.session.state.get("heat", 0) >= 900
        yield Event(author=self.name, actions=EventActions(escalate=hot))


def build(ledger: Ledger) -> LoopAgent:
    def burn(logs: int, tool_context: ToolContext) -> dict[str, Any]:
        """Burn logs in the kiln."""
        heat = tool_context.state.get("heat", 0) + 100 * logs
        ledger.add("tool", "burn", heat)
        tool_context.state["heat"] = heat
        return {"heat": heat}

    def stoke(asked: Any) -> Any:
        parts = asked.contents[-1].parts or []
        burnt = [part.function_response.response for part in parts if part.function_response]
        return says(f"{burnt[0]['heat']} degrees") if burnt else calls(("burn", {"logs": 4}))

    stoker = LlmAgent(name="stoker", model=scripted(ledger, "stoker", stoke), tools=[burn])
    return LoopAgent(
        name="kiln_tuning", max_iterations=8, sub_agents=[stoker, Thermostat(name="thermostat")]
    )


SAMPLE = Sample(
    build=build,
    messages=("fire the kiln",),
    rows={
        ("model", "stoker"): 6,
        ("tool", "burn", 400): 1,
        ("tool", "burn", 800): 1,
        ("tool", "burn", 1200): 1,
    },
    last="1200 degrees",
    kept={"heat": 1200},
)
