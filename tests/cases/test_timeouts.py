"""An agent that ran out of time and started over: what was cut off is not run again by a replay."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from google.adk.workflow import START, RetryConfig, Workflow, node

from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import agent
from tests.faults.differences import differences
from tests.shapes.composite import end_of
from tests.shapes.test_shapes import calls_of
from tests.shapes.workflows import question
from tests.support.lives import Case, Ledger, World

pytestmark = pytest.mark.timeout(600)


def starts_over(ledger: Ledger) -> Workflow:
    """An agent whose tool takes too long the first time."""

    async def hang(q: str) -> str:
        """Take too long, once."""
        before = sum(row[:2] == ("tool", "hang") for row in ledger.rows())
        ledger.add("tool", "hang", before)
        if not before:
            await asyncio.sleep(5)
        return q

    worker = agent(ledger, "worker", calls(("hang", {"q": "a"})), says("in time"), tools=[hang])
    retry = RetryConfig(max_attempts=3, initial_delay=0.001, jitter=0)
    limited = node(worker, timeout=0.8, retry_config=retry)
    ask = question(ledger)
    return Workflow(name="flow", edges=[(START, limited), (limited, ask), (ask, end_of(ledger))])


@pytest.mark.parametrize("mode", ["restore", "walk"])
def test_what_a_timeout_cut_off_is_not_run_again_by_a_replay(
    mode: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    case = Case(build=starts_over, in_flight=2)
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    undisturbed = world.live(case)
    assert undisturbed.status == ["completed"]
    assert undisturbed.ledger["tool", "hang", 0] == undisturbed.ledger["tool", "hang", 1] == 1
    # Before something of the second entry is recorded, nobody knows that there was a first one.
    known = undisturbed.reached[0].index("ran: tool hang")
    points = [
        (attempt, point)
        for attempt, point in calls_of(undisturbed)
        if attempt > 1 or point in calls_after(undisturbed.reached[0], known)
    ]
    assert len(points) > 4
    for attempt, point in points[:: 2 if mode == "walk" else 1]:
        life = world.live(case, kill=(attempt, point))
        assert differences(case, undisturbed, life, point[0]) == []


def calls_after(reached: list[str], place: int) -> set[tuple[str, int]]:
    return {(name, reached[: i + 1].count(name)) for i, name in enumerate(reached) if i > place}
