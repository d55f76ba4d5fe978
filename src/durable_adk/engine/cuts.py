"""Where a session is cut for a fork, and what its first execution goes on with there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from durable_adk.errors import ConfigError, NotFound
from durable_adk.model.activity import Payload, Record, slot_of
from durable_adk.model.doubt import doubted
from durable_adk.model.execution import Execution, ForkedExecution, Parent, StepDocument, StepRef
from durable_adk.model.identity import FencingToken, SessionKey
from durable_adk.model.position import Position
from durable_adk.model.shown import content_of
from durable_adk.model.wait import AnsweredWait, Frontier, StoredAnswer, WaitKind, WaitRequest

ArtifactsAt = Callable[
    [Payload | None, Execution, Sequence[StepDocument], Sequence[Record]], Payload | None
]
"""The artifact versions inside an execution: those at its start, and what steps and records
added. Implemented by the program."""


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

    @property
    def is_in_doubt(self) -> bool:
        """Whether they are about calls in doubt, so that their step was open."""
        return any(wait.kind is WaitKind.IN_DOUBT for wait in self.waits)


def asked_with(digest: str, answered: Sequence[AnsweredWait]) -> list[AnsweredWait]:
    """Of the answers of a step, those to the frontier that has a wait; none if it is not among
    them. A step has one frontier that ended it, and one for each time something was in doubt."""
    own = next((one.wait for one in answered if one.wait.digest == digest), None)
    return [one for one in answered if own and _frontier_of(one.wait) == _frontier_of(own)]


def _frontier_of(wait: WaitRequest) -> object:
    return content_of(wait)["doubt"]["frontier"] if wait.kind is WaitKind.IN_DOUBT else None


def at_frontier(
    execution: Execution, steps: Sequence[StepDocument], asked: Asked, cut: Cut
) -> ForkedExecution:
    """Suspended where the waits of a step were open: asked again, or with all answers kept."""
    step, answers = asked.step, _kept_answers(asked, cut)
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
            waits=tuple(map(_asked_again, asked.waits)) if cut.side == "before" else asked.waits,
            open=len(asked.waits) - len(answers),
            rev=0,
            answers=answers,
        ),
    )


def at_doubts(
    execution: Execution,
    steps: Sequence[StepDocument],
    records: Sequence[Record],
    asked: Asked,
    cut: Cut,
) -> ForkedExecution:
    """Suspended where calls were in doubt, in their open step: asked again, or answered.

    The fork keeps what the log held then. The calls are its own: under its ids.
    """
    seq = content_of(asked.waits[0])["doubt"]["seq"]
    parents = _parents(execution, step=asked.step, seq=seq, answers=asked.step)
    answers = _kept_answers(asked, cut)
    about = (doubted(Position.parse(wait.position)) for wait in asked.waits)
    before = {
        slot_of(position.step, position.digest, k)
        for position, attempt_try in filter(None, about)
        for k in range(1, attempt_try)
    }
    return ForkedExecution(
        source=execution.key,
        parents=parents,
        step=asked.step,
        last_step=_last_before(steps, asked.step),
        voided=_voided(execution, records, parents[-1], before),
        frontier=Frontier(
            id="",  # derives from the fork's own execution
            step=asked.step,
            step_token=FencingToken(0),
            waits=asked.waits,
            open=len(asked.waits) - len(answers),
            rev=0,
            answers=answers,
        ),
    )


def _kept_answers(asked: Asked, cut: Cut) -> Mapping[int, StoredAnswer]:
    """Raises: ConfigError: they are to be kept, and one is missing."""
    if cut.side == "before":
        return {}
    if len(asked.answers) < len(asked.waits):
        raise ConfigError(
            f"wait {cut.target!r}",
            "not every wait of its frontier is answered",
            "Fork before it: the fork asks them all again.",
        )
    return asked.answers


def _last_before(steps: Sequence[StepDocument], step: int) -> StepRef | None:
    return next((d.ref for d in reversed(steps) if d.step == step - 1), None)


def _voided(
    execution: Execution,
    records: Sequence[Record],
    end: Parent,
    before: Iterable[str] = (),
) -> tuple[str, ...]:
    """The slots of the step that was cut in that do not count in a fork: failures that were tried
    anew, and what a kept outcome came after, such as a doubt that was settled."""
    prefix = f"{end.step:06d}:"
    slots = {slot for slot in execution.voided if slot.startswith(prefix)}
    slots |= {
        slot_of(record.step, record.digest, k)
        for record in records
        if record.step == end.step and end.has(record)
        for k in range(1, record.attempt_try)
    }
    return tuple(sorted(slots | set(before)))


def _asked_again(wait: WaitRequest) -> WaitRequest:
    """A question that a fork asks has all its time again."""
    return wait if wait.expires_after is None else replace(wait, expires_at=None)


def at_sleep(
    execution: Execution, steps: Sequence[StepDocument], records: Sequence[Record], cut: Cut
) -> ForkedExecution:
    """Under way in the open step, where its timers and its questions are open: all that is recorded
    is kept, the fork sleeps and asks again."""
    if cut.side == "after":
        raise ConfigError(
            f"wait {cut.target!r}",
            "something of its step still sleeps, or is about to go on",
            "Fork before it: the fork sleeps, and asks, again.",
        )
    step = execution.step
    seq = max((record.seq for record in records if record.step <= step), default=0)
    parents = _parents(execution, step=step, seq=seq, answers=step)
    return ForkedExecution(
        source=execution.key,
        parents=parents,
        step=step,
        last_step=_last_before(steps, step),
        voided=_voided(execution, records, parents[-1]),
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
    seq = record.seq - (cut.side == "before")
    parents = _parents(execution, step=record.step, seq=seq, answers=record.step)
    return ForkedExecution(
        source=execution.key,
        parents=parents,
        step=record.step,
        last_step=_last_before(steps, record.step),
        voided=_voided(execution, records, parents[-1]),
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
