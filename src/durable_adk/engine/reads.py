"""What an execution did, for people and programs: its committed steps and its activities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypedDict

from durable_adk.engine.ports import Store
from durable_adk.engine.settled import settled_slots
from durable_adk.errors import CorruptHistory, NotFound
from durable_adk.model.activity import ActivityInfo, Kind, Record, RecordStatus, slot_of
from durable_adk.model.codec import decode
from durable_adk.model.execution import Execution, Status, StepDocument, StepRef
from durable_adk.model.position import Position, activity_id
from durable_adk.model.shown import content_of
from durable_adk.model.wait import StoredAnswer, WaitKind, WaitRequest

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(milliseconds: int | None) -> datetime | None:
    """An aware time of milliseconds since the epoch."""
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)


async def committed_steps(store: Store, execution: Execution) -> tuple[StepDocument, ...]:
    """Every committed step in order, with the one that the open frontier ends.

    Raises:
        CorruptHistory: one is missing.
        NotFound: retention has removed the execution since it was read.
    """
    frontier = execution.frontier
    if frontier is None or not frontier.ends_step:
        return await _steps(store, execution)
    return await shown_steps(store, execution)


async def shown_steps(store: Store, execution: Execution) -> tuple[StepDocument, ...]:
    """As ``committed_steps``, with what there is of a step in which something sleeps."""
    frontier = execution.frontier
    if frontier is None or frontier.is_in_doubt or not frontier.step_token:
        return await _steps(store, execution)  # in-doubt waits end no step
    ended = StepRef(frontier.step, frontier.step_token)
    return await _steps(store, replace(execution, last_step=ended))


async def _steps(store: Store, execution: Execution) -> tuple[StepDocument, ...]:
    try:
        return await store.load_steps(execution)
    except CorruptHistory:
        if await store.get_execution(execution.key) is not None:
            raise
    raise NotFound(f"execution {execution.execution_id!r}", "was removed by retention just now")


async def activities_of(store: Store, execution: Execution) -> tuple[ActivityInfo, ...]:
    """Every activity of an execution, the open step included, in the order of their records.

    A status is ``completed``, ``failed``, ``waiting`` (asked, not answered), ``denied`` (a
    confirmation that was answered false), ``running``, ``in_doubt`` or ``abandoned``. Failures
    that do not count any more are left out.

    Raises:
        CorruptHistory: a record that a step names is missing.
    """
    steps = await committed_steps(store, execution)
    records = await store.load_records(execution.run, from_step=1, parents=execution.parents)
    there = {record.slot for record in records}
    gone = [slot for step in steps for slot in step.records if slot not in there]
    if gone:
        raise CorruptHistory(
            f"execution {execution.execution_id!r}",
            f"{len(gone)} of the records that its steps name are missing, the first is {gone[0]}",
        )
    counted = _Counted(
        committed={step.step: frozenset(step.records) for step in steps},
        voided=frozenset(execution.voided),
    )
    calls = list(_calls(execution, records, counted))
    known = {info.id for info in calls}  # a verdict says more than that its body was left
    calls += [info for info in _abandoned(execution, steps) if info.id not in known]
    waits = [info for info in await _waits(store, execution) if info.id not in known]
    # The sort is stable: within a step calls stand in log order, then abandoned ones, then waits.
    return tuple(sorted([*calls, *waits], key=lambda info: info.step))


@dataclass(frozen=True, slots=True)
class _Counted:
    """Which outcomes count: in a committed step those it names, and never a voided one."""

    committed: dict[int, frozenset[str]]
    voided: frozenset[str]

    def has(self, record: Record) -> bool:
        if record.slot in self.voided:
            return False
        names = self.committed.get(record.step)
        # A verdict holds its slot for good, and is no outcome that a step could name.
        is_verdict = record.status is RecordStatus.IN_DOUBT
        return is_verdict or names is None or record.slot in names

    def is_closed(self, record: Record) -> bool:
        """Whether its step is committed, so that nothing of it is under way."""
        return record.step in self.committed


def _calls(
    execution: Execution, records: Sequence[Record], counted: _Counted
) -> Iterator[ActivityInfo]:
    outcomes: dict[tuple[int, str], Record] = {}
    settled: set[str] = set()
    told = settled_slots(records)  # what was in doubt there is known, or is tried anew
    for record in records:
        if record.is_intent or _kind(record) in (Kind.WAIT, Kind.SHARED):
            continue
        settled.add(record.slot)
        if counted.has(record) and record.slot not in told:
            outcomes[record.step, record.digest] = record  # in key order: the last try stays
    # A verdict has no place in the log; it stands behind what has.
    for record in sorted(outcomes.values(), key=lambda r: (r.step, r.seq == 0, r.seq, r.digest)):
        assert record.status is not None  # only an intent has none
        yield _info(execution, record, record.status.value)
    for record in records:
        outcome_slot = slot_of(record.step, record.digest, record.attempt_try)
        if record.is_intent and outcome_slot not in settled and not counted.is_closed(record):
            is_ours = execution.status is Status.RUNNING and record.token == execution.token
            yield _info(execution, record, "running" if is_ours else "in_doubt")


def _kind(record: Record) -> Kind:
    return Position.parse(record.position).kind


def _info(execution: Execution, record: Record, status: str) -> ActivityInfo:
    # An intent, and a verdict on one, says when a body was entered and not when it ended.
    has_ended = not record.is_intent and record.status is not RecordStatus.IN_DOUBT
    return ActivityInfo(
        id=activity_id(execution.id_of_record(record), record.digest),
        name=record.name,
        node_path=record.node_path,
        status=status,
        attempt=record.attempt,
        started_at=moment(record.started_at or None),
        ended_at=moment(record.ended_at or None) if has_ended else None,
        **_place(Position.parse(record.position)),
    )


class _Place(TypedDict):
    kind: str
    operation_path: str
    step: int
    entry: int
    ordinal: int


def _place(position: Position) -> _Place:
    return _Place(
        kind=position.kind.value,
        operation_path=position.path,
        step=position.step,
        entry=position.entry,
        ordinal=position.ordinal,
    )


def _abandoned(execution: Execution, steps: Sequence[StepDocument]) -> Iterator[ActivityInfo]:
    for step in steps:
        for text in step.abandoned:
            position = Position.parse(text)
            yield ActivityInfo(
                id=activity_id(execution.id_of(step.step), position.digest),
                name=position.label,
                node_path="",
                status="abandoned",
                attempt=0,
                started_at=None,
                ended_at=None,
                **_place(position),
            )


async def _waits(store: Store, execution: Execution) -> list[ActivityInfo]:
    frontier = execution.frontier
    found: list[ActivityInfo] = []
    for step in range(1, execution.step + 1):
        if frontier is not None and frontier.step == step:
            found += [
                _wait_info(
                    execution.execution_id,
                    wait,
                    frontier.answers.get(place),
                    execution.waiting_since,
                )
                for place, wait in enumerate(frontier.waits)
            ]
        run, owner = execution.answers_of(step)
        shown = {info.id for info in found}
        answered = [
            _wait_info(owner, one.wait, one.answer, None)
            for one in await store.load_waits(run, step=step)
        ]
        found += [info for info in answered if info.id not in shown]
    return found


def _wait_info(
    execution_id: str, wait: WaitRequest, answer: StoredAnswer | None, since: int | None
) -> ActivityInfo:
    place = _place(Position.parse(wait.position))
    if wait.kind is WaitKind.TIMER:
        place["kind"] = wait.kind.value
    content = content_of(wait)
    call = content.get("tool_call") if isinstance(content, dict) else None
    details: dict[str, object] = {"wait_kind": wait.kind.value}
    if answer is not None:
        details["by"] = answer.by
    return ActivityInfo(
        id=activity_id(execution_id, wait.digest),
        name=call["name"] if isinstance(call, dict) else wait.call_name,
        node_path=wait.node_path,
        status=_wait_status(wait, answer),
        attempt=0,
        started_at=moment(since),
        ended_at=moment(answer.at) if answer else None,
        details=details,
        **place,
    )


def _wait_status(wait: WaitRequest, answer: StoredAnswer | None) -> str:
    if answer is None:
        return RecordStatus.WAITING.value
    value = decode(answer.value)
    is_confirmation = wait.kind is WaitKind.CONFIRMATION and isinstance(value, dict)
    if is_confirmation and value.get("confirmed") is False:
        return "denied"
    return RecordStatus.COMPLETED.value
