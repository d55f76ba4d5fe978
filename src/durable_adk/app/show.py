"""What is stored, as the values that an App returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from durable_adk.app.outcome import (
    ErrorInfo,
    ExecutionRecord,
    Outcome,
    ToolCall,
    Wait,
)
from durable_adk.engine import answers
from durable_adk.engine.reads import moment
from durable_adk.model.codec import decode
from durable_adk.model.execution import Execution, SessionRecord, Status, StoredError
from durable_adk.model.shown import content_of
from durable_adk.model.versions import ran_under
from durable_adk.model.wait import WaitRequest


def error_of(stored: StoredError | None) -> ErrorInfo | None:
    if stored is None:
        return None
    return ErrorInfo(
        type=stored.type,
        message=stored.message,
        position=stored.position or None,
        remedy=stored.remedy or None,
    )


def wait_of(execution: Execution, request: WaitRequest) -> Wait:
    content = content_of(request)
    call = content.get("tool_call")
    return Wait(
        id=answers.wait_id(execution, request),
        kind=request.kind.value,
        node_path=request.node_path,
        operation_path=request.operation_path,
        message=content.get("message"),
        payload=content.get("payload"),
        tool_call=None
        if call is None
        else ToolCall(id=call.get("id") or "", name=call["name"], args=call.get("args") or {}),
        response_schema=content.get("response_schema"),
        execution_id=execution.execution_id,
        user_id=execution.user_id,
        session_id=execution.session_id,
        since=moment(execution.waiting_since),
        expires_at=moment(request.expires_at),
    )


def waits_of(execution: Execution) -> tuple[Wait, ...]:
    """The open waits of a suspended execution, in frontier order."""
    if execution.status is not Status.SUSPENDED:
        return ()
    return tuple(wait_of(execution, request) for request in answers.open_waits(execution))


def record_of(execution: Execution) -> ExecutionRecord:
    return ExecutionRecord(
        id=execution.execution_id,
        user_id=execution.user_id,
        session_id=execution.session_id,
        turn=execution.turn,
        status=execution.status.value,
        step=execution.step,
        attempt=execution.attempt,
        error=error_of(execution.error),
        version=execution.version,
        ran_under=tuple(ran_under(code) for code in execution.codes),
        open_waits=len(waits_of(execution)),
        created_at=moment(execution.created_at),
        ended_at=moment(execution.ended_at),
    )


def pending_record(session: SessionRecord, execution_id: str) -> ExecutionRecord:
    """The first execution of a fork, which its next message starts."""
    return ExecutionRecord(
        id=execution_id,
        user_id=session.user_id,
        session_id=session.session_id,
        turn=session.base + 1,
        status="pending",
        step=1,
        attempt=0,
        created_at=moment(session.created_at),
    )


def outcome_of(execution: Execution, events: Sequence[Any]) -> Outcome:
    """The outcome of an execution that nobody runs, with its committed events."""
    result = decode(execution.result) if execution.result is not None else {}
    return Outcome(
        status=execution.status.value,
        execution_id=execution.execution_id,
        user_id=execution.user_id,
        session_id=execution.session_id,
        response=result["response"] if "response" in result else last_text(events),
        output=result.get("output"),
        events=tuple(events),
        error=error_of(execution.error),
        waits=waits_of(execution),
        resume_schema=answers.resume_schema(execution),
    )


def last_text(events: Iterable[Any]) -> str | None:
    """The text of the last final event that an agent wrote, or None."""
    for event in reversed(tuple(events)):
        if event.author == "user" or not event.is_final_response():
            continue
        if text := _text(event):
            return text
    return None


def _text(event: Any) -> str:
    parts = event.content.parts if event.content and event.content.parts else ()
    return "".join(part.text for part in parts if part.text and not part.thought)
