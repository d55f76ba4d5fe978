"""A node with a timeout that is run over records: what it left comes back in time, however long
others take to be replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.events import RequestInput
from google.adk.workflow import START, FunctionNode, JoinNode, RetryConfig, Workflow

from durable_adk import step
from durable_adk.adk.scripted_model import calls, says
from durable_adk.engine import handout
from durable_adk.testing import FaultPlan
from tests.adapter.stock import Stock, agent, user
from tests.cases.conftest import approve
from tests.support.lives import LEASE_PASSED_MS, Ledger

RETRY = RetryConfig(max_attempts=3, initial_delay=0.001, jitter=0)
PLENTY_S = 60.0


class Died(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is handed out of order because a hook takes its time."""
    monkeypatch.setattr(handout, "PATIENCE_S", PLENTY_S)


def hook(takes: float) -> Callable[..., Any]:
    async def before_tool(**_: Any) -> None:
        await asyncio.sleep(takes)

    return before_tool


async def ask(ctx: Any, node_input: Any) -> Any:
    if "q" in ctx.resume_inputs:
        yield "answered"
        return
    yield RequestInput(interrupt_id="q", message="?")


def beside_an_agent(ledger: Ledger, *, limit: float, takes: float, asks: bool) -> Workflow:
    """The limited node ends when the agent has called its tool; the hook of that takes long."""
    looked = asyncio.Event()

    def look(q: str) -> str:
        """Look."""
        looked.set()
        return q

    async def limited(node_input: Any) -> str:
        ledger.add("limited")
        await looked.wait()
        return "in time"

    def end(node_input: Any) -> str:
        ledger.add("end")
        return f"{sorted(node_input.items())}"

    one = FunctionNode(func=limited, name="limited", timeout=limit, retry_config=RETRY)
    script = calls(("look", {"q": "a"})), says("looked")
    other = agent(
        "other", *script, mode="single_turn", tools=[look], before_tool_callback=hook(takes)
    )
    join, last = JoinNode(name="join"), FunctionNode(func=end, name="end")
    if asks:
        last = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    edges: list[Any] = [(START, one), (START, other), (one, join), (other, join), (join, last)]
    return Workflow(name="flow", edges=edges)


async def plain(root: Workflow) -> Any:
    stock = Stock(root)
    await stock.run(user("go"))
    return stock.events[-1].output


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_an_outcome_that_waits_for_its_turn_is_in_time(
    make_app: Any, ledger: Ledger, clock: Any, mode: str
) -> None:
    dies = FaultPlan().fail("in node:end", Died())
    first = beside_an_agent(ledger, limit=PLENTY_S, takes=0, asks=False)
    with pytest.raises(Died):
        await make_app(first, faults=dies).invoke(user_id="u", message="go", execution_id="x")
    clock.advance(LEASE_PASSED_MS)
    app = make_app(beside_an_agent(ledger, limit=1.0, takes=1.2, asks=False), mode=mode)
    (out,) = await app.recover()
    assert (out.status, out.error) == ("completed", None)
    assert ledger.rows() == [("limited",), ("end",)]
    assert (await app.executions.replay("x")).ok
    assert out.output == await plain(
        beside_an_agent(Ledger(ledger.path.with_name("plain")), limit=9, takes=0, asks=False)
    )


async def test_nor_is_a_walk_after_an_answer_stuck(make_app: Any, ledger: Ledger) -> None:
    first = beside_an_agent(ledger, limit=PLENTY_S, takes=0, asks=True)
    out = await make_app(first).invoke(user_id="u", message="go", execution_id="x")
    later = make_app(beside_an_agent(ledger, limit=1.0, takes=1.2, asks=True), mode="walk")
    out = await later.resume("x", approve(out))
    assert (out.status, out.output) == ("completed", "answered"), out.error
    assert ledger.rows() == [("limited",)]


def limited_agent(ledger: Ledger, *, limit: float, takes: float) -> Workflow:
    """The hooks of the agent take longer than its timeout, all in all."""

    def look(q: str) -> str:
        """Look."""
        ledger.add("look", q)
        return q

    def end(node_input: Any) -> str:
        ledger.add("end")
        return f"end of {node_input}"

    script = [calls(("look", {"q": q})) for q in "abc"]
    worker = agent(
        "worker",
        *script,
        says("looked"),
        mode="single_turn",
        tools=[look],
        before_tool_callback=hook(takes),
        timeout=limit,
        retry_config=RETRY,
    )
    return Workflow(name="flow", edges=[(START, worker, FunctionNode(func=end, name="end"))])


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_an_agent_has_its_time_anew_with_each_outcome_that_comes_back(
    make_app: Any, ledger: Ledger, clock: Any, mode: str
) -> None:
    dies = FaultPlan().fail("in node:end", Died())
    with pytest.raises(Died):
        await make_app(limited_agent(ledger, limit=PLENTY_S, takes=0), faults=dies).invoke(
            user_id="u", message="go", execution_id="x"
        )
    clock.advance(LEASE_PASSED_MS)
    app = make_app(limited_agent(ledger, limit=1.6, takes=0.6), mode=mode)
    (out,) = await app.recover()
    assert (out.status, out.output) == ("completed", "end of looked"), out.error
    assert ledger.rows() == [("look", "a"), ("look", "b"), ("look", "c"), ("end",)]


def hangs_behind(ledger: Ledger, *, limit: float) -> Workflow:
    async def hangs_once() -> str:
        ledger.add("next")
        if len(ledger.rows()) < 3:
            await asyncio.Event().wait()
        return "in the end"

    async def work(node_input: Any) -> str:
        await step("before", ledger.add, "before")
        return await step("next", hangs_once)

    one = FunctionNode(func=work, name="work", timeout=limit, retry_config=RETRY)
    return Workflow(name="flow", edges=[(START, one)])


async def test_what_hangs_behind_an_outcome_that_came_back_is_still_cut_off(
    make_app: Any, ledger: Ledger, clock: Any
) -> None:
    dies = FaultPlan().fail("in step:next", Died())
    with pytest.raises(Died):
        await make_app(hangs_behind(ledger, limit=PLENTY_S), faults=dies).invoke(
            user_id="u", message="go", execution_id="x"
        )
    clock.advance(LEASE_PASSED_MS)
    (out,) = await make_app(hangs_behind(ledger, limit=1.2)).recover()
    assert (out.status, out.output) == ("completed", "in the end"), out.error
    assert ledger.rows() == [("before",), ("next",), ("before",), ("next",)]
