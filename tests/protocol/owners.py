"""What an owner does and what befalls it, apart from its commits.

An owner goes::

    idle -> (continuing) -> running -> idle again, its work committed
                               \\-> failing, closing -> the same

and may be taken over, crash, or be asked to cancel at any point. What it had handed to its log
may arrive after its death, in order, or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.protocol import commits, doubts
from tests.protocol.turn import DEAD, Move, Turn
from tests.protocol.world import (
    ONCE,
    Body,
    Call,
    Fails,
    Frontier,
    Intent,
    Kind,
    Owner,
    Phase,
    Program,
    Record,
    Result,
    Start,
    try_of,
)

# ------------------------------------------------------------------ claims, leases, crashes


def claim(turn: Turn) -> Iterator[Move]:
    """Take the execution over if it is due; a running one is whenever its lease has run out."""
    execution = turn.world.execution
    frontier = execution.frontier
    answered = frontier is not None and frontier.is_answered
    if execution.status == "stuck":
        again = execution._replace(status="queued")
        yield "somebody retries it", turn.world._replace(execution=again)
    if execution.status in ("queued", "running") or (execution.status == "suspended" and answered):
        yield _claimed(turn, "claims")
    is_active = execution.status in ("queued", "running", "suspended", "stuck")
    if turn.program.may_cancel and is_active and not execution.given_up:
        yield _claimed(turn, "claims to close", given_up=True, closing=True)


def _claimed(turn: Turn, label: str, **changes: Any) -> Move:
    """Claim and load in one move: what others do in between might as well come before."""
    world = turn.world
    execution = world.execution._replace(
        status="running", token=world.execution.token + 1, **changes
    )
    owners = world.owners
    if turn.program.good_clocks:
        owners = tuple(
            owner._replace(knows_lease_over=True) if owner.token == execution.token - 1 else owner
            for owner in owners
        )
    turn = turn._replace(world=world._replace(execution=execution, owners=owners))
    owner = _loaded(turn)
    if owner.phase is Phase.RUNNING and doubts.unrecorded(turn):
        owner = Owner(phase=Phase.LOADING, token=execution.token, step=execution.step)
    if not turn.rules.closing_mark:
        execution = execution._replace(closing=False)
    return turn.move(label, owner, execution=execution)


def suffer(turn: Turn) -> Iterator[Move]:
    """Crash; be asked to cancel."""
    owner = turn.owner
    yield turn.leave("crashes", log=owner.log)
    world = turn.world
    may_release = owner.phase not in (Phase.UNSURE, Phase.RELEASING) and turn.is_current
    if may_release and world.released < turn.program.releases:
        if turn.rules.release_stops:
            stopped, execution = _stopped(turn.program, owner, Phase.RELEASING), world.execution
        else:
            stopped, execution = owner, world.execution._replace(status="queued")
        released = world.released + 1
        yield turn.move("stops", stopped, execution=execution, released=released)
    if turn.is_current and turn.world.execution.cancel and owner.phase is Phase.RUNNING:
        yield turn.move(
            "renews and sees that it shall cancel", _stopped(turn.program, owner, Phase.CLOSING)
        )


def _stopped(program: Program, owner: Owner, phase: Phase) -> Owner:
    """Its tasks are cancelled: that is never an outcome, and a ``fail`` body is in doubt."""
    entered = {body.call for body in owner.running}
    doubtful = {name for name in entered if program.calls[name].kind in ONCE}
    return owner._replace(phase=phase, running=frozenset(), doubtful=frozenset(doubtful))


# --------------------------------------------------------------------------------- the work


def is_of_doubts(frontier: Frontier | None) -> bool:
    return frontier is not None and frontier.doubts > 0


def work(turn: Turn) -> Iterator[Move]:
    owner = turn.owner
    if owner.log:
        yield from _log_writes(turn)
    match owner.phase:
        case Phase.CONTINUING if is_of_doubts(turn.world.execution.frontier):
            yield from doubts.go_on(turn)
        case Phase.CONTINUING:
            yield from commits.go_on(turn)
        case Phase.LOADING:
            yield from doubts.load(turn, _loaded(turn))
        case Phase.UNSURE:
            yield commits.settle(turn)
        case _ if owner.doubtful:
            yield from _judge(turn)
        case Phase.ASKING:
            yield from doubts.ask(turn)
        case Phase.RELEASING if not owner.log:
            yield from commits.release(turn)
        case Phase.RUNNING:
            yield from _run(turn)
        case Phase.FAILING if not owner.log:
            yield from commits.give_attempt_up(turn)
        case Phase.CLOSING if not owner.log:
            yield from commits.close(turn, "cancelled" if not owner.ends_as else owner.ends_as)


def _loaded(turn: Turn) -> Owner:
    """What an owner knows of the open step when it begins. What was voided does not count; each
    intent without an outcome gets its verdict before the program starts."""
    world, execution = turn.world, turn.world.execution
    names = {call.name for call in turn.program.step(execution.step).calls}
    closed = execution.voided | world.settled
    voided = closed if turn.rules.next_try else execution.voided
    results = frozenset(
        record.result
        for record in world.records
        if record.result.call in names and record.slot not in closed
    )
    if not turn.rules.done_takes_slot:
        results |= {record.result for record in doubts.results(turn)}
    phase = Phase.RUNNING
    if execution.closing or execution.cancel:
        phase = Phase.CLOSING
    elif execution.frontier is not None:
        phase = Phase.CONTINUING
    doubtful: set[str] = set()
    if phase is Phase.RUNNING:
        doubtful = {
            intent.call
            for intent in world.intents
            if intent.call in names and intent.attempt_try == try_of(intent.call, voided)
        }
    owner = Owner(
        phase=phase,
        token=execution.token,
        step=execution.step,
        loaded=results,
        voided=voided,
        doubtful=frozenset(doubtful - {result.call for result in results}),
    )
    return _all_judged(turn.program, owner) if phase is Phase.RUNNING else owner


def _all_judged(program: Program, owner: Owner) -> Owner:
    """Once every verdict stands: a ``fail`` call in doubt ends it, others are asked about."""
    in_doubt = [program.calls[result.call] for result in owner.loaded if result.status == "doubt"]
    if owner.doubtful or not in_doubt:
        return owner
    if any(call.kind is Kind.FAIL for call in in_doubt):
        return _stopped(program, owner, Phase.CLOSING)._replace(ends_as="failed")
    return _stopped(program, owner, Phase.ASKING)


def _judge(turn: Turn) -> Iterator[Move]:
    """Put a verdict into the slot of a call in doubt, or use the outcome that got there first."""
    owner, world = turn.owner, turn.world
    name = min(owner.doubtful)
    rest = owner._replace(doubtful=owner.doubtful - {name})
    attempt_try = try_of(name, owner.voided)
    verdict = Record(Result(name, attempt_try, owner.token, "doubt"), frozenset())
    stored = world.at(verdict.slot) if turn.rules.doubt_takes_slot else None
    result = stored.result if stored else verdict.result
    if owner.phase is Phase.RUNNING:
        rest = _all_judged(turn.program, rest._replace(loaded=rest.loaded | {result}))
    if stored or not turn.rules.doubt_takes_slot:
        yield turn.move(f"settles {name}", rest)
    else:
        yield turn.move(f"puts the verdict on {name}", rest, records=world.records | {verdict})


def _run(turn: Turn) -> Iterator[Move]:
    """Each branch goes on by itself: replay what is recorded, then live."""
    owner = turn.owner
    step = turn.program.step(owner.step)
    handed = {result.call: result for result in owner.handed}
    recorded = {result.call: result for result in owner.loaded}
    live: list[tuple[tuple[Call, ...], Call]] = []
    replays: list[Move] = []
    for branch in step.branches:
        call = next((call for call in branch if call.name not in handed), None)
        if call is None:
            continue
        result = recorded.get(call.name)
        if result is None:
            live.append((branch, call))
            continue
        replay = turn.move(f"replays {call.name}", _handed(turn.program, owner, result))
        if _is_seen_by_its_branch_alone(turn.program, result):
            yield replay  # now or later makes no difference to anybody: now
            return
        replays.append(replay)
    yield from replays
    for branch, call in live:
        yield from _go_live(turn, branch, call, handed)
    for body in owner.running:
        yield from _finish(turn, body)
    if not owner.log and not owner.running and len(handed) == len(step.calls):
        if step.waits:
            yield from commits.suspend(turn, step.waits)
        else:
            yield from commits.close(turn, "completed")


def _is_seen_by_its_branch_alone(program: Program, result: Result) -> bool:
    leaves_the_root = result.status == "failed" and program.calls[result.call].fails is Fails.RAISES
    return not leaves_the_root and result.call not in program.read_by_others


def _go_live(
    turn: Turn, branch: tuple[Call, ...], call: Call, handed: dict[str, Result]
) -> Iterator[Move]:
    """Start the body of the next call of a branch, as soon as the rules allow it."""
    owner = turn.owner
    busy = {body.call for body in owner.running} | {record.result.call for record in owner.log}
    if call.name in busy or (owner.knows_lease_over and turn.rules.may_start):
        return
    if call.kind is not Kind.MODEL and turn.rules.barrier and owner.log:
        return
    before = branch[: branch.index(call)]
    rests_on = frozenset(
        [handed[each.name] for each in before]
        + [handed[name] for name in call.reads if name in handed]
    )
    body = Body(call.name, try_of(call.name, owner.voided), rests_on)
    if call.kind in ONCE:
        yield from _enter_once(turn, body)
    else:
        yield _start(turn, body)


def _start(turn: Turn, body: Body) -> Move:
    owner = turn.owner
    return turn.move(
        f"starts {body.call}",
        owner._replace(running=owner.running | {body}),
        starts=turn.world.starts | {Start(*body[:2], owner.token, body.rests_on)},
    )


def _enter_once(turn: Turn, body: Body) -> Iterator[Move]:
    """Intent first. The process whose nonce it carries enters the body, at most once."""
    owner, world = turn.owner, turn.world
    slot = (body.call, body.attempt_try)
    intent = next((each for each in world.intents if each[:2] == slot), None)
    if intent is None:
        mine = Intent(*slot, owner.token)
        yield turn.move(f"means to run {body.call}", owner, intents=world.intents | {mine})
    elif intent.token == owner.token or not turn.rules.nonce:
        entered = any(each[:3] == (*slot, owner.token) for each in world.starts)
        if not entered:
            yield _start(turn, body)
    else:
        doubting = owner._replace(doubtful=frozenset({body.call}))
        yield turn.move(f"finds another's intent for {body.call}", doubting)


def _finish(turn: Turn, body: Body) -> Iterator[Move]:
    owner, call = turn.owner, turn.program.calls[body.call]
    statuses = ["ok"]
    if call.fails is not Fails.NEVER and turn.world.failures < turn.program.failures:
        statuses.append("failed")
    for status in statuses:
        result = Result(body.call, body.attempt_try, owner.token, status)
        after = owner._replace(
            running=owner.running - {body}, log=(*owner.log, Record(result, body.rests_on))
        )
        if call.kind is Kind.TOOL:
            after = _handed(turn.program, after, result)
        yield turn.move(
            f"finishes {body.call}: {status}",
            after,
            failures=turn.world.failures + (status == "failed"),
        )


def _handed(program: Program, owner: Owner, result: Result) -> Owner:
    """Hand a result to the agent. A failure that it does not handle leaves the root."""
    owner = owner._replace(handed=(*owner.handed, result))
    if result.status == "failed" and program.calls[result.call].fails is Fails.RAISES:
        return _stopped(program, owner, Phase.FAILING)._replace(cause=result)
    return owner


# ---------------------------------------------------------------------------------- the log


def _log_writes(turn: Turn) -> Iterator[Move]:
    owner = turn.owner
    for place in range(1 if turn.rules.ordered_log else len(owner.log)):
        record = owner.log[place]
        rest = owner.log[:place] + owner.log[place + 1 :]
        stored = turn.world.at(record.slot)
        if stored is not None and stored != record and turn.rules.insert_only:
            yield turn.leave(f"finds the slot of {record.result.call} taken")
            continue
        after = owner._replace(log=rest)
        if owner.phase is not Phase.RUNNING:
            after = after._replace(loaded=after.loaded | {record.result})
        elif turn.program.calls[record.result.call].kind is not Kind.TOOL:
            after = _handed(turn.program, after, record.result)
        records = _stored(turn, record)
        yield turn.move(f"records {record.result.call}", after, records=records)
        if turn.program.lost_replies and stored is None:
            yield turn.move(f"records {record.result.call}, unheard", owner, records=records)


def write_late(turn: Turn) -> Iterator[Move]:
    """What a dead owner had sent: the next of it arrives, if ever."""
    log = turn.owner.log
    for place in range(min(len(log), 1) if turn.rules.ordered_log else len(log)):
        record = log[place]
        rest = log[:place] + log[place + 1 :]
        stored = turn.world.at(record.slot)
        taken = stored is not None and stored != record and turn.rules.insert_only
        if taken and turn.rules.ordered_log:
            yield turn.move(f"is too late with {record.result.call}", DEAD)
        else:
            records = turn.world.records if taken else _stored(turn, record)
            after = DEAD._replace(log=rest)
            yield turn.move(f"records {record.result.call} late", after, records=records)


def _stored(turn: Turn, record: Record) -> frozenset[Record]:
    others = {each for each in turn.world.records if each.slot != record.slot}
    return frozenset(others | {record})
