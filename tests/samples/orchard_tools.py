"""Function tools at once: three async tools of one turn, typed arguments, state they share."""

from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.tool_context import ToolContext
from pydantic import BaseModel

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


class Tree(BaseModel):
    kind: str
    row: int


def build(ledger: Ledger) -> LlmAgent:
    async def ripeness(tree: Tree) -> dict[str, Any]:
        """How ripe a tree is."""
        ledger.add("tool", "ripeness", tree.kind)
        await asyncio.sleep(0.004)
        return {"kind": tree.kind, "ripe": tree.row > 3}

    async def rain(tool_context: ToolContext) -> float:
        """Rain of the week."""
        ledger.add("tool", "rain")
        await asyncio.sleep(0.002)
        tool_context.state["rain"] = 3.5
        return 3.5

    def hire(pickers: int, tool_context: ToolContext, bonus: int = 0) -> str:
        """Hire pickers."""
        ledger.add("tool", "hire", pickers, bonus, tool_context.state["rain"])
        tool_context.state["user:pickers"] = pickers
        return "hired"

    return LlmAgent(
        name="orchard",
        model=scripted(
            ledger,
            "orchard",
            calls(
                ("ripeness", {"tree": {"kind": "plum", "row": 2}}),
                ("ripeness", {"tree": {"kind": "pear", "row": 9}}),
                ("rain", {}),
            ),
            calls(("hire", {"pickers": 4, "bonus": 10})),
            says("Pears are ripe, four pickers come."),
        ),
        tools=[ripeness, rain, hire],
    )


SAMPLE = Sample(
    build=build,
    messages=("is it time?",),
    in_flight=4,
    rows={
        ("model", "orchard"): 3,
        ("tool", "ripeness", "plum"): 1,
        ("tool", "ripeness", "pear"): 1,
        ("tool", "rain"): 1,
        ("tool", "hire", 4, 10, 3.5): 1,
    },
    last="Pears are ripe, four pickers come.",
    kept={"rain": 3.5, "user:pickers": 4},
)
