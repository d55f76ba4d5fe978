"""An agent that ran out of time and started over: what was cut off is not run again by a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.workflow import START, FunctionNode, RetryConfig, Workflow, node

from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import agent
from tests.faults.differences import differences
from tests.shapes.composite import end_of
from tests.shapes.test_shapes import calls_of
from tests.shapes.workflows import question
from tests.support.lives import Case, Ledger, World

pytestmark = pytest.mark.timeout(600)


RETRY = RetryConfig(max_attempts=3, initial_delay=0.001, jitter=0)


def hanging(ledger: Ledger) -> LlmAgent:
    """An agent whose tool takes too long the first time."""

    async def hang(q: str) -> str:
        """Take too long, once."""
        before = sum(row[:2] == ("tool", "hang") for row in ledger.rows())
        ledger.add("tool", "hang", before)
        if not before:
            await asyncio.sleep(5)
        return q

    return agent(ledger, "worker", calls(("hang", {"q": "a"})), says("in time"), tools=[hang])


def then_asks(ledger: Ledger, limited: Any) -> Workflow:
    ask = question(ledger)
    return Workflow(name="flow", edges=[(START, limited), (limited, ask), (ask, end_of(ledger))])


def starts_over(ledger: Ledger) -> Workflow:
    return then_asks(ledger, node(hanging(ledger), timeout=0.8, retry_config=RETRY))


@pytest.mark.parametrize("mode", ["restore", "walk"])
def test_what_a_timeout_cut_off_is_not_run_again_by_a_replay(
    mode: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    case = Case(build=starts_over, in_flight=2)
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    undisturbed = world.live(case)
    assert undisturbed.status == ["completed"]
    assert undisturbed.ledger["tool", "hang", 0] == undisturbed.ledger["tool", "hang", 1] == 1
    # Before something of the second entry is recorded, nobody knows that there was a first one.
    known = undisturbed.reached[0].index("ran: tool hang")
    points = [
        (attempt, point)
        for attempt, point in calls_of(undisturbed)
        if attempt > 1 or point in calls_after(undisturbed.reached[0], known)
    ]
    assert len(points) > 4
    for attempt, point in points[:: 2 if mode == "walk" else 1]:
        life = world.live(case, kill=(attempt, point))
        assert differences(case, undisturbed, life, point[0]) == []


def calls_after(reached: list[str], place: int) -> set[tuple[str, int]]:
    return {(name, reached[: i + 1].count(name)) for i, name in enumerate(reached) if i > place}


def in_a_sequence(ledger: Ledger) -> Workflow:
    inner = SequentialAgent(name="inner", sub_agents=[hanging(ledger)])
    return then_asks(ledger, node(inner, timeout=1.5, retry_config=RETRY))


def in_a_workflow(ledger: Ledger) -> Workflow:
    edges = [(START, hanging(ledger))]
    inner = Workflow(name="inner", edges=edges, timeout=1.5, retry_config=RETRY)
    return then_asks(ledger, inner)


def in_a_function(ledger: Ledger) -> Workflow:
    worker = hanging(ledger)

    async def outer(ctx: Any, node_input: Any) -> Any:
        yield await ctx.run_node(worker, node_input="go")

    inner = FunctionNode(
        func=outer, name="inner", rerun_on_resume=True, timeout=1.5, retry_config=RETRY
    )
    return then_asks(ledger, inner)


@pytest.mark.parametrize("build", [in_a_sequence, in_a_workflow, in_a_function])
def test_nor_is_what_was_cut_off_further_in(
    build: Callable[[Ledger], Workflow], replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    """The node with the timeout leaves no record of its own: what it ran the second time tells."""
    mode = "walk" if build is in_a_sequence else "restore"
    case = Case(build=build, in_flight=2)
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    undisturbed = world.live(case)
    assert undisturbed.status == ["completed"]
    assert undisturbed.ledger["tool", "hang", 0] == undisturbed.ledger["tool", "hang", 1] == 1
    point = ("ran: tool hang", 1)
    life = world.live(case, kill=(1, point))
    assert differences(case, undisturbed, life, point[0]) == []


def test_a_failure_on_record_is_no_timeout(
    replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    def build(ledger: Ledger) -> Workflow:
        def fails_once(node_input: Any) -> str:
            before = sum(row[:2] == ("node", "fails_once") for row in ledger.rows())
            ledger.add("node", "fails_once", before)
            if not before:
                raise ValueError("not yet")
            return "worked"

        limited = FunctionNode(func=fails_once, name="fails_once", timeout=60, retry_config=RETRY)
        return Workflow(name="flow", edges=[(START, limited), (limited, end_of(ledger))])

    case = Case(build=build)
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    undisturbed = world.live(case)
    assert [e["error_code"] for e in undisturbed.events if "error_code" in e] == ["ValueError"]
    point = ("ran: node end", 1)
    life = world.live(case, kill=(1, point))
    assert differences(case, undisturbed, life, point[0]) == []
