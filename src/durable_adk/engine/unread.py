"""Executions that cannot be read: a chunk of their input or of a record is gone, or something is
under a key that is not here.

A claim that took one makes it ``stuck``, as with any record that is missing: left to its lease, it
would be claimed again for ever. A person can end it all the same where something is gone: no step
shows that end, so the session's past cannot be read from then on, rather than be read as if the
turn had not been.
"""

from __future__ import annotations

import dataclasses
import logging

from durable_adk.engine.ends import stored_error
from durable_adk.engine.ports import Store
from durable_adk.errors import CorruptHistory, DurableError
from durable_adk.model.execution import FAR, Execution, Lease, Status, StoredError
from durable_adk.model.identity import ExecutionKey
from durable_adk.model.store_results import OVERDUE, Unread

_log = logging.getLogger("durable_adk.engine")


async def left_stuck(store: Store, unread: Unread) -> Execution:
    """Give back what an unreadable claim took.

    Returns: what can be read of the execution, as it is left; without a claim.

    Raises:
        LeaseLost: another owner has it.
    """
    outline = unread.execution
    assert outline.claim is not None  # the store has just given it
    error = outline.error or StoredError(type=type(unread).__name__, message=str(unread))
    _log.warning(
        "cannot be read and is stuck: %s",
        error.message,
        extra={"execution_id": outline.execution_id},
    )
    await store.attempt_failed(
        Lease(outline.key, outline.token, outline.claim),
        status=Status.STUCK,
        error=error,
        failures=outline.failures,
        voided=(),
        backoff_ms=0,
        is_readable=False,
    )
    return dataclasses.replace(outline, status=Status.STUCK, claim=None, wake_at=FAR)


async def closed_unread(store: Store, unread: Unread, closing: Status, reason: str) -> Execution:
    """End what a person asked to end and a claim could not read; it is left ``stuck`` where nothing
    of it is gone, so that it can be ended as any other where it can be read.

    Returns: what can be read of the execution, as it is left; without a claim.

    Raises:
        LeaseLost: another owner has it.
    """
    gone, outline = unread.__cause__, unread.execution
    assert outline.claim is not None  # the store has just given it
    if not isinstance(gone, CorruptHistory) or not gone.is_gone:
        return await left_stuck(store, unread)
    lease = Lease(outline.key, outline.token, outline.claim)
    return await end_unread(store, lease, outline, gone, closing, reason)


async def end_unread(
    store: Store,
    lease: Lease,
    execution: Execution,
    gone: CorruptHistory,
    closing: Status,
    reason: str,
) -> Execution:
    """End an execution without what is gone. Its error says what that is, and why it was ended.

    Returns: what can be read of the execution as it ended.

    Raises:
        LeaseLost: another owner has it. Nothing was written.
    """
    error = stored_error(gone)
    if reason:
        error = dataclasses.replace(error, message=f"{error.message} ({reason})")
    _log.warning(
        "is ended unread: %s", error.message, extra={"execution_id": execution.execution_id}
    )
    await _apply_shared(store, execution)
    await store.end_unread(lease, status=closing, error=error)
    return await store.get_outline(execution.key) or dataclasses.replace(
        execution, status=closing, claim=None, frontier=None, error=error, wake_at=FAR
    )


def is_asked_for(error: StoredError) -> bool:
    """Whether a claim that is to close was asked for by a person, and not by a deadline."""
    return error.type != OVERDUE.type


async def outline_of(store: Store, key: ExecutionKey, error: CorruptHistory) -> Execution:
    """What can be read of an execution that cannot be read whole.

    Raises:
        CorruptHistory: nothing of it is gone, or it is not there: the ``error`` itself.
    """
    outline = await store.get_outline(key) if error.is_gone else None
    if outline is None:
        raise error
    return outline


async def _apply_shared(store: Store, execution: Execution) -> None:
    """What it wrote to shared state is committed, and stays, if it can still be read."""
    if not execution.scopes_due:
        return
    try:
        steps = await store.load_steps(execution)
        if steps:
            await store.apply_scopes(execution, steps[-1])
    except DurableError as error:
        _log.warning(
            "shared state of its last step is lost: %s",
            error,
            extra={"execution_id": execution.execution_id},
        )
