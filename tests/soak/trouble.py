"""What happens to workers and servers in a soak: kills, pauses, failovers."""

from __future__ import annotations

import asyncio
import collections
import itertools
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.soak.world import LEASE_S, World, forked, joined, work
from tests.support.members import Members

WORKERS = 4
FAILOVERS: Sequence[str] = ("step-down", "kill", "cut", "step-down", "kill", "freeze")
"""In turn. A cut resets connections, a freeze leaves them without an answer."""
CUT_S = 5.0


@dataclass(frozen=True)
class Plan:
    """How long, how much and how rough.

    Attributes:
        seconds: How long there is trouble and new conversations begin.
        executions: How many at least are begun in that time, evenly.
        failover_every_s: 0 for none.
    """

    seconds: float
    executions: int
    failover_every_s: float
    seed: int
    workers: int = WORKERS


@dataclass
class Trouble:
    """Keeps the workers, and makes their lives hard. Lives in the parent, which has no thread."""

    world: World
    plan: Plan
    members: Members | None
    figures: collections.Counter[str] = field(default_factory=collections.Counter)
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._draw = random.Random(self.plan.seed)
        self._running: set[int] = set()
        self._paused: dict[int, tuple[float, float]] = {}
        self._killed: set[int] = set()
        self._failing: int | None = None
        self._failovers = itertools.cycle(FAILOVERS)

    def start_workers(self) -> None:
        while len(self._running) < self.plan.workers:
            self._running.add(forked(lambda: work(self.world)))

    def tend(self) -> None:
        """Wake who has slept enough, bury who died, and replace them."""
        now = time.monotonic()
        for pid, (since, until) in list(self._paused.items()):
            if now >= until:
                self._wake(pid, since)
        for pid in list(self._running):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._buried(pid, os.waitstatus_to_exitcode(status))
        if self._failing is not None:
            found, status = os.waitpid(self._failing, os.WNOHANG)
            if found:
                self._failing = None
                if status:
                    self.wrong.append("a failover did not come to its end")
        self.start_workers()

    def _buried(self, pid: int, code: int) -> None:
        self._running.discard(pid)
        self._paused.pop(pid, None)
        if pid not in self._killed:
            self.wrong.append(f"worker {pid} ended by itself with {code}")

    def _wake(self, pid: int, since: float) -> None:
        del self._paused[pid]
        os.kill(pid, signal.SIGCONT)
        self.world.trouble.add(since, time.monotonic(), "pause", pid)

    def strike(self) -> None:
        """Kill or pause a worker."""
        awake = sorted(self._running - set(self._paused))
        if not awake:
            return
        pid, now = self._draw.choice(awake), time.monotonic()
        if self._draw.random() < 0.55 or len(awake) <= 1:
            self.world.trouble.add(now, now, "kill", pid)
            self._killed.add(pid)
            os.kill(pid, signal.SIGKILL)
            self.figures["kills"] += 1
        else:
            os.kill(pid, signal.SIGSTOP)
            self._paused[pid] = (now, now + self._draw.choice((1, 4, 7, 3 * LEASE_S)))
            self.figures["pauses"] += 1

    def fail_over(self) -> None:
        """Begin the next failover, in a process of its own."""
        if self.members is None or self._failing is not None:
            return
        kind = next(self._failovers)
        self.figures["failovers"] += 1
        self.figures[f"failovers: {kind}"] += 1
        members, world = self.members, self.world
        self._failing = forked(lambda: _fail_over(members, world, kind))

    def end(self) -> None:
        """No more trouble: wake all, and let a failover finish."""
        for pid, (since, _until) in list(self._paused.items()):
            self._wake(pid, since)
        if self._failing is not None:
            self.wrong += ["a failover did not come to its end"] * bool(joined(self._failing))
            self._failing = None

    def stop_workers(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGTERM)
        for pid in self._running:
            # One that was forked this very moment has no handler yet.
            if (code := joined(pid)) not in (0, -signal.SIGTERM):
                self.wrong.append(f"worker {pid} ended with {code}")
        self._running.clear()

    def abort(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
            joined(pid)
        self._running.clear()


async def _fail_over(members: Members, world: World, kind: str) -> None:
    since = time.monotonic()
    number = members.primary()
    if kind == "step-down":
        members.step_down()
        members.primary()
    elif kind == "kill":
        members.kill(number)
        members.primary()
        members.restart(number)
    else:
        members.tell(kind, number)
        await asyncio.sleep(CUT_S)
        members.tell("pass", number)
    members.wait_until_whole()
    world.trouble.add(since, time.monotonic(), kind, None)
