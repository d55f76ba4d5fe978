"""Leases stay ours while their attempts run, also while user code blocks the event loop.

One keeper per engine, on its own thread, loop and connection (on a store without a server: a
task on the loop). It renews every third of a lease. A deadline that has passed stops new bodies
and nothing else: a later renewal that still finds our token gives the right back. A renewal
that is refused means somebody else owns the execution.

A loop that has not answered for ``max_block_s`` is taken for dead: its leases run out.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from durable_adk.engine.ports import Clock, KeeperLink, Store
from durable_adk.engine.settings import EngineSettings
from durable_adk.model.execution import Lease

_log = logging.getLogger("durable_adk.engine")

_now = time.monotonic


class Guard:
    """One lease that is kept. Made by ``Keeper.hold``, on the loop of the attempt."""

    def __init__(
        self,
        lease: Lease,
        *,
        clock: Clock,
        good_for_s: float,
        since: float,
        on_refused: Callable[[], None],
        on_cancel: Callable[[str], None],
        on_overdue: Callable[[], None] = lambda: None,
    ) -> None:
        self.lease = lease
        self.is_dropped = False
        self.due = 0.0
        self.is_renewing = False
        self._clock = clock
        self._good_for_s = good_for_s
        self._sent_at = since
        self._on_refused = on_refused
        self._on_cancel = on_cancel
        self._loop = asyncio.get_running_loop()
        self._pinged_at: float | None = None
        self._on_overdue = on_overdue
        self._told_cancel = False

    def may_start(self) -> bool:
        """Whether the deadline still lies ahead: asked immediately before every effect."""
        return self._clock.elapsed() - self._sent_at < self._good_for_s

    # ------------------------------------------------ called by the keeper, on its loop

    def is_answering(self, now: float, max_block_s: float) -> bool:
        """Ask the attempt's loop for a sign of life; say whether the last one came in time."""
        if self._pinged_at is not None:
            return now - self._pinged_at <= max_block_s
        self._pinged_at = now
        return self._call(self._pong)

    def renewed(self, sent_at: float, cancel: str | None) -> None:
        self._sent_at = sent_at
        if cancel is not None and not self._told_cancel:
            self._told_cancel = True
            self._call(lambda: None if self.is_dropped else self._on_cancel(cancel))

    def overdue(self) -> None:
        self._call(lambda: None if self.is_dropped else self._on_overdue())

    def refused(self) -> None:
        self._call(lambda: None if self.is_dropped else self._on_refused())

    def _pong(self) -> None:
        self._pinged_at = None

    def _call(self, callback: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the attempt's loop is closed: nobody is there to keep it for
            return False
        return True


class Keeper:
    """Renews the leases of this process. Bound to the event loop that starts it."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        settings: EngineSettings,
        renew_every_s: float | None = None,
    ) -> None:
        """``renew_every_s`` is a third of the lease unless a test is in a hurry."""
        self._store = store
        self._clock = clock
        self._ttl_ms = settings.lease_ttl_ms
        self._max_block_s = settings.max_block_s
        ttl_s = settings.lease_ttl_ms / 1000
        self._every_s = renew_every_s or ttl_s / 3
        self._retry_s = self._every_s / 10
        self._good_for_s = ttl_s - max(1.0, ttl_s / 10)
        self._guards: set[Guard] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._asleep_until = float("inf")
        self._stopping = False

    # ------------------------------------------------ on the loop of the attempts

    async def start(self) -> None:
        """Open the link. Raises: ConfigError, Unavailable: as ``Store.open``."""
        if self._task is not None or self._thread is not None:
            return
        self._stopping = False
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._store.needs_own_loop:
            self._thread = threading.Thread(
                target=lambda: asyncio.run(self._main(ready)),
                name="durable-adk-keeper",
                daemon=True,  # a process that ends must not wait for its leases
            )
            self._thread.start()
        else:
            self._task = asyncio.get_running_loop().create_task(self._main(ready))
        try:
            await ready
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Keep nothing any more and close the link. Repeat: yes."""
        self._stopping = True
        self._guards.clear()
        self._wake_up()
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._thread is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        self._task = self._thread = self._loop = self._wake = None

    def hold(
        self,
        lease: Lease,
        *,
        on_refused: Callable[[], None],
        on_cancel: Callable[[str], None],
        on_overdue: Callable[[], None] = lambda: None,
        since: float | None = None,
    ) -> Guard:
        """Keep a lease that was just claimed.

        ``since`` is ``clock.elapsed()`` before the claim was sent (None: now). The callbacks are
        called on this loop, never after ``drop``.
        """
        guard = Guard(
            lease,
            clock=self._clock,
            good_for_s=self._good_for_s,
            since=self._clock.elapsed() if since is None else since,
            on_refused=on_refused,
            on_cancel=on_cancel,
            on_overdue=on_overdue,
        )
        with self._lock:
            guard.due = _now() + self._every_s
            self._guards.add(guard)
            is_late = guard.due < self._asleep_until
        if is_late:
            self._wake_up()
        return guard

    def drop(self, guard: Guard) -> None:
        """Keep a lease no longer. A renewal under way is ignored. Repeat: yes."""
        guard.is_dropped = True
        with self._lock:
            self._guards.discard(guard)

    def _wake_up(self) -> None:
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None:
            with suppress(RuntimeError):  # closed: there is nothing left to wake
                loop.call_soon_threadsafe(wake.set)

    # ------------------------------------------------ on the keeper's loop

    async def _main(self, ready: asyncio.Future[None]) -> None:
        self._loop, self._wake = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self._store.keeper_link() as link:
                _tell(ready, None)
                async with asyncio.TaskGroup() as renewals:
                    await self._keep(link, renewals, self._wake)
        except Exception as error:
            if not _tell(ready, error):
                _log.exception("the lease keeper ended: leases of this process run out")

    async def _keep(
        self, link: KeeperLink, renewals: asyncio.TaskGroup, wake: asyncio.Event
    ) -> None:
        under_way: set[asyncio.Task[None]] = set()
        while not self._stopping:
            wake.clear()
            now = _now()
            with self._lock:
                due = [g for g in self._guards if g.due <= now and not g.is_renewing]
                for guard in due:
                    guard.is_renewing, guard.due = True, now + self._every_s
                self._asleep_until = min((g.due for g in self._guards), default=float("inf"))
            for guard in due:
                task = renewals.create_task(self._renew(link, guard))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await self._sleep(wake)
        for task in under_way:
            task.cancel()  # nobody waits for a server that does not answer

    async def _sleep(self, wake: asyncio.Event) -> None:
        if self._asleep_until == float("inf"):
            await wake.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._asleep_until - _now())):
                await wake.wait()

    async def _renew(self, link: KeeperLink, guard: Guard) -> None:
        try:
            if not guard.is_answering(_now(), self._max_block_s):
                return
            sent_at = self._clock.elapsed()
            renewal = await link.renew(guard.lease, ttl_ms=self._ttl_ms)
            if renewal.held:
                guard.renewed(sent_at, renewal.cancel)
                if renewal.overdue:
                    guard.overdue()
                return
            with self._lock:
                self._guards.discard(guard)
            guard.refused()
        except Exception as error:  # a driver's bug must not end every lease of this process
            _log.warning("a lease was not renewed, trying again: %r", error)
            guard.due = _now() + self._retry_s
            self._wake_up()
        finally:
            guard.is_renewing = False


def _tell(ready: asyncio.Future[None], error: Exception | None) -> bool:
    """Report the start to the loop that waits for it. Returns: whether it still waited."""
    if ready.done():
        return False

    def tell() -> None:
        if ready.done():
            return
        if error is None:
            ready.set_result(None)
        else:
            ready.set_exception(error)

    ready.get_loop().call_soon_threadsafe(tell)
    return True
