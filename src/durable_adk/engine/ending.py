"""How an attempt ends before its program does: remembered, cancelled, and never swallowed.

The first reason counts. The run is cancelled, and cancelled again whenever user code that
swallowed the cancellation comes back; who asked for the end waits for the cancellation.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

from durable_adk.errors import LeaseLost


class Ending:
    """Whether and why one attempt is over.

    Attributes:
        fatal: Why, or None.
    """

    def __init__(self, execution_id: str) -> None:
        self.fatal: BaseException | None = None
        self._execution_id = execution_id
        self._run: asyncio.Task[object] | None = None
        self._parked: set[asyncio.Future[None]] = set()
        self._is_closed = False

    @property
    def is_death(self) -> bool:
        """The process ended, as far as this attempt goes: it writes nothing any more."""
        return self.fatal is not None and not isinstance(
            self.fatal, (Exception, asyncio.CancelledError)
        )

    def bind(self, task: asyncio.Task[object]) -> None:
        """Name the task to cancel."""
        self._run = task

    def stop(self, error: BaseException) -> None:
        """End the attempt for this reason, unless it has one; cancel the run."""
        if self.fatal is None:
            self.fatal = error
        if self._run is not None:
            self._run.cancel()

    async def park(self) -> NoReturn:
        """Cancel the run and wait for the cancellation.

        A task that swallowed its own is not waited for another: a task group hands a second
        cancellation of the run on to nobody.
        """
        if self._run is not None:
            self._run.cancel()
        here = asyncio.current_task()
        if here is not None and here is not self._run and here.cancelling() and not self._is_closed:
            raise asyncio.CancelledError
        await self.until_cancelled()

    async def until_cancelled(self) -> NoReturn:
        """Wait for somebody to cancel this call.

        Raises:
            LeaseLost: the attempt was closed before: the caller is a task that outlived it.
        """
        if self._is_closed:
            raise self._over()
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.add(never)
        try:
            await never
        finally:
            self._parked.discard(never)
        raise asyncio.CancelledError

    def close(self) -> None:
        """Nothing more comes of the attempt: whoever still waits in it is cancelled."""
        self._is_closed = True
        if self.fatal is None:
            self.fatal = self._over()
        for parked in tuple(self._parked):
            parked.cancel()

    def _over(self) -> LeaseLost:
        return LeaseLost(
            f"execution {self._execution_id!r}",
            "the attempt that made this call is over",
            "Await every task that a node or a tool starts.",
        )


def too_late(execution_id: str) -> LeaseLost:
    """Why nothing new is started."""
    return LeaseLost(
        f"execution {execution_id!r}",
        "the lease was not renewed in time",
        "Nothing new is started; whoever claims it next goes on.",
    )
