"""Answers to in-doubt waits: which are accepted, and what they leave in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from durable_adk.engine.ports import Store
from durable_adk.errors import LeaseLost
from durable_adk.model import codec
from durable_adk.model.activity import Record, RecordStatus, UnknownOutcome, slot_of
from durable_adk.model.doubt import doubted, intent_body, settled_body
from durable_adk.model.execution import Execution
from durable_adk.model.identity import new_nonce
from durable_adk.model.position import Position, activity_id
from durable_adk.model.shown import content_of
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


_NOT_DONE: Mapping[str, Any] = {
    "type": "object",
    "properties": {"outcome": {"const": "not_done"}},
    "required": ["outcome"],
    "additionalProperties": False,
}


def answer_schema(returns: Mapping[str, Any] | None) -> dict[str, Any]:
    """The JSON schema of an answer about a call whose function returns this (None: unknown)."""
    result = dict(returns or {})
    named = result.pop("$defs", None)  # its references are from the root
    done = {
        "type": "object",
        "properties": {"outcome": {"const": "done"}, "result": result},
        "required": ["outcome", "result"],
        "additionalProperties": False,
    }
    schema: dict[str, Any] = {"oneOf": [done, dict(_NOT_DONE)]}
    return schema if named is None else {"$defs": named, **schema}


def returned_in(schema: Any) -> dict[str, Any] | None:
    """The schema of the result in that of an answer; None where nothing is known of it."""
    if not isinstance(schema, dict):
        return None
    found = schema["oneOf"][0]["properties"]["result"]
    return {**found, "$defs": schema.get("$defs", {})} if found else None


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
    position, attempt_try, content = _about(one.wait)
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
        body=settled_body(position.kind, value["result"], content["doubt"].get("fit")),
        started_at=one.answer.at,
        ended_at=one.answer.at,
        attempt=execution.attempt,
    )


async def entered_before(execution: Execution, step: int, store: Store) -> list[Record]:
    """Intents as a fork would have them of the calls in doubt that it was cut at: it keeps no call
    without an outcome, and asks about these all the same. Empty for any other execution."""
    if all(parent.step != step for parent in execution.parents):
        return []
    waits = [one.wait for one in await store.load_waits(execution.run, step=step)]
    if execution.frontier is not None:
        waits += execution.frontier.waits
    return [_entered(wait, execution) for wait in waits if wait.kind is WaitKind.IN_DOUBT]


def _entered(wait: WaitRequest, execution: Execution) -> Record:
    position, attempt_try, content = _about(wait)
    fit = content["doubt"].get("fit")
    return Record(
        step=position.step,
        digest=position.digest,
        attempt_try=attempt_try,
        is_intent=True,
        position=position.text,
        token=execution.token,
        nonce=new_nonce(),
        request=content["doubt"]["request"],
        name=content["tool_call"]["name"],
        node_path=wait.node_path,
        attempt=execution.attempt,
        body=fit and intent_body(UnknownOutcome.FAIL, {}, "", fit=fit),
    )


def _about(wait: WaitRequest) -> tuple[Position, int, dict[str, Any]]:
    """What the wait of a doubt is about: the position, the try, and what it says."""
    about = doubted(Position.parse(wait.position))
    assert about is not None  # its position says so
    return (*about, content_of(wait))


def asked_waits(answered: Sequence[AnsweredWait]) -> tuple[AnsweredWait, ...]:
    """Those that ended their step: what the program asked."""
    return tuple(one for one in answered if one.wait.kind is not WaitKind.IN_DOUBT)


def told_in(execution_id: str, wait: WaitRequest) -> WaitRequest:
    """A wait as an execution has it: a call in doubt has another idempotency key in a fork."""
    if wait.kind is not WaitKind.IN_DOUBT:
        return wait
    position, _try, content = _about(wait)
    before = content["payload"]["activity_id"]
    key = activity_id(execution_id, position.digest)
    content["payload"]["activity_id"] = key
    content["message"] = content["message"].replace(before, key)
    return replace(wait, content=codec.encode(content, where="wait"))
