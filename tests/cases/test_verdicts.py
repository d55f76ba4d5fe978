"""A predicate that decides about a confirmation anew: what its first verdict led to stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, Workflow, node

from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import agent
from tests.faults.differences import differences
from tests.shapes.composite import end_of
from tests.shapes.workflows import question
from tests.support.lives import Case, Ledger, World, points_of

pytestmark = pytest.mark.timeout(300)


class Limit:
    """A predicate whose verdict is what it says now."""

    def __init__(self, asks: bool) -> None:
        self.asks = asks

    def __call__(self, amount: int = 0) -> bool:
        return self.asks


def paying(ledger: Ledger, limit: Any) -> Any:
    def pay(amount: int) -> dict[str, int]:
        """Pay."""
        ledger.add("tool", "pay", amount)
        return {"paid": amount}

    tools = [FunctionTool(pay, require_confirmation=limit)]
    return agent(ledger, "root", calls(("pay", {"amount": 1})), says("done"), tools=tools)


def as_node(ledger: Ledger, limit: Any) -> Workflow:
    def first(node_input: Any) -> dict[str, int]:
        return {"amount": 1}

    def pay(amount: int) -> dict[str, int]:
        """Pay."""
        ledger.add("tool", "pay", amount)
        return {"paid": amount}

    def last(node_input: Any) -> str:
        return str(node_input)

    tool = node(FunctionTool(pay, require_confirmation=limit))
    return Workflow(name="flow", edges=[(START, first), (first, tool), (tool, last)])


def paid(ledger: Ledger) -> int:
    return sum(row[:2] == ("tool", "pay") for row in ledger.rows())


@pytest.mark.parametrize("confirmed", [True, False])
@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("build", [paying, as_node])
async def test_a_call_that_was_held_back_stays_so_whatever_the_predicate_says_later(
    make_app: Any, ledger: Ledger, build: Any, mode: str, confirmed: bool
) -> None:
    limit = Limit(asks=True)
    app = make_app(build(ledger, limit), mode=mode)
    out = await app.invoke(user_id="u", message="go")
    assert out.status == "suspended"
    limit.asks = False
    out = await app.resume(out.execution_id, {out.waits[0].id: {"confirmed": confirmed}})
    assert out.status == "completed", out.error
    assert paid(ledger) == confirmed


@pytest.mark.parametrize("mode", ["restore", "walk"])
def test_a_call_that_ran_is_not_asked_about_by_a_later_attempt(
    mode: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    def build(ledger: Ledger) -> Workflow:
        root = paying(ledger, lambda amount: paid(ledger) > 0)  # the budget is used up
        ask = question(ledger)
        return Workflow(name="flow", edges=[(START, root), (root, ask), (ask, end_of(ledger))])

    case = Case(build=build)
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    undisturbed = world.live(case)
    assert (undisturbed.status, undisturbed.asked[0][0]) == (["completed"], "adk_request_input")
    reached = undisturbed.reached[0]
    recorded = reached.index("after: outcomes are recorded", reached.index("ran: tool pay"))
    points = [point for point in points_of(reached)[recorded:] if point[0][:3] in ("ran", "aft")]
    assert len(points) > 2
    for point in points[::2]:
        life = world.live(case, kill=(1, point))
        assert differences(case, undisturbed, life, point[0]) == []
