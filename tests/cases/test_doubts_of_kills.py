"""E1 and the table of promises: killed at every point of a tool under each policy, and asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from durable_adk import current_activity_id, durable_tool
from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import Tools, agent
from tests.faults.test_kills import differences
from tests.support.lives import Case, Ledger, World, default_answer, points_of


def payer(ledger: Ledger, policy: Any, **more: Any) -> Any:
    tools = Tools(ledger)

    @durable_tool(on_unknown_outcome=policy, **more)
    def pay_once(amount: int) -> dict[str, Any]:
        """Pay."""
        ledger.add("tool", "pay_once", current_activity_id(), amount)
        return {"paid": amount}

    return agent(
        ledger,
        "root",
        calls(("look", {"q": "a"})),
        calls(("pay_once", {"amount": 1})),
        says("done"),
        tools=[tools.look, pay_once],
    )


def answering(outcome: Mapping[str, Any]) -> Any:
    def answer(wait: Mapping[str, Any]) -> Any:
        return dict(outcome) if wait["kind"] == "in_doubt" else default_answer(wait)

    return answer


def paid(life: Any) -> list[tuple[Any, ...]]:
    return [row for row in life.ledger.elements() if row[:2] == ("tool", "pay_once")]


DONE = {"outcome": "done", "result": {"paid": 1}}
NOT_DONE = {"outcome": "not_done"}


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("truth", [True, False], ids=["told the truth", "told not done"])
def test_an_ask_tool_killed_anywhere_runs_once_and_is_asked_about(
    replica_set_uri: str, database: str, tmp_path: Path, mode: str, truth: bool
) -> None:
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)

    def build(ledger: Ledger) -> Any:
        return payer(ledger, "ask")

    undisturbed = world.live(Case(build=build))
    (reached,) = undisturbed.reached
    asked: set[str] = set()
    begin = reached.index("in: tool look")
    for point in points_of(reached)[begin:]:
        ran = any(name == "ran: tool pay_once" for name in reached[: reached.index(point[0])])
        case = Case(build=build, answer=answering(DONE if truth else NOT_DONE))
        life = world.live(case, kill=(1, point))
        rows = paid(life)
        assert life.status == ["completed"], point
        print(point, len(rows), life.waits, ran)
        assert len({row[2] for row in rows}) <= 1, "one idempotency key"
        if life.waits:
            asked.add(point[0])
