"""Retries and a time limit: a sensor that fails twice, a feed that is too slow the first time."""

from __future__ import annotations

import asyncio

from google.adk.agents.context import Context
from google.adk.workflow import RetryConfig, Workflow, node

from tests.samples.sample import Sample
from tests.support.lives import Ledger

SOON = RetryConfig(max_attempts=4, initial_delay=0.01, backoff_factor=1.0, jitter=0.0)


def build(ledger: Ledger) -> Workflow:
    @node(retry_config=SOON)
    def read_level(ctx: Context, node_input: str) -> float:
        ledger.add("node", "read_level", ctx.attempt_count)
        if ctx.attempt_count < 3:
            raise ConnectionError(f"gauge {node_input} is silent")
        return 4.25

    @node(retry_config=SOON, timeout=0.5)
    async def read_wind(ctx: Context, node_input: float) -> str:
        ledger.add("node", "read_wind", ctx.attempt_count)
        if ctx.attempt_count == 1:
            await asyncio.sleep(60)
        return f"{node_input} m, wind north"

    def post(node_input: str) -> str:
        ledger.add("node", "post")
        return f"posted {node_input}"

    return Workflow(name="tide_gauge", edges=[("START", read_level, read_wind, post)])


SAMPLE = Sample(
    build=build,
    messages=("pier 3",),
    rows={
        ("node", "read_level", 1): 1,
        ("node", "read_level", 2): 1,
        ("node", "read_level", 3): 1,
        ("node", "read_wind", 1): 1,
        ("node", "read_wind", 2): 1,
        ("node", "post"): 1,
    },
    last="posted 4.25 m, wind north",
)
