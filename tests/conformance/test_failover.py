"""The primary steps down while executions run: nothing lost, nothing doubled, all finish."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from durable_adk.model.execution import Status
from durable_adk.store.clock import ServerClock
from tests.conformance.bench import (
    Bench,
    answer_all,
    answered_of,
    end,
    lease_of,
    record,
    step_of,
    suspend,
    wait,
)

EXECUTIONS = 24
CALLS = 6


@pytest.fixture
async def members(three_members_uri: str, database: str) -> AsyncIterator[Bench]:
    client = AsyncMongoClient(three_members_uri)
    bench = Bench(client, database=database, clock=ServerClock(), is_real=True)
    await bench.store.open()
    yield bench
    await client.close()


async def whole_life(bench: Bench, number: int) -> None:
    """Begin, record, suspend, answer, continue and end, as an engine does it."""
    e = await bench.begin(f"e{number}", f"s{number}")
    for ordinal in range(1, CALLS + 1):
        assert await bench.store.insert_outcomes(e.run, [record(ordinal)]) is None
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    records = await bench.store.load_records(e.run, from_step=1)
    assert len(records) == CALLS
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    current = await bench.read(claimed)
    outcomes = [record(n, step=2, token=current.token) for n in range(1, CALLS + 1)]
    assert await bench.store.insert_outcomes(e.run, outcomes) is None
    assert (await bench.store.renew(lease_of(current), ttl_ms=30_000)).held
    await end(bench, current, step_of(current, records=tuple(r.slot for r in outcomes)))


@pytest.mark.timeout(600)
async def test_a_primary_that_steps_down_costs_no_write_and_doubles_none(members: Bench) -> None:
    bench = members
    primary = await bench.client.primary

    async def step_down() -> None:
        await asyncio.sleep(0.2)  # in the middle: this is what the test is about
        with contextlib.suppress(PyMongoError):  # it closes connections as it goes
            await bench.client.admin.command("replSetStepDown", 10, force=True)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(step_down())
        for number in range(EXECUTIONS):
            tasks.create_task(whole_life(bench, number))
    assert await bench.client.primary != primary
    executions = await bench.raw("executions", {"ns": bench.tenant.namespace})
    assert len(executions) == EXECUTIONS
    for doc in executions:
        assert (doc["status"], doc["turn"], doc["token"]) == (Status.COMPLETED.value, 1, 2)
        stored = await bench.store.load_records(doc["run"], from_step=1)
        assert len(stored) == 2 * CALLS + 2
        assert len(await bench.store.load_waits(doc["run"], step=1)) == 2
