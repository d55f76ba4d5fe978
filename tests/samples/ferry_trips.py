"""A dynamic workflow: code decides which nodes run, in a gather, a loop, and with a question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.events import RequestInput
from google.adk.workflow import Workflow, node

from durable_adk.testing import says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> Workflow:
    @node
    def islands(node_input: str) -> list[str]:
        ledger.add("node", "islands")
        return node_input.split(", ")

    @node
    async def fare(node_input: str) -> int:
        ledger.add("node", "fare", node_input)
        await asyncio.sleep(0.003)
        return 10 * len(node_input)

    @node
    async def approve(node_input: int) -> AsyncIterator[RequestInput]:
        yield RequestInput(message=f"{node_input} is much. How much at most?")

    @node
    def cheaper(node_input: int) -> int:
        ledger.add("node", "cheaper", node_input)
        return node_input - 20

    poster = LlmAgent(
        name="poster",
        model=scripted(ledger, "poster", lambda asked: says(f"Aboard! {heard(asked)}")),
    )

    @node(rerun_on_resume=True)
    async def trip(ctx: Context, node_input: str) -> Any:
        stops = await ctx.run_node(islands, node_input)
        fares = await asyncio.gather(
            *(ctx.run_node(fare, stop, run_id=f"to-{stop}") for stop in stops)
        )
        price = sum(fares)
        limit = await ctx.run_node(approve, price)
        while price > limit:
            price = await ctx.run_node(cheaper, price)
        return await ctx.run_node(poster, f"{len(stops)} islands for {price}")

    return Workflow(name="ferry_trips", edges=[("START", trip)])


SAMPLE = Sample(
    build=build,
    messages=("Arran, Bute, Cumbrae",),
    reply=lambda asked: 125,
    waits=(1,),
    in_flight=4,
    rows={
        ("node", "islands"): 1,
        ("node", "fare", "Arran"): 1,
        ("node", "fare", "Bute"): 1,
        ("node", "fare", "Cumbrae"): 1,
        ("node", "cheaper", 160): 1,
        ("node", "cheaper", 140): 1,
        ("model", "poster"): 1,
    },
    last="Aboard! 3 islands for 120",
)
