"""Answers to in-doubt waits: which are accepted, and what they leave in the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from durable_adk.engine.ports import Store
from durable_adk.errors import LeaseLost
from durable_adk.model import codec
from durable_adk.model.activity import Record, RecordStatus, slot_of
from durable_adk.model.doubt import doubted, settled_body
from durable_adk.model.execution import Execution
from durable_adk.model.identity import new_nonce
from durable_adk.model.position import Position, activity_id
from durable_adk.model.wait import AnsweredWait, WaitKind, WaitRequest

_EXPECTED = 'expected {"outcome": "done", "result": ...} or {"outcome": "not_done"}'


def problem_with_settlement(value: object) -> str | None:
    """Why an in-doubt wait does not accept a plain JSON value, or None."""
    if not isinstance(value, dict):
        return f"{_EXPECTED}, got {type(value).__name__}"
    if "outcome" not in value:
        return f"{_EXPECTED}; outcome is missing"
    outcome = value["outcome"]
    if outcome not in ("done", "not_done"):
        return f"{_EXPECTED}; outcome is {outcome!r}"
    if outcome == "done" and "result" not in value:
        return f"{_EXPECTED}; result is missing: say null if it returned nothing"
    if outcome == "not_done" and "result" in value:
        return f"{_EXPECTED}; what is not done has no result"
    extra = sorted(value.keys() - {"outcome", "result"})
    return f"{_EXPECTED}; unknown: {', '.join(extra)}" if extra else None


def settled_slots(records: Sequence[Record]) -> set[str]:
    """The slots of one step whose doubt is settled: their position goes on in the next one."""
    found = set()
    for record in records:
        about = _doubted(record)
        if about is not None:
            position, attempt_try = about
            found.add(slot_of(position.step, position.digest, attempt_try))
    return found


def _doubted(record: Record) -> tuple[Position, int] | None:
    if record.name != WaitKind.IN_DOUBT.value or record.is_intent:
        return None
    return doubted(Position.parse(record.position))


async def with_results(
    records: Sequence[Record], execution: Execution, store: Store
) -> Sequence[Record]:
    """The records, with the result of each doubt of the open step that was settled as done.

    It is put behind what is in the log, into the slot after the one that was in doubt.

    Raises:
        LeaseLost: another owner put something there.
    """
    told = [
        (record, about)
        for record in records
        if record.step == execution.step and (about := _doubted(record)) is not None
    ]
    if not told:
        return records
    there = {record.slot for record in records}
    missing = {
        record.digest
        for record, (position, attempt_try) in told
        if codec.decode(record.body or "{}").get("outcome") == "done"
        and slot_of(position.step, position.digest, attempt_try + 1) not in there
    }
    if not missing:
        return records
    answered = await store.load_waits(execution.run, step=execution.step)
    last = max((record.seq for record in records), default=0)
    made = [
        _result(one, execution, last + place)
        for place, one in enumerate((a for a in answered if a.wait.digest in missing), 1)
    ]
    if await store.insert_outcomes(execution.run, made) is not None:
        raise LeaseLost(
            f"execution {execution.execution_id!r}",
            "another owner recorded what an in-doubt wait was answered with",
            "The attempt ends; the current owner goes on with what is stored.",
        )
    return (*records, *made)


def _result(one: AnsweredWait, execution: Execution, seq: int) -> Record:
    about = doubted(Position.parse(one.wait.position))
    assert about is not None  # only such waits are missing a result
    position, attempt_try = about
    content = codec.decode(one.wait.content)
    value = codec.decode(one.answer.value)
    return Record(
        step=position.step,
        digest=position.digest,
        attempt_try=attempt_try + 1,
        position=position.text,
        token=execution.token,
        seq=seq,
        nonce=new_nonce(),
        request=content["doubt"]["request"],
        status=RecordStatus.COMPLETED,
        name=content["tool_call"]["name"],
        node_path=one.wait.node_path,
        body=settled_body(position.kind, value["result"]),
        started_at=one.answer.at,
        ended_at=one.answer.at,
        attempt=execution.attempt,
    )


def asked_waits(answered: Sequence[AnsweredWait]) -> tuple[AnsweredWait, ...]:
    """Those that ended their step: what the program asked."""
    return tuple(one for one in answered if one.wait.kind is not WaitKind.IN_DOUBT)


def told_in(execution_id: str, wait: WaitRequest) -> WaitRequest:
    """A wait as an execution has it: a call in doubt has another idempotency key in a fork."""
    if wait.kind is not WaitKind.IN_DOUBT:
        return wait
    about, content = doubted(Position.parse(wait.position)), codec.decode(wait.content)
    assert about is not None  # its position says so
    before = content["payload"]["activity_id"]
    key = activity_id(execution_id, about[0].digest)
    content["payload"]["activity_id"] = key
    content["message"] = content["message"].replace(before, key)
    return replace(wait, content=codec.encode(content, where="wait"))
