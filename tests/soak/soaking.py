"""A soak: workers that are killed and paused, servers that fail over, a client that answers twice.

``python -m tests.soak.soaking``: see ``--help``. ``scripts/soak.sh`` prepares its environment.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.soak import checks
from tests.soak.plans import Family, families
from tests.soak.talking import Client, Undisturbed, at_most, kept
from tests.soak.world import LEASE_S, World, forked, joined, work
from tests.support.lives import DIED, LEASE_PASSED_MS, warm
from tests.support.members import Members

WORKERS = 4
FAILOVERS: Sequence[str] = ("step-down", "kill", "cut")
CUT_S = 5.0
AT_ONCE = 24
DRAIN_S = 180.0
TWINS_AT_ONCE = 8


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


# -------------------------------------------------------------------- the clients


async def converse(world: World, plan: Plan) -> dict[str, Any]:
    """Have conversations while the trouble lasts. Returns: what was had, and how it went."""
    figures: collections.Counter[str] = collections.Counter()
    wrong: list[str] = []
    had: dict[str, dict[str, list[str]]] = {}
    began = time.monotonic()

    async def one(family: Family, apps: Mapping[str, Any]) -> None:
        client = Client(apps[family.app], family, world)
        try:
            had[family.session] = await client.have()
        finally:
            figures.update(client.figures)
            wrong.extend(client.wrong)

    async with world.open_apps(runs=False) as apps:
        async with at_most(AT_ONCE) as slot, asyncio.TaskGroup() as tasks:
            executions = 0
            for family in families(plan.seed):
                passed = time.monotonic() - began
                if executions >= plan.executions and passed >= plan.seconds:
                    break
                due = executions / plan.executions * plan.seconds
                await asyncio.sleep(max(0.0, due - passed))
                executions += family.executions
                tasks.create_task(slot(one(family, apps)))
                if executions > 4 * plan.executions:
                    break
    return {"had": had, "figures": figures, "wrong": wrong}


async def read(world: World, had: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, Any]:
    """What every session holds now."""
    found = {}
    async with world.open_apps(runs=False) as apps:
        for family in _named(had, world):
            for session, executions in had[family.session].items():
                found[session] = await kept(
                    apps[family.app],
                    family.user,
                    session,
                    executions,
                    first_is_drawn=session != family.session,
                )
    return found


def _named(had: Mapping[str, Any], world: World) -> list[Family]:
    every = itertools.islice(families(world.seed), len(had))  # they were had from the first on
    return [family for family in every if family.session in had]


async def undisturbed(world: World, chosen: Sequence[Family]) -> dict[str, Any]:
    async with world.open_apps(runs=True) as apps:
        async with at_most(TWINS_AT_ONCE) as slot, asyncio.TaskGroup() as tasks:
            talks = {
                family.session: tasks.create_task(
                    slot(Undisturbed(apps[family.app], family).have())
                )
                for family in chosen
            }
    return {session: talk.result() for session, talk in talks.items()}


# -------------------------------------------------------------------- the trouble


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
            if (code := joined(pid)) != 0:
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
        members.tell("cut" if random.random() < 0.5 else "freeze", number)
        await asyncio.sleep(CUT_S)
        members.tell("pass", number)
    members.wait_until_whole()
    world.trouble.add(since, time.monotonic(), kind, None)


def _soak(world: World, plan: Plan, trouble: Trouble) -> dict[str, Any]:
    """Until every conversation has ended. Returns: what the clients had."""
    answer = world.folder / "clients"
    client = forked(lambda: converse(world, plan), answer=answer)
    trouble.start_workers()
    began = time.monotonic()
    draw = random.Random(f"times {plan.seed}")
    strike_at = began + 3
    fail_at = began + (plan.failover_every_s or 1e9) * 0.6
    is_rough = True
    try:
        while True:
            found, status = os.waitpid(client, os.WNOHANG)
            if found:
                break
            trouble.tend()
            now = time.monotonic()
            if is_rough and now - began > plan.seconds:
                trouble.end()
                is_rough = False
            if is_rough and now >= strike_at:
                trouble.strike()
                strike_at = now + draw.uniform(1.5, 5)
            if is_rough and now >= fail_at:
                trouble.fail_over()
                fail_at = now + plan.failover_every_s
            if now - began > plan.seconds + DRAIN_S:
                os.kill(client, signal.SIGKILL)
                joined(client)
                raise SystemExit(
                    f"lost: conversations did not end within {DRAIN_S:.0f} s after the trouble"
                )
            time.sleep(0.1)
        trouble.end()
        trouble.stop_workers()
    finally:
        trouble.abort()
    if status:
        raise SystemExit("the client ended with an error (above)")
    found_by_clients: dict[str, Any] = json.loads(answer.read_text())
    return found_by_clients


# -------------------------------------------------------------------- the twins


def _twins(twin: World, had: Mapping[str, Any], ours: checks.Sessions) -> dict[str, Any]:
    """Have every conversation again without trouble. Where a call's outcome stayed unknown, the
    twin's process ends in that very call, so that the twin is one of the same fate."""
    fates = {
        family.session: frozenset(
            key
            for session in had[family.session]
            for key in checks.doubts(ours[session]).values()
        )
        for family in _named(had, twin)
    }
    plain = [family for family in _named(had, twin) if not fates[family.session]]
    found: dict[str, Any] = {}
    halves = [plain[::2], plain[1::2]]
    answers = [twin.folder / f"half-{number}" for number in range(len(halves))]
    pids = [
        forked(lambda half=half: undisturbed(twin, half), answer=answer)
        for half, answer in zip(halves, answers, strict=True)
    ]
    if any([joined(pid) for pid in pids]):
        raise SystemExit("a twin ended with an error (above)")
    for answer in answers:
        found |= json.loads(answer.read_text())
    for family in _named(had, twin):
        if fates[family.session]:
            found |= _of_fate(twin, family, fates[family.session])
    return found


def _of_fate(twin: World, family: Family, keys: frozenset[str]) -> dict[str, Any]:
    late_ms, answer = 0, twin.folder / "fate"
    for _ in range(len(keys) + 1):
        world = replace(twin, dies_in=keys, late_ms=late_ms)
        code = joined(forked(lambda world=world: undisturbed(world, [family]), answer=answer))
        if code == 0:
            found: dict[str, Any] = json.loads(answer.read_text())
            return found
        if code != DIED:
            break
        late_ms += LEASE_PASSED_MS
    raise SystemExit(f"the twin of session {family.session} did not end")


def _answered(world: World, run: Callable[[], Any]) -> Any:
    answer = world.folder / "answer"
    if joined(forked(run, answer=answer)) != 0:
        raise SystemExit("a process of the soak ended with an error (above)")
    return json.loads(answer.read_text())


# -------------------------------------------------------------------- all of it


def soak(
    uri: str, plan: Plan, *, members: Members | None, folder: Path, twins_uri: Callable[[], str]
) -> tuple[checks.Found, dict[str, int]]:
    """Soak, and compare.

    Args:
        uri: The servers; those of ``members``, if they are to fail over.
        folder: Takes what is written down.
        twins_uri: Asked for the twins' servers when the others are needed no more.

    Returns: what is wrong, and the figures.
    """
    warm()
    began = time.monotonic()
    world = World(uri=uri, database=f"soak_{os.urandom(4).hex()}", folder=folder, seed=plan.seed)
    trouble = Trouble(world, plan, members)
    clients = _soak(world, plan, trouble)
    had = clients["had"]
    print(f"{len(had)} conversations have ended; now their twins", file=sys.stderr, flush=True)
    ours = _answered(world, lambda: read(world, had))
    twin = world.twin(twins_uri())
    twins_had = _twins(twin, had, ours)
    twins = _answered(twin, lambda: read(twin, twins_had))
    rows = world.ledger.rows()
    found = checks.check(
        _named_alike(had, ours),
        _named_alike(twins_had, twins),
        rows,
        twin.ledger.rows(),
        world.trouble.rows(),
    )
    found.wrong += trouble.wrong + clients["wrong"]
    figures = {
        "executions": sum(len(kept["executions"]) for kept in ours.values()),
        "sessions": len(ours),
        "forks": sum(len(sessions) - 1 for sessions in had.values()),
        **{name: clients["figures"].get(name, 0) for name in CLIENT_FIGURES},
        **{name: trouble.figures.get(name, 0) for name in ("kills", "pauses", "failovers")},
        "attempts": sum(sum(kept["attempts"]) for kept in ours.values()),
        "repeated rerun bodies": checks.repeated(rows),
        "unknown outcomes": sum(len(checks.doubts(kept)) for kept in ours.values()),
        "lost": len(found.lost),
        "doubled": len(found.doubled),
        "unexplained repeats": len(found.unexplained),
        "differences": len(found.differences),
        "other faults": len(found.wrong),
        "seconds": round(time.monotonic() - began),
    }
    return found, figures


CLIENT_FIGURES = (
    "answers",
    "duplicate answers",
    "contradictions refused",
    "doubts settled",
    "errors that a retry solved",
)


def _named_alike(had: Mapping[str, Any], sessions: Mapping[str, Any]) -> dict[str, Any]:
    """Sessions under names that both worlds know: the ids of forks are theirs alone."""
    return {
        session if session == source else f"fork of {source}": sessions[session]
        for source, family in had.items()
        for session in family
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/soak.sh", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="of trouble (default 600)")
    parser.add_argument("--executions", type=int, help="at least (default: one a second)")
    parser.add_argument("--failover-every", type=float, default=60, help="seconds; 0 for never")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep what was written down")
    given = parser.parse_args()
    plan = Plan(
        seconds=given.seconds,
        executions=given.executions or max(10, int(given.seconds)),
        failover_every_s=given.failover_every,
        seed=given.seed,
    )
    members = Members(f"soak-{os.getpid()}")
    one = Members(f"soak-{os.getpid()}-twins", members=1)
    folder = Path(tempfile.mkdtemp(prefix="soak-"))

    def twins_uri() -> str:
        members.stop()
        one.start()
        return one.uri

    try:
        members.start()
        found, figures = soak(
            members.uri, plan, members=members, folder=folder, twins_uri=twins_uri
        )
    finally:
        members.stop()
        one.stop()
    for kind in ("lost", "doubled", "unexplained", "differences", "wrong"):
        for line in getattr(found, kind)[:10]:
            print(f"{kind}: {line[:2000]}")
    print("soak: " + ", ".join(f"{value} {name}" for name, value in figures.items()))
    if found.is_right and not given.keep:
        shutil.rmtree(folder)
    else:
        print(f"what was written down is in {folder}")
    sys.exit(0 if found.is_right else 1)


if __name__ == "__main__":
    main()
