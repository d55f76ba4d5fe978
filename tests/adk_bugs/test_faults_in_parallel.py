"""What plain ADK gets wrong when two things happen at once. Tools take a moment: with instant ones
it looks right."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.events import Event
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from durable_adk.adk.scripted_model import calls, says
from tests.adapter.stock import Stock, agent, confirmed, user

pytestmark = pytest.mark.usefixtures("inert")


async def agree(stock: Stock, invocation_id: str) -> None:
    """Agree to all that is open: one event for each branch, then resume."""
    session = await stock.session()
    answered = {r.id for e in session.events for r in e.get_function_responses()}
    asked = [(call, event) for call, event in stock.open_calls() if call.id not in answered]
    branches: dict[Any, list[Any]] = {}
    for call, event in asked:
        branches.setdefault((event.branch, event.isolation_scope), []).append(stock.reply(call))
    for (branch, isolation_scope), parts in branches.items():
        answers = Event(
            invocation_id=invocation_id,
            author="user",
            branch=branch,
            isolation_scope=isolation_scope,
            content=types.Content(role="user", parts=parts),
        )
        await stock.service.append_event(session, answers)
    await stock.run(None, invocation_id)


async def test_a_tool_beside_one_that_asks_is_cancelled_and_runs_again() -> None:
    ledger: list[str] = []

    async def slow(q: str) -> str:
        """Take a moment."""
        ledger.append("slow begins")
        await asyncio.sleep(0.1)
        ledger.append("slow ends")
        return "slow"

    async def pay(cents: int) -> str:
        """Pay."""
        ledger.append("pay")
        return "paid"

    inner = agent(
        "inner",
        calls(("pay", {"cents": 1})),
        says("inner done"),
        description="inner",
        mode="single_turn",
        tools=[confirmed(pay)],
    )
    asked = calls(("inner", {"request": "x"}), ("slow", {"q": "side"}))
    root = agent("root", asked, says("done"), tools=[slow], sub_agents=[inner])
    stock = Stock(root)
    await stock.run(user("go"), "e1")
    await asyncio.sleep(0.15)
    assert ledger == ["slow begins"], "it was cancelled"
    await agree(stock, "e1")
    assert ledger.count("slow begins") == 2
    assert ledger.count("pay") == 1


async def test_two_approvals_of_runs_at_one_place_pay_four_times() -> None:
    ledger: list[str] = []

    async def pay(cents: int) -> str:
        """Pay."""
        await asyncio.sleep(0.05)
        ledger.append("pay")
        return "paid"

    async def work(order: str, tool_context: ToolContext) -> Any:
        """Work an order off."""
        script = [calls(("pay", {"cents": 1})), says("paid")]
        payer = agent("payer", *script, tools=[confirmed(pay)])
        return await tool_context.run_node(payer, node_input=order)

    asked = calls(("work", {"order": "a"}), ("work", {"order": "b"}))
    stock = Stock(agent("root", asked, says("done"), tools=[work]))
    await stock.run(user("go"), "e1")
    confirmations = [call for call, _ in stock.open_calls()]
    for _ in range(3):
        await agree(stock, "e1")
    assert (len(confirmations), ledger.count("pay")) == (2, 4)
