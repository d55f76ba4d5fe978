"""Executions whose own content cannot be read here: a key that is not configured, a chunk that is
gone. They hide nothing else, and nobody tries them for ever."""

from __future__ import annotations

import asyncio
import base64
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.workflow import START, Workflow
from pymongo import AsyncMongoClient

from durable_adk import App, CorruptHistory, KeyMissing
from durable_adk.testing import FaultPlan, ManualClock, ServerClock, calls, memory_client
from tests.app import agents
from tests.app.agents import yes
from tests.app.conftest import ON

HOUR_MS = 3_600_000
OLD, NEW = ({name: base64.b64encode(name[:1].encode() * 32).decode()} for name in ("old", "new"))
LARGE = "".join(random.Random(7).choices("abcdefghijklmnop", k=3000))
SPILLING = {"payload": {"spill_above": "1KB", "compress_above": "never"}}


def looks_and_pays(log: agents.Log) -> LlmAgent:
    """Pays, once that is confirmed, after a tool that leaves a large record."""

    def look() -> dict[str, str]:
        """Look something up."""
        return {"found": LARGE}

    root = agents.payer(log)
    root.tools.append(look)
    root.model.script = [calls(("look", {})), *root.model.script]
    return root


class Desk:
    """Apps over one database."""

    def __init__(self, client: Any, name: str, clock: Any, stack: AsyncExitStack) -> None:
        self.log: agents.Log = []
        self.clock = clock
        self.db = client[name]
        self._place = {"mongodb": client, "database": name, "clock": clock}
        self._stack = stack

    def app(
        self,
        keys: dict[str, str] | None = None,
        root: Any = None,
        faults: Any = None,
        **config: Any,
    ) -> App:
        sealed = {} if keys is None else {"encryption": {"keys": keys}}
        app = App(
            "desk",
            root_agent=agents.payer(self.log) if root is None else root,
            config={**ON, **sealed, **config},
            faults=faults,
            **self._place,
        )
        self._stack.push_async_callback(app.close)
        return app

    async def invoked(self, app: App, execution_id: str, **given: Any) -> Any:
        """An execution, a second after the one before."""
        self.clock.advance(1_000)
        return await app.invoke(
            execution_id=execution_id, **{"user_id": "u", "message": "go", **given}
        )

    async def take_input_of(self, execution_id: str) -> dict[str, Any]:
        """Take the chunk of an execution's message away; returns it."""
        found = await self.db.durable_executions.find_one({"eid": execution_id})
        key = {"_id": f"{found['input']['ref']}:0"}
        chunk: dict[str, Any] = await self.db.durable_payloads.find_one(key)
        await self.db.durable_payloads.delete_one(key)
        return chunk


@pytest.fixture(params=["memory", "mongod"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield Desk(memory_client(), "durable_adk", ManualClock(), stack)
            return
        uri = request.getfixturevalue("replica_set_uri")
        client: Any = await stack.enter_async_context(AsyncMongoClient(uri))
        name = f"{request.getfixturevalue('database')}_{uuid.uuid4().hex[:8]}"
        yield Desk(client, name, ServerClock(), stack)
        await client.drop_database(name)


async def test_one_that_cannot_be_read_is_listed_with_the_reason_and_hides_no_other(
    desk: Desk,
) -> None:
    both, behind = desk.app({**NEW, **OLD}, version="2"), desk.app(OLD, **SPILLING)
    outs = [
        await desk.invoked(app, f"e{n}", session_id=f"s{n}", message=message)
        for n, (app, message) in enumerate(
            [(behind, "go"), (both, "go"), (behind, f"go {LARGE}"), (behind, "go")]
        )
    ]
    await both.resume("e1", yes(*outs[1].waits))
    await desk.take_input_of("e2")
    for limit in (1, 2, 50):
        found, cursor = [], None
        while not found or cursor is not None:
            page = await behind.executions.list(limit=limit, cursor=cursor)
            found += page.items
            cursor = page.cursor
        rows = {one.id: one for one in found}
        assert [one.id for one in found] == sorted(rows, reverse=True) and len(rows) == 4
    for whole in ("e0", "e3"):
        assert (rows[whole].error, rows[whole].open_waits) == (None, 1)
    sealed, torn = rows["e1"], rows["e2"]
    assert (sealed.status, sealed.user_id, sealed.session_id) == ("completed", "u", "s1")
    assert (sealed.attempt, sealed.version, sealed.turn) == (2, "2", 1)
    assert [ran.agent for ran in sealed.ran_under] == ["2"] and sealed.ended_at is not None
    assert sealed.error.type == "KeyMissing" and "'new'" in sealed.error.message
    assert (torn.status, torn.error.type) == ("suspended", "CorruptHistory")
    assert "chunk" in torn.error.message
    assert [one.id for one in await behind.executions.list(status="completed")] == ["e1"]
    waits = [wait.execution_id for n in (1, 50) for wait in await behind.waits.list(limit=n)]
    assert waits == ["e0", "e0", "e3"], "what is asked cannot be shown without its content"
    reports = {one.execution_id: one for one in await behind.executions.replay_all()}
    assert {n for n, report in reports.items() if report.ok} == {"e0", "e3"}
    assert (reports["e1"].error.type, reports["e2"].status) == ("KeyMissing", "suspended")
    with pytest.raises(KeyMissing):
        await behind.executions.get("e1")
    assert (await both.executions.get("e1")).error is None


@pytest.mark.parametrize("deadline", [None, 2 * HOUR_MS // 1000])
async def test_one_whose_message_is_gone_is_stuck_and_goes_on_when_it_is_there_again(
    desk: Desk, deadline: int | None
) -> None:
    app = desk.app(**SPILLING)
    queued = {"user_id": "u", "execution_id": "e", "message": f"go {LARGE}", "deadline": deadline}
    await app.submit(**queued)
    await app.submit(user_id="v", execution_id="other", message="go")
    chunk = await desk.take_input_of("e")
    outs = {out.execution_id: out for out in await app.recover()}
    assert (outs["e"].status, outs["e"].error.type) == ("stuck", "CorruptHistory")
    assert "chunk" in outs["e"].error.message and outs["other"].status == "suspended"
    with pytest.raises(CorruptHistory):
        await app.invoke(**queued)
    for _ in range(2):
        desk.clock.advance(HOUR_MS + 60_000)
        assert await app.recover() == (), "it is not tried again by itself"
    (row,) = await app.executions.list(status="stuck")
    assert (row.id, row.attempt, row.error.type) == ("e", 1, "CorruptHistory")
    assert row.error.remedy == outs["e"].error.remedy and "Restore" in row.error.remedy
    await desk.db.durable_payloads.insert_one(chunk)
    assert (await app.executions.get("e")).error.type == "CorruptHistory"
    await app.retry("e")
    (out,) = await app.recover()
    assert out.status == ("failed" if deadline else "suspended")
    if deadline:
        assert out.error.type == "DeadlineExceeded"


async def test_one_that_is_under_a_lost_lease_is_stuck_too(desk: Desk) -> None:
    """All is answered, and the App that held it is gone: a worker is who finds out."""
    app = desk.app(**SPILLING)
    out = await app.invoke(user_id="u", execution_id="e", message=f"go {LARGE}")
    await app.answer(out.waits[0].id, {"confirmed": True})
    chunk = await desk.take_input_of("e")
    (found,) = await app.recover()
    assert (found.status, found.error.type, desk.log) == ("stuck", "CorruptHistory", [])
    await desk.db.durable_payloads.insert_one(chunk)
    await app.retry("e")
    (found,) = await app.recover()
    assert (found.status, len(desk.log)) == ("completed", 1)


class Died(BaseException):
    """The process is gone."""


async def test_shared_state_of_one_whose_message_is_gone_ends_no_worker(desk: Desk) -> None:
    def remember(ctx: Any, node_input: Any) -> None:
        ctx.state["user:name"] = "Ada"

    root = Workflow(name="w", edges=[(START, remember)])
    dying = desk.app(root=root, faults=FaultPlan().fail("before scopes", Died()), **SPILLING)
    with pytest.raises(Died):
        await desk.invoked(dying, "e", message=f"go {LARGE}")
    await desk.take_input_of("e")
    app = desk.app(root=root, **SPILLING)
    await app.submit(user_id="v", execution_id="other", message="go")
    worker = asyncio.create_task(app.worker().run())
    while (await app.executions.get("other")).status != "completed":
        assert not worker.done()
        await asyncio.sleep(0.01)
    worker.cancel()


async def test_executions_are_listed_by_a_version_that_they_ran_under(desk: Desk) -> None:
    first, second, none = desk.app(version="1.0"), desk.app(version="1.0 b"), desk.app()
    outs = [
        await desk.invoked(app, f"e{n}", user_id=f"u{n}")
        for n, app in enumerate((first, first, second, none))
    ]
    await second.resume("e0", yes(*outs[0].waits))
    queued = await first.submit(user_id="u9", execution_id="e9", message="go")
    assert queued.ran_under == (), "what has not run ran under none"

    async def listed(version: str, **more: Any) -> list[str]:
        return [one.id for one in await first.executions.list(version=version, **more)]

    assert await listed("1.0") == ["e1", "e0"]
    assert await listed("1.0 b") == ["e2", "e0"]
    assert await listed("1.0", status="suspended") == ["e1"]
    assert await listed("1.0 b", user_id="u2") == ["e2"]
    page = await first.executions.list(version="1.0", limit=1)
    (last,) = await first.executions.list(version="1.0", limit=1, cursor=page.cursor)
    assert (page.items[0].id, last.id) == ("e1", "e0")
    for nothing in ("1", "b", "1.0 ", ".*", "1x0", "$ne", "", "2"):
        assert await listed(nothing) == []
    found = await second.executions.replay_all(version="1.0 b")
    assert [(report.execution_id, report.ok) for report in found] == [("e2", True), ("e0", True)]
