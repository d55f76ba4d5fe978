"""Deleting: two at once, and who is running by whose clock."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from durable_adk import App, NotFound, SessionBusy
from durable_adk.model.store_results import Write
from durable_adk.store.clock import ServerClock
from durable_adk.testing import FaultPlan, memory_client
from tests.sessions.desk import Ledger, desk, documents

HOUR = 3_600_000
ON: dict[str, Any] = {
    "features": {"durable_workflow": True},
    "shutdown": {"grace": 0},
    "payload": {"spill_above": "1KB"},
}


class Skewed(ServerClock):
    """The server's time decides; this machine's own clock is wrong."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self._by_ms = by_ms

    def estimate(self) -> int:
        return super().estimate() + self._by_ms


class Place:
    """Apps over one database."""

    def __init__(self, client: Any, database: str) -> None:
        self.client, self.name = client, database
        self.database = client[database]
        self.ledger: Ledger = []
        self.apps: list[App] = []

    def make(self, *tools: Any, **given: Any) -> App:
        root = desk(self.ledger, *tools)
        given = {"config": ON, "mongodb": self.client, "database": self.name, **given}
        self.apps.append(App("gone", root_agent=root, **given))
        return self.apps[-1]


@contextlib.asynccontextmanager
async def placed(request: pytest.FixtureRequest, client: Any) -> AsyncIterator[Place]:
    place = Place(client, f"{request.getfixturevalue('database')}_{uuid.uuid4().hex[:8]}")
    yield place
    for app in place.apps:
        await app.close()


@pytest.fixture
async def mongod(request: pytest.FixtureRequest, replica_set_uri: str) -> AsyncIterator[Place]:
    client: Any = AsyncMongoClient(replica_set_uri)
    async with placed(request, client) as place:
        yield place
    await client.drop_database(place.name)
    await client.close()


@pytest.fixture
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with placed(request, memory_client()) as place:
        yield place


# ---------------------------------------------------------------- whose clock


async def test_who_runs_is_decided_by_the_servers_clock(mongod: Place) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow(value: str) -> str:
        """Take a while."""
        started.set()
        await go_on.wait()
        return value

    app = mongod.make(slow)
    fast = mongod.make(clock=Skewed(HOUR))
    running = asyncio.create_task(app.invoke(user_id="u", session_id="s", message="do slow x"))
    try:
        await started.wait()
        with pytest.raises(SessionBusy, match="running"):
            await fast.sessions.delete("u", "s")
        with pytest.raises(SessionBusy, match="running"):
            await fast.sessions.delete_user("u")
    finally:
        go_on.set()
    assert (await running).status == "completed"


async def test_whose_lease_ran_out_does_not_run_whatever_the_clock_says(mongod: Place) -> None:
    app, slow = mongod.make(), mongod.make(clock=Skewed(-HOUR))
    await app.invoke(user_id="u", session_id="s", message="hello")
    # As a dead owner leaves it: to the slow clock, its lease has an hour to go.
    ended = int(time.time() * 1000) - 1_000
    past = {"status": "running", "active": True, "wake_at": ended}
    await mongod.database["durable_executions"].update_one({}, {"$set": past})
    await slow.sessions.delete("u", "s")
    assert await documents(mongod.database) == {}


# ---------------------------------------------------------------- two at once


async def _sessions(app: App, count: int = 3) -> None:
    for number in range(count):
        await app.sessions.create("u", f"s{number}", state={"large": uuid.uuid4().hex * 100})
        first = await app.invoke(user_id="u", session_id=f"s{number}", message="note user:a 1")
    await app.sessions.fork("u", f"s{count - 1}", after=first.execution_id)


async def test_deletions_of_one_user_at_once_all_end_well(mongod: Place) -> None:
    await _sessions(mongod.make(), 1)
    apps = [mongod.make() for _ in range(3)]
    removed = await asyncio.gather(*(app.sessions.delete_user("u") for app in apps))
    assert sum(removed) >= 2
    assert await documents(mongod.database) == {}
    assert await apps[0].sessions.delete_user("u") == 0


async def test_a_deletion_of_a_user_beside_one_that_is_faster_anywhere() -> None:
    """At every other write of the first one, another one comes by and does it all."""
    strikes = 0
    for number in range(1, 100, 2):
        place = Place(memory_client(), f"gone{number}")
        other = place.make()
        await _sessions(other, 1)
        plan = _Beside(other, number)
        first = place.make(faults=plan)
        await first.sessions.delete_user("u")
        assert await documents(place.database) == {}
        for app in place.apps:
            await app.close()
        if not plan.struck:
            break
        strikes += 1
    assert strikes > 8


class _Beside(FaultPlan):
    """Another App deletes the user before the n-th write of a deletion."""

    def __init__(self, other: App, number: int) -> None:
        super().__init__()
        self.other, self.left, self.struck = other, number, False

    async def _meanwhile(self) -> None:
        self.struck = True
        await self.other.sessions.delete_user("u")

    def before(self, write: Write) -> Any:
        if write is Write.DELETE:
            self.left -= 1
            if not self.left:
                return self._meanwhile()
        return None


async def test_a_deletion_that_reads_what_another_one_removes(
    memory: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It applies what the last turn wrote to shared state: the other one did that before."""
    app, other = memory.make(), memory.make()
    await app.invoke(user_id="u", session_id="s", message="note user:a 1")
    executions = memory.database["durable_executions"]
    await executions.update_one({}, {"$set": {"scopes_due": True}})
    store = (await app._lifecycle.opened()).store
    load = store.load_steps

    async def gone(execution: Any) -> Any:
        monkeypatch.setattr(store, "load_steps", load)
        await other.sessions.delete("u", "s")
        return await load(execution)

    monkeypatch.setattr(store, "load_steps", gone)
    await app.sessions.delete("u", "s")
    assert await memory.database["durable_sessions"].find({}).to_list(None) == []
    with pytest.raises(NotFound):
        await app.sessions.delete("u", "s")
