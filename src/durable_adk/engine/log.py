"""The ordered log of an attempt: outcomes become durable in the order they were handed over.

One ordered insert is in flight at a time; what arrives meanwhile goes with the next. An outcome
that nobody waits for waits a moment for company. An event of the stream is let go when all that
was handed over before it is durable.

When an insert fails, or meets a slot that another owner holds, the log is broken for good:
nothing that rests on a lost value is ever stored.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from durable_adk.engine.ports import Store
from durable_adk.engine.program import Sink
from durable_adk.errors import LeaseLost
from durable_adk.model.activity import Record
from durable_adk.model.identity import RunId

COMPANY_S = 0.002
"""How long an outcome waits for others when nobody waits for it."""

LARGEST_BATCH = 1000


class OutcomeLog:
    """Outcomes of one attempt on their way to the store.

    Attributes:
        broken: Why nothing more is written, or None.
        written: How many outcomes this attempt made durable.
    """

    def __init__(
        self,
        store: Store,
        run: RunId,
        *,
        on_broken: Callable[[BaseException], None],
        sink: Sink | None,
    ) -> None:
        self.broken: BaseException | None = None
        self.written = 0
        self._store = store
        self._run = run
        self._on_broken = on_broken
        self._sink = sink
        self._handed = 0
        self._at_once = False
        self._pending: list[Record] = []
        self._writer: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._events: deque[tuple[int, object]] = deque()

    @property
    def is_behind(self) -> bool:
        """Whether something handed over is not durable (or never will be)."""
        return self.written < self._handed or self.broken is not None

    def append(self, record: Record, *, at_once: bool = False) -> None:
        """Hand an outcome over. Dropped when the log is broken. ``at_once``: its insert waits for
        nobody, and the caller for that insert."""
        if self.broken is not None:
            return
        self._at_once = self._at_once or at_once
        self._handed += 1
        self._pending.append(record)
        if self._writer is None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COMPANY_S, self._write_now)

    async def durable(self) -> None:
        """Wait until everything handed over so far is durable.

        Raises:
            LeaseLost: another owner holds a slot.
            DurableError: what the store raised.
        """
        if self.broken is not None:
            raise self.broken
        if self.written >= self._handed:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append((self._handed, waiter))
        self._write_now()
        await waiter

    def emit(self, event: object) -> None:
        """Give an event to the sink once all that was handed over before it is durable."""
        if self._sink is None or self.broken is not None:
            return
        if self.written >= self._handed and not self._events:
            self._sink("event", event)
            return
        self._events.append((self._handed, event))
        self._write_now()  # somebody reads the stream: company is not worth the delay

    def stop(self, reason: BaseException) -> None:
        """Break the log: what is not on its way is dropped."""
        self._break(reason)

    async def settled(self) -> None:
        """Send what is left, and wait until no insert is in flight, however it went."""
        self._write_now()
        while self._writer is not None:
            await asyncio.wait({self._writer})

    def _write_now(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writer is None and self._pending:
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        try:
            while self._pending and self.broken is None:
                batch = self._pending[:LARGEST_BATCH]
                del self._pending[:LARGEST_BATCH]
                at_once, self._at_once = self._at_once, False
                lost = await self._store.insert_outcomes(self._run, batch, at_once=at_once)
                if lost is not None:
                    raise _slot_lost(lost)
                self.written += len(batch)
                self._wake()
        except BaseException as error:  # the owner decides; a dead process must not linger here
            if self._break(error):
                self._on_broken(error)
        finally:
            self._writer = None

    def _wake(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.written:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
        while self._events and self._events[0][0] <= self.written:
            if self._sink is not None:
                self._sink("event", self._events[0][1])
            self._events.popleft()

    def _break(self, reason: BaseException) -> bool:
        """Returns: whether it was whole until now."""
        if self.broken is not None:
            return False
        self.broken = reason
        self._pending.clear()
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(reason)
        return True


def _slot_lost(record: Record) -> LeaseLost:
    return LeaseLost(
        f"position {record.position}",
        "another owner recorded its outcome",
        "The attempt ends; the current owner goes on with what is stored.",
    )
