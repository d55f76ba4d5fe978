"""What needs no code of a version is done by workers of any: the end, and expiry answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, Workflow

import durable_adk
from durable_adk import App
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.model.execution import Lease, Status, StoredError
from durable_adk.model.identity import execution_key, new_nonce
from durable_adk.store.clock import ServerClock
from tests.support.lives import Ledger

HOUR_MS = 3_600_000
GO: dict[str, Any] = {"user_id": "u", "session_id": "s", "message": "go", "execution_id": "x"}
EXPIRES: dict[str, Any] = {"tools": {"pay": {"expires_after": "1h"}}}
Make = Callable[..., App]


def desk(ledger: Ledger, name: str = "desk") -> LlmAgent:
    def pay(cents: int) -> str:
        """Pay."""
        ledger.add("pay", cents)
        return "paid"

    def reply(request: Any, _batch: int) -> Any:
        ledger.add("asked", name)
        last = (request.contents[-1].parts or [])[0]
        return calls(("pay", {"cents": 7})) if last.text == "go" else says("done")

    tools = [FunctionTool(pay, require_confirmation=True)]
    return LlmAgent(name=name, model=ScriptedModel(script=reply), tools=tools)


@pytest.fixture
def apps(make_app: Make, ledger: Ledger) -> tuple[App, App]:
    """Version 1, and a version 2 whose code does not fit what version 1 recorded."""
    old = make_app(desk(ledger), config={"version": "1", **EXPIRES})
    return old, make_app(desk(ledger, "counter"), config={"version": "2", **EXPIRES})


async def stuck(app: App) -> None:
    """Under version 1, after version 2 had its one try."""
    opened = await app._lifecycle.opened()
    key = execution_key(app._lifecycle.tenant, "x")
    await app.submit(**GO, deadline="30m")
    for version in ("1", "2", "1"):
        live = await opened.store.claim(key, nonce=new_nonce(), ttl_ms=1000, version=version)
        assert live is not None
        assert live.claim is not None
        await opened.store.attempt_failed(
            Lease(live.key, live.token, live.claim),
            status=Status.STUCK,
            error=StoredError(type="ReplayMismatch", message="other code"),
            failures=0,
            voided=(),
            backoff_ms=0,
        )


@pytest.mark.parametrize("kept", ["suspended", "queued", "stuck"])
async def test_a_deadline_ends_what_only_another_version_would_go_on_with(
    apps: tuple[App, App], ledger: Ledger, clock: ServerClock, kept: str
) -> None:
    old, new = apps
    if kept == "stuck":
        await stuck(old)
    else:
        await (old.invoke if kept == "suspended" else old.submit)(**GO, deadline="30m")
    (listed,) = await new.executions.list()
    before = ledger.rows()
    assert (listed.status, listed.version) == (kept, "1")
    assert await new.recover() == ()
    clock.advance(HOUR_MS // 2 + 1_000)
    (out,) = await new.recover()
    assert (out.status, out.error.type) == ("failed", "DeadlineExceeded")
    assert (await new.waits.list()).items == ()
    assert ledger.rows() == before, "no model and no tool of either version ran"
    assert (await new.invoke(user_id="u", session_id="s", message="hi")).status == "completed"


async def test_an_end_that_was_begun_is_finished_by_another_version(
    apps: tuple[App, App], clock: ServerClock
) -> None:
    old, new = apps
    await old.invoke(**GO)
    store = (await old._lifecycle.opened()).store
    claimed = await store.claim_to_close(
        execution_key(old._lifecycle.tenant, "x"),
        closing=Status.CANCELLED,
        reason="not wanted",
        nonce=new_nonce(),
        ttl_ms=1_000,
    )
    assert claimed is not None  # and whoever took it dies
    clock.advance(2_000)
    (out,) = await new.recover()
    assert (out.status, out.error.message) == ("cancelled", "not wanted")


async def test_a_cancellation_that_a_dead_owner_did_not_see_is_done_by_another_version(
    apps: tuple[App, App], ledger: Ledger, clock: ServerClock
) -> None:
    old, new = apps
    await old.submit(**GO)
    store, key = (await old._lifecycle.opened()).store, execution_key(old._lifecycle.tenant, "x")
    assert await store.claim(key, nonce=new_nonce(), ttl_ms=1_000, version="1")
    assert await store.request_cancel(key, "not wanted")
    clock.advance(2_000)
    (out,) = await new.recover()
    assert (out.status, out.error.message) == ("cancelled", "not wanted")
    assert ledger.rows() == []


async def test_an_expiry_is_answered_by_another_version_which_does_not_go_on(
    apps: tuple[App, App], ledger: Ledger, clock: ServerClock
) -> None:
    old, new = apps
    (wait,) = (await old.invoke(**GO)).waits
    assert await new.recover() == ()
    assert [one.id for one in await new.waits.list()] == [wait.id]
    clock.advance(HOUR_MS + 1_000)
    before = ledger.rows()
    worker = new.worker()
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(60):
            while (await new.executions.get("x")).open_waits:
                await asyncio.sleep(0.01)
    finally:
        worker.stop()
        await running
    assert await new.recover() == ()
    (listed,) = await new.executions.list()
    assert (listed.status, listed.version, listed.attempt) == ("suspended", "1", 1)
    assert (await new.waits.list()).items == ()
    assert ledger.rows() == before
    (out,) = await old.recover()
    assert (out.status, out.response) == ("completed", "done")
    assert ("pay", 7) not in ledger.rows()


async def test_a_timer_is_over_although_nobody_of_its_version_looks(
    make_app: Make, clock: ServerClock
) -> None:
    async def nap(node_input: Any) -> str:
        await durable_adk.sleep(60)
        return "up"

    old, new = (
        make_app(Workflow(name="w", edges=[(START, nap)]), config={"version": version})
        for version in ("1", "2")
    )
    await old.invoke(**GO)
    clock.advance(61_000)
    assert await new.recover() == ()
    store = (await new._lifecycle.opened()).store
    execution = await store.get_execution(execution_key(new._lifecycle.tenant, "x"))
    assert execution is not None
    assert execution.frontier is not None
    assert execution.frontier.open == 0
    (out,) = await old.recover()
    assert (out.status, out.output) == ("completed", "up")
