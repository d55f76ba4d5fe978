"""``invoke(deadline=)``: an execution that is not done in time ends as failed, whoever comes by."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, Workflow

import durable_adk
from durable_adk import App, ConfigError, WaitClosed, durable_tool
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.store.clock import ServerClock
from durable_adk.testing import FaultPlan
from tests.support.lives import LEASE_PASSED_MS, Ledger

HOUR_MS = 3_600_000
GO: dict[str, Any] = {"user_id": "u", "session_id": "s", "message": "go", "execution_id": "x"}


class Died(BaseException):
    """The process ends here."""


def desk(ledger: Ledger) -> LlmAgent:
    def pay(cents: int) -> str:
        """Pay."""
        ledger.add("pay", cents)
        return "paid"

    tools = [FunctionTool(pay, require_confirmation=True)]
    script = [calls(("pay", {"cents": 7})), says("done")]
    return LlmAgent(name="desk", model=ScriptedModel(script=script), tools=tools)


def is_overdue(out: Any) -> bool:
    return out.status == "failed" and out.error.type == "DeadlineExceeded"


@pytest.mark.parametrize("way", ["recover", "the same call", "next message", "resume"])
async def test_a_suspended_execution_ends_at_its_deadline(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, way: str
) -> None:
    app = make_app(desk(ledger))
    out = await app.invoke(**GO, deadline=dt.timedelta(hours=1))
    (wait,) = out.waits
    clock.advance(HOUR_MS - 60_000)
    assert await app.recover() == ()
    clock.advance(60_001)
    if way == "recover":
        (out,) = await app.recover()
        assert is_overdue(out)
    elif way == "the same call":
        assert is_overdue(await app.invoke(**GO, deadline="2h"))  # no part of the input
    elif way == "next message":
        out = await app.invoke(user_id="u", session_id="s", message="next")
        assert out.status == "completed"  # the prompt is valid: its call was closed
    else:
        with pytest.raises(WaitClosed, match="deadline"):
            await app.resume("x", {wait.id: {"confirmed": True}})
        with pytest.raises(WaitClosed, match="deadline"):
            await app.answer(wait.id, {"confirmed": True})
        await app.recover()
    assert is_overdue(await app.executions.outcome("x"))
    assert (await app.waits.list()).items == ()
    assert ledger.rows() == []
    with pytest.raises(WaitClosed):
        await app.resume("x", {wait.id: {"confirmed": True}})
    with pytest.raises(durable_adk.ExecutionFailed, match="DeadlineExceeded"):
        (await app.executions.outcome("x")).raise_for_status()


async def test_it_counts_before_an_expiry_and_a_timer(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    async def nap(node_input: Any) -> Any:
        await durable_adk.sleep(2 * HOUR_MS / 1000)
        ledger.add("up")

    app = make_app(Workflow(name="w", edges=[(START, nap)]))
    await app.invoke(**GO, deadline="1h")
    clock.advance(HOUR_MS + 1)
    (out,) = await app.recover()
    assert is_overdue(out)
    clock.advance(2 * HOUR_MS)
    assert await app.recover() == ()
    assert ledger.rows() == []


async def test_a_timer_that_is_due_before_it_goes_on(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    async def nap(node_input: Any) -> Any:
        await durable_adk.sleep(60)
        return "up"

    app = make_app(Workflow(name="w", edges=[(START, nap)]))
    await app.invoke(**GO, deadline="1h")
    clock.advance(61_000)
    (out,) = await app.recover()
    assert (out.status, out.output) == ("completed", "up")


async def test_what_was_queued_in_vain_never_begins(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    app = make_app(desk(ledger))
    await app.submit(**GO, deadline=60)
    clock.advance(61_000)
    (out,) = await app.recover()
    assert is_overdue(out)
    past = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    out = await app.invoke(user_id="u", message="go", deadline=past)
    assert is_overdue(out)
    last = [one async for one in app.stream(user_id="u", message="go", deadline=past)][-1]
    assert (last.kind, is_overdue(last.data)) == ("error", True)


async def test_what_backs_off_ends_at_its_deadline(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    def fail(node_input: Any) -> None:
        raise ValueError("again")

    pauses = {"retry": {"backoff": "10m", "backoff_max": "10m"}}
    app = make_app(Workflow(name="w", edges=[(START, fail)]), config=pauses)
    assert (await app.invoke(**GO, deadline=60)).status == "queued"
    assert await app.recover() == ()
    clock.advance(61_000)
    (out,) = await app.recover()
    assert is_overdue(out)


async def test_an_owner_that_runs_stops_at_its_next_renewal(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    async def slow(node_input: Any) -> Any:
        ledger.add("in")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ledger.add("cancelled")
            raise

    app = make_app(Workflow(name="w", edges=[(START, slow)]), config={"lease": {"ttl": "3s"}})
    running = asyncio.create_task(app.invoke(**GO, deadline=60))
    while not ledger.rows():
        await asyncio.sleep(0.01)
    clock.advance(61_000)
    out = await running
    assert is_overdue(out)
    assert ledger.rows() == [("in",), ("cancelled",)]
    kinds = [(one.kind, one.status) for one in await app.executions.activities("x")]
    assert ("node", "completed") not in kinds
    assert ("node", "failed") not in kinds


async def test_rivals_end_it_once(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    apps = [make_app(desk(ledger)) for _ in range(4)]
    await apps[0].invoke(**GO, deadline=60)
    clock.advance(61_000)
    found = await asyncio.gather(*(app.recover() for app in apps))
    assert [is_overdue(out) for outs in found for out in outs] == [True]


BAD = [0, -1, "soon", True, [], float("nan"), dt.datetime(2030, 1, 1), dt.timedelta()]  # noqa: DTZ001


@pytest.mark.parametrize("deadline", BAD, ids=str)
async def test_a_bad_deadline_is_refused(
    make_app: Callable[..., App], ledger: Ledger, deadline: Any
) -> None:
    app = make_app(desk(ledger))
    with pytest.raises(ConfigError, match="deadline"):
        await app.invoke(user_id="u", message="go", deadline=deadline)
    with pytest.raises(ConfigError, match="deadline"):
        await app.submit(user_id="u", message="go", deadline=deadline)


MAY_HAVE = "at position 1|agent#1/:m1.0|1|tool|1 was entered and left no result: its effect may"


def is_told_of_doubt(out: Any) -> bool:
    """That nobody knows whether the first tool call happened, and where that call stands."""
    return (
        f"charge {MAY_HAVE} have happened" in out.error.message
        and out.error.position == "1|agent#1/:m1.0|1|tool|1"
        and out.error.remedy.startswith("Find out whether it happened")
    )


def charger(ledger: Ledger, policy: Any) -> LlmAgent:
    @durable_tool(on_unknown_outcome=policy)
    async def charge() -> None:
        """Charge a card, slowly."""
        ledger.add("charge")
        await asyncio.Event().wait()

    script = [calls(("charge", {})), says("done")]
    return LlmAgent(name="desk", model=ScriptedModel(script=script), tools=[charge])


@pytest.mark.parametrize("how", ["deadline", "cancel"])
@pytest.mark.parametrize("policy", ["fail", "ask", "rerun"])
async def test_a_body_that_must_not_run_twice_and_is_cut_off_is_named(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, policy: str, how: str
) -> None:
    app = make_app(charger(ledger, policy), config={"lease": {"ttl": "3s"}})
    running = asyncio.create_task(app.invoke(**GO, deadline=60))
    while not ledger.rows():
        await asyncio.sleep(0.01)
    if how == "deadline":
        clock.advance(61_000)
    else:
        await app.cancel("x", "enough")
    out = await running
    said = "its deadline has passed" if how == "deadline" else "enough"
    assert (out.status, is_overdue(out)) == (
        ("failed", True) if how == "deadline" else ("cancelled", False)
    )
    if policy == "rerun":
        assert (out.error.message, out.error.position) == (said, None)
    else:
        assert out.error.message.startswith(f"{said}; charge at position ")
        assert is_told_of_doubt(out), out.error
    assert (await app.executions.get("x")).error == out.error
    assert ledger.rows() == [("charge",)]


@pytest.mark.parametrize("asked", [False, True])
async def test_one_that_a_dead_owner_entered_is_named_too(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, asked: bool
) -> None:
    root = charger(ledger, "ask")
    dies = FaultPlan().fail("in tool:charge", Died())
    with pytest.raises(Died):
        await make_app(root, faults=dies).invoke(**GO, deadline="1h")
    app = make_app(root)
    if asked:
        clock.advance(LEASE_PASSED_MS)
        assert [out.status for out in await app.recover()] == ["suspended"]
    clock.advance(HOUR_MS)
    (out,) = await app.recover()
    assert is_overdue(out) and is_told_of_doubt(out), out.error


async def test_one_that_a_timeout_cut_off_in_the_last_attempt_is_named_too(
    make_app: Callable[..., App], ledger: Ledger
) -> None:
    @durable_tool(on_unknown_outcome="fail")
    async def charge() -> None:
        await asyncio.Event().wait()

    async def lead(node_input: Any) -> None:
        await durable_adk.step("charge", charge)

    node = FunctionNode(func=lead, name="lead", timeout=2.0)
    root = Workflow(name="w", edges=[(START, node)])
    out = await make_app(root, config={"retry": {"max_attempts": 1}}).invoke(**GO)
    assert (out.status, out.error.type) == ("failed", "NodeTimeoutError")
    at = "1|agent#1/lead#1|1|step|1|charge"
    assert f"charge at position {at} was entered and left no result" in out.error.message
    assert out.error.position == at
