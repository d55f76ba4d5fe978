"""What must hold of a session that is forked, gone on with, pruned and deleted at once."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from tests.protocol.past_moves import moves, needs
from tests.protocol.past_world import PARTS, Fork, Rules, Scene, World, first_world
from tests.protocol.search import Findings, search


class Promise(enum.Enum):
    """By what it looks like when it does not hold."""

    FORK_KEPT = "a fork that a call was told of is not there"
    FORK_WHOLE = "a turn that a fork needs is missing"
    PREFIX = "what a fork keeps changed with its source"
    RUNNING_KEPT = "what was removed was still run"
    SAME_PAST = "two attempts of one turn saw different pasts"
    NO_HOLE = "an attempt met a turn of which a part is missing"
    REMOVED_WHOLE = "a part of a turn was left that nobody finds any more"


AS_DECIDED = Rules()


def explore(
    scene: Scene,
    rules: Rules = AS_DECIDED,
    *,
    limit: int = 400_000,
    until: Promise | None = None,
) -> Findings[Promise]:
    def broken_by(before: World, after: World) -> Iterator[Promise]:
        yield from _broken_by(rules, before, after)

    return search(
        first_world(scene),
        lambda world: moves(scene, rules, world),
        broken_by,
        limit=limit,
        until=until,
    )


def _broken_by(rules: Rules, before: World, after: World) -> Iterator[Promise]:
    made = {actor.key for actor in after.actors if actor.phase == "made"}
    forks = [after.forks[key] for key in made]
    if None in forks:
        yield Promise.FORK_KEPT
    there = [fork for fork in forks if fork is not None]
    if not all(_is_whole(after, fork) for fork in there):
        yield Promise.FORK_WHOLE
    if not all(_keeps(rules, after, fork) for fork in there):
        yield Promise.PREFIX
    if any(turn.parts and "execution" not in turn.parts for turn in after.turns):
        yield Promise.REMOVED_WHOLE
    for old, new in zip(before.actors, after.actors, strict=True):
        if new.role != "turn":
            continue
        if new.phase == "running":
            gone = "execution" not in after.turns[new.nonce - 1].parts
            if gone or after.session is None or after.session.is_removed:
                yield Promise.RUNNING_KEPT
        if old.phase == "begun" and new.phase == "running":
            if old.seen not in (-1, new.seen):
                yield Promise.SAME_PAST
            if any(turn.parts != set(PARTS) for turn in after.turns[new.seen : new.nonce - 1]):
                yield Promise.NO_HOLE


def _is_whole(world: World, fork: Fork) -> bool:
    session = world.session
    if session is None or session.is_removed:
        return False
    return session.base <= fork.after and all(
        world.turns[number - 1].parts == set(PARTS) for number in needs(fork)
    )


def _keeps(rules: Rules, world: World, fork: Fork) -> bool:
    """Whether it reads what there was at its cut."""
    if not fork.cut:
        return True
    source = world.turns[fork.upto - 1]
    log = fork.cut if rules.prefix_cut else source.log
    answer = fork.answer if rules.answers_copied else source.answer
    return (log, answer) == (fork.cut, fork.answer)
