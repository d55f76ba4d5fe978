"""A message as the engine takes it, and why it may be refused."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from durable_adk.engine.answers import asked_ids, open_wait_ids, open_waits
from durable_adk.engine.reads import moment
from durable_adk.errors import InputConflict, SessionBusy
from durable_adk.model.activity import Payload
from durable_adk.model.due import Due
from durable_adk.model.execution import Execution, NewExecution, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One user message.

    Attributes:
        session_id: None for a new session. With an ``execution_id`` it is derived from that, so
            that the same call again means the same session.
        execution_id: None for a random one. Given, it makes the call idempotent.
        input: Payload of ``{"message", "state_delta", "run_config"}``; repeats are compared by it.
        initial_state: Payload of the state of a session that this call makes.
        deadline: When the execution is ended if it has not ended by then; not compared.
    """

    user_id: str
    session_id: str | None = None
    execution_id: str | None = None
    input: Payload
    initial_state: Payload | None = None
    deadline: Due | None = None


def session_of(execution_id: str) -> str:
    return hashlib.sha256(execution_id.encode()).hexdigest()[:32]


def is_same(execution: Execution, new: NewExecution, request: Request) -> bool:
    """Whether an execution that is there is the one asked for.

    Raises:
        InputConflict: its id was asked for, with another session or another input.
    """
    is_elsewhere = execution.session_key != new.session_key
    if is_elsewhere:
        other = f"belongs to session {execution.session_id!r}"
    elif execution.input_digest != new.input_digest:
        other = "has another input"
    else:
        return True
    if request.execution_id is None and not is_elsewhere:  # the id was the fork's, not the caller's
        return False
    raise InputConflict(f"execution {execution.execution_id!r}", other, "Use another execution id.")


def busy(execution: Execution) -> SessionBusy:
    waits = open_wait_ids(execution) if execution.status is Status.SUSPENDED else ()
    detail = remedy = ""
    if waits and not asked_ids(execution):  # nobody can answer a timer
        due = moment(min((w.expires_at for w in open_waits(execution) if w.expires_at), default=0))
        detail = f": it sleeps until {due and due.isoformat(timespec='seconds')}"
        remedy = (
            "A worker or recover() goes on with it then; call again after that, or end it with"
            " cancel()."
        )
    elif execution.status is Status.QUEUED and execution.version is not None:
        detail = f", of version {execution.version!r}: workers of other versions leave it"
    return SessionBusy(
        execution.session_id,
        execution_id=execution.execution_id,
        status=execution.status.value,
        waits=waits,
        detail=detail,
        remedy=remedy,
    )
