"""Time for the store and for lease deadlines: the server's, a number, or this machine's.

The server decides every lease and expiry; a clock only says how it is asked. Each clock here
has the shape of ``engine.ports.Clock`` and may be shared by threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

SERVER_NOW: dict[str, Any] = {"$toLong": "$$NOW"}


class Clock(Protocol):
    """The shape that the store needs; the words are those of ``engine.ports.Clock``."""

    def now(self) -> Any: ...

    def estimate(self) -> int: ...

    def elapsed(self) -> float: ...


def _time_sources() -> tuple[Callable[[], float], ...]:
    boot = getattr(time, "CLOCK_BOOTTIME", None)  # Linux only: goes on while suspended
    if boot is None:
        return (time.monotonic, time.time)
    return (time.monotonic, lambda: time.clock_gettime(boot), time.time)


class Elapsed:
    """Seconds since it was made, never less than any source says, and never running back.

    Sums the largest advance that any source made between two readings. The largest of the
    totals would not do: a wall clock that is set forward and back again would take back
    seconds that have passed, and a lease deadline with them.
    """

    def __init__(self) -> None:
        self._sources = _time_sources()
        self._last = [source() for source in self._sources]
        self._total = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        with self._lock:
            now = [source() for source in self._sources]
            self._total += max(0.0, *(new - old for new, old in zip(now, self._last, strict=True)))
            self._last = now
            return self._total


class ServerClock:
    """The server's time. Tests may move it: the offset is part of the expression sent."""

    def __init__(self, offset_ms: int = 0) -> None:
        self._offset_ms = offset_ms
        self._elapsed = Elapsed()

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass at once, for everybody who shares this clock."""
        self._offset_ms += ms

    def now(self) -> Any:
        if self._offset_ms == 0:
            return SERVER_NOW
        return {"$add": [SERVER_NOW, self._offset_ms]}

    def estimate(self) -> int:
        return int(time.time() * 1000) + self._offset_ms

    def elapsed(self) -> float:
        return self._elapsed() + self._offset_ms / 1000


class ManualClock:
    """A number that only ``advance`` moves."""

    def __init__(self, start_ms: int = 1_000_000) -> None:
        self._now_ms = start_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms

    def now(self) -> int:
        return self._now_ms

    def estimate(self) -> int:
        return self._now_ms

    def elapsed(self) -> float:
        return self._now_ms / 1000


class LocalClock:
    """This machine's time, for mongomock, whose server is this process."""

    def __init__(self, offset_ms: int = 0) -> None:
        self._offset_ms = offset_ms
        self._elapsed = Elapsed()

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass at once, for everybody who shares this clock."""
        self._offset_ms += ms

    def now(self) -> int:
        return int(time.time() * 1000) + self._offset_ms

    def estimate(self) -> int:
        return self.now()

    def elapsed(self) -> float:
        return self._elapsed() + self._offset_ms / 1000
