"""The attempts of this process: each in a task of its own, which outlives its callers.

A caller that is cancelled only stops listening. An attempt that this process gives up is
released, so that another one goes on at once instead of waiting for the lease to run out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from durable_adk.engine.ends import stored_error
from durable_adk.engine.expiring import Expiring
from durable_adk.engine.ports import Clock, Store
from durable_adk.engine.program import Sink
from durable_adk.engine.settings import EngineSettings
from durable_adk.engine.unread import closed_unread, left_stuck
from durable_adk.errors import DurableError, LeaseLost, Unavailable, WriteUnknown
from durable_adk.model.execution import Execution, Lease, NewExecution, Status
from durable_adk.model.identity import ExecutionKey, new_nonce
from durable_adk.model.store_results import Begun, Busy, Forked, Taken, Unread

logger = logging.getLogger("durable_adk.engine")

T = TypeVar("T")

RunAttempt = Callable[[Execution, float, Sink | None], Awaitable[Execution]]
"""Runs a claimed execution to its next stop and returns it as it stands then. Takes
``Clock.elapsed`` from before the claim was sent. Cancelled, it releases its lease first."""

UNWIND_S = 5.0
"""How long a cancelled attempt may take to unwind. One that takes longer keeps its lease: what
still runs must not be joined by a second owner."""


@dataclass(slots=True, eq=False)
class Live:
    """An attempt that this process runs, or is about to claim.

    Attributes:
        claimed_at: ``Clock.elapsed`` before the newest claim was sent.
        lease: What it holds, or None before the claim is acknowledged.
        stopping: It has been asked to let go.
        ending: The end to give the execution once this attempt has let go, with its reason.
        task: Its result is the execution where the attempt left it, or None if nothing was due.
    """

    key: ExecutionKey
    claimed_at: float
    lease: Lease | None = None
    stopping: bool = False
    ending: tuple[Status, str] | None = None
    task: asyncio.Task[Execution | None] | None = None


class Attempts:
    """Starts, finds, and lets go of the attempts of this process. Bound to one event loop."""

    def __init__(
        self,
        run: RunAttempt,
        *,
        store: Store,
        clock: Clock,
        settings: EngineSettings,
        expiring: Expiring,
    ) -> None:
        self._run = run
        self._store = store
        self._clock = clock
        self._settings = settings
        self._expiring = expiring
        self._live: set[Live] = set()
        self._side: set[asyncio.Task[Any]] = set()
        self.closing = False
        self._when_closing: list[Callable[[], None]] = []

    def when_closing(self, told: Callable[[], None]) -> None:
        """Be told when nothing more may start."""
        self._when_closing.append(told)

    # ------------------------------------------------------------ start

    def live(self, key: ExecutionKey) -> Live | None:
        """The attempt at this execution that this process runs, the newest if there are two."""
        found = [live for live in self._live if live.key == key]
        return max(found, key=lambda live: live.lease.token if live.lease else 0, default=None)

    async def begin(self, new: NewExecution, sink: Sink | None) -> Live | Taken | Busy | Forked:
        """Insert an execution and start it. A cancelled caller leaves no lease without an owner."""
        return await self._detached(self._begin(new, sink))

    async def _begin(self, new: NewExecution, sink: Sink | None) -> Live | Taken | Busy | Forked:
        if self.closing:
            raise was_closed(f"execution {new.execution_id!r}", "has not begun")
        claimed_at = self._clock.elapsed()
        match await self._store.begin(new):
            case Begun(execution):
                return self._start(new.key, lambda: _ready(execution), sink, claimed_at)
            case other:
                return other

    def claim(self, key: ExecutionKey, *, early: bool = False, sink: Sink | None = None) -> Live:
        """Claim an execution if it is due, and go on with it. ``early`` is the store's."""
        return self._start(key, lambda: self._claim(key, early=early), sink)

    async def _claim(
        self, key: ExecutionKey, *, early: bool = False, goes_on: bool = False
    ) -> Execution | None:
        """The claim; and again, where expiry had something to answer first. None at once if this
        process closes, unless an attempt ``goes_on`` within its grace."""
        for is_last in (False, True):
            if self.closing and not goes_on:
                return None
            try:
                claimed = await self._store.claim(
                    key,
                    nonce=new_nonce(),
                    ttl_ms=self._settings.lease_ttl_ms,
                    version=self._settings.version,
                    code=self._settings.code,
                    early=early,
                )
            except Unread as unread:
                return await left_stuck(self._store, unread)
            if claimed is not None or is_last or not await self._expiring.apply_to(key):
                return claimed
        return None

    def claim_to_close(self, key: ExecutionKey, closing: Status, reason: str) -> Live:
        """End an execution that nobody runs."""
        return self._start(key, lambda: self._close_claim(key, closing, reason), None)

    def _start(
        self,
        key: ExecutionKey,
        claim: Callable[[], Awaitable[Execution | None]],
        sink: Sink | None,
        claimed_at: float | None = None,
    ) -> Live:
        if claimed_at is None:
            claimed_at = self._clock.elapsed()
        live = Live(key=key, claimed_at=claimed_at, stopping=self.closing)
        live.task = asyncio.create_task(self._attempt(live, claim, sink))
        self._live.add(live)
        live.task.add_done_callback(lambda task: self._ended(live, task))
        return live

    def _ended(self, live: Live, task: asyncio.Task[Execution | None]) -> None:
        self._live.discard(live)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, LeaseLost):
            logger.error(
                "an attempt broke off", exc_info=error, extra={"execution_key": str(live.key)}
            )

    # ------------------------------------------------------------ run

    async def _attempt(
        self,
        live: Live,
        claim: Callable[[], Awaitable[Execution | None]],
        sink: Sink | None,
    ) -> Execution | None:
        execution = await claim()
        if execution is None or execution.claim is None:  # nothing is due, or it cannot be read
            return execution
        ended = await self._hold(live, execution, sink)
        while ended is not None and _is_answered(ended) and not live.stopping:
            # All that it asks was answered before: while something of the same step slept.
            live.claimed_at, live.lease = self._clock.elapsed(), None
            claimed = await self._claim(live.key, goes_on=True)
            if claimed is None:
                return await self._store.get_execution(live.key)
            if claimed.claim is None:
                return claimed
            ended = await self._hold(live, claimed, sink)
        if ended is not None:
            return ended
        if live.ending is not None and not self.closing:
            live.stopping = False
            live.claimed_at = self._clock.elapsed()
            closed = await self._close_claim(live.key, *live.ending)
            if closed is not None and closed.claim is None:
                return closed
            if closed is not None and (ended := await self._hold(live, closed, None)):
                return ended
        return await self._store.get_execution(live.key)

    async def _hold(self, live: Live, execution: Execution, sink: Sink | None) -> Execution | None:
        """Run what was claimed. Returns: where it ended, or None if it was stopped and released."""
        assert execution.claim is not None  # the store has just given it
        live.lease = Lease(execution.key, execution.token, execution.claim)
        try:
            if not live.stopping:
                return await self._run(execution, live.claimed_at, sink)
        except asyncio.CancelledError:
            if not live.stopping:  # the loop itself goes down
                raise
            _forget_cancellation()
        except LeaseLost:
            raise
        except (Unavailable, WriteUnknown):
            # Asking an unreachable server to take the lease back must not delay the caller.
            self._spawn(self._release(live.lease))
            raise
        except Exception as error:  # whatever it was, the lease must not stay behind
            await self._count_failure(execution, live.lease, error)
            raise
        else:
            await self._release(live.lease)
        live.lease = None
        return None

    async def _close_claim(
        self, key: ExecutionKey, closing: Status, reason: str
    ) -> Execution | None:
        if self.closing:
            return None
        try:
            return await self._store.claim_to_close(
                key,
                closing=closing,
                reason=reason,
                nonce=new_nonce(),
                ttl_ms=self._settings.lease_ttl_ms,
            )
        except Unread as unread:
            return await closed_unread(self._store, unread, closing, reason)

    async def _release(self, lease: Lease) -> None:
        try:
            await self._store.release(lease)
        except DurableError as error:
            # The lease runs out by itself.
            logger.warning("a lease could not be given back: %s", error)

    async def _count_failure(self, execution: Execution, lease: Lease, error: Exception) -> None:
        """Give up an attempt that broke off without settling itself.

        It is counted: a fault that comes back at every attempt must not be tried for ever.
        """
        failures = execution.failures + 1
        is_last = failures >= self._settings.max_attempts
        try:
            await self._store.attempt_failed(
                lease,
                status=Status.STUCK if is_last else Status.QUEUED,
                error=stored_error(error),
                failures=failures,
                voided=(),
                backoff_ms=self._settings.backoff_after(failures),
            )
        except DurableError as failure:
            logger.warning("a broken attempt could not be recorded: %s", failure)

    # ------------------------------------------------------------ wait and stop

    async def outcome(self, live: Live) -> Execution | None:
        """Where the attempt leaves the execution. Cancelling this only detaches.

        Raises: LeaseLost; and what broke the attempt off.
        """
        assert live.task is not None
        await asyncio.wait({live.task})
        return live.task.result()

    async def end(self, live: Live, closing: Status, reason: str) -> Execution | None:
        """Stop an attempt and end its execution, all in the attempt's own task.

        Returns: the ended execution; None if it has not let go in time, or holds no lease yet.
        """
        if live.lease is None or live.task is None or live.stopping:
            return None
        live.ending = (closing, reason)
        live.stopping = True
        live.task.cancel()
        done, _ = await asyncio.wait({live.task}, timeout=UNWIND_S)
        return live.task.result() if done else None

    async def close(self, grace_s: float) -> None:
        """Let attempts go on for a while, then release what is left. Nothing starts any more."""
        self.closing = True
        for told in self._when_closing:
            told()
        await self._settled(self._side)
        # One that was asked to let go, as a worker's is after its own grace, has had its time.
        tasks = {one.task for one in self._live if one.task is not None and not one.stopping}
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        given_up: set[Live] = set()
        while True:  # what was under way may have begun meanwhile
            left = self._live - given_up
            await self.release(left)
            await self._settled(self._side)
            given_up |= left
            if self._live <= given_up:
                return

    async def release(self, attempts: set[Live]) -> None:
        """Give these attempts up: cancel them, and release what they held."""
        tasks = set()
        for live in attempts & self._live:
            if live.task is None:
                continue
            tasks.add(live.task)
            if not live.stopping:
                live.stopping = True
                if live.lease is not None:  # an unacknowledged claim would be a lost lease
                    live.task.cancel()
        if tasks:
            _, stubborn = await asyncio.wait(tasks, timeout=UNWIND_S)
            for _ in stubborn:
                logger.warning("an attempt does not end when cancelled; its lease has to run out")

    async def _detached(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.shield(self._spawn(work))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._side.add(task)
        task.add_done_callback(self._side_ended)
        return task

    def _side_ended(self, task: asyncio.Task[Any]) -> None:
        self._side.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that detached does not collect it

    @staticmethod
    async def _settled(tasks: set[asyncio.Task[Any]]) -> None:
        if tasks:
            await asyncio.wait(set(tasks), timeout=UNWIND_S)


def was_closed(subject: str, so_far: str) -> Unavailable:
    """What a call says that needs more than is done once this process closes."""
    return Unavailable(
        subject,
        f"{so_far}, and the engine was closed",
        "The same call again, once it is open, waits for its outcome.",
    )


async def _ready(execution: Execution) -> Execution:
    return execution


def _forget_cancellation() -> None:
    """Let the task go on as one that nobody has cancelled: the cancellation was ours."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _is_answered(execution: Execution) -> bool:
    """Whether it is suspended, and nothing that it waits for is open."""
    frontier = execution.frontier
    return execution.status is Status.SUSPENDED and frontier is not None and frontier.open == 0
