"""Killed before and after every write and in every body, an execution ends as if undisturbed.

Every point of every case in both replay modes: ``scripts/faults.sh``. The ordinary run takes a
seeded slice, and some kills with SIGKILL on fresh interpreters.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.catalogue import CASES
from tests.support.lives import Case, Life, Point, World, by_place, points_of

pytestmark = pytest.mark.timeout(3600)

SLICE = {"two confirmations and a question": 16, "ten tools": 16}
OTHERS = 4


@pytest.fixture
def world(
    replica_set_uri: str, database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> World:
    return World(uri=replica_set_uri, database=database, folder=tmp_path, mode=request.param)


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> Drawn:
    config = request.config
    return Drawn(whole=config.getoption("--all-points"), seed=config.getoption("--fault-seed"))


@dataclass(frozen=True)
class Drawn:
    """Which points are taken: every one (``scripts/faults.sh``), or a seeded slice."""

    whole: bool
    seed: int

    def points(self, undisturbed: Life, name: str, slice_of: int) -> list[tuple[int, Point]]:
        found = [
            (attempt, point)
            for attempt, reached in enumerate(undisturbed.reached, 1)
            for point in points_of(reached)
        ]
        if not self.whole:
            random.Random(f"{self.seed} {name}").shuffle(found)
            found = sorted(found[:slice_of])
        return found


def differences(
    case: Case,
    undisturbed: Life,
    life: Life,
    cut: str,
    *,
    repeats: Mapping[tuple[Any, ...], int] | None = None,
) -> list[str]:
    """How a killed life differs from the undisturbed one.

    Args:
        cut: The point of the kill.
        repeats: Rows of bodies that run at once and look the same, and how many.
    """
    found = []
    if life.status != undisturbed.status:
        found.append(f"status {life.status}, not {undisturbed.status}")
    if life.output != undisturbed.output:
        found.append(f"output {life.output}, not {undisturbed.output}")
    if life.state != undisturbed.state:
        found.append(f"state {life.state}, not {undisturbed.state}")
    ours, theirs = by_place(life.events), by_place(undisturbed.events)
    for place in sorted(set(ours) | set(theirs), key=str):
        if ours.get(place) != theirs.get(place):
            found.append(f"events of {place}: {ours.get(place)}, not {theirs.get(place)}")
    ids = [event["id"] for event in life.events]
    if len(set(ids)) != len(ids):
        found.append("event ids repeat")
    missing = undisturbed.ledger - life.ledger
    again = life.ledger - undisturbed.ledger
    allowed = case.in_flight
    if missing:
        found.append(f"never ran: {dict(missing)}")
    alike = repeats or {}
    again = collections.Counter(
        {row: n for row, n in again.items() if not {row[:1], row[:2]} & set(case.reentered)}
    )
    if sum(again.values()) > allowed or any(n > alike.get(row, 1) for row, n in again.items()):
        found.append(f"ran again: {dict(again)} (killed {cut})")
    return found


@pytest.mark.parametrize("world", ["restore", "walk"], indirect=True)
@pytest.mark.parametrize("name", CASES)
def test_a_kill_anywhere_changes_nothing(
    world: World, name: str, drawn: Drawn, record_property: Callable[[str, object], None]
) -> None:
    case = CASES[name]
    undisturbed = world.live(case)
    assert set(undisturbed.status) == {"completed"}
    bad: list[str] = []
    kills = 0
    chosen = drawn.points(undisturbed, name, SLICE.get(name, OTHERS))
    for attempt, point in chosen:
        life = world.live(case, kill=(attempt, point))
        kills += life.killed_at is not None
        cut = point[0]
        bad += [f"{attempt}: {point}: {d}" for d in differences(case, undisturbed, life, cut)]
    record_property("faults: programs in a mode", 1)
    record_property("faults: points", len(chosen))
    record_property("faults: kills", kills)
    record_property("faults: differences", len(bad))
    assert not bad, f"{len(bad)} differences:\n" + "\n".join(bad[:20])
    assert kills, "no kill was reached"


SIGKILLS = (20, 4)
"""In all, and in the slice."""


@pytest.mark.parametrize("world", ["restore"], indirect=True)
@pytest.mark.parametrize("name", list(SLICE))
def test_sigkill_of_a_fresh_interpreter_changes_nothing(
    world: World, name: str, drawn: Drawn, record_property: Callable[[str, object], None]
) -> None:
    case = CASES[name]
    undisturbed = world.live(case)
    wanted = SIGKILLS[not drawn.whole] // 2  # by each of two programs
    sliced, kills = Drawn(whole=False, seed=drawn.seed), 0
    for attempt, point in sliced.points(undisturbed, f"sigkill {name}", 3 * wanted):
        life = world.live(case, kill=(attempt, point), sigkill_of=name)
        assert differences(case, undisturbed, life, point[0]) == []
        kills += life.killed_at is not None  # a write may take along what had its own before
        if kills == wanted:
            break
    assert kills == wanted
    record_property("faults: SIGKILLs of fresh interpreters", kills)


def test_the_comparison_sees_a_body_that_ran_twice() -> None:
    """The check itself can fail."""
    case = CASES["nested workflow"]
    once, twice = Life(status=["completed"]), Life(status=["completed"])
    once.ledger = collections.Counter({("tool", "pay", 1): 1})
    twice.ledger = collections.Counter({("tool", "pay", 1): 3})
    assert differences(case, once, twice, "in: tool pay")
