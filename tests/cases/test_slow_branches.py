"""A branch that goes on after an answer may take longer than the 15 s that ADK waits for it."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, JoinNode, Workflow
from google.adk.workflow.utils._replay_sequence_barrier import ReplaySequenceBarrier

from durable_adk import durable_tool
from durable_adk.adk.scope import bound
from durable_adk.adk.scripted_model import calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import Tools, agent
from tests.support.lives import Ledger

PATIENCE_S = 1.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplaySequenceBarrier.__init__, "__defaults__", (PATIENCE_S,))


def flow(ledger: Ledger) -> Workflow:
    @durable_tool(on_unknown_outcome="fail")
    async def pay(amount: int) -> dict[str, int]:
        """Pay, slowly."""
        ledger.add("tool", "pay", amount)
        await asyncio.sleep(3 * PATIENCE_S)
        return {"paid": amount}

    slow = agent(
        ledger,
        "slow",
        calls(("pay", {"amount": 1})),
        says("paid"),
        tools=[FunctionTool(pay, require_confirmation=True)],
    )
    look = Tools(ledger).look
    quick = agent(ledger, "quick", calls(("look", {"q": "1"})), says("looked"), tools=[look])
    join = JoinNode(name="join")
    return Workflow(name="flow", edges=[(START, (slow, quick)), ((slow, quick), join)])


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_an_approved_tool_beside_a_finished_branch_may_take_long(
    make_app: Any, ledger: Ledger, mode: str
) -> None:
    app = make_app(flow(ledger), mode=mode)
    out = await app.invoke(user_id="u", message="go")
    out = await app.resume(out.execution_id, approve(out))
    assert (out.status, out.error) == ("completed", None)
    assert ledger.rows().count(("tool", "pay", 1)) == 1


async def test_a_branch_that_never_comes_is_still_a_divergence() -> None:
    barrier = ReplaySequenceBarrier(["gone@1", "quick@1"])
    sleepers = SimpleNamespace(running=lambda _scope: nullcontext())
    idle: Any = SimpleNamespace(moves=0, still_in_flight=list, sleepers=sleepers)
    inside: Any = SimpleNamespace(stage=idle)
    with bound(inside), pytest.raises(Exception, match="Replay divergence"):
        await barrier.wait("quick@1")
