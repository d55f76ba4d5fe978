"""A parallel worker: an agent for each item, two at a time; fragile items need a curator."""

from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow, node

from durable_adk.testing import says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> Workflow:
    def unpack(node_input: str) -> list[str]:
        ledger.add("node", "unpack")
        return node_input.split(", ")

    writer = LlmAgent(
        name="writer", model=scripted(ledger, "writer", lambda asked: says(f"a {heard(asked)}"))
    )

    async def mount(node_input: str) -> str:
        ledger.add("node", "mount", node_input)
        await asyncio.sleep(0.003)
        return node_input.upper()

    def hang(node_input: list[Any]) -> str:
        ledger.add("node", "hang")
        return " / ".join(map(str, node_input))

    return Workflow(
        name="museum_labels",
        edges=[
            (
                "START",
                unpack,
                node(writer, parallel_worker=True, max_parallel_workers=2),
                node(
                    node(mount, require_confirmation=lambda node_input: "vase" in node_input),
                    parallel_worker=True,
                ),
                hang,
            )
        ],
    )


SAMPLE = Sample(
    build=build,
    messages=("coin, vase, mask, shield",),
    reply=lambda asked: {"confirmed": True},
    waits=(1,),
    in_flight=4,
    rows={
        ("node", "unpack"): 1,
        ("model", "writer"): 4,
        ("node", "mount", "a coin"): 1,
        ("node", "mount", "a vase"): 1,
        ("node", "mount", "a mask"): 1,
        ("node", "mount", "a shield"): 1,
        ("node", "hang"): 1,
    },
    last="A COIN / A VASE / A MASK / A SHIELD",
)
