"""What the engine needs of a store for executions that cannot be read: part of ``ports.Store``."""

from __future__ import annotations

from typing import Protocol

from durable_adk.model.execution import Execution, Lease, Status, StoredError
from durable_adk.model.identity import ExecutionKey


class UnreadStore(Protocol):
    """Executions of which something is gone. How to read these docstrings is in ``ports.py``."""

    async def get_outline(self, key: ExecutionKey) -> Execution | None:
        """As ``get_execution``; of one whose own content is gone what can be read, with the error
        that says what is gone.

        Raises:
            KeyMissing, CorruptHistory: its content is not gone: it is under a key that is not here,
                or another version of durable-adk wrote it.
        """
        ...

    async def end_unread(self, lease: Lease, *, status: Status, error: StoredError) -> None:
        """End without a step: one update, filter token, claim, ``running``.

        Effect: as ``commit_end``, but there is no ``last_step``, and no shared state is due any
            more. From then on whoever reads the session's past gets ``CorruptHistory``.
        Repeat: yes. Raises: LeaseLost.
        """
        ...
