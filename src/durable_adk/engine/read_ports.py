"""What the engine reads of executions for people, workers and calls: part of ``ports.Store``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from durable_adk.model.execution import Execution, SessionRecord
from durable_adk.model.identity import ExecutionKey, SessionKey, Tenant
from durable_adk.model.store_results import Selection


class ReadStore(Protocol):
    """Reads only. Contracts and errors as in ``ports.Store``."""

    async def get_execution(self, key: ExecutionKey) -> Execution | None: ...

    async def latest_execution(self, key: SessionKey) -> Execution | None:
        """The session's last turn, active or not."""
        ...

    async def list_executions(
        self, selection: Selection
    ) -> tuple[tuple[Execution, ...], str | None]:
        """Newest first, with the cursor of the next page."""
        ...

    async def list_waiting(self, selection: Selection) -> tuple[tuple[Execution, ...], str | None]:
        """Suspended executions with open waits, oldest ``waiting_since`` first."""
        ...

    async def list_due(
        self, tenant: Tenant, *, version: str | None, limit: int
    ) -> tuple[ExecutionKey, ...]:
        """Executions that ``claim`` would take now, longest due first, of this version or of none;
        with ``scopes_due`` ones left to ``list_scopes_due``. Of every version those that a claim
        only closes: their deadline has passed, or somebody has asked for the end.
        """
        ...

    async def list_expired_elsewhere(
        self, tenant: Tenant, *, version: str, limit: int
    ) -> tuple[Execution, ...]:
        """Suspended executions of other versions with an open wait that may have expired: due, by
        the server's clock; longest first. One that cannot be read comes without its frontier.
        """
        ...

    async def check_waits(self, execution: Execution) -> None:
        """Look whether every answer is there that a committed step was left with.

        Raises:
            CorruptHistory: one is missing.
        """
        ...

    async def list_scopes_due(self, tenant: Tenant, *, limit: int) -> tuple[Execution, ...]:
        """Executions whose last committed step has shared state that is not applied, in no order:
        who cannot apply one asks for more (``passing.py``)."""
        ...

    async def next_wake(self, tenant: Tenant) -> int | None:
        """The earliest ``wake_at`` of active executions, or None if there is none before FAR."""
        ...

    async def list_turns(
        self, record: SessionRecord, *, before: int, limit: int
    ) -> tuple[Execution, ...]:
        """Turns of a session before one, newest first; those of its ancestors included."""
        ...

    async def existing_executions(self, keys: Sequence[ExecutionKey]) -> frozenset[ExecutionKey]:
        """Which of these executions there are. One read."""
        ...
