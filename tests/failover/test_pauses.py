"""S14 and S1: a worker sleeps for three leases and wakes; S13: renewals beside commits."""

from __future__ import annotations

import asyncio
import collections
import functools
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from durable_adk.engine import service
from durable_adk.engine.keeper import Keeper
from durable_adk.testing import FaultPlan, Write
from tests.failover.test_failover import PROGRAMS, to_its_end
from tests.soak.programs import answer_to
from tests.soak.world import World, forked, joined, work
from tests.support.lives import Ledger, warm
from tests.support.members import Members

LEASE_S = 3
LATE_S = 0.4
PROGRAMS_OF_A_WORKER = {
    "reads": [["look"], ["look", "note"], ["look"]],
    "pays": [["look"], ["pay"], ["look"]],
    "asks": [["look"], ["look_confirmed"], ["look"]],
}


@pytest.fixture
def world(members: Members, database: str, tmp_path: Path) -> World:
    warm()
    name = f"{database}_{os.urandom(3).hex()}"
    return World(uri=members.uri, database=name, folder=tmp_path, longest_s=1.2, lease_s=LEASE_S)


@pytest.fixture
def workers() -> Iterator[dict[str, int]]:
    found: dict[str, int] = {}
    yield found
    for pid in found.values():
        os.kill(pid, signal.SIGKILL)
        joined(pid)


async def _submit(world: World) -> None:
    async with world.open_apps(runs=False) as apps:
        for x, ops in PROGRAMS_OF_A_WORKER.items():
            message = json.dumps({"x": x, "ops": ops})
            await apps["desk"].submit(user_id="u", session_id=x, message=message, execution_id=x)


async def _answered_and_ended(world: World) -> dict[str, str]:
    """Answer what is asked until all have ended. Returns: how."""
    async with world.open_apps(runs=False) as apps:
        desk = apps["desk"]
        while True:
            for wait in (await desk.waits.list()).items:
                await desk.answer(wait.id, answer_to(wait.to_dict()))
            found = (await desk.executions.list()).items
            if all(record.status in ("completed", "failed") for record in found):
                return {r.id: r.error.type if r.error else r.status for r in found}
            await asyncio.sleep(0.1)


def stored(world: World) -> dict[str, Any]:
    """What counts, document by document: not step documents that no commit names."""
    client: MongoClient[dict[str, Any]]
    with MongoClient(world.uri) as client:
        database = client.get_database(world.database)
        return {
            name: {doc["_id"]: doc for doc in database[f"durable_{name}"].find()}
            for name in ("executions", "activities", "sessions", "scopes")
        }


@pytest.mark.timeout(600)
def test_a_worker_that_slept_for_three_leases_starts_nothing_and_commits_nothing(
    world: World, workers: dict[str, int], members: Members
) -> None:
    """When it wakes, its servers are slow: until they refuse its lease, only its own clocks keep
    it from going on."""
    asyncio.run(_submit(world))
    sleeper = workers["sleeper"] = forked(lambda: work(world))
    while not any(row[2:4] == ("began", "pays.desk1.0") for row in world.ledger.rows()):
        time.sleep(0.01)
    os.kill(sleeper, signal.SIGSTOP)
    asleep_since = time.monotonic()
    rows = world.ledger.rows()
    in_body = {row[3] for row in rows if not row[3].endswith(".model")} - {
        row[3] for row in rows if row[2] == "ended"
    }
    assert in_body, "it fell asleep in a body"
    other = workers["other"] = forked(lambda: work(world))
    ended = asyncio.run(_answered_and_ended(world))
    time.sleep(max(0.0, asleep_since + 3 * LEASE_S - time.monotonic()))
    before = stored(world)
    for number in range(3):
        members.tell("delay", number, LATE_S)
    woken_at = time.monotonic()
    os.kill(sleeper, signal.SIGCONT)
    while not {row[3] for row in world.ledger.rows() if row[2] == "ended"} >= in_body:
        time.sleep(0.01)  # it goes on where it slept, to the end of its bodies
    time.sleep(LATE_S)
    for number in range(3):
        members.tell("pass", number)
    for pid in (sleeper, other):
        os.kill(pid, signal.SIGTERM)
        assert joined(pid) == 0
    workers.clear()
    rows = world.ledger.rows()
    assert not [r for r in rows if r[2] == "began" and r[1] == sleeper and r[0] > woken_at]
    assert stored(world) == before
    twice = collections.Counter(row[3] for row in rows if row[2] == "began" and row[4] == "fail")
    assert set(twice.values()) <= {1}
    doubted = "pays.desk1.0" in in_body
    assert ended["pays"] == ("OutcomeUnknown" if doubted else "completed")
    assert (ended["reads"], ended["asks"]) == ("completed", "completed")


class Counting(FaultPlan):
    """Counts renewals, which a plan leaves out."""

    renewals = 0

    def after(self, write: Write) -> bool:
        self.renewals += write is Write.RENEW
        return super().after(write)


async def test_renewals_beside_every_commit_do_not_harm_it(
    make_app: Any, ledger: Ledger, monkeypatch: Any
) -> None:
    """S13: a renewal is always under way when a frontier, a step or an end is committed."""
    monkeypatch.setattr(service, "Keeper", functools.partial(Keeper, renew_every_s=0.01))
    faults = Counting()
    apps = {kind: make_app(kind, faults=faults) for kind in ("desk", "flow")}
    outs = await asyncio.gather(
        *(
            to_its_end(apps[app], kind, number, program)
            for number in range(2)
            for kind, (app, program) in PROGRAMS.items()
        )
    )
    assert {out.status for out in outs} == {"completed"}
    assert faults.reached.count("after frontier") >= 6
    assert faults.renewals > faults.reached.count("after frontier")
    entered = collections.Counter(row[3] for row in ledger.rows() if row[2] == "began")
    assert set(entered.values()) == {1}
