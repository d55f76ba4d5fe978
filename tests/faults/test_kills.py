"""Whatever goes wrong at a fault point, an execution ends as if it had not, in both replay modes.

At every point of every scenario of the catalogue: the process dies, the store or the body raises,
the reply of a write is lost; and processes die again as they recover. A slice uses SIGKILL on
fresh interpreters, and SIGSTOP for longer than a lease. All of it: ``scripts/faults.sh``; the
ordinary run takes a seeded slice.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults import totals
from tests.faults.differences import after_a_kill, differences, in_doubt
from tests.faults.scenarios import SCENARIOS, Scenario
from tests.shapes.shape import Shape
from tests.support.acts import in_a_plan
from tests.support.lives import Fault, Life, Point, World, points_of

__all__ = ["differences"]

pytestmark = pytest.mark.timeout(3600)

KINDS = ("kill", "raise", "lose")
SLICE = {"kill": 2, "raise": 1, "lose": 1, "twice": 0}
"""In the slice: of each kind, in each replay mode of each scenario."""
WIDER = {"two confirmations and a question", "ten tools"}
TWICE = 8
"""Double kills of each scenario and mode in the whole matrix; one in the slice of those that are
wider or have calls in doubt."""


@pytest.fixture
def world(
    replica_set_uri: str, database: str, tmp_path: Path, request: pytest.FixtureRequest
) -> World:
    mode = getattr(request, "param", "restore")
    return World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)


@dataclass(frozen=True)
class Drawn:
    """Which faults are taken: every one (``scripts/faults.sh``), or a seeded slice."""

    whole: bool
    seed: int

    def of(self, kind: str, life: Life, name: str, mode: str) -> list[tuple[int, Fault]]:
        """Faults of a kind: the attempt, from 1, and what happens in it."""
        found = [
            (attempt, Fault(what=kind, point=in_a_plan(point), at=at))
            for attempt, (point, at) in points(life)
            if kind != "lose" or point.startswith("after: ")
        ]
        if self.whole:
            return found
        wanted = SLICE[kind] * (2 if name in WIDER else 1)
        return self.some(found, wanted, f"{name} {mode} {kind}")

    def some(self, found: Sequence[Any], wanted: int, name: str) -> list[Any]:
        """That many, in their order."""
        draw = random.Random(f"{self.seed} {name}")
        places = sorted(draw.sample(range(len(found)), min(wanted, len(found))))
        return [found[place] for place in places]

    def twice(self, life: Life, name: str, mode: str) -> list[tuple[tuple[int, Point], int]]:
        """Kills, and at the how-manyeth point of the recovery the next one."""
        wanted = TWICE if self.whole else int(name in WIDER or bool(SCENARIOS[name].asked))
        draw = random.Random(f"{self.seed} {name} {mode} twice")
        kills = self.some(points(life), wanted, f"{name} {mode} first of two")
        return [(kill, draw.randint(1, 12)) for kill in kills]


def points(life: Life) -> list[tuple[int, Point]]:
    return [
        (attempt, point)
        for attempt, reached in enumerate(life.reached, 1)
        for point in points_of(reached)
    ]


@functools.cache
def restored_life(uri: str, database: str, folder: Path, name: str) -> Life:
    """The undisturbed life that all others of a scenario are compared with."""
    world = World(uri=uri, database=database, folder=folder, mode="restore")
    life = world.live(SCENARIOS[name].case)
    assert set(life.status) == {"completed"}, life.error
    return life


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> Drawn:
    config = request.config
    return Drawn(whole=config.getoption("--all-points"), seed=config.getoption("--fault-seed"))


# ---------------------------------------------------------------- what may differ


def changed(scenario: Scenario, undisturbed: Life, life: Life, fault: Fault) -> list[str]:
    """How a life differs from the undisturbed one in what its fault may not change."""
    found = []
    if life.raised and fault.what != "raise":
        found.append(f"a call raised {life.raised}")
    again = [row for row in life.ledger - undisturbed.ledger if not _reentered(scenario, row)]
    if fault.what in ("lose", "none") and (life.attempts != undisturbed.attempts or again):
        found.append(f"{life.attempts} attempts, ran again: {again}")
    found += list(_told_twice(scenario, life, interrupted=fault.what not in ("lose", "none")))
    found += _asked_wrongly(scenario, life, fault)
    twice = [row for row, n in life.ledger.items() if row[0] == "once" and n > 1]
    if twice:
        found.append(f"ran twice: {twice}")
    if (scenario.once or scenario.asked) and life.status[-1] == "failed":
        return [*found, *_not_settled(scenario, undisturbed, life, fault)]
    if scenario.tries and fault.what == "raise" and not fault.point.startswith(("before", "after")):
        undisturbed = dataclasses.replace(
            undisturbed, events=life.events, ledger=life.ledger, asked=life.asked
        )
    case = scenario.case
    if isinstance(case, Shape):
        return found + after_a_kill(case, undisturbed, life, fault.point)
    return found + differences(case, undisturbed, life, fault.point)


def _reentered(scenario: Scenario, row: tuple[Any, ...]) -> bool:
    return bool({row[:1], row[:2]} & set(scenario.case.reentered))


def _not_settled(scenario: Scenario, undisturbed: Life, life: Life, fault: Fault) -> Iterator[str]:
    """An execution that failed because a tool must not run twice: as promised?"""
    error = (life.error or {}).get("type")
    at_body = fault.point.startswith(("in tool:", "ran tool:", "in node:", "ran node:"))
    its_own = fault.what == "raise" and at_body  # a failure of such a tool is its outcome
    unknown = error == "OutcomeUnknown" and scenario.once
    if not unknown and not (its_own and error == "RuntimeError"):
        yield f"failed with {life.error}"
    may_be = at_body or "intent" in fault.point or "outcomes" in fault.point
    if life.died < 2 and not may_be:  # the second death may be in the body
        yield f"failed with {error} although no body was in doubt"
    more = {row for row in life.ledger - undisturbed.ledger if row[0] == "once"}
    if more:
        yield f"ran again: {more}"


def _asked_wrongly(scenario: Scenario, life: Life, fault: Fault) -> Iterator[str]:
    """In-doubt waits of other calls than those that may be, or none where there must be one."""
    doubts = set(in_doubt(life))
    if not doubts <= scenario.asked:
        yield f"asked about {doubts - scenario.asked}"
    when, _, body = fault.point.partition(" ")
    if when in ("in", "ran"):
        struck = {body.partition(":")[2]} & scenario.asked
        must = struck if fault.what == "kill" and life.struck else set()
        may = must if life.died < 2 else scenario.asked  # another one may be in doubt then
        if not must <= doubts <= may:
            yield f"asked about {doubts}, not {must}"
        return
    at_writes = "intent" in fault.point or "outcomes" in fault.point
    may_be = at_writes and fault.what in ("kill", "raise")
    if doubts and life.died < 2 and not may_be:
        yield f"asked about {doubts} although no body was in doubt"


def _told_twice(scenario: Scenario, life: Life, *, interrupted: bool) -> Iterator[str]:
    """Text that a listener was told again after its frontier was committed."""
    told = [row[1] for row in life.told if row[0] == "token"]
    for step, words in enumerate(scenario.told):
        if not set(words) <= set(told) and not interrupted:
            yield f"never told: {set(words) - set(told)}"
        # By what was answered: the last time, if an answer was lost before it was stored.
        goes_on = {row[1:]: n for n, row in enumerate(life.told) if row[0] == "goes on"}
        late = life.told[list(goes_on.values())[step] :] if step < len(goes_on) else []
        again = {row[1] for row in late if row[0] == "token"} & set(words)
        if again:
            yield f"told again after its frontier: {again}"


def lived(world: World, scenario: Scenario, undisturbed: Life, named: Fault, **how: Any) -> Any:
    """A life with a fault. Returns: the life, or None, and what is wrong with it."""
    try:
        life = world.live(scenario.case, **how)
    except AssertionError as error:
        return None, [f"no end: {error}"]
    return life, changed(scenario, undisturbed, life, named)


# ---------------------------------------------------------------- every point


@pytest.mark.parametrize("world", ["restore", "walk"], indirect=True)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_fault_anywhere_changes_nothing(
    world: World, name: str, drawn: Drawn, record_property: Callable[[str, object], None]
) -> None:
    scenario = SCENARIOS[name]
    folder = world.folder.parent
    restored = undisturbed = restored_life(world.uri, world.database, folder, name)
    counts: collections.Counter[str] = collections.Counter()
    bad: list[str] = []
    if world.mode == "walk":
        undisturbed = world.live(scenario.case)
        found = changed(scenario, restored, undisturbed, Fault(what="none", point=""))
        bad += [f"walked: {text}" for text in found]
    counts["points"] = len(points(undisturbed))
    for kind in KINDS:
        for attempt, fault in drawn.of(kind, undisturbed, name, world.mode):
            how: dict[str, Any] = {"fault": (attempt, fault)}
            life, found = lived(world, scenario, restored, fault, **how)
            bad += [f"attempt {attempt}, {kind} {fault.point} ({fault.at}): {d}" for d in found]
            counts[kind] += life is not None and life.struck
    for kill, again in drawn.twice(undisturbed, name, world.mode):
        fault = Fault(what="kill", point=in_a_plan(kill[1][0]))
        life, found = lived(world, scenario, restored, fault, kill=kill, again=again)
        bad += [f"killed at {kill} and at point {again} of the recovery: {d}" for d in found]
        counts["kill"] += 0 if life is None else life.died
    record_property("faults: scenarios", int(world.mode == "restore"))
    record_property("faults: points", counts["points"])
    record_property("faults: kills", counts["kill"])
    record_property("faults: raises", counts["raise"])
    record_property("faults: lost replies", counts["lose"])
    record_property("faults: mismatches", len(bad))
    assert not bad, f"{len(bad)} differences:\n" + "\n".join(bad[:20])
    # Outcomes that come together are one write: a drawn reach of it may not come.
    reached = [counts[kind] for kind in KINDS]
    assert min(reached) if drawn.whole else sum(reached), f"never reached: {counts}"


# ---------------------------------------------------------------- signals

SIGKILLS = (20, 4)
"""In all, and in the slice."""
SIGSTOPS = (24, 2)


def _per_case(totals: tuple[int, int], drawn: Drawn) -> int:
    return totals[not drawn.whole] // len(WIDER)


@pytest.mark.parametrize("name", sorted(WIDER))
def test_sigkill_of_a_fresh_interpreter_changes_nothing(
    world: World, name: str, drawn: Drawn, record_property: Callable[[str, object], None]
) -> None:
    scenario = SCENARIOS[name]
    undisturbed = world.live(scenario.case)
    wanted, kills = _per_case(SIGKILLS, drawn), 0
    bad: list[str] = []
    for kill in drawn.some(points(undisturbed), 3 * wanted, f"sigkill {name}"):
        fault = Fault(what="kill", point=in_a_plan(kill[1][0]))
        life, found = lived(world, scenario, undisturbed, fault, kill=kill, sigkill_of=name)
        bad += [f"{kill}: {text}" for text in found]
        # a write may take along what had its own before
        kills += life is not None and life.killed_at is not None
        if kills == wanted:
            break
    record_property("faults: SIGKILLs", kills)
    record_property("faults: mismatches", len(bad))
    assert not bad, "\n".join(bad)
    assert kills == wanted


@pytest.mark.parametrize("name", sorted(WIDER))
def test_a_process_that_is_stopped_for_longer_than_its_lease_changes_nothing(
    world: World, name: str, drawn: Drawn, record_property: Callable[[str, object], None]
) -> None:
    """S14: another process recovers meanwhile; the stopped one wakes when all is done."""
    scenario = SCENARIOS[name]
    case = dataclasses.replace(scenario.case, config={"lease": {"ttl": "3s"}})
    scenario = dataclasses.replace(scenario, case=case)
    undisturbed = world.live(case)
    wanted, stops = _per_case(SIGSTOPS, drawn), 0
    bad: list[str] = []
    for attempt, point in drawn.some(points(undisturbed), 3 * wanted, f"sigstop {name}"):
        fault = Fault(what="stop", point=in_a_plan(point[0]), at=point[1])
        life, found = lived(world, scenario, undisturbed, fault, fault=(attempt, fault))
        bad += [f"attempt {attempt}, {point}: {text}" for text in found]
        if life is not None and life.woken is not None:
            stops += 1
            woken = life.woken.get("status")
            committed = woken == "suspended" and fault.point == "after frontier"
            if woken != "completed" and not committed:  # else told the outcome of the new owner
                bad.append(f"attempt {attempt}, {point}: the one that woke says {life.woken}")
        if stops == wanted:
            break
    record_property("faults: SIGSTOPs", stops)
    record_property("faults: mismatches", len(bad))
    assert not bad, "\n".join(bad)
    assert stops == wanted


# ---------------------------------------------------------------- the check itself


def test_the_comparison_sees_a_body_that_ran_twice() -> None:
    case = SCENARIOS["nested workflow"].case
    once, twice = Life(status=["completed"]), Life(status=["completed"])
    once.ledger = collections.Counter({("tool", "pay", 1): 1})
    twice.ledger = collections.Counter({("tool", "pay", 1): 3})
    assert differences(case, once, twice, "in: tool pay")


def test_the_comparison_sees_what_a_lost_reply_and_a_listener_must_not_see() -> None:
    lost = Fault(what="lose", point="after end")
    plain = SCENARIOS["nested workflow"]
    once = Life(status=["completed"], attempts=2)
    assert not changed(plain, once, once, lost)
    assert changed(plain, once, dataclasses.replace(once, attempts=3), lost)
    assert changed(plain, once, dataclasses.replace(once, raised=["Unavailable()"]), lost)
    stream = SCENARIOS["a stream"]
    first, second = stream.told
    told = [("token", word) for word in first] + [("goes on",)]
    told += [("token", word) for word in second]
    whole = dataclasses.replace(once, told=told)
    assert not changed(stream, whole, whole, lost)
    again = dataclasses.replace(once, told=[*told, ("token", first[0])])
    assert changed(stream, whole, again, lost)
    charged = SCENARIOS["tools that must not run twice"]
    twice = dataclasses.replace(once, ledger=collections.Counter({("once", "charge", 5): 2}))
    assert changed(charged, once, twice, Fault(what="kill", point="ran tool:charge"))


def test_the_comparison_sees_who_was_asked() -> None:
    killed = Fault(what="kill", point="in tool:charge")
    scenario = SCENARIOS["calls in doubt that a person is asked about"]
    question, doubt = ["adk_request_input", "q", ""], ["in_doubt", "d", "charge"]
    once = Life(status=["completed"], asked=[question])
    asked = dataclasses.replace(once, asked=[question, doubt], died=1, struck=True)
    assert not changed(scenario, once, asked, killed)
    for wrong in (
        dataclasses.replace(asked, asked=[question]),
        dataclasses.replace(asked, asked=[doubt]),
        dataclasses.replace(asked, asked=[question, doubt, ["in_doubt", "e", "charge"]]),
        dataclasses.replace(asked, asked=[question, ["in_doubt", "d", "look"]]),
        dataclasses.replace(asked, asked=[["adk_request_input", "other", ""], doubt]),
    ):
        assert changed(scenario, once, wrong, killed), wrong.asked
    assert changed(scenario, once, asked, Fault(what="kill", point="after begin"))
    assert changed(scenario, once, asked, Fault(what="lose", point="after outcomes"))
    assert changed(SCENARIOS["nested workflow"], once, asked, killed)


def test_the_last_line_sums_all_results_and_fails_on_a_mismatch(
    tmp_path: Path, capsys: Any
) -> None:
    def results(name: str, **found: int) -> str:
        path = tmp_path / name
        properties = "".join(
            f'<property name="faults: {key}" value="{value}"/>' for key, value in found.items()
        )
        case = f"<testcase><properties>{properties}</properties></testcase>"
        path.write_text(f'<testsuites><testsuite failures="0">{case}</testsuite></testsuites>')
        return str(path)

    good = [results("a.xml", kills=2, mismatches=0), results("b.xml", kills=3, failovers=1)]
    assert totals.main(good) == 0
    assert "5 kills" in (said := capsys.readouterr().out)
    assert "1 failovers, 0 mismatches" in said
    assert totals.main([*good, results("c.xml", mismatches=10)]) == 1
