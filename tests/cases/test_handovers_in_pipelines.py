"""A pipeline that is a node of a Workflow, and whose agents hand over."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import SequentialAgent
from google.adk.apps import App as AdkApp
from google.adk.apps import ResumabilityConfig
from google.adk.workflow import START, Workflow

from durable_adk.adk.scripted_model import calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import agent
from tests.shapes.agents import move
from tests.shapes.composite import end_of, payer
from tests.shapes.workflows import question
from tests.support.lives import Ledger


def flow(ledger: Ledger, *, asks: bool) -> Workflow:
    lower = payer(ledger, "lower", 1, asks=asks)
    lower.description = "lower"
    upper = agent(ledger, "upper", move("lower"), sub_agents=[lower])
    last = agent(ledger, "last", says("last done"))
    pipeline = SequentialAgent(name="pipeline", sub_agents=[upper, last])
    ask = question(ledger)
    return Workflow(name="flow", edges=[(START, pipeline), (pipeline, ask), (ask, end_of(ledger))])


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("is_resumable", [False, True])
async def test_it_goes_on_where_it_was_handed_over_to_and_then_behind_it(
    make_app: Any, ledger: Ledger, is_resumable: bool, mode: str, asks: bool
) -> None:
    root: Any = flow(ledger, asks=asks)
    if is_resumable:
        config = ResumabilityConfig(is_resumable=True)
        root = AdkApp(name="cases", root_agent=root, resumability_config=config)
    app = make_app(root, mode=mode)
    out = await app.invoke(user_id="u", message="go")
    while out.status == "suspended":
        out = await app.resume(out.execution_id, approve(out))
    assert out.status == "completed", out.error
    order = [row[1] for row in ledger.rows() if row[0] in ("model", "tool")]
    assert order == ["upper", "lower", "slow", "lower", "pay", "lower", "last"]
    assert [row[1] for row in ledger.rows() if row[0] == "node"][-1] == "end"


async def test_nobody_hands_back_to_a_pipeline(make_app: Any, ledger: Ledger) -> None:
    """ADK's rule, as in plain ADK: only an ``LlmAgent`` is handed over to from below."""

    def go_back(tool_context: Any) -> str:
        """Hand back."""
        tool_context.actions.transfer_to_agent = "pipeline"
        return "back"

    first = agent(ledger, "first", calls(("go_back", {})), says("again"), tools=[go_back])
    root = SequentialAgent(name="pipeline", sub_agents=[first])
    app = make_app(root, config={"retry": {"max_attempts": 1}})
    out = await app.invoke(user_id="u", message="go")
    assert out.status == "failed"
    assert "is not allowed to transfer to agent pipeline" in out.error.message
