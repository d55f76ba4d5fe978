"""The words of the second model: a session that is forked, gone on with, pruned and deleted.

Here an execution is one thing with three kinds of documents; what goes on inside it is the other
model's (``world.py``). A world is the source session, its turns, the forks, and what each of the
processes has in memory that work on them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

PARTS = ("records", "steps", "execution")
"""What a turn consists of, in the order in which it is removed."""


class Rules(NamedTuple):
    """The rules of forks, deletion and retention. A mutation switches one off."""

    check_forks: bool = True
    """Whoever removes looks for forks after its mark is there."""
    check_active: bool = True
    """... and for an execution under way."""
    read_again: bool = True
    """Whoever forks reads the source again after the insert."""
    rivals_read_again: bool = True
    """... also who finds a fork that another call has inserted."""
    fork_minds_mark: bool = True
    """A fork is made when no mark is there; one that stays is taken away."""
    take_back_by_nonce: bool = True
    """A fork that cannot stay is removed by the nonce of its insert."""
    decide_by_mark: bool = True
    """Removing begins with an update that finds one's own mark, after the checks."""
    load_minds_mark: bool = True
    """An attempt does not load the past of a session while it is marked: it takes the mark of a
    sweep away, and gives up before that of a deletion."""
    base_with_decision: bool = True
    """What a sweep takes is out of the session's past before the first of it is removed."""
    execution_last: bool = True
    whole_prefix: bool = True
    """A fork reads again whether any turn that it needs is taken; off: only the last of them."""
    prefix_cut: bool = True
    """A fork inside an execution reads its source's log up to the cut; off: as it is by now."""
    answers_copied: bool = True
    """... and has the answers of the cut in itself; off: it reads the source's."""


class Session(NamedTuple):
    base: int = 0
    """Turns up to this one are no part of its past any more."""
    mark: int = 0
    """The nonce of whoever means to remove something, or 0."""
    for_deletion: bool = False
    is_removed: bool = False
    """Decided: it goes, whoever finishes that."""


class Turn(NamedTuple):
    parts: frozenset[str] = frozenset(PARTS)
    is_active: bool = False
    log: int = 1
    """How many outcomes its log holds."""
    answer: str = ""
    """The answer to its open wait."""


class Fork(NamedTuple):
    """``nonce`` is that of its insert. ``after`` and ``upto`` say which turns of the source it
    needs. One made inside turn ``upto``
    reads the first ``cut`` outcomes of that turn; ``answer`` is the one it had there."""

    nonce: int
    after: int
    upto: int
    cut: int = 0
    answer: str = ""


class Actor(NamedTuple):
    role: str
    key: int = 0
    """Of a fork: the idempotency key; its place in ``World.forks``."""
    upto: int = 0
    """Of a fork: the last turn that it keeps. Of a sweep: the last one that it takes."""
    phase: str = "idle"
    nonce: int = 0
    seen: int = -1
    """What was read of the session's base."""
    rounds: int = 0
    """How often it began again."""


class World(NamedTuple):
    session: Session | None
    turns: tuple[Turn, ...]
    forks: tuple[Fork | None, ...]
    actors: tuple[Actor, ...]
    nonces: int = 0


@dataclass(frozen=True, eq=False)
class Scene:
    """Who works on the session at once, and what it is like when they begin.

    Attributes:
        actors: ``fork``, ``fork inside``, ``sweep``, ``delete``, ``turn``, ``source`` (the last
            turn goes on and is answered).
        turns: Finished turns.
        last_is_active: The last of them is under way.
    """

    actors: tuple[Actor, ...]
    turns: int = 2
    last_is_active: bool = False
    rounds: int = 1


def first_world(scene: Scene) -> World:
    turns = [Turn() for _ in range(scene.turns)]
    if scene.last_is_active:
        turns[-1] = Turn(is_active=True)
    keys = [actor.key for actor in scene.actors if actor.role.startswith("fork")]
    return World(
        session=Session(),
        turns=tuple(turns),
        forks=(None,) * (1 + max(keys, default=-1)),
        actors=scene.actors,
    )
