"""``end_invocation``: who ended an agent's run has ended it for every later attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.workflow import START, Workflow

from durable_adk.adk.scripted_model import calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import agent
from tests.faults.differences import differences
from tests.shapes.composite import end_of
from tests.shapes.test_shapes import calls_of
from tests.shapes.workflows import question
from tests.support.lives import Case, Ledger, World

pytestmark = pytest.mark.timeout(300)


def end(context: Any) -> None:
    context._invocation_context.end_invocation = True  # as ADK's own pages do it


def stopping(ledger: Ledger, by: str = "tool") -> Workflow:
    """An agent whose run is ended after its first call; then a question, then a last node."""

    def stop(q: str, tool_context: Any) -> str:
        """Do the last thing."""
        ledger.add("tool", "stop", q)
        if by in ("tool", "failed tool"):
            end(tool_context)
        if by == "failed tool":
            raise ValueError("no more")
        return q

    def after_tool(tool_context: Any, **_: Any) -> None:
        end(tool_context)

    hooks: dict[str, dict[str, Any]] = {
        "tool": {},
        "failed tool": {"on_tool_error_callback": lambda **_: {"error": "no more"}},
        "after_tool": {"after_tool_callback": after_tool},
    }
    script = [calls(("stop", {"q": "a"})), says("went on")]
    worker = agent(ledger, "worker", *script, tools=[stop], **hooks[by])
    ask = question(ledger)
    return Workflow(name="flow", edges=[(START, worker), (worker, ask), (ask, end_of(ledger))])


@pytest.mark.parametrize("mode", ["restore", "walk"])
def test_a_run_that_a_tool_ended_stays_ended_wherever_the_process_dies(
    mode: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    case = Case(build=stopping)
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    undisturbed = world.live(case)
    assert undisturbed.status == ["completed"]
    assert undisturbed.ledger["model", "worker", 0] == 1
    assert undisturbed.ledger["model", "worker", 1] == 0
    points = calls_of(undisturbed)
    assert len(points) > 4
    for attempt, point in points[:: 2 if mode == "walk" else 1]:
        life = world.live(case, kill=(attempt, point))
        assert differences(case, undisturbed, life, point[0]) == []


@pytest.mark.parametrize("by", ["tool", "failed tool", "after_tool"])
async def test_whoever_ended_the_run_has_ended_it_when_it_is_walked_again(
    make_app: Any, ledger: Ledger, by: str
) -> None:
    app = make_app(stopping(ledger, by), mode="walk")
    out = await app.invoke(user_id="u", session_id="s", message="go")
    out = await app.resume(out.execution_id, approve(out))
    assert out.status == "completed", out.error
    assert [row for row in ledger.rows() if row[0] == "model"] == [("model", "worker", 0)]
