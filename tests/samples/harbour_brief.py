"""Fan out and gather: three agents look things up at once, one merges what they left in state."""

from __future__ import annotations

import asyncio

from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, instruction, scripted
from tests.support.lives import Ledger

FOUND = {"tides": "high at nine", "ships": "two tankers", "fog": "until noon"}


def build(ledger: Ledger) -> SequentialAgent:
    async def bulletin(topic: str) -> str:
        """Read a bulletin."""
        ledger.add("tool", "bulletin", topic)
        await asyncio.sleep(0.002 * len(topic))
        return FOUND[topic]

    def reporter(topic: str) -> LlmAgent:
        return LlmAgent(
            name=topic,
            model=scripted(
                ledger, topic, calls(("bulletin", {"topic": topic})), says(FOUND[topic])
            ),
            tools=[bulletin],
            output_key=f"found_{topic}",
        )

    reporters = ParallelAgent(name="reporters", sub_agents=[reporter(topic) for topic in FOUND])
    pilot = LlmAgent(
        name="pilot",
        instruction="{found_tides}; {found_ships}; {found_fog}",
        model=scripted(ledger, "pilot", lambda asked: says(f"Brief: {instruction(asked)}")),
    )
    return SequentialAgent(name="harbour_brief", sub_agents=[reporters, pilot])


SAMPLE = Sample(
    build=build,
    messages=("morning brief",),
    in_flight=5,
    rows={
        **{("model", topic): 2 for topic in FOUND},
        **{("tool", "bulletin", topic): 1 for topic in FOUND},
        ("model", "pilot"): 1,
    },
    last="Brief: high at nine; two tankers; until noon",
    kept={f"found_{topic}": text for topic, text in FOUND.items()},
)
