"""What a replay check says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from durable_adk.app import show
from durable_adk.app._json import jsonable
from durable_adk.app.outcome import ErrorInfo, ExecutionRecord
from durable_adk.engine.ends import stored_error
from durable_adk.engine.replaying import Replay
from durable_adk.errors import DurableError, ReplayMismatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDifference:
    """Something that the code does otherwise than the history says.

    Attributes:
        position: Text of the position, or of the node.
        recorded: What the history has there.
        asked: What the code asked for.
    """

    position: str
    recorded: str
    asked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """Whether this code fits a recorded execution.

    Attributes:
        status: The execution's, when it was read.
        ok: Nothing differs, as far as the record goes, and but for what is ``unchecked``.
        matched: How many of the ``recorded`` calls the code made again.
        recorded: How many there are, without those inside recorded bodies.
        difference: The first one, or None.
        error: The same as an attempt would show it; or what else ended the walk: records that are
            missing or cannot be read, code that is refused, a callback that raises.
        warnings: Model prompts that differ, where ``replay.input_mismatch.model`` is ``warn``.
        unchecked: Positions of recorded calls that nobody asked for and that are no difference: a
            body that is not recorded yet, as one that sleeps, is not entered by a check, and what
            it did inside (``step()``, ``sleep()``) only an attempt compares; what follows a call
            that was cut off; what a later attempt did without, such as a fallback.
    """

    execution_id: str
    status: str
    ok: bool
    matched: int
    recorded: int
    difference: ReplayDifference | None = None
    error: ErrorInfo | None = None
    warnings: tuple[ReplayDifference, ...] = ()
    unchecked: tuple[str, ...] = ()

    def to_dict(self) -> Mapping[str, Any]:
        return dict(jsonable(self))


def report_of(found: Replay) -> ReplayReport:
    failed = found.difference or found.error
    return ReplayReport(
        execution_id=found.execution.execution_id,
        status=found.execution.status.value,
        ok=failed is None,
        matched=found.matched,
        recorded=found.recorded,
        difference=None if found.difference is None else _difference(found.difference),
        error=None if failed is None else show.error_of(stored_error(failed)),
        warnings=tuple(_difference(one) for one in found.warnings),
        unchecked=found.unchecked,
    )


def unread_report(record: ExecutionRecord, error: DurableError) -> ReplayReport:
    """Of an execution that cannot be read here."""
    return ReplayReport(
        execution_id=record.id,
        status=record.status,
        ok=False,
        matched=0,
        recorded=0,
        error=show.error_of(stored_error(error)),
    )


def _difference(found: ReplayMismatch) -> ReplayDifference:
    return ReplayDifference(position=found.position, recorded=found.recorded, asked=found.asked)
