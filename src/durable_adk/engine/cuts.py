"""Where a session is cut for a fork, and what its first execution goes on with there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from durable_adk.errors import ConfigError, NotFound
from durable_adk.model.activity import Record
from durable_adk.model.execution import Execution, ForkedExecution, Parent, StepDocument
from durable_adk.model.identity import SessionKey
from durable_adk.model.wait import Frontier, StoredAnswer, WaitRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Where to fork a session.

    Attributes:
        side: On which side of the target; the target is kept when it is ``after``.
        target: An execution id (whole turns) or an activity id (inside an execution; a wait means
            the answers to its frontier); empty for all finished turns.
    """

    side: Literal["before", "after"] = "after"
    target: str = ""

    def digest(self, source: SessionKey) -> str:
        """What repeats of a fork are compared by."""
        text = json.dumps([source, self.side if self.target else "", self.target])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Asked:
    """The waits that ended a step, and the answers to them that there are, by place."""

    step: int
    waits: tuple[WaitRequest, ...]
    answers: Mapping[int, StoredAnswer]


def at_frontier(
    execution: Execution, steps: Sequence[StepDocument], asked: Asked, cut: Cut
) -> ForkedExecution:
    """Suspended where the waits of a step were open: asked again, or with all answers kept."""
    step, answers = asked.step, asked.answers if cut.side == "after" else {}
    if cut.side == "after" and len(answers) < len(asked.waits):
        raise ConfigError(
            f"wait {cut.target!r}",
            "not every wait of its frontier is answered",
            "Fork before it: the fork asks them all again.",
        )
    documents = {document.step: document for document in steps}
    ended = documents[step]
    return ForkedExecution(
        source=execution.key,
        parents=_parents(execution, step=step + 1, seq=0, answers=step),
        step=step,
        last_step=ended.prev,
        frontier=Frontier(
            id="",  # derives from the fork's own execution
            step=step,
            step_token=ended.token,
            waits=asked.waits,
            open=len(asked.waits) - len(answers),
            rev=0,
            answers=answers,
        ),
    )


def at_record(
    execution: Execution,
    steps: Sequence[StepDocument],
    records: Sequence[Record],
    digest: str,
    cut: Cut,
) -> ForkedExecution:
    """Under way in the step of a record: what its log holds up to there is kept."""
    named = {document.step: frozenset(document.records) for document in steps}
    found = [
        record
        for record in records
        if record.digest == digest
        and record.seq
        and record.slot not in execution.voided
        and (record.step not in named or record.slot in named[record.step])
    ]
    if not found:
        raise NotFound(
            f"activity {cut.target!r}",
            f"execution {execution.execution_id!r} has no outcome of it to fork at",
            "Look up the activities: app.executions.activities(). An imported turn has none: fork"
            " before or after it.",
        )
    record = max(found, key=lambda r: r.attempt_try)
    if any(parent.has(record) for parent in execution.parents):
        raise ConfigError(
            f"activity {cut.target!r}",
            "is kept from the execution that this one was forked from",
            f"Fork the session of execution {execution.id_of_record(record)!r}.",
        )
    before = next((d.ref for d in reversed(steps) if d.step == record.step - 1), None)
    return ForkedExecution(
        source=execution.key,
        parents=_parents(
            execution,
            step=record.step,
            seq=record.seq - (cut.side == "before"),
            answers=record.step,
        ),
        step=record.step,
        last_step=before,
        voided=tuple(
            slot for slot in execution.voided if slot.startswith(record.slot.partition(":")[0])
        ),
    )


def _parents(execution: Execution, *, step: int, seq: int, answers: int) -> tuple[Parent, ...]:
    """Whose record a fork keeps: that of those the execution went on from, then its own.

    A cut lies in what the execution recorded itself, so it keeps all of its parents.
    """
    own = Parent(
        run=execution.run,
        execution_id=execution.execution_id,
        step=step,
        seq=seq,
        answers=answers,
    )
    return (*execution.parents, own)
