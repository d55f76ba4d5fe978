"""The ``timeout`` of a call, over all that it does: opening, looking, waiting, showing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from durable_adk.app import checks
from durable_adk.errors import Unavailable

T = TypeVar("T")

NOTHING_BEGUN = "Nothing was begun; call again."
AGAIN = "What was begun goes on; the same call again, with its execution_id, waits for it."


class Limit:
    """Begins to count when it is made.

    Args:
        timeout: Seconds, or None for no limit.

    Raises:
        ConfigError: no positive number of seconds.
    """

    def __init__(self, timeout: object) -> None:
        seconds = checks.checked_timeout(timeout)
        self._ends = None if seconds is None else asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float | None:
        """Seconds."""
        if self._ends is None:
            return None
        return max(0.0, self._ends - asyncio.get_running_loop().time())

    async def keep(self, part: Awaitable[T], *, of: str, remedy: str = NOTHING_BEGUN) -> T:
        """Wait for a part of the call.

        Raises:
            Unavailable: the time is over.
        """
        deadline = asyncio.timeout_at(self._ends)
        try:
            async with deadline:
                return await part
        except TimeoutError:
            if not deadline.expired():
                raise
            raise Unavailable(of, "has no outcome within the timeout", remedy) from None
