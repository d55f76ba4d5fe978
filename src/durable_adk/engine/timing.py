"""Sleeping inside an execution, and how long one may take.

A body that sleeps is not told to the program: when everything else has gone quiet, the attempt ends
there, and its timers are committed as waits of a frontier that does not end the step. When they are
due, the step runs again over its records, as after a crash, and goes past them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from durable_adk.engine.program import Quiet
from durable_adk.errors import ConfigError
from durable_adk.model.activity import Kind, Payload, Record, UnknownOutcome
from durable_adk.model.codec import encode
from durable_adk.model.due import Due
from durable_adk.model.execution import Execution
from durable_adk.model.position import Position, is_under
from durable_adk.model.wait import Frontier, WaitKind, WaitRequest

if TYPE_CHECKING:
    from durable_adk.engine.activities import StepRecords
    from durable_adk.engine.calls import Dispatched
    from durable_adk.engine.ending import Ending
    from durable_adk.engine.log import OutcomeLog
    from durable_adk.engine.ports import Clock

IS_OVER: Payload = encode({"slept": True})
"""What a timer is answered with."""


class Asleep(Exception):
    """All that still runs sleeps. Ends the attempt, not the step.

    Attributes:
        quiet: What the step left so far; its waits are those of the frontier.
        records: Those of the open step, as they are durable.
    """

    def __init__(self, quiet: Quiet, records: Iterable[Record]) -> None:
        super().__init__("everything that runs sleeps")
        self.quiet = quiet
        self.records = tuple(records)


class DeadlinePassed(Exception):
    """The execution was not done in time."""


class Sleeping:
    """The part of an ``Attempt`` that ``sleep()`` needs."""

    execution: Execution
    step: int
    records: StepRecords
    ending: Ending
    _entered: dict[str, Dispatched]
    _clock: Clock
    _log: OutcomeLog

    def now(self) -> int:
        """Milliseconds since the epoch, by the clock that records are stamped with."""
        return self._clock.estimate()

    def elapsed(self) -> float:
        """Seconds from an arbitrary start."""
        return self._clock.elapsed()

    def fall_asleep(self, quiet: Quiet) -> None:
        """End the attempt here. What a body still records when it is cancelled does not count."""
        asleep = Asleep(quiet, self.records.outcomes())
        self._log.stop(asleep)
        self.ending.stop(asleep)

    def has_slept(self, position: Position) -> bool:
        """Whether the timer of a position was committed, and is over."""
        frontier = self.execution.frontier
        if frontier is None or frontier.ends_step:
            return False
        place = frontier.place_of(position.digest)
        return place is not None and place in frontier.answers

    def timers(self) -> Iterator[tuple[Position, str]]:
        """Position and name of what sleeps, or slept, in the step being run."""
        frontier = self.execution.frontier
        if frontier is None or frontier.ends_step or frontier.step != self.step:
            return
        for wait in frontier.waits:
            if wait.kind is WaitKind.TIMER:
                yield Position.parse(wait.position), wait.author

    def asleep_at(self, path: str, entry: int) -> str:
        """The name of what sleeps, or slept in this step, in an entry of an operation path; empty:
        nothing."""
        place = (path, entry)
        return next((name for at, name in self.timers() if (at.path, at.entry) == place), "")

    def refuse_sleep(self, path: str) -> ConfigError | None:
        """Why nothing at an operation path may sleep, or None."""
        for ticket in self._entered.values():
            call = ticket.call
            if call.position.kind is Kind.STEP:
                continue  # beside it: inside one nothing sleeps
            if call.policy is not UnknownOutcome.RERUN and is_under(path, call.position.path):
                return ConfigError(
                    f"durable_adk.sleep in {call.name or path}",
                    "a body that sleeps is entered again from its top, and"
                    f" on_unknown_outcome={call.policy.value!r} forbids that",
                    "Sleep in the node or the agent around it, or put the effect into a step()"
                    " of its own with that policy.",
                )
        return None


def timer(position: Position, due: Due, *, node_path: str, author: str) -> WaitRequest:
    """The wait of a ``sleep()``; its id is that of the activity that it becomes."""
    return WaitRequest(
        digest=position.digest,
        position=position.text,
        kind=WaitKind.TIMER,
        call_name="sleep",
        call_id="",
        node_path=node_path,
        operation_path=position.path,
        branch=None,
        isolation_scope=None,
        author=author,
        content=encode({"message": None, "payload": None, "tool_call": None, "shown": ""}),
        expires_at=due.at,
        expires_after=due.after,
        on_expiry=IS_OVER,
    )


def carried(frontier: Frontier, execution: Execution) -> Frontier:
    """A frontier with what an earlier one of the same step knows of its waits: a question that was
    shown before a timer was due keeps its answer and its expiry."""
    frontier = dataclasses.replace(frontier, deadline=execution.deadline)
    before = execution.frontier
    if before is not None and before.step == frontier.step:
        places = {
            place: there
            for place, wait in enumerate(frontier.waits)
            if (there := before.place_of(wait.digest)) is not None
        }
        answers = {p: before.answers[t] for p, t in places.items() if t in before.answers}
        waits = tuple(
            dataclasses.replace(wait, expires_at=before.waits[places[place]].expires_at)
            if place in places
            else wait
            for place, wait in enumerate(frontier.waits)
        )
        frontier = dataclasses.replace(
            frontier, waits=waits, answers=answers, open=len(waits) - len(answers)
        )
    if frontier.ends_step:
        return frontier
    text = f"{execution.execution_id}|{frontier.step}|asleep|{execution.token}"
    return dataclasses.replace(frontier, id=hashlib.sha256(text.encode()).hexdigest()[:20])
