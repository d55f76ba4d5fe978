"""A recovery pass that meets executions of which something is gone."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.workflow import START, Workflow

from durable_adk.engine.service import Engine
from durable_adk.testing import FaultPlan
from tests.app.agents import yes
from tests.app.test_unreadable import SPILLING, Desk, Died, looks_and_pays
from tests.app.test_unreadable import desk as desk


async def answered(desk: Desk) -> Any:
    """An App with two executions that are answered and due, ``e`` each with a large record."""

    app = desk.app(root=looks_and_pays(desk.log), **SPILLING)
    for name in ("e", "other"):
        out = await desk.invoked(app, name, session_id=name)
        await app.answer(out.waits[0].id, {"confirmed": True})
    return app


async def take_a_chunk(desk: Desk) -> str:
    return await take(desk, "payloads")


async def take_a_step(desk: Desk) -> str:
    return await take(desk, "steps")


async def take(desk: Desk, collection: str) -> str:
    """Take a document of ``e`` away. Returns: its key."""
    found = await desk.db.durable_executions.find_one({"eid": "e"})
    of_run = {"_id": {"$regex": f"^{found['run']}:"}}
    return str((await desk.db[f"durable_{collection}"].find_one_and_delete(of_run))["_id"])


@pytest.mark.parametrize("take_one", [take_a_chunk, take_a_step])
async def test_one_whose_steps_are_gone_is_reported_stuck_beside_the_others(
    desk: Desk, take_one: Any
) -> None:
    app = await answered(desk)
    missing = await take_one(desk)
    outs = {out.execution_id: out for out in await app.recover()}
    assert {name: out.status for name, out in outs.items()} == {"e": "stuck", "other": "completed"}
    assert outs["e"].error.type == "CorruptHistory" and missing in outs["e"].error.message
    assert outs["e"].events == () and outs["other"].events
    assert len(desk.log) == 1, "the approved call of the other one was made"
    assert await app.recover() == ()
    (row,) = await app.executions.list(status="stuck")
    assert row.error == outs["e"].error


async def test_one_that_is_deleted_before_it_is_shown_costs_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await answered(desk)
    recover = Engine.recover

    async def deleted_then(engine: Engine, limit: int) -> Any:
        done = await recover(engine, limit)
        await app.sessions.delete("u", "e")
        return done

    monkeypatch.setattr(Engine, "recover", deleted_then)
    assert [out.execution_id for out in await app.recover()] == ["other"]


async def test_a_document_that_is_no_execution_any_more_ends_no_pass(desk: Desk) -> None:
    def remember(ctx: Any, node_input: Any) -> None:
        ctx.state["user:name"] = "Ada"

    root = Workflow(name="w", edges=[(START, remember)])
    dying = desk.app(root=root, faults=FaultPlan().fail("before scopes", Died()))
    with pytest.raises(Died):
        await desk.invoked(dying, "e")
    await desk.db.durable_executions.update_one({"eid": "e"}, {"$unset": {"run": 1}})
    app = desk.app(root=root)
    await app.submit(user_id="v", execution_id="other", message="go")
    (out,) = await app.recover()
    assert (out.execution_id, out.status) == ("other", "completed")


async def test_a_session_of_another_version_is_left_by_a_look_at_all(desk: Desk) -> None:
    app = desk.app(retention={"turns": 1})
    for session in ("newer", "own"):
        first = await desk.invoked(app, f"{session}-1", session_id=session)
        await app.resume(f"{session}-1", yes(*first.waits))
        await desk.invoked(app, f"{session}-2", session_id=session)
    await desk.db.durable_sessions.update_one({"session": "newer"}, {"$set": {"v": 99}})
    assert (await app.retain()).sessions == 1
    stored = {doc["session"]: doc async for doc in desk.db.durable_sessions.find()}
    assert {name: "expiring" in doc for name, doc in stored.items()} == {
        "newer": False,
        "own": True,
    }
