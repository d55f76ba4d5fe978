"""No primary at all: a call waits boundedly, says so clearly, and works again later."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from durable_adk import App, Unavailable, WriteUnknown
from tests.support.lives import Ledger
from tests.support.members import Members

PATIENCE_S = 2.0
"""In place of the half minute for which a write is repeated (``--all-points`` waits for that)."""
HANGS_S = 100.0


async def opened(app: App, request: pytest.FixtureRequest, monkeypatch: Any) -> App:
    await app.open()
    if not request.config.getoption("--all-points"):
        core = app._lifecycle._opened.store._core
        monkeypatch.setattr(core, "_deadline_s", PATIENCE_S)
    return app


def say(app: App, x: str, *ops: str, **named: Any) -> Any:
    message = json.dumps({"x": x, "ops": [[op] for op in ops]})
    return app.invoke(user_id="u", session_id=x, message=message, execution_id=x, **named)


@pytest.mark.timeout(600)
async def test_with_nobody_to_reach_calls_are_refused_and_later_work(
    make_app: Any, members: Members, ledger: Ledger, request: Any, monkeypatch: Any
) -> None:
    app = await opened(make_app("desk", lease="3s"), request, monkeypatch)
    late = make_app("desk", lease="3s")
    assert (await say(app, "before", "look")).status == "completed"
    with members.each("cut"):
        async with asyncio.timeout(HANGS_S):
            with pytest.raises(Unavailable, match="no MongoDB server answered at 127") as refused:
                await say(app, "x", "pay")
            with pytest.raises(Unavailable, match=r"no outcome within"):
                await say(app, "x", "pay", timeout=0.5)
            with pytest.raises(Unavailable, match="no MongoDB server answered"):
                await late.open()
            with pytest.raises(Unavailable):
                await app.executions.get("before")
    assert "try again" in refused.value.remedy
    assert not any("x." in row[3] for row in ledger.rows()), "nothing ran"
    for again in (app, late):  # neither is made anew
        out = await say(again, "x", "pay")
        assert (out.status, len(out.events)) == ("completed", 4)
    ran = [row[3] for row in ledger.rows() if row[2] == "ended"]
    assert ran == ["before.desk0.0", "x.desk0.0"]


@pytest.mark.timeout(600)
async def test_without_a_majority_an_attempt_breaks_off_and_is_gone_on_with(
    make_app: Any, members: Members, ledger: Ledger, request: Any, monkeypatch: Any
) -> None:
    """Two of three are killed in the middle of an execution: the third is no primary."""
    app = await opened(make_app("desk", lease="3s", longest_s=0.3), request, monkeypatch)
    ops = ("look", "pay", *["look"] * 6)
    running = asyncio.create_task(say(app, "x", *ops))
    while not any(row[3] == "x.desk2.0" for row in ledger.rows()):
        assert not running.done()
        await asyncio.sleep(0.01)
    primary = await asyncio.to_thread(members.primary)
    gone = [primary, (primary + 1) % 3]
    for number in gone:
        await asyncio.to_thread(members.kill, number)
    async with asyncio.timeout(HANGS_S):
        with pytest.raises((Unavailable, WriteUnknown)):
            await running
        with pytest.raises(Unavailable, match="the replica set has no primary now"):
            await say(app, "y", "look")
    await asyncio.gather(*(asyncio.to_thread(members.restart, number) for number in gone))
    late = make_app("desk", lease="3s")
    await late.open()  # waits for the election, however short its leases
    out = await say(app, "x", *ops)
    assert (out.status, len(out.events)) == ("completed", 2 + 2 * len(ops))
    assert (await say(app, "y", "look")).status == "completed"
    entered = [row[3] for row in ledger.rows() if row[2] == "began"]
    assert entered.count("x.desk1.0") == 1, "it must not run twice, and was recorded"
    assert max(entered.count(key) for key in entered) <= 2
