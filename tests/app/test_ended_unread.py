"""What cannot be read because something of it is gone is ended by a person without it."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

from durable_adk import CorruptHistory, KeyMissing
from durable_adk.testing import FaultPlan
from tests.app.agents import yes
from tests.app.test_unreadable import LARGE, NEW, OLD, SPILLING, Desk, Died, looks_and_pays
from tests.app.test_unreadable import desk as desk


async def gone(desk: Desk, app: Any, status: str) -> str:
    """An execution ``e`` of session ``s`` without its message. Returns: the missing chunk."""
    given = {"user_id": "u", "session_id": "s", "message": f"go {LARGE}"}
    if status == "suspended":
        await desk.invoked(app, "e", **given)
    else:
        await app.submit(execution_id="e", **given)
    chunk = await desk.take_input_of("e")
    if status == "stuck":
        (out,) = await app.recover()
        assert out.status == "stuck"
    return str(chunk["_id"])


@pytest.mark.parametrize("status", ["queued", "suspended", "stuck"])
async def test_one_whose_message_is_gone_is_given_up(desk: Desk, status: str) -> None:
    app = desk.app(**SPILLING)
    missing = await gone(desk, app, status)
    await desk.invoked(app, "other", session_id="t")
    record = await app.give_up("e", "nobody has it any more")
    assert (record.status, record.error.type) == ("failed", "CorruptHistory")
    assert missing in record.error.message and record.ended_at is not None
    stored = await desk.db.durable_executions.find_one({"eid": "e"})
    assert missing in stored["error"]["message"]
    assert "nobody has it any more" in stored["error"]["message"]
    (row,) = await app.executions.list(status="failed")
    assert (row.id, row.status, row.error) == ("e", "failed", record.error)
    assert [wait.execution_id for wait in await app.waits.list()] == ["other"]
    desk.clock.advance(120_000)
    assert await app.recover() == (), "nothing of it is due"
    assert await app.give_up("e") == await app.cancel("e") == row, "it has ended"
    await app.sessions.delete("u", "s")
    assert [one.id for one in await app.executions.list()] == ["other"]


async def test_it_may_be_cancelled_too(desk: Desk) -> None:
    app = desk.app(**SPILLING)
    await gone(desk, app, "suspended")
    assert (await app.cancel("e")).status == "cancelled"
    assert [one.status for one in await app.executions.list()] == ["cancelled"]


@pytest.mark.parametrize("status", ["queued", "suspended", "stuck"])
async def test_its_session_is_deleted_as_it_is(desk: Desk, status: str) -> None:
    app = desk.app(**SPILLING)
    await gone(desk, app, status)
    await app.sessions.delete("u", "s")
    assert list(await app.executions.list()) == []
    for name in ("sessions", "executions", "steps", "activities", "payloads"):
        assert await desk.db[f"durable_{name}"].count_documents({}) == 0


async def take_a_reply(desk: Desk) -> dict[str, Any]:
    """Take a chunk of a record away: messages and answers can still be read."""
    record = await desk.db.durable_activities.find_one({"body.ref": {"$exists": True}})
    key = {"_id": f"{record['body']['ref']}:0"}
    chunk: dict[str, Any] = await desk.db.durable_payloads.find_one(key)
    await desk.db.durable_payloads.delete_one(key)
    return chunk


async def test_one_of_which_a_record_is_gone_is_given_up(desk: Desk) -> None:
    app = desk.app(root=looks_and_pays(desk.log), **SPILLING)
    out = await desk.invoked(app, "e", session_id="s")
    chunk = await take_a_reply(desk)
    with pytest.raises(CorruptHistory):
        await app.resume("e", yes(*out.waits))
    record = await app.give_up("e", "no backup")
    assert (record.status, record.error.type) == ("failed", "CorruptHistory")
    assert chunk["_id"] in record.error.message and "no backup" in record.error.message
    assert [one.error for one in await app.executions.list(status="failed")] == [record.error]
    assert desk.log == []
    await app.sessions.delete("u", "s")


async def test_one_of_whose_past_something_is_gone_is_given_up(desk: Desk) -> None:
    """The next message of a session that was ended so is stuck, and is given up as well."""
    app = desk.app(**SPILLING)
    await gone(desk, app, "suspended")
    await app.give_up("e")
    out = await desk.invoked(app, "f", session_id="s")
    assert (out.status, out.error.type) == ("stuck", "CorruptHistory"), "no turn is left out"
    record = await app.give_up("f", "no")
    assert (record.status, record.error.type) == ("failed", "CorruptHistory")
    assert (await app.executions.get("f")).error == record.error
    with pytest.raises(CorruptHistory):
        await app.executions.events("f")
    await app.sessions.delete("u", "s")


@pytest.mark.parametrize("turns_before", [0, 1])
async def test_the_error_of_the_next_message_says_how_to_go_on(
    desk: Desk, turns_before: int
) -> None:
    app = desk.app(**SPILLING)
    for n in range(turns_before):
        first = await desk.invoked(app, f"d{n}", session_id="s")
        await app.resume(f"d{n}", yes(*first.waits))
    await gone(desk, app, "queued")
    await app.give_up("e")
    out = await desk.invoked(app, "f", session_id="s")
    assert out.status == "stuck" and "'e'" in out.error.message
    with pytest.raises(CorruptHistory) as caught:
        await app.sessions.events("u", "s")
    assert caught.value.remedy == out.error.remedy
    call = re.search(r"app\.sessions\.fork\(('.*'), ('.*'), before=('.*')\)", out.error.remedy)
    assert call is not None
    user_id, session_id, before = (ast.literal_eval(text) for text in call.groups())
    fork = await app.sessions.fork(user_id, session_id, before=before)
    out = await app.invoke(user_id=user_id, session_id=fork.session_id, message="go")
    statuses = [turn.status for turn in await app.sessions.turns("u", fork.session_id)]
    assert statuses == ["completed" if turns_before else "suspended", *["completed"] * turns_before]
    with pytest.raises(CorruptHistory):
        await app.sessions.fork("u", "s", after="e")


async def test_one_whose_message_is_gone_is_cut_before_but_not_inside(desk: Desk) -> None:
    app = desk.app(**SPILLING)
    out = await desk.invoked(app, "e", session_id="s", message=f"go {LARGE}")
    (asked,) = [one for one in await app.executions.activities("e") if one.kind == "model"]
    await desk.take_input_of("e")
    fork = await app.sessions.fork("u", "s", before="e")
    assert list(await app.sessions.turns("u", fork.session_id)) == []
    for cut in (asked.id, out.waits[0].id):
        for side in ("before", "after"):
            with pytest.raises(CorruptHistory, match="chunk"):
                await app.sessions.fork("u", "s", **{side: cut})


async def test_its_session_is_never_read_without_its_turn(desk: Desk) -> None:
    """Not even when what was gone is there again."""
    app = desk.app(**SPILLING)
    first = await desk.invoked(app, "d", session_id="s")
    await app.resume("d", yes(*first.waits))
    await app.submit(user_id="u", session_id="s", message=f"go {LARGE}", execution_id="e")
    chunk = await desk.take_input_of("e")
    await app.give_up("e")
    fork = await app.sessions.fork("u", "s", after="d")
    await desk.db.durable_payloads.insert_one(chunk)
    assert (await app.executions.get("e")).status == "failed"
    assert [turn.status for turn in await app.sessions.turns("u", "s")] == ["failed", "completed"]
    for read in (app.executions.events("e"), app.sessions.events("u", "s")):
        with pytest.raises(CorruptHistory, match="was ended although something of it was gone"):
            await read
    out = await desk.invoked(app, "f", session_id="s")
    assert (out.status, out.error.type) == ("stuck", "CorruptHistory")
    out = await app.invoke(user_id="u", session_id=fork.session_id, message="go")
    assert out.status == "completed"


async def test_a_process_that_dies_as_it_ends_it_leaves_it_to_the_next_call(desk: Desk) -> None:
    app = desk.app(**SPILLING)
    await gone(desk, app, "suspended")
    dying = desk.app(faults=FaultPlan().fail("before end", Died()), **SPILLING)
    with pytest.raises(Died):
        await dying.give_up("e")
    desk.clock.advance(60_000)
    assert (await app.give_up("e")).status == "failed"


async def test_what_can_be_read_elsewhere_is_not_ended_unread(desk: Desk) -> None:
    """Neither what is under a key that is not here, nor what another version wrote."""
    both, behind = desk.app({**NEW, **OLD}), desk.app(OLD)
    await desk.invoked(both, "e")
    with pytest.raises(KeyMissing):
        await behind.give_up("e")
    plain = desk.app()
    await desk.invoked(plain, "f")
    await desk.db.durable_executions.update_one({"eid": "f"}, {"$set": {"v": 99}})
    for call in (plain.give_up("f"), plain.cancel("f")):
        with pytest.raises(CorruptHistory, match="schema version 99"):
            await call
    assert [one.status for one in await both.executions.list()] == ["suspended"] * 2
