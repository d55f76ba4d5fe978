"""Waiting for outcomes, here and elsewhere, and ending executions early.

Whoever runs an execution, its outcome is what the store says. ``LeaseLost`` stops here: it
means that another owner goes on, so its outcome is waited for.
"""

from __future__ import annotations

import asyncio

from durable_adk.engine.answering import asks
from durable_adk.engine.expiring import Expiring
from durable_adk.engine.ports import Store
from durable_adk.engine.program import Sink
from durable_adk.engine.running import Attempts, Live, was_closed
from durable_adk.engine.settings import EngineSettings
from durable_adk.engine.unread import outline_of
from durable_adk.errors import CorruptHistory, LeaseLost, NotFound
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import ExecutionKey

LONGEST_POLL_S = 1.0
"""An execution that runs elsewhere is looked at this often at least."""

ENDING_LEASES = 2
"""How many leases an owner gets to notice that it is asked to end: one to renew or die, one
because its own clock starts later."""


class Following:
    """Brings executions to their next stop."""

    def __init__(
        self, attempts: Attempts, *, store: Store, settings: EngineSettings, expiring: Expiring
    ) -> None:
        self._expiring = expiring
        self._attempts = attempts
        self._store = store
        self._settings = settings

    async def follow(
        self, execution: Execution, *, early: bool = False, sink: Sink | None = None
    ) -> Execution:
        """Go on with an execution that is due, or wait for who does.

        ``early``: go on with a queued one although its back-off has not passed. ``sink`` takes
        what an attempt streams, if it is begun by this call.

        Returns: the execution where an attempt left it: ended, suspended, stuck, or queued
            because it failed and backs off.
        Raises: Unavailable: this process closes, and somebody else runs it.
        """
        pause = self._settings.poll_s
        while self._may_move(execution):
            live = self._attempts.live(execution.key)
            if live is None:
                self._refuse_when_closing(execution)
                live = self._attempts.claim(execution.key, early=early, sink=sink)
            ended = await self.outcome(live)
            if ended is not None:
                return ended
            self._refuse_when_closing(execution)
            before, execution = execution, await self.read(execution.key)
            if not early and execution.status is before.status is not Status.RUNNING:
                # Nobody runs it and it may not be claimed: it backs off, or it belongs to a
                # worker of another version.
                return execution
            early = False
            if self._may_move(execution):
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_POLL_S)
        return execution

    def _refuse_when_closing(self, execution: Execution) -> None:
        if self._attempts.closing:
            raise was_closed(f"execution {execution.execution_id!r}", "is not at its next stop")

    async def outcome(self, live: Live) -> Execution | None:
        """Where an attempt of this process left it; None if it had, or kept, no lease."""
        try:
            return await self._attempts.outcome(live)
        except LeaseLost:
            return None

    async def clear(self, execution: Execution) -> Execution:
        """Finish what stands in a session's way, if it is due or backs off.

        Returns: the execution in the way as it stands then; final if the way is free.
        """
        if not self._may_move(execution) or self._attempts.live(execution.key) is not None:
            return execution
        self._refuse_when_closing(execution)
        live = self._attempts.claim(execution.key, early=execution.status is Status.QUEUED)
        ended = await self.outcome(live)
        if ended is None:
            self._refuse_when_closing(execution)
            ended = await self.read(execution.key)
        return ended

    async def end(self, execution: Execution, closing: Status, reason: str) -> Execution:
        """End an execution as ``closing`` without going on with it.

        What nobody runs is ended at once, and so is what this process runs. Another owner is
        asked, and ends it as cancelled at its next renewal; if it is dead, its lease runs out
        and the execution is ended from here.

        Returns: the execution as it ended, by itself perhaps; or still running, if its owner has
            not answered within two leases.
        """
        loop = asyncio.get_running_loop()
        last_look = loop.time() + ENDING_LEASES * self._settings.lease_ttl_ms / 1000
        pause = self._settings.poll_s
        is_asked = False
        while not execution.status.is_final and not self._attempts.closing:
            ended = await self._end_here(execution, closing, reason)
            execution = ended or await self._read_to_end(execution.key)
            if execution.status is Status.RUNNING and not is_asked:
                is_asked = await self._store.request_cancel(execution.key, reason)
            if execution.status.is_final or loop.time() > last_look:
                break
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_POLL_S)
        return execution

    async def _end_here(
        self, execution: Execution, closing: Status, reason: str
    ) -> Execution | None:
        live = self._attempts.live(execution.key)
        if live is None:
            return await self.outcome(self._attempts.claim_to_close(execution.key, closing, reason))
        if closing is Status.CANCELLED:
            # Whoever claims it in the moment between release and close must not go on with it.
            await self._store.request_cancel(execution.key, reason)
        try:
            return await self._attempts.end(live, closing, reason)
        except LeaseLost:
            return None

    def _may_move(self, execution: Execution) -> bool:
        return _may_move(execution) or self._expiring.seems_due(execution)

    async def _read_to_end(self, key: ExecutionKey) -> Execution:
        try:
            return await self.read(key)
        except CorruptHistory as error:
            return await outline_of(self._store, key, error)

    async def read(self, key: ExecutionKey) -> Execution:
        found = await self._store.get_execution(key)
        if found is None:
            raise NotFound("execution", "it was deleted meanwhile")
        return found


def _may_move(execution: Execution) -> bool:
    """Whether an attempt runs or could be claimed without anybody's decision."""
    match execution.status:
        case Status.RUNNING | Status.QUEUED:
            return True
        case Status.SUSPENDED:
            return not asks(execution)
        case _:
            return False
