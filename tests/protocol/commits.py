"""The commits of an owner: each one conditional update of the execution document."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from tests.protocol.turn import Move, Turn
from tests.protocol.world import ONCE, Committed, Document, Frontier, Owner, Phase


def suspend(turn: Turn, waits: tuple[str, ...]) -> Iterator[Move]:
    execution = turn.world.execution
    document = yield from _documented(turn)
    if document is None:
        return
    there = execution.frontier.waits if execution.frontier else ()
    if not turn.rules.whole_frontier:
        waits = waits[: len(there) + 1]
    frontier = Frontier(Committed(*document[:2], frozenset(document.results)), waits, 0, ())
    is_whole = len(waits) == len(turn.program.step(turn.owner.step).waits)
    yield from commit(
        turn,
        "suspends",
        status="suspended" if is_whole or len(waits) == 1 else execution.status,
        frontier=frontier,
        stays=not is_whole,
    )


def close(turn: Turn, status: str) -> Iterator[Move]:
    """End: the last step document, then one update of the execution."""
    document = yield from _documented(turn)
    if document is None:
        return
    execution = turn.world.execution
    doubted = {result.call for result in turn.owner.loaded if result.status == "doubt"}
    yield from commit(
        turn,
        f"ends it as {status}",
        status=status,
        frontier=None,
        committed=(
            *execution.committed,
            Committed(*document[:2], frozenset(document.results)),
        ),
        unknown=frozenset(doubted),
    )


def _documented(turn: Turn) -> Generator[Move, None, Document | None]:
    """Yield the insert of this owner's step document; return the document once it is there."""
    owner, world = turn.owner, turn.world
    key = owner.token if turn.rules.token_in_step_key else 0
    mine = Document(owner.step, key, owner.handed)
    stored = next((each for each in world.documents if each[:2] == mine[:2]), None)
    if stored is None:
        yield turn.move("puts its step document", owner, documents=world.documents | {mine})
    elif stored != mine:
        yield turn.leave("finds another document under its key")
    else:
        return mine
    return None


def commit(
    turn: Turn, label: str, *, stays: bool = False, then: Owner | None = None, **changes: Any
) -> Iterator[Move]:
    """One conditional update: filter token, ``running``, step. ``then`` is what its owner does if
    it keeps the lease."""
    execution, owner = turn.world.execution, turn.owner
    running = execution.status == "running" or (stays and execution.status == "suspended")
    matches = running and execution.step == owner.step
    if turn.rules.token_filter:
        matches = matches and execution.token == owner.token
    if not matches:
        yield turn.leave(f"{label}: refused")
        return
    stale = execution.stale_commit or execution.token != owner.token
    after = execution._replace(stale_commit=stale, **changes)
    yield turn.move(label, owner if stays else then or Owner(), execution=after)
    if turn.program.lost_replies and not stays and then is None:
        unsure = owner._replace(phase=Phase.UNSURE)
        yield turn.move(f"{label}, unheard", unsure, execution=after)


def settle(turn: Turn) -> Move:
    """Send the same commit again: its filter does not match what it has made, whoever owns the
    execution by now (``explore.py`` checks that), and a read tells the rest."""
    return turn.move("sends its commit again", Owner())


def give_attempt_up(turn: Turn) -> Iterator[Move]:
    owner, execution = turn.owner, turn.world.execution
    changes = {"failed_attempts": execution.failed_attempts + 1}
    if turn.program.may_stick and not execution.failed_attempts:
        voided = execution.voided | _given_up(turn)
        yield from commit(turn, "leaves it stuck", status="stuck", voided=voided, **changes)
    if changes["failed_attempts"] >= turn.program.max_attempts:
        yield from close(turn, "failed")
        return
    yield from commit(
        turn,
        f"gives the attempt up over {owner.cause and owner.cause.call}",
        status="queued",
        **changes,
        voided=execution.voided | _given_up(turn),
    )


def release(turn: Turn) -> Iterator[Move]:
    """Nothing runs any more: give the lease back. Whatever is open stays open."""
    yield from commit(turn, "gives its lease back", status="queued")


def _given_up(turn: Turn) -> frozenset[tuple[str, int]]:
    """The slots whose failure shall not count: never one of a ``fail`` tool."""
    owner, program = turn.owner, turn.program
    known = {result.call: result for result in (*owner.loaded, *owner.handed)}
    failed = [
        result
        for result in known.values()
        if result.status == "failed" and program.calls[result.call].kind not in ONCE
    ]
    match turn.rules.voids:
        case "cause":
            failed = [result for result in failed if result == owner.cause]
        case "unfollowed":
            failed = [
                each for each in failed if known.keys().isdisjoint(program.followers[each.call])
            ]
    return frozenset((result.call, result.attempt_try) for result in failed)


def go_on(turn: Turn) -> Iterator[Move]:
    """Close an answered frontier: wait records first, then one update opens the next step."""
    world, execution, owner = turn.world, turn.world.execution, turn.owner
    if execution.token == owner.token and execution.step == owner.step + 1:
        yield turn.move("reads that the next step is open", _in_next_step(owner))
        return
    frontier = execution.frontier
    if not turn.is_current or frontier is None:
        yield turn.leave("continues: refused")
        return
    answered = {(frontier.step, answer.wait, answer.value) for answer in frontier.answers}
    if not answered <= world.wait_records:
        records = world.wait_records | answered
        yield turn.move("makes the answers records of their step", owner, wait_records=records)
        return
    after = execution._replace(
        step=owner.step + 1, frontier=None, committed=(*execution.committed, frontier.committed)
    )
    yield turn.move("opens the next step", _in_next_step(owner), execution=after)
    if turn.program.lost_replies:
        yield turn.move("opens the next step, unheard", owner, execution=after)


def _in_next_step(owner: Owner) -> Owner:
    return Owner(
        phase=Phase.RUNNING,
        token=owner.token,
        step=owner.step + 1,
        knows_lease_over=owner.knows_lease_over,
        voided=owner.voided,
    )
