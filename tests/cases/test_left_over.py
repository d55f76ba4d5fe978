"""What the open step has on record and the code asks for no more.

Nothing tells a name that was changed after a crash from a fallback that is not needed this time:
of what a timeout cut off before nothing is on record. So it is no mismatch, and it is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.adk.events import RequestInput
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk import step
from durable_adk.testing import FaultPlan
from tests.cases.conftest import approve
from tests.support.lives import LEASE_PASSED_MS, Ledger

AT = "1|agent#1/lead#1"


class Died(BaseException):
    """The process ends here."""


async def ask(ctx: Any, node_input: Any) -> Any:
    if "q" in ctx.resume_inputs:
        yield "answered"
        return
    yield RequestInput(interrupt_id="q", message="?")


ASK = FunctionNode(func=ask, name="ask", rerun_on_resume=True)


def flow(lead: Callable[..., Any], *after: FunctionNode) -> Workflow:
    leader = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, leader, *after)])


def falls_back(
    ledger: Ledger, look: Callable[[], Awaitable[Any]], within: float, *, asks: str
) -> Workflow:
    async def lead(ctx: Any, node_input: Any) -> str:
        try:
            async with asyncio.timeout(within):
                await step("look", look)
        except TimeoutError:
            await step("fall back", ledger.add, "fallback")
        await step("next", ledger.add, "next")
        return await ctx.run_node(ASK) if asks == "inside" else "done"

    return flow(lead, *([] if asks == "inside" else [ASK]))


def pays(ledger: Ledger, name: str, kind: str) -> Workflow:
    def pay(node_input: Any = None) -> None:
        ledger.add("pay")

    async def lead(ctx: Any, node_input: Any) -> str:
        if kind == "step":
            await step(name, pay)
        else:
            await ctx.run_node(FunctionNode(func=pay, name=name))
        await step("next", ledger.add, "next")
        return "done"

    return flow(lead, ASK)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [r.getMessage() for r in caplog.records if r.name == "durable_adk.engine"]
    return [text for text in said if "asked for by nothing that ran" in text]


async def dies_before_next(make_app: Any, clock: Any, root: Workflow) -> None:
    dies = FaultPlan().fail("in step:next", Died())
    with pytest.raises(Died):
        await make_app(root, faults=dies).invoke(user_id="u", message="go", execution_id="x")
    clock.advance(LEASE_PASSED_MS)


@pytest.mark.parametrize("asks", ["after it", "inside"])
@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_fallback_that_is_not_needed_this_time_is_no_changed_code(
    make_app: Any, ledger: Ledger, clock: Any, caplog: Any, mode: str, asks: str
) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    async def looks() -> None:
        ledger.add("look")

    await dies_before_next(make_app, clock, falls_back(ledger, hangs, 0.2, asks=asks))
    with caplog.at_level(logging.WARNING, "durable_adk.engine"):
        app = make_app(falls_back(ledger, looks, 60, asks=asks), mode=mode)
        (out,) = await app.recover()
    assert out.status == "suspended", out.error
    assert [text for text in told(caplog) if f"{AT}|1|step|1|fall back" in text]
    report = await app.executions.replay("x")
    assert report.ok, report
    out = await app.resume("x", approve(out))
    assert (out.status, out.output) == ("completed", "answered"), out.error
    assert (await app.executions.replay("x")).ok
    assert ledger.rows() == [("fallback",), ("look",), ("next",)]
    done = [(a.name, a.status) for a in await app.executions.activities("x") if a.kind == "step"]
    assert done == [("fall back", "completed"), ("look", "completed"), ("next", "completed")]


@pytest.mark.parametrize("kind", ["step", "node"])
async def test_one_that_was_renamed_after_a_crash_is_told_of(
    make_app: Any, ledger: Ledger, clock: Any, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    await dies_before_next(make_app, clock, pays(ledger, "pay", kind))
    with caplog.at_level(logging.WARNING, "durable_adk.engine"):
        (out,) = await make_app(pays(ledger, "charge", kind)).recover()
    assert out.status == "suspended", out.error
    at = f"{AT}|1|step|1|pay" if kind == "step" else f"{AT}/pay#1|1|node|1"
    (text,) = told(caplog)
    assert f"pay at position {at}" in text and "execution x" in text
    assert ledger.rows().count(("pay",)) == 2, "under its new name it is another call"


@pytest.mark.parametrize("kind", ["step", "node"])
async def test_nothing_is_told_where_all_is_asked_for(
    make_app: Any, ledger: Ledger, clock: Any, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    root = pays(ledger, "pay", kind)
    await dies_before_next(make_app, clock, root)
    with caplog.at_level(logging.WARNING, "durable_adk.engine"):
        (out,) = await make_app(root).recover()
        await make_app(root).resume("x", approve(out))
    assert (told(caplog), ledger.rows().count(("pay",))) == ([], 1)
