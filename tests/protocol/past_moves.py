"""What may happen next to a session that is forked, gone on with, pruned and deleted.

Whoever removes:   mark -> look for forks and for what runs -> decide, by the mark -> remove
Whoever forks:     read -> insert -> read again -> made, or take it back
Whoever goes on:   insert the turn -> load the past -> crash and load it again, or end
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.protocol.past_world import PARTS, Actor, Fork, Rules, Scene, Session, Turn, World

Move = tuple[str, World]
OVER = ("made", "refused", "done", "dead")


class Act(NamedTuple):
    """One process about to move."""

    scene: Scene
    rules: Rules
    world: World
    place: int

    @property
    def actor(self) -> Actor:
        return self.world.actors[self.place]

    def move(self, label: str, **changes: Any) -> Move:
        """``changes`` of the actor's fields, and of the world's by their names."""
        of_world = {name: changes.pop(name) for name in tuple(changes) if name in World._fields}
        actors = list(self.world.actors)
        actors[self.place] = self.actor._replace(**changes)
        world = self.world._replace(**{"actors": tuple(actors), **of_world})
        return f"{self.actor.role} {self.place} {label}", world

    def again(self, label: str, **changes: Any) -> Move:
        """Begin anew, as often as the scene allows."""
        rounds = self.actor.rounds + 1
        phase = "idle" if rounds <= self.scene.rounds else "refused"
        return self.move(label, phase=phase, rounds=rounds, **changes)


def moves(scene: Scene, rules: Rules, world: World) -> Iterator[Move]:
    for place, actor in enumerate(world.actors):
        if actor.phase in OVER:
            continue
        act = Act(scene, rules, world, place)
        if actor.phase != "idle" and actor.role != "source":
            yield act.move("crashes", phase="dead")
        match actor.role:
            case "fork" | "fork inside":
                yield from _fork(act)
            case "sweep" | "delete":
                yield from _remove(act)
            case "turn":
                yield from _go_on(act)
            case "source":
                yield from _source(act)


def needs(fork: Fork) -> range:
    """The turns of its source that a fork reads."""
    return range(fork.after + 1, fork.upto + 1)


# ---------------------------------------------------------------------------------- forks


def _fork(act: Act) -> Iterator[Move]:
    actor, world = act.actor, act.world
    match actor.phase:
        case "idle":
            yield _fork_reads(act)
        case "read":
            there = world.forks[actor.key]
            if there is not None:
                yield _found(act)
                return
            turn = world.turns[actor.upto - 1] if actor.upto else Turn()
            is_inside = actor.role == "fork inside"
            nonce = world.nonces + 1
            fork = Fork(
                nonce=nonce,
                after=actor.seen,
                upto=actor.upto,
                cut=turn.log if is_inside else 0,
                answer=turn.answer if is_inside else "",
            )
            forks = _with(world.forks, actor.key, fork)
            phase = "inserted" if act.rules.read_again else "made"
            yield act.move("inserts", phase=phase, nonce=nonce, forks=forks, nonces=nonce)
        case "inserted":
            yield from _fork_reads_again(act)
        case "undo":
            there = world.forks[actor.key]
            is_it = there is not None and there.nonce == actor.nonce
            if is_it or not act.rules.take_back_by_nonce:
                yield act.again("takes it back", forks=_with(world.forks, actor.key, None))
            else:
                yield act.again("finds it taken back")


def _fork_reads(act: Act) -> Move:
    actor, session = act.actor, act.world.session
    if act.world.forks[actor.key] is not None:
        return _found(act)
    if session is None or session.is_removed or (session.mark and session.for_deletion):
        return act.move("reads: refused", phase="refused")
    if session.base >= max(actor.upto, 1) or actor.upto > len(act.world.turns):
        return act.move("reads: no such turn", phase="refused")
    return act.move("reads the cut", phase="read", seen=session.base)


def _found(act: Act) -> Move:
    there = act.world.forks[act.actor.key]
    phase = "inserted" if act.rules.rivals_read_again else "made"
    return act.move("finds it made", phase=phase, nonce=there.nonce if there else 0)


def _fork_reads_again(act: Act) -> Iterator[Move]:
    actor, world = act.actor, act.world
    session, fork = world.session, world.forks[actor.key]
    if fork is None or fork.nonce != actor.nonce:
        yield act.again("reads again: it was taken back")
    elif session is None or session.is_removed:
        # Nobody removes a source that a finished fork needs: this one never was.
        yield act.move("reads again: the source is gone", phase="undo")
    elif session.mark and act.rules.fork_minds_mark:
        yield act.move("takes the mark away", session=_unmarked(session))
    elif session.base > (fork.after if act.rules.whole_prefix else fork.upto - 1):
        yield act.move("reads again: a turn it needs was taken", phase="undo")
    else:
        yield act.move("reads again: all there", phase="made")


# -------------------------------------------------------------------------------- removal


def _remove(act: Act) -> Iterator[Move]:
    actor, world = act.actor, act.world
    session, is_sweep = world.session, actor.role == "sweep"
    match actor.phase:
        case "idle" if session is None:
            yield act.move("finds nothing", phase="done")
        case "idle" if session.is_removed or (is_sweep and session.base >= actor.upto):
            yield act.move("goes on where it was cut off", phase="removing")
        case "idle" if is_sweep and session.mark and session.for_deletion:
            yield act.move("leaves it to the deletion", phase="done")
        case "idle":
            nonce = world.nonces + 1
            marked = session._replace(mark=nonce, for_deletion=not is_sweep)
            yield act.move("marks", phase="marked", nonce=nonce, session=marked, nonces=nonce)
        case "marked":
            if _is_needed(act):
                yield act.move("sees that it is needed", phase="unmark")
            else:
                yield act.move("sees that nobody needs it", phase="decide")
        case "unmark":
            mine = session is not None and session.mark == actor.nonce
            if mine and session is not None and not session.is_removed:
                yield act.move("takes its mark back", phase="done", session=_unmarked(session))
            else:
                yield act.move("finds no mark of its own", phase="done")
        case "decide":
            yield _decide(act, session)
        case "removing":
            yield from _remove_next(act, session)


def _is_needed(act: Act) -> bool:
    actor, world = act.actor, act.world
    upto = actor.upto if actor.role == "sweep" else len(world.turns)
    by_fork = any(
        fork is not None and (actor.role == "delete" or any(n <= upto for n in needs(fork)))
        for fork in world.forks
    )
    by_turn = any(turn.is_active for turn in world.turns)
    return (act.rules.check_forks and by_fork) or (act.rules.check_active and by_turn)


def _decide(act: Act, session: Session | None) -> Move:
    if session is None:
        return act.move("finds nothing", phase="done")
    actor, rules = act.actor, act.rules
    if session.mark != actor.nonce and rules.decide_by_mark and not session.is_removed:
        return act.again("finds its mark gone")
    if actor.role == "delete":
        decided = session._replace(is_removed=True)
        return act.move("decides", phase="removing", session=decided)
    decided = _unmarked(session)
    if rules.base_with_decision:
        decided = decided._replace(base=max(session.base, actor.upto))
    return act.move("decides", phase="removing", session=decided)


def _unmarked(session: Session) -> Session:
    return session._replace(mark=0, for_deletion=False)


def _remove_next(act: Act, session: Session | None) -> Iterator[Move]:
    """One kind of documents of one turn after the other; the session's own last."""
    actor, world = act.actor, act.world
    upto = len(world.turns)
    if actor.role == "sweep" and not (session is not None and session.is_removed):
        upto = actor.upto
    order = PARTS if act.rules.execution_last else PARTS[::-1]
    for place, turn in enumerate(world.turns[:upto]):
        if "execution" not in turn.parts:
            continue  # whoever removes finds the rest by the execution
        part = next(part for part in order if part in turn.parts)
        after = turn._replace(
            parts=turn.parts - {part}, is_active=turn.is_active and part != "execution"
        )
        turns = (*world.turns[:place], after, *world.turns[place + 1 :])
        yield act.move(f"removes the {part} of turn {place + 1}", turns=turns)
        return
    if session is not None and session.is_removed:
        yield act.move("removes the session", phase="done", session=None)
    elif session is not None and session.base < upto:
        yield act.move("sets the base", phase="done", session=session._replace(base=upto))
    else:
        yield act.move("is done", phase="done")


# ------------------------------------------------------------------------------ the source


def _go_on(act: Act) -> Iterator[Move]:
    """A new turn, its attempts one after the other. ``nonce`` is its number here."""
    actor, world = act.actor, act.world
    session = world.session
    match actor.phase:
        case "idle":
            if session is None:
                yield act.move("finds no session", phase="refused")
            elif any(turn.is_active for turn in world.turns):
                yield act.move("is refused: busy", phase="refused")
            else:
                turns = (*world.turns, Turn(is_active=True))
                yield act.move("begins", phase="begun", nonce=len(turns), turns=turns)
        case "begun":
            if session is None or session.is_removed:
                yield act.move("gives up: the session goes", phase="refused")
            elif session.mark and act.rules.load_minds_mark:
                if session.for_deletion:
                    yield act.move("backs off from the deletion", phase="begun")
                else:
                    yield act.move("takes the mark of a sweep away", session=_unmarked(session))
            else:
                yield act.move("loads the past", phase="running", seen=session.base)
        case "running":
            if actor.rounds < act.scene.rounds:
                yield act.move("dies, and another attempt begins", phase="begun", rounds=1)
            turn = world.turns[actor.nonce - 1]
            if "execution" in turn.parts:
                turns = list(world.turns)
                turns[actor.nonce - 1] = turn._replace(is_active=False)
                yield act.move("ends", phase="done", turns=tuple(turns))


def _source(act: Act) -> Iterator[Move]:
    """The execution under way that is forked: it goes on, and is answered."""
    turns = act.world.turns
    last = turns[-1]
    if "execution" not in last.parts:
        return
    if last.log < 2:
        yield act.move("records more", turns=(*turns[:-1], last._replace(log=last.log + 1)))
    if not last.answer:
        yield act.move("is answered", turns=(*turns[:-1], last._replace(answer="yes")))


def _with(forks: tuple[Fork | None, ...], key: int, fork: Fork | None) -> tuple[Fork | None, ...]:
    return (*forks[:key], fork, *forks[key + 1 :])
