"""A question that nobody waits for any more: the run that asked it failed, and its retry went on
to the end of the workflow."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, RetryConfig, Workflow

from durable_adk.adk.scripted_model import calls, says
from tests.adapter.stock import Stock, agent, user

RETRY = RetryConfig(max_attempts=3, initial_delay=0.001, jitter=0)


def asks_and_fails(*, is_last: bool) -> Workflow:
    """The first entry of the agent asks and fails; the second one does without the answer."""
    tried: list[str] = []

    def later(q: str) -> None:
        """Answered some time."""

    def plain(q: str) -> str:
        """Keep the agent going."""
        return q

    def flaky(q: str) -> str:
        """Fail."""
        raise ValueError("once")

    def reply(_request: Any, _turn: int) -> Any:
        tried.append("model")
        match len(tried):
            case 1:
                return calls(("later", {"q": "?"}), ("plain", {"q": "a"}))
            case 2:
                return calls(("flaky", {"q": "b"}))
        return says("did without")

    tools = [LongRunningFunctionTool(later), plain, flaky]
    worker = agent("worker", tools=tools, mode="single_turn", retry_config=RETRY)
    worker.model.script = reply  # type: ignore[union-attr]
    end = FunctionNode(func=lambda node_input: f"end of {node_input}", name="end")
    beside = FunctionNode(func=lambda node_input: "beside", name="beside")
    last = JoinNode(name="join") if is_last else end
    edges: list[Any] = [(START, worker, last)]
    return Workflow(name="flow", edges=[*edges, (START, beside, last)] if is_last else edges)


@pytest.mark.parametrize("is_last", [False, True], ids=["one path", "joined"])
@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_its_answer_leaves_the_output_as_it_was(
    make_app: Any, mode: str, is_last: bool
) -> None:
    stock = Stock(asks_and_fails(is_last=is_last))
    await stock.run(user("go"))
    (plain,) = [e.output for e in stock.events if "flow@1" in (e.node_info.output_for or ())]
    assert plain

    app = make_app(asks_and_fails(is_last=is_last), mode=mode)
    out = await app.invoke(user_id="u", message="go")
    assert out.status == "suspended", out.error
    (wait,) = out.waits
    after = make_app(asks_and_fails(is_last=is_last), mode=mode)
    out = await after.resume(out.execution_id, {wait.id: "too late"})
    assert (out.status, out.error) == ("completed", None)
    assert (out.output, out.response) == (plain, "did without")
    report = await after.executions.replay(out.execution_id)
    assert report.ok, report.difference
