"""What retention leaves of a session: its beginning, in place of turns that were removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from durable_adk.model.activity import Payload
from durable_adk.model.identity import ExecutionKey, RunId, SessionKey

if TYPE_CHECKING:
    from durable_adk.model.execution import NextExecution, SessionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Retained:
    """How a session begins, and which of its turns are about to go.

    Attributes:
        floor: Turns up to this one are not part of it any more; 0: none was removed.
        state: Payload of the whole session state after turn ``floor``, or None.
        artifacts: Payload of ``{file name: newest version}`` after it, or None.
        expiring: Turns up to this one are marked; 0: none is.
        since: Server milliseconds of that mark.
        cutting: The mark of whoever is about to move ``floor``; empty: nobody is. An attempt or
            a fork that meets it takes it off, and the floor stays where it is.
    """

    floor: int = 0
    state: Payload | None = None
    artifacts: Payload | None = None
    expiring: int = 0
    since: int = 0
    cutting: str = ""


WHOLE: Final = Retained()
"""Of a session that has all its turns."""


class Begins:
    """What a session record says of its beginning."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def retained(self) -> Retained: ...
        @property
        def state(self) -> Payload | None: ...
        @property
        def next(self) -> NextExecution | None: ...
        @property
        def base(self) -> int: ...

    @property
    def floor(self) -> int:
        """The last turn that retention removed, or 0."""
        return self.retained.floor

    @property
    def ground(self) -> int:
        """The turn before the first one that it could have itself."""
        return max(self.base, self.floor)

    @property
    def awaited(self) -> NextExecution | None:
        """``next``, unless that turn was removed."""
        return self.next if self.floor <= self.base else None

    @property
    def first_state(self) -> Payload | None:
        """The session's state before the first turn that is left."""
        return self.retained.state if self.floor else self.state


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnMark:
    """A finished turn, as retention looks at it."""

    key: ExecutionKey
    session: SessionKey
    turn: int
    run: RunId
    scopes_due: bool = False


def removable_for(fork: SessionRecord, source: SessionKey) -> int | None:
    """Up to which turn a session could be cut without taking a turn from one of its forks.

    A fork made inside an execution goes on with the record of that one: the turn behind its cut.

    Returns: None if the fork does without all of its turns.
    """
    inside = fork.awaited is not None and fork.awaited.made is not None
    after = 0
    for ancestor in fork.lineage:
        last = ancestor.upto + (inside and ancestor.upto == fork.base)
        spare = max(after, fork.floor)
        if ancestor.key == source:
            return None if last <= spare else spare
        after = ancestor.upto
    return None
