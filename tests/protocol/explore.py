"""Everything in every order: find a shortest way to break a promise, or show there is none.

``explore`` visits every world that a program can reach under a set of rules and returns what
went wrong, each with the moves that lead there.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import operator
from collections.abc import Callable, Iterator

from tests.protocol.moves import moves
from tests.protocol.search import Findings, search
from tests.protocol.world import (
    Answer,
    Execution,
    Kind,
    Owner,
    Phase,
    Program,
    Record,
    Rules,
    Settler,
    World,
    doubted,
    first_world,
)


class Promise(enum.Enum):
    """What must hold, by what it looks like when it does not."""

    ONE_OUTCOME = "a position has two outcomes that count"
    RESTS = "a stored outcome rests on a result that is not the stored one"
    SAME_INPUTS = "a body ran again under its idempotency key with other inputs"
    FAIL_ONCE = "a body that must not run twice ran twice"
    WHOLE = "a frontier is visible in parts"
    ANSWER_KEPT = "an accepted answer was lost or changed"
    MAP_WHOLE = "a resume map was accepted in parts"
    CURRENT_TOKEN = "a commit without the current token went through"
    COMMITTED_KEPT = "what a commit names is missing or has changed"
    ONLY_INSERTS = "a record was removed or overwritten"
    DOUBT_IS_FINAL = "an execution ended in doubt about an outcome that is stored"
    ENDS_ONCE = "an execution that is over changed"
    TOKEN_GROWS = "the fencing token went back"
    COMMITS_ONCE = "a commit that was done could be done again"
    CAN_END = "no later attempt can ever bring it to an end"
    ASKED = "a body ran again that nobody said was not done"
    ITS_QUESTION = "an answer was taken as one to another question"
    TOLD_KEPT = "what somebody said of a call in doubt was lost or changed"
    EXPIRY = "an answer was taken after its wait had expired, or its expiry answer before"
    HELD = "a body was started without the lease, by an owner with a good clock"
    CLOSED_STAYS = "an execution that was given up or cancelled started another body"


AS_WRITTEN = Rules()


def explore(
    program: Program,
    rules: Rules = AS_WRITTEN,
    *,
    limit: int = 400_000,
    until: Promise | None = None,
) -> Findings[Promise]:
    """Visit every reachable world, or stop at the first that breaks the promise ``until``."""
    solo = _Solo(program, rules)
    return search(
        first_world(program),
        lambda world: moves(program, rules, world),
        lambda before, after: _broken_by(program, before, after, solo),
        limit=limit,
        until=until,
    )


def _broken_by(program: Program, before: World, after: World, solo: _Solo) -> Iterator[Promise]:
    """The promises that a move breaks. One that looks only at what has not changed still holds."""
    for promise, holds in _about(tuple(map(operator.is_not, before, after))):
        if not holds(program, after):
            yield promise
    yield from _broken_between(program, before, after)
    for owner in after.owners:
        if owner.phase not in _AT_REST:
            return
    if not solo.can_rest(after):
        yield Promise.CAN_END


# ------------------------------------------------------------------- promises about a world


def _counting(world: World) -> list[Record]:
    closed = world.execution.voided | world.settled
    return [record for record in world.records if record.slot not in closed]


def _one_outcome(program: Program, world: World) -> bool:
    calls = [record.result.call for record in _counting(world)]
    return len(calls) == len(set(calls))


def _rests(program: Program, world: World) -> bool:
    counting = _counting(world)
    results = {record.result for record in counting}
    return all(record.rests_on <= results for record in counting)


def _same_inputs(program: Program, world: World) -> bool:
    """What a body saw of another branch may be missing, but never differ."""
    seen: dict[tuple[str, str], object] = {}
    for start in world.starts:
        if program.calls[start.call].kind is Kind.MODEL:
            continue  # a recorded response may meet another prompt: a warning, by contract
        for result in start.rests_on:
            if seen.setdefault((start.call, result.call), result) != result:
                return False
    return True


def _fail_once(program: Program, world: World) -> bool:
    entered = [start.call for start in world.starts if program.calls[start.call].kind is Kind.FAIL]
    return len(entered) == len(set(entered))


def _asked(program: Program, world: World) -> bool:
    """Each try of an ``ask`` body is entered once, and one after the first was asked for."""
    entered = [start[:2] for start in world.starts if program.calls[start.call].kind is Kind.ASK]
    not_done = {doubted(answer.wait) for answer in world.told if answer.value == "not_done"}
    asked_for = all(number == 1 or (call, number - 1) in not_done for call, number in entered)
    return asked_for and len(entered) == len(set(entered))


def _told(world: World) -> list[Answer]:
    frontier = world.execution.frontier
    return [*world.told, *(frontier.answers if frontier is not None and frontier.doubts else ())]


def _its_question(program: Program, world: World) -> bool:
    return all(answer.meant in ("", answer.wait) for answer in _told(world))


def _told_kept(program: Program, world: World) -> bool:
    """By whom it was accepted: as long as the execution is not closed over it."""
    if world.execution.is_over or world.execution.given_up or world.execution.cancel:
        return True
    stored = {(answer.meant or answer.wait, answer.value) for answer in _told(world)}
    return all(
        (settler.wait, value) in stored
        for settler, value in zip(world.settlers, program.settlers, strict=True)
        if settler.state == "accepted"
    )


def _whole(program: Program, world: World) -> bool:
    frontier = world.execution.frontier
    if frontier is not None and frontier.doubts:
        return bool(frontier.waits)
    return frontier is None or frontier.waits == program.step(frontier.step).waits


def _answer_kept(program: Program, world: World) -> bool:
    for client, answerer in zip(world.clients, program.answerers, strict=True):
        stored = _stored_answers(world, answerer.step)
        differs = any(stored.get(wait) != value for wait, value in answerer.values)
        if client.state == "accepted" and stored and differs:
            return False
    return True


def _stored_answers(world: World, step: int) -> dict[str, str]:
    frontier = world.execution.frontier
    if frontier is not None and frontier.step == step and not frontier.doubts:
        return {answer.wait: answer.value for answer in frontier.answers}
    return {wait: value for number, wait, value in world.wait_records if number == step}


def _map_whole(program: Program, world: World) -> bool:
    frontier = world.execution.frontier
    if frontier is None or frontier.doubts:
        return True
    by_map = {each.by for each in frontier.answers if program.answerers[each.by].is_map}
    return not by_map or frontier.is_answered


def _current_token(program: Program, world: World) -> bool:
    return not world.execution.stale_commit


def _committed_kept(program: Program, world: World) -> bool:
    results = {record.result for record in world.records}
    execution = world.execution
    frontier = execution.frontier
    is_step = frontier is not None and not frontier.doubts
    named = [*execution.committed, *([frontier.committed] if frontier and is_step else [])]
    documents = {(each.step, each.key): frozenset(each.results) for each in world.documents}
    return all(
        each.records <= results and documents.get((each.step, each.key)) == each.records
        for each in named
    )


def _doubt_is_final(program: Program, world: World) -> bool:
    stored = {each.result.call for each in world.records if each.result.status != "doubt"}
    return not world.execution.unknown & stored


def _commits_once(program: Program, world: World) -> bool:
    execution = world.execution
    return not any(
        owner.phase is Phase.UNSURE
        and execution.status == "running"
        and (execution.token, execution.step) == (owner.token, owner.step)
        for owner in world.owners
    )


_PROMISES: tuple[tuple[Promise, tuple[str, ...], Callable[[Program, World], bool]], ...] = (
    (Promise.ONE_OUTCOME, ("records", "execution"), _one_outcome),
    (Promise.RESTS, ("records", "execution"), _rests),
    (Promise.COMMITTED_KEPT, ("records", "documents", "execution"), _committed_kept),
    (Promise.DOUBT_IS_FINAL, ("records", "execution"), _doubt_is_final),
    (Promise.SAME_INPUTS, ("starts",), _same_inputs),
    (Promise.FAIL_ONCE, ("starts",), _fail_once),
    (Promise.ASKED, ("starts",), _asked),
    (Promise.ITS_QUESTION, ("execution", "told"), _its_question),
    (Promise.TOLD_KEPT, ("execution", "told", "settlers"), _told_kept),
    (Promise.WHOLE, ("execution",), _whole),
    (Promise.MAP_WHOLE, ("execution",), _map_whole),
    (Promise.CURRENT_TOKEN, ("execution",), _current_token),
    (Promise.ANSWER_KEPT, ("execution", "wait_records", "clients"), _answer_kept),
    (Promise.COMMITS_ONCE, ("execution", "owners"), _commits_once),
)


@functools.cache
def _about(
    changed: tuple[bool, ...],
) -> tuple[tuple[Promise, Callable[[Program, World], bool]], ...]:
    """The promises that look at what has changed, given for each part of a world."""
    parts = {part for part, is_new in zip(World._fields, changed, strict=True) if is_new}
    return tuple((promise, holds) for promise, of, holds in _PROMISES if not parts.isdisjoint(of))


_AT_REST = (Phase.IDLE, Phase.DEAD)


def _broken_between(program: Program, before: World, after: World) -> Iterator[Promise]:
    """The promises about what a move may do to what is stored."""
    if before.records is not after.records and not before.records <= after.records:
        yield Promise.ONLY_INSERTS
    old, new = before.execution, after.execution
    started = after.starts - before.starts if before.starts is not after.starts else ()
    if old.given_up and any(start.token == old.token for start in started):
        yield Promise.CLOSED_STAYS
    if program.good_clocks and any(
        (start.token, "running") != (new.token, new.status) for start in started
    ):
        yield Promise.HELD
    if old is new:
        return
    if program.expires and new.frontier and new.frontier.step == old.step:
        for answer in set(new.frontier.answers) - set(old.frontier.answers if old.frontier else ()):
            if program.answerers[answer.by].by_expiry != after.expired:
                yield Promise.EXPIRY
    if old.is_over:
        yield Promise.ENDS_ONCE
    if new.token < old.token:
        yield Promise.TOKEN_GROWS
    if old.frontier and new.frontier and old.step == new.step:
        kept = set(old.frontier.answers) <= set(new.frontier.answers)
        if not kept:
            yield Promise.ANSWER_KEPT


# --------------------------------------------------------------------------------- liveness


class _Solo:
    """Whether one fresh owner, undisturbed, can bring what is stored to an end, or to a frontier
    that waits for somebody."""

    def __init__(self, program: Program, rules: Rules) -> None:
        self._program = dataclasses.replace(
            program,
            may_cancel=False,
            lost_replies=False,
            releases=0,
            may_stick=False,
            expires=False,
            answerers=(),
            settlers=("done",),
        )
        self._rules = rules
        self._known: dict[World, bool] = {}

    def can_rest(self, world: World) -> bool:
        execution = world.execution
        if _rests_already(execution):
            return True
        alone = world._replace(
            owners=(Owner(),),
            clients=(),
            settlers=(Settler(),),
            starts=frozenset(),
            failures=self._program.failures,
        )
        if alone not in self._known:
            self._known[alone] = self._search(alone)
        return self._known[alone]

    def _search(self, start: World) -> bool:
        seen, stack = {start}, [start]
        while stack:
            world = stack.pop()
            if _rests_already(world.execution):
                return True
            for label, after in moves(self._program, self._rules, world):
                if "crashes" not in label and after not in seen:
                    seen.add(after)
                    stack.append(after)
        return False


def _rests_already(execution: Execution) -> bool:
    frontier = execution.frontier
    waits_for_somebody = (
        execution.status == "suspended" and frontier is not None and not frontier.is_answered
    )
    return execution.is_over or execution.status == "stuck" or waits_for_somebody
