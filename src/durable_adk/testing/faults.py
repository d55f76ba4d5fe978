"""A plan of what goes wrong, and where: for tests of programs that must survive it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from durable_adk.errors import ConfigError
from durable_adk.model.activity import Kind
from durable_adk.model.store_results import Write

DIED = 9
"""Exit code of a process that a plan ended."""

_BODIES = (Kind.MODEL, Kind.TOOL, Kind.NODE, Kind.STEP)


@dataclass(frozen=True, slots=True, eq=False)
class _Fault:
    point: str
    at: int
    strike: Callable[[], bool]


class FaultPlan:
    """Implements ``engine.ports.Faults``: each fault strikes at the n-th reach of its point.

    A point is text: ``before frontier`` and ``after frontier`` around a write (by the name of
    its ``Write``, in lower case), ``in tool:pay`` and ``ran tool:pay`` around a body (``model``,
    ``tool``, ``node`` or ``step``, and its name). A text of no such form is a ``ConfigError``.

    Attributes:
        reached: Every point reached so far, in order. Renewals are left out: they come by the
            clock.
    """

    def __init__(self) -> None:
        self.reached: list[str] = []
        self._faults: list[_Fault] = []
        self._struck: list[_Fault] = []

    def kill(self, point: str, *, at: int = 1, sigkill: bool = False) -> FaultPlan:
        """End the process there, without any cleanup."""
        return self._add(point, at, _sigkill if sigkill else _exit)

    def fail(self, point: str, error: BaseException, *, at: int = 1) -> FaultPlan:
        """Raise an error there."""

        def strike() -> NoReturn:
            raise error

        return self._add(point, at, strike)

    def lose_reply(self, write: Write, *, at: int = 1) -> FaultPlan:
        """Store the write, and lose the reply: it has to be written again to know."""
        return self._add(f"after {write.name.lower()}", at, lambda: True)

    def _add(self, point: str, at: int, strike: Callable[[], bool]) -> FaultPlan:
        _check_point(point)
        if at < 1:
            raise ConfigError("at=", f"expected a whole number from 1, got {at!r}")
        self._faults.append(_Fault(point, at, strike))
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

    def before(self, write: Write) -> None:
        self._reach(f"before {write.name.lower()}", counts=write is not Write.RENEW)

    def after(self, write: Write) -> bool:
        return self._reach(f"after {write.name.lower()}", counts=write is not Write.RENEW)

    def body(self, kind: str, name: str, *, ran: bool) -> None:
        self._reach(f"{'ran' if ran else 'in'} {kind}:{name}", counts=True)

    def _reach(self, point: str, *, counts: bool) -> bool:
        if not counts:
            return False
        self.reached.append(point)
        so_far = self.reached.count(point)
        lost = False
        for fault in self._faults:
            if (fault.point, fault.at) == (point, so_far):
                self._struck.append(fault)
                lost = fault.strike() or lost
        return lost


def _check_point(point: str) -> None:
    """Refuse a point that is never reached.

    Raises:
        ConfigError: naming the writes, or the kinds of bodies.
    """
    when, _, where = point.partition(" ")
    if when in ("before", "after"):
        writes = [write.name.lower() for write in Write if write is not Write.RENEW]
        if where not in writes:
            raise ConfigError(
                f"fault point {point!r}", "names no write", f"Writes: {', '.join(writes)}."
            )
        return
    kind, _, name = where.partition(":")
    kinds = [kind.value for kind in _BODIES]
    if when not in ("in", "ran") or kind not in kinds or not name:
        raise ConfigError(
            f"fault point {point!r}",
            "has no known form",
            "Use 'before <write>', 'after <write>', 'in <kind>:<name>' or 'ran <kind>:<name>';"
            f" kinds: {', '.join(kinds)}.",
        )


def _exit() -> NoReturn:
    os._exit(DIED)


def _sigkill() -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return False
