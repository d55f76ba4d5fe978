"""Calls in doubt of which somebody is asked: an owner's way, and whoever says what became of them.

Verdicts first (``owners.py``). Then the owner finds out what it can, and commits a frontier of the
calls in doubt with what it found: one update, no step document. With an open wait it suspends; with
none it goes on under its lease. Whoever closes the frontier makes the answers records, lets it go,
and puts the results of what was done into the next slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.protocol import commits
from tests.protocol.turn import Move, Turn
from tests.protocol.world import (
    Answer,
    Committed,
    Execution,
    Frontier,
    Owner,
    Phase,
    Program,
    Record,
    Result,
    Rules,
    World,
    doubted,
)


def ask(turn: Turn) -> Iterator[Move]:
    owner, world = turn.owner, turn.world
    waits = tuple(
        sorted(f"{one.call}?{one.attempt_try}" for one in owner.loaded if one.status == "doubt")
    )
    known = {answer.wait for answer in owner.found}
    missing = next((wait for wait in waits if wait not in known), None)
    if turn.program.reconciles and missing is not None:
        for value in ("done", "not_done"):
            found = Answer(missing, value, -1)
            told = world.told
            if not turn.rules.reconcile_fenced and all(one.wait != missing for one in told):
                told |= {found}
            after = owner._replace(found=(*owner.found, found))
            yield turn.move(f"finds out: {missing} {value}", after, told=told)
    number = 1 + len({answer.wait.partition("?")[2] for answer in world.told})
    frontier = Frontier(
        Committed(owner.step, 0, frozenset()),
        waits,
        0,
        owner.found,
        doubts=number if turn.rules.doubt_ordinal else 1,
    )
    if not frontier.is_answered:
        yield from commits.commit(turn, "asks", status="suspended", frontier=frontier)
        return
    then = owner._replace(phase=Phase.CONTINUING, found=())
    yield from commits.commit(turn, "knows it all", then=then, frontier=frontier)


def go_on(turn: Turn) -> Iterator[Move]:
    """Close an answered frontier of doubts."""
    world, execution, rules = turn.world, turn.world.execution, turn.rules
    frontier = execution.frontier
    if not turn.is_current or frontier is None:
        yield turn.leave("closes the doubts: refused")
        return
    there = {answer.wait for answer in world.told}
    missing = [answer for answer in frontier.answers if answer.wait not in there]
    if missing and rules.doubt_records_first:
        told = world.told | set(missing)
        yield turn.move("makes what was said records", turn.owner, told=told)
        return
    changes: dict[str, Any] = {"frontier": None}
    if not rules.doubt_keeps_step:
        committed = (*execution.committed, frontier.committed)
        changes |= {"step": execution.step + 1, "committed": committed}
    after = execution._replace(**changes)
    settled = turn.owner._replace(phase=Phase.LOADING)
    yield turn.move("closes the doubts", settled, execution=after)


def results(turn: Turn) -> list[Record]:
    """What was said to be done, as outcomes: whoever makes one makes the same."""
    return [
        Record(Result(call, number + 1, 0, "ok"), frozenset())
        for answer in turn.world.told
        if answer.value == "done"
        for call, number in [doubted(answer.wait)]
    ]


def unrecorded(turn: Turn) -> frozenset[Record]:
    """Results of what was done that have not taken their slots yet."""
    if not turn.rules.done_takes_slot:
        return frozenset()
    return frozenset(each for each in results(turn) if turn.world.at(each.slot) is None)


def load(turn: Turn, loaded: Owner) -> Iterator[Move]:
    """Results of what was done take their slots before anything is loaded."""
    missing = unrecorded(turn)
    if missing:
        records = turn.world.records | missing
        yield turn.move("records what was done", turn.owner, records=records)
    elif not turn.is_current:
        yield turn.leave("loads: refused")
    else:
        yield turn.move("loads", loaded)


# ------------------------------------------------------------------------- who is asked


def settle(program: Program, rules: Rules, world: World, index: int) -> Iterator[Move]:
    """Read a frontier of doubts, and some time say what became of one call."""
    settler, value = world.settlers[index], program.settlers[index]
    frontier = world.execution.frontier
    is_asked = (
        world.execution.status == "suspended" and frontier is not None and frontier.doubts > 0
    )

    def move(label: str, execution: Execution = world.execution, **changes: Any) -> Move:
        after = [*world.settlers]
        after[index] = settler._replace(**changes)
        changed = world._replace(settlers=tuple(after), execution=execution)
        return f"settler {index} {label}", changed

    if settler.state == "idle" and is_asked and frontier is not None:
        known = {answer.wait for answer in frontier.answers}
        for place, wait in enumerate(frontier.waits):
            if wait not in known:
                seen = (frontier.step, frontier.doubts, frontier.rev, place)
                yield move(f"reads {wait}", state="seen", seen=seen, wait=wait)
    if settler.state != "seen" or settler.seen is None:
        return
    step, number, rev, place = settler.seen
    if (
        frontier is None
        or not is_asked
        or (frontier.step, frontier.doubts, frontier.rev) != (step, number, rev)
        or place >= len(frontier.waits)
    ):
        yield move("must read again", state="idle", seen=None, wait="")
        return
    there = Answer(frontier.waits[place], value, -2, meant=settler.wait)
    answered = frontier._replace(
        rev=frontier.rev + 1, answers=tuple(sorted([*frontier.answers, there]))
    )
    after = world.execution._replace(frontier=answered)
    yield move(f"says {value} of {there.wait}", state="accepted", seen=None, execution=after)
