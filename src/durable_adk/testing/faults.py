"""A plan of what goes wrong, and where: for tests of programs that must survive it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

from durable_adk.errors import ConfigError
from durable_adk.model.activity import Kind
from durable_adk.model.store_results import Write

DIED = 9
"""Exit code of a process that a plan ended."""

_KINDS = (Kind.MODEL, Kind.TOOL, Kind.NODE, Kind.STEP, Kind.TIMER)
_BODIES = (*(kind.value for kind in _KINDS), "reconcile")
_LOOK_S = 0.002


class Held:
    """A point that is held: what reaches it waits there while everything else goes on.

    Safe between event loops and threads.
    """

    def __init__(self, point: str) -> None:
        self.point = point
        self._reached = threading.Event()
        self._released = threading.Event()

    def __repr__(self) -> str:
        return f"Held({self.point!r}, reached={self.is_reached})"

    @property
    def is_reached(self) -> bool:
        return self._reached.is_set()

    async def reached(self) -> None:
        """Return when somebody waits there (or has)."""
        await _until(self._reached)

    def release(self) -> None:
        """Let it go on. Repeat: yes; before it is reached: it will not wait."""
        self._released.set()

    async def _wait(self) -> None:
        self._reached.set()
        await _until(self._released)


async def _until(event: threading.Event) -> None:
    while not event.is_set():  # noqa: ASYNC110 - an asyncio.Event belongs to one loop
        await asyncio.sleep(_LOOK_S)


@dataclass(frozen=True, slots=True, eq=False)
class _Fault:
    """``strike`` raises, ends the process, or says that the reply is lost; ``pause`` holds."""

    point: str
    at: int
    strike: Callable[[], bool] = lambda: False
    pause: Callable[[], Awaitable[None]] | None = None
    ends: bool = False


class FaultPlan:
    """Implements ``engine.ports.Faults``: each fault strikes at the n-th reach of its point.

    A point is text: ``before frontier`` and ``after frontier`` around a write (by the name of
    its ``Write``, in lower case), ``in tool:pay`` and ``ran tool:pay`` around a body (``model``,
    ``tool``, ``node``, ``step`` or ``reconcile``, and its name; ``timer:sleep``). Several faults
    at one reach strike in the order in which they were planned, those that hold it first. What
    could never strike is a ``ConfigError``: a text of no such form, a reach that is no number from
    1, a fault after one that ends the reach.

    Attributes:
        reached: Every point reached so far, in order. Renewals are left out: they come by the
            clock.
    """

    def __init__(self) -> None:
        self.reached: list[str] = []
        self._faults: list[_Fault] = []
        self._struck: list[_Fault] = []

    def kill(self, point: str, *, at: int = 1, sigkill: bool = False) -> FaultPlan:
        """End the process there, without any cleanup: by ``os._exit(9)``, or by SIGKILL."""
        return self._add(_Fault(point, at, _sigkill if sigkill else _exit, ends=True))

    def stop(self, point: str, *, at: int = 1) -> FaultPlan:
        """Stop the process there (SIGSTOP), all threads of it; SIGCONT wakes it."""
        return self._add(_Fault(point, at, _sigstop))

    def fail(self, point: str, error: BaseException, *, at: int = 1) -> FaultPlan:
        """Raise an error there. After a write it is stored, whatever the error says."""
        if not isinstance(error, BaseException):
            raise ConfigError(f"fault at {point!r}", f"expected an exception, got {error!r}")

        def strike() -> NoReturn:
            raise error

        return self._add(_Fault(point, at, strike, ends=True))

    def lose_reply(self, write: Write, *, at: int = 1) -> FaultPlan:
        """Store the write, and lose the reply: it has to be written again to know."""
        if not isinstance(write, Write):
            raise ConfigError("lose_reply", f"expected a Write, got {write!r}")
        return self._add(_Fault(f"after {write.name.lower()}", at, lambda: True, ends=True))

    def delay(self, point: str, seconds: float, *, at: int = 1) -> FaultPlan:
        """Hold the point for that many seconds, while everything else goes on."""
        if type(seconds) not in (int, float) or not 0 < seconds < float("inf"):
            raise ConfigError(f"delay of {point!r}", f"expected seconds over 0, got {seconds!r}")
        return self._add(_Fault(point, at, pause=lambda: asyncio.sleep(seconds)))

    def hold(self, point: str, *, at: int = 1) -> Held:
        """Hold the point until the returned ``Held`` is released: a write that arrives late."""
        held = Held(point)
        self._add(_Fault(point, at, pause=held._wait))
        return held

    def _add(self, fault: _Fault) -> FaultPlan:
        _check_point(fault.point)
        if type(fault.at) is not int or fault.at < 1:  # True is no number of times
            raise ConfigError("at=", f"expected a whole number from 1, got {fault.at!r}")
        if fault.pause is None and any(
            other.ends and (other.point, other.at) == (fault.point, fault.at)
            for other in self._faults
        ):
            raise ConfigError(
                f"fault point {fault.point!r}",
                f"has a fault at reach {fault.at} after which this one cannot strike",
                "Plan it before that one, or at another reach.",
            )
        self._faults.append(fault)
        return self

    def assert_all_struck(self) -> None:
        """Fail a test whose faults did not all happen: it shows nothing then.

        Raises:
            AssertionError: naming the points that were not reached so often.
        """
        missed = [fault for fault in self._faults if fault not in self._struck]
        if missed:
            points = ", ".join(f"{fault.point!r} (reach {fault.at})" for fault in missed)
            raise AssertionError(f"never struck: {points}; reached: {sorted(set(self.reached))}")

    # ---------------------------------------------------------------- engine.ports.Faults

    def before(self, write: Write) -> Awaitable[None] | None:
        found = self._reach(f"before {write.name.lower()}", counts=write is not Write.RENEW)
        return None if isinstance(found, bool) else _without_answer(found)

    def after(self, write: Write) -> Awaitable[bool] | bool:
        return self._reach(f"after {write.name.lower()}", counts=write is not Write.RENEW)

    def body(self, kind: str, name: str, *, ran: bool) -> Awaitable[None] | None:
        found = self._reach(f"{'ran' if ran else 'in'} {kind}:{name}", counts=True)
        return None if isinstance(found, bool) else _without_answer(found)

    def _reach(self, point: str, *, counts: bool) -> Awaitable[bool] | bool:
        if not counts:
            return False
        self.reached.append(point)
        so_far = self.reached.count(point)
        here = [fault for fault in self._faults if (fault.point, fault.at) == (point, so_far)]
        if any(fault.pause is not None for fault in here):
            return self._held(here)
        return self._strike(here)

    def _strike(self, faults: list[_Fault]) -> bool:
        lost = False
        for fault in faults:
            self._struck.append(fault)
            lost = fault.strike() or lost
        return lost

    async def _held(self, faults: list[_Fault]) -> bool:
        for fault in faults:
            if fault.pause is not None:
                self._struck.append(fault)
                await fault.pause()
        return self._strike([fault for fault in faults if fault.pause is None])


async def _without_answer(found: Awaitable[bool]) -> None:
    await found


def _check_point(point: str) -> None:
    """Refuse a point that is never reached.

    Raises:
        ConfigError: naming the writes, or the kinds of bodies.
    """
    when, _, where = str(point).partition(" ")
    if when in ("before", "after"):
        writes = [write.name.lower() for write in Write if write is not Write.RENEW]
        if where not in writes:
            raise ConfigError(
                f"fault point {point!r}", "names no write", f"Writes: {', '.join(writes)}."
            )
        return
    kind, _, name = where.partition(":")
    if when not in ("in", "ran") or kind not in _BODIES or not name:
        raise ConfigError(
            f"fault point {point!r}",
            "has no known form",
            "Use 'before <write>', 'after <write>', 'in <kind>:<name>' or 'ran <kind>:<name>';"
            f" kinds: {', '.join(_BODIES)}.",
        )


def _exit() -> NoReturn:
    os._exit(DIED)


def _sigkill() -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return False


def _sigstop() -> bool:
    os.kill(os.getpid(), signal.SIGSTOP)
    return False
