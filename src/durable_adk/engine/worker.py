"""A worker goes on with whatever is due, until it is stopped. Plain polling.

A poll is one indexed read. What is found is only a hint: the claim decides, so any number of
workers may look at the same executions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from durable_adk.engine.recovery import AT_ONCE, Recovery
from durable_adk.engine.retention import Retention
from durable_adk.engine.running import Attempts, Live
from durable_adk.engine.settings import EngineSettings
from durable_adk.errors import CorruptHistory, KeyMissing, LeaseLost, Unavailable, WriteUnknown
from durable_adk.model.execution import Execution
from durable_adk.model.identity import ExecutionKey

logger = logging.getLogger("durable_adk.engine")

SCOPES_EVERY_S = 5.0
"""Shared state that a crash left unapplied is rare, and a session's next turn applies it too; and
nobody waits for the expiry of what only another version goes on with."""

RETENTION_PAUSE_S = 5.0
"""Between looks at some sessions, a few reads each."""

RETENTION_EVERY_S = 600.0
"""Between the end of all sessions and their beginning: what goes has waited for an hour."""

UNREAD_PAUSE_S = 60.0
"""Before another look at something due that could not be read: until then others come first."""

LONGEST_PAUSE_S = 1.0
"""The longest pause between two looks while MongoDB does not answer."""


class Worker:
    """Runs due executions, at most ``concurrency`` at once. ``run`` once, on one loop."""

    def __init__(
        self,
        attempts: Attempts,
        recovery: Recovery,
        settings: EngineSettings,
        *,
        concurrency: int = AT_ONCE,
        retention: Retention | None = None,
    ) -> None:
        self._attempts = attempts
        self._recovery = recovery
        self._settings = settings
        self._concurrency = concurrency
        self._retention = retention
        self._running: set[Live] = set()
        self._unread: dict[ExecutionKey, float] = {}
        self._stop = asyncio.Event()
        self._grace_ends = 0.0
        attempts.when_closing(self.stop)

    def stop(self) -> None:
        """Start nothing more. ``run`` lets what runs go on for the grace, releases it, returns.

        May be called from a signal handler of the loop. Repeat: yes.
        """
        self._stop.set()

    async def run(self) -> None:
        """Go on with what is due until ``stop``. Cancelling it releases at once.

        A MongoDB that does not answer is waited for, and what cannot be read is left to whoever
        can; every other failure to look ends the worker.
        """
        looks = [self._poll(), self._sweep(), self._tidy()]
        if self._retention is not None:
            looks.append(self._retain(self._retention))
        try:
            async with asyncio.TaskGroup() as side:
                side.create_task(self._leave([side.create_task(look) for look in looks]))
            await self._finish()
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise
        finally:
            await self._attempts.release(self._running)

    async def _poll(self) -> None:
        pause = self._settings.poll_s
        while not self._stopped():
            try:
                await self._claim_due()
                pause = self._settings.poll_s
            except Unavailable as error:
                logger.warning("cannot look for work: %s", error)
                pause = min(pause * 2, LONGEST_PAUSE_S)
            await self._sleep(pause)

    async def _claim_due(self) -> None:
        free = self._concurrency - len(self._running)
        if free <= 0:
            return
        now = asyncio.get_running_loop().time()
        self._unread = {key: until for key, until in self._unread.items() if until > now}
        found = await self._recovery.due(free + len(self._unread))
        for key in [key for key in found if key not in self._unread][:free]:
            if not self._stopped():
                self._watch(self._attempts.claim(key))

    def _watch(self, live: Live) -> None:
        assert live.task is not None
        self._running.add(live)
        live.task.add_done_callback(lambda task: self._ended(live, task))

    def _ended(self, live: Live, task: asyncio.Task[Execution | None]) -> None:
        self._running.discard(live)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, CorruptHistory | KeyMissing):  # it is the longest due, for ever
            self._unread[live.key] = asyncio.get_running_loop().time() + UNREAD_PAUSE_S

    async def _sweep(self) -> None:
        while not self._stopped():
            try:
                await self._recovery.apply_scopes(self._concurrency)
                await self._recovery.apply_expiries(self._concurrency)
            except (Unavailable, WriteUnknown, LeaseLost) as error:
                logger.warning("cannot apply what is due: %s", error)
            await self._sleep(SCOPES_EVERY_S)

    async def _tidy(self) -> None:
        while not self._stopped():
            try:
                await self._recovery.sweep_shared()
            except (Unavailable, WriteUnknown) as error:
                logger.warning("cannot remove overwritten shared state: %s", error)
            await self._sleep(RETENTION_EVERY_S)

    async def _retain(self, retention: Retention) -> None:
        while not self._stopped():
            pause = RETENTION_PAUSE_S
            try:
                if not await retention.some_sessions():
                    pause = RETENTION_EVERY_S
            except (Unavailable, WriteUnknown, CorruptHistory, KeyMissing) as error:
                logger.warning("cannot remove old turns: %s", error)
            await self._sleep(pause)

    def _stopped(self) -> bool:
        return self._stop.is_set() or self._attempts.closing

    async def _leave(self, looks: list[asyncio.Task[None]]) -> None:
        """Once stopped, wait for no look longer than for what runs: MongoDB may not answer."""
        await self._stop.wait()
        self._grace_ends = asyncio.get_running_loop().time() + self._settings.grace_s
        _, pending = await asyncio.wait(looks, timeout=self._settings.grace_s)
        for look in pending:
            look.cancel()

    async def _finish(self) -> None:
        tasks = {live.task for live in self._running if live.task is not None}
        if tasks:
            left = self._grace_ends - asyncio.get_running_loop().time()
            await asyncio.wait(tasks, timeout=max(0, left))

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but wake at once when stopped."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
