"""Every shape: runs, suspends, goes on in a new process, completes; each body runs once.

Each is also killed: after a call's body and before its record, and when its record is stored;
at every call in both replay modes with ``scripts/shapes.sh --all``, else at one call in one mode.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.differences import after_a_kill
from tests.shapes.all_shapes import SHAPES
from tests.shapes.shape import wrong
from tests.support.lives import Life, Point, World, points_of

pytestmark = pytest.mark.timeout(3600)

MODES = ("restore", "walk")


def calls_of(life: Life) -> list[tuple[int, Point]]:
    """Where a call can be cut off: attempt and point."""
    return [
        (attempt, point)
        for attempt, reached in enumerate(life.reached, 1)
        for point in points_of(reached)
        if point[0].startswith("ran: ") or point[0] == "after: outcomes are recorded"
    ]


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Which modes and calls of a shape are taken: all, or one mode and one call in it."""

    whole: bool
    seed: int
    name: str

    @property
    def modes(self) -> tuple[str, ...]:
        return MODES if self.whole else (random.Random(f"{self.seed} {self.name}").choice(MODES),)

    def calls(self, life: Life) -> list[tuple[int, Point]]:
        found = calls_of(life)
        draw = random.Random(f"{self.seed} {self.name} call")
        return found if self.whole else [draw.choice(found)]


@pytest.mark.parametrize("name", SHAPES)
def test_each_body_runs_once_and_a_kill_changes_nothing(
    name: str,
    replica_set_uri: str,
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    shape, option = SHAPES[name], request.config.getoption
    drawn = Drawn(option("--all-points"), option("--fault-seed"), name)
    bad: list[str] = []
    lives = kills = 0
    for mode in drawn.modes:
        world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
        undisturbed = world.live(shape)
        bad += [f"{mode}: {text}" for text in wrong(shape, undisturbed)]
        lives += 1
        for attempt, point in drawn.calls(undisturbed) if not bad else ():
            life = world.live(shape, kill=(attempt, point))
            lives, kills = lives + 1, kills + (life.killed_at is not None)
            found = after_a_kill(shape, undisturbed, life, point[0])
            bad += [f"{mode}, attempt {attempt}, {point}: {text}" for text in found]
    record_property("shapes: lives", lives)
    record_property("shapes: kills", kills)
    record_property("shapes: modes", len(drawn.modes))
    assert not bad, f"{len(bad)} differences:\n" + "\n".join(bad[:20])
