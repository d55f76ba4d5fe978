"""A claim that took an execution whose own content cannot be read: a chunk of its input is gone, or
something is under a key that is not here.

It becomes ``stuck``, as with any record that is missing: left to its lease, it would be claimed
again for ever.
"""

from __future__ import annotations

import dataclasses
import logging

from durable_adk.engine.ports import Store
from durable_adk.model.execution import FAR, Execution, Lease, Status, StoredError
from durable_adk.model.store_results import Unread

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
