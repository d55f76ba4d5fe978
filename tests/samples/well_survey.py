"""Fan out and join: an agent and two functions work at once, an agent sums up what they found."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.workflow import JoinNode, Workflow

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> Workflow:
    async def lab(sample: str) -> dict[str, Any]:
        """Analyse a water sample."""
        ledger.add("tool", "lab", sample)
        await asyncio.sleep(0.004)
        return {"nitrate": 7}

    chemist = LlmAgent(
        name="chemist",
        model=scripted(
            ledger, "chemist", calls(("lab", {"sample": "north well"})), says("nitrate is low")
        ),
        tools=[lab],
    )

    async def depth(node_input: str) -> int:
        ledger.add("node", "depth")
        await asyncio.sleep(0.002)
        return 31

    def permits(node_input: str) -> list[str]:
        ledger.add("node", "permits")
        return ["drill", node_input]

    def as_text(node_input: dict[str, Any]) -> str:
        ledger.add("node", "as_text")
        return json.dumps(node_input, sort_keys=True)

    author = LlmAgent(
        name="author",
        model=scripted(ledger, "author", lambda asked: says(f"Survey: {heard(asked)}")),
    )
    join = JoinNode(name="join")
    parts = (chemist, depth, permits)
    return Workflow(
        name="well_survey", edges=[("START", parts), (parts, join), (join, as_text, author)]
    )


SAMPLE = Sample(
    build=build,
    messages=("north well",),
    in_flight=4,
    rows={
        ("model", "chemist"): 2,
        ("tool", "lab", "north well"): 1,
        ("node", "depth"): 1,
        ("node", "permits"): 1,
        ("node", "as_text"): 1,
        ("model", "author"): 1,
    },
    last='Survey: {"chemist": "nitrate is low", "depth": 31, "permits": ["drill", "north well"]}',
)
