"""A call that is about to be made, and what an attempt says to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from durable_adk.model.activity import Payload, Record, UnknownOutcome
from durable_adk.model.doubt import Doubt
from durable_adk.model.position import Position


@dataclass(frozen=True, slots=True)
class Entering:
    """On which terms a body is entered: as ``Call`` has them."""

    policy: UnknownOutcome = UnknownOutcome.RERUN
    intent: Payload | None = None
    reconcile: Callable[[Doubt], Any] | None = None


AGAIN = Entering()
"""What is run again under the same key."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call about to be made.

    Attributes:
        request: Digest of what is asked; may be empty, then it is not compared.
        alike: Digests that count as the same, of the sessions that this one was forked from.
        asked: Short readable text of the same, for ``ReplayMismatch``.
        node_path: ADK's path of the asker, for people.
        policy: What to do with a body that was entered and left no outcome.
        intent: Body of the intent of one that must not run twice, or None.
        reconcile: The callback that its function has, or None.
        is_part: It is what a body that must not run twice consists of: that one has the intent.
        explain: Takes a recorded ``request``; gives what it had and what this call has instead, for
            people. None from it: the two cannot be compared.
        since_entered: Takes the intent with which the body was entered before; gives what was
            entered and what would run now, for people. None from it: it runs as it did.
    """

    position: Position
    name: str
    request: str = ""
    asked: str = ""
    node_path: str = ""
    policy: UnknownOutcome = UnknownOutcome.RERUN
    intent: Payload | None = None
    reconcile: Callable[[Doubt], Any] | None = None
    is_part: bool = False
    explain: Callable[[str], tuple[str, str] | None] | None = None
    alike: tuple[str, ...] = ()
    since_entered: Callable[[Record], tuple[str, str] | None] | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """An outcome is recorded (completed, failed or waiting). Return it; never run the body."""

    record: Record


@dataclass(eq=False, slots=True)
class Dispatched:
    """Nothing is recorded: run the body, then report it. Opaque but for what it shows.

    Attributes:
        attempt_try: Which slot of the position it will fill, from 1.
        started_at: Milliseconds since the epoch by the local clock.
        settled: Reported; a later cancellation of the asker changes nothing.
        fault, left: What a test makes this body fail with, and whether it was told that it ran.
    """

    call: Call
    digest: str
    attempt_try: int
    started_at: int
    entered_at: int
    settled: bool = False
    fault: Exception | None = None
    left: bool = False

    def enter(self) -> None:
        """The first line of every body. Raises: what a test makes it fail with."""
        if self.fault is not None:
            raise self.fault
