"""A soak: workers that are killed and paused, servers that fail over, a client that answers twice.

``python -m tests.soak.soaking``: see ``--help``. ``scripts/soak.sh`` prepares its environment.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import itertools
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.soak import checks
from tests.soak.plans import Family, families
from tests.soak.talking import Client, Undisturbed, kept
from tests.soak.trouble import Plan, Trouble
from tests.soak.world import World, forked, joined
from tests.support.lives import DIED, LEASE_PASSED_MS, warm
from tests.support.members import Members

AT_ONCE = 24
NOTHING_ENDS_S = 120.0
TWINS_AT_ONCE = 8


# -------------------------------------------------------------------- the clients


async def converse(world: World, plan: Plan) -> dict[str, Any]:
    """Have conversations while the trouble lasts. Returns: what was begun, and how it went."""
    clients: list[Client] = []
    slots, began = asyncio.Semaphore(AT_ONCE), time.monotonic()

    async def talk(client: Client) -> None:
        async with slots:
            await client.have()

    async with world.open_apps(runs=False) as apps:
        executions, talks = 0, set()
        for family in families(plan.seed):
            passed = time.monotonic() - began
            if passed >= plan.seconds and executions >= plan.executions:
                break
            await asyncio.sleep(executions / plan.executions * plan.seconds - passed)
            executions += family.executions
            clients.append(Client(apps[family.app], family, world))
            talks.add(asyncio.create_task(talk(clients[-1])))
        await _ended(talks)
    figures: collections.Counter[str] = collections.Counter()
    for client in clients:
        figures.update(client.figures)
    return {
        "had": {client.family.session: client.had for client in clients},
        "figures": figures,
        "wrong": [line for client in clients for line in client.wrong],
    }


async def _ended(talks: set[asyncio.Task[None]]) -> None:
    """Wait for conversations as long as one ends now and then; what has not ended then is lost."""
    while talks:
        done, talks = await asyncio.wait(
            talks, timeout=NOTHING_ENDS_S, return_when=asyncio.FIRST_COMPLETED
        )
        for talk in done:
            talk.result()
        if not done:
            for talk in talks:
                talk.cancel()
            await asyncio.wait(talks)
            return


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
    """Have conversations without trouble. Returns: what was had."""
    slots = asyncio.Semaphore(TWINS_AT_ONCE)

    async def talk(twin: Undisturbed) -> None:
        async with slots:
            await twin.have()

    async with world.open_apps(runs=True) as apps:
        twins = [Undisturbed(apps[family.app], family) for family in chosen]
        async with asyncio.TaskGroup() as tasks:
            for twin in twins:
                tasks.create_task(talk(twin))
    return {twin.family.session: twin.had for twin in twins}


# -------------------------------------------------------------------- the soak


def _soak(world: World, plan: Plan, trouble: Trouble) -> dict[str, Any]:
    """Until every conversation has ended. Returns: what the clients had."""
    answer = world.folder / "clients"
    client = forked(lambda: converse(world, plan), answer=answer)
    trouble.start_workers()
    began = time.monotonic()
    draw = random.Random(f"times {plan.seed}")
    strike_at = began + 3
    fail_at = began + (plan.failover_every_s or 1e9) * 0.6
    is_rough, found = True, 0
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
            time.sleep(0.1)
        trouble.end()
        trouble.stop_workers()
    finally:
        trouble.abort()
        if not found:
            os.kill(client, signal.SIGKILL)
            joined(client)
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
            key for session in had[family.session] for key in checks.doubts(ours[session]).values()
        )
        for family in _named(had, twin)
    }
    plain = [family for family in _named(had, twin) if not fates[family.session]]
    found: dict[str, Any] = {}
    halves = [plain[::2], plain[1::2]] if len(plain) > 2 * TWINS_AT_ONCE else [plain]
    answers = [twin.folder / f"half-{number}" for number in range(len(halves))]
    pids = [
        forked(lambda half=half: undisturbed(twin, half), answer=answer)
        for half, answer in zip(halves, answers, strict=True)
    ]
    codes = [joined(pid) for pid in pids]
    if any(codes):
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
    uri: str,
    plan: Plan,
    *,
    members: Members | None,
    folder: Path,
    database: str,
    twins_uri: Callable[[], str],
) -> tuple[checks.Found, dict[str, int]]:
    """Soak, and compare.

    Args:
        uri: The servers; those of ``members``, if they are to fail over.
        folder: Takes what is written down.
        database: Its name; that of the twins begins with it.
        twins_uri: Asked for the twins' servers when the others are needed no more.

    Returns: what is wrong, and the figures.
    """
    warm()
    began = time.monotonic()
    world = World(uri=uri, database=database, folder=folder, seed=plan.seed)
    trouble = Trouble(world, plan, members)
    clients = _soak(world, plan, trouble)
    had = clients["had"]
    print(f"{len(had)} conversations have ended; now their twins", file=sys.stderr, flush=True)
    ours = _answered(world, lambda: read(world, had))
    rows = world.ledger.rows()
    found = checks.Found(lost=checks.lost(ours), doubled=checks.doubled(rows))
    if not found.lost:  # a conversation that broke off has no twin
        twin = world.twin(twins_uri())
        twins_had = _twins(twin, had, ours)
        twins = _answered(twin, lambda: read(twin, twins_had))
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
    "sleeps",
    "expiries",
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
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # clean up, too
    logging.getLogger("google_adk").setLevel(logging.ERROR)
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
            members.uri,
            plan,
            members=members,
            folder=folder,
            database="soak",
            twins_uri=twins_uri,
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
