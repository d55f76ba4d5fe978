"""Any schedule of the store's calls does what the plain reference does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from pymongo import AsyncMongoClient

from durable_adk.store.clock import ManualClock
from durable_adk.testing import memory_client
from tests.conformance.bench import Bench
from tests.races.machine import StoreMachine

pytestmark = pytest.mark.timeout(3600)

EXAMPLES = {"mongomock": 25, "mongod": 6}
"""In the ordinary run, always the same ones. ``--all-points`` draws others each time."""
TIMES = 60


@pytest.fixture(params=sorted(EXAMPLES))
def machine(request: pytest.FixtureRequest, database: str) -> Iterator[type[StoreMachine]]:
    is_real = request.param == "mongod"
    uri = request.getfixturevalue("replica_set_uri") if is_real else ""

    async def opened() -> Bench:
        client: Any = AsyncMongoClient(uri) if is_real else memory_client()
        bench = Bench(client, database=f"{database}_model", clock=ManualClock(), is_real=is_real)
        await bench.store.open()
        return bench

    async def closed(bench: Bench) -> None:
        await bench.store.close()
        if is_real:
            await bench.client.close()

    with asyncio.Runner() as runner:
        bench = runner.run(opened())
        yield type("Machine", (StoreMachine,), {"bench": bench, "runner": runner})
        runner.run(closed(bench))


def test_every_schedule_does_what_the_reference_does(
    machine: type[StoreMachine], request: pytest.FixtureRequest
) -> None:
    is_whole = request.config.getoption("--all-points")
    examples = EXAMPLES["mongod" if machine.bench.is_real else "mongomock"]
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples * (TIMES if is_whole else 1),
            stateful_step_count=100,
            derandomize=not is_whole,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, *([Phase.shrink] if is_whole else [])],
        ),
    )
