"""Programs as ADK's samples teach them run under ADK's runner and, by that one line, durably."""

from __future__ import annotations

import collections
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from durable_adk.testing import Write
from tests.faults.differences import differences
from tests.samples import SAMPLES
from tests.samples.sample import Sample
from tests.samples.talk import Told, durable, plain
from tests.support.lives import Ledger, Life, World, points_of

pytestmark = [
    pytest.mark.timeout(600),
    # ADK's own AgentTool makes its runner in a deprecated way.
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning"),
]

ALL = pytest.mark.parametrize("name", SAMPLES)


def wrong(sample: Sample, told: Told) -> list[str]:
    """What is not as the sample says."""
    found = []
    if told.last != sample.last:
        found.append(f"ends with {told.last!r}, not {sample.last!r}")
    if told.waits != sample.waits:
        found.append(f"waits {told.waits}, not {sample.waits}")
    rows = collections.Counter(sample.rows)
    if told.rows != rows:
        found.append(f"ran {dict(told.rows - rows)} too much, {dict(rows - told.rows)} not at all")
    kept = {key: told.state.get(key) for key in sample.kept}
    if kept != sample.kept:
        found.append(f"kept {kept}, not {dict(sample.kept)}")
    return found


SERIAL = 2
"""``in_flight`` of a sample without parallel parts: what it reaches, it reaches in one order."""


def cut_off(reached: Sequence[str]) -> int:
    """How many bodies may run again: an outcome is recorded by the second write after it."""
    recorded = f"after: {Write.OUTCOMES.value}"
    return sum(
        point.startswith("in: ") and reached[at:].count(recorded) < 2
        for at, point in enumerate(reached)
    )


def untimed(life: Life) -> Life:
    """Without the times that a summary names: the next process comes later."""
    for event in life.events:
        summary = event["actions"].get("compaction") or {}
        summary.pop("start_timestamp", None)
        summary.pop("end_timestamp", None)
    return life


@ALL
async def test_it_runs_under_adks_own_runner(name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    found = wrong(sample, await plain(sample, Ledger(tmp_path / "ledger")))
    assert bool(found) == bool(sample.stock), found


@ALL
async def test_it_runs_durably_by_its_runner_line(
    name: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    sample = SAMPLES[name]
    config = {"namespace": f"n{os.urandom(6).hex()}"}
    told = await durable(
        sample,
        Ledger(tmp_path / "ledger"),
        mongodb=replica_set_uri,
        database=database,
        config=config,
    )
    assert wrong(sample, told) == []
    if not sample.stock:
        expected = await plain(sample, Ledger(tmp_path / "plain"))
        assert told.by_author == expected.by_author
        assert told.state == expected.state


@ALL
def test_it_survives_a_new_process_after_each_wait_and_a_kill(
    name: str, replica_set_uri: str, database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sample = SAMPLES[name]
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    undisturbed = world.live(sample)
    assert set(undisturbed.status) == {"completed"}
    assert undisturbed.ledger == collections.Counter(sample.rows)
    assert tuple(map(len, undisturbed.waits)) == sample.waits
    assert {key: undisturbed.state.get(key) for key in sample.kept} == sample.kept

    draw = random.Random(f"{request.config.getoption('--fault-seed')} {name}")
    points = [
        (attempt, reached, at)
        for attempt, reached in enumerate(undisturbed.reached, 1)
        for at in range(len(reached) // 2, len(reached))  # where there is something to lose
    ]
    draw.shuffle(points)
    for attempt, reached, at in points:  # a write may take along what had its own before
        point = points_of(reached)[at]
        killed = world.live(sample, kill=(attempt, point))
        in_flight = min(sample.in_flight, cut_off(reached[:at]))
        case = sample if sample.in_flight > SERIAL else replace(sample, in_flight=in_flight)
        found = differences(case, untimed(undisturbed), untimed(killed), point[0])
        assert found == [], (attempt, point)
        if killed.killed_at is not None:
            return
    raise AssertionError("no kill was reached")
