"""Every shape: runs, suspends, goes on in a new process, completes; each body runs once.

Each is also killed: after a call's body and before its record, and around the write of its record;
at every call with ``scripts/shapes.sh --all``, else at one drawn call.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.test_kills import differences
from tests.shapes.all_shapes import SHAPES
from tests.shapes.shape import Shape, wrong
from tests.support.lives import Life, Point, World, points_of

pytestmark = pytest.mark.timeout(3600)

MODES = ("restore", "walk")


def calls_of(life: Life) -> list[tuple[int, Point]]:
    """Where a call can be cut off: attempt and point."""
    return [
        (attempt, point)
        for attempt, reached in enumerate(life.reached, 1)
        for point in points_of(reached)
        if point[0].startswith("ran: ") or "outcome" in point[0]
    ]


def drawn(
    request: pytest.FixtureRequest, name: str, mode: str, life: Life
) -> list[tuple[int, Point]]:
    found = calls_of(life)
    if request.config.getoption("--all-points"):
        return found
    draw = random.Random(f"{request.config.getoption('--fault-seed')} {name}")
    return [draw.choice(found)] if draw.choice(MODES) == mode else []


def after_a_kill(shape: Shape, undisturbed: Life, life: Life, point: Point) -> list[str]:
    """What a kill changed, but for the bodies that were in flight."""
    if shape.bumps:
        undisturbed, life = _without_versions(undisturbed), _without_versions(life)
    return differences(shape, undisturbed, life, point[0], repeats=shape.repeats)


def _without_versions(life: Life) -> Life:
    events = copy.deepcopy(life.events)
    for event in events:
        saved = event.get("actions", {}).get("artifact_delta", {})
        saved.update(dict.fromkeys(saved, "saved"))
    return dataclasses.replace(life, events=events)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SHAPES)
def test_each_body_runs_once_and_a_kill_changes_nothing(
    name: str,
    mode: str,
    replica_set_uri: str,
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    shape = SHAPES[name]
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    undisturbed = world.live(shape)
    assert wrong(shape, undisturbed) == []
    bad: list[str] = []
    kills = 0
    chosen = drawn(request, name, mode, undisturbed)
    for attempt, point in chosen:
        life = world.live(shape, kill=(attempt, point))
        kills += life.killed_at is not None
        found = after_a_kill(shape, undisturbed, life, point)
        bad += [f"attempt {attempt}, {point}: {text}" for text in found]
    record_property("shape", name)
    record_property("shapes: lives", 1 + len(chosen))
    record_property("shapes: kills", kills)
    record_property("shapes: differences", len(bad))
    assert not bad, f"{len(bad)} differences:\n" + "\n".join(bad[:20])
