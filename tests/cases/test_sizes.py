"""Row D3: large results, wide frontiers, long steps: they work, or one clear error says why not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk import NotStorable, step
from durable_adk.adk.scripted_model import calls, says
from durable_adk.testing import FaultPlan
from tests.faults.catalogue import agent
from tests.support.lives import Ledger

MB = 1_000_000


def making(ledger: Ledger, *sizes: int) -> LlmAgent:
    async def make(size: int) -> str:
        """Make a text."""
        ledger.add("tool", size)
        return "x" * size

    asked = calls(*(("make", {"size": size}) for size in sizes))
    return agent(ledger, "root", asked, says("done"), tools=[make])


def results_of(out: Any) -> list[str]:
    return [r.response["result"] for event in out.events for r in event.get_function_responses()]


@pytest.mark.parametrize("sizes", [(15_900_000, 16 * MB, 17 * MB), (60 * MB,)])
async def test_results_around_and_above_the_document_limit_come_back(
    make_app: Any, ledger: Ledger, sizes: tuple[int, ...]
) -> None:
    out = await make_app(making(ledger, *sizes)).invoke(user_id="u", message="go", execution_id="e")
    assert out.status == "completed", out.error
    there = await make_app(making(ledger, *sizes)).executions.outcome("e")
    assert results_of(there) == results_of(out) == ["x" * size for size in sizes]


async def test_a_result_above_the_limit_is_the_failure_of_its_call_and_nothing_is_half_there(
    make_app: Any, ledger: Ledger
) -> None:
    config = {"payload": {"max": "64KB"}}
    app = make_app(making(ledger, 10, 65_536), config=config)
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    assert out.status == "failed"
    assert out.error.type == "NotStorable"
    assert "make result: has 65549 bytes, and payload.max is 65536" in out.error.message
    assert "payload.max" in out.error.remedy
    found = await app.executions.activities("e")
    assert [(one.kind, one.status) for one in found] == [
        ("model", "completed"),
        ("tool", "completed"),
        ("tool", "failed"),
    ]
    again = await app.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    assert (again.status, len(ledger.rows())) == ("failed", 3)  # a model and two tools
    with pytest.raises(NotStorable, match=r"input: has \d+ bytes, and payload\.max is 65536"):
        await app.invoke(user_id="u", session_id="new", message="x" * 70_000)
    with pytest.raises(NotStorable, match=r"state: has \d+ bytes"):
        await app.sessions.create("u", "new", state={"k": "x" * 70_000})
    assert [one.id for one in (await app.sessions.list(user_id="u")).items] == ["s"]


async def test_a_failure_for_its_size_can_be_handled(make_app: Any, ledger: Ledger) -> None:
    root = making(ledger, 70_000)
    root.on_tool_error_callback = lambda tool, args, tool_context, error: {
        "result": type(error).__name__
    }
    app = make_app(root, config={"payload": {"max": "64KB"}})
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, results_of(out)) == ("completed", ["NotStorable"])


def failing(ledger: Ledger, text: str) -> LlmAgent:
    async def make() -> str:
        """Fail with a long text."""
        ledger.add("tool")
        raise ValueError(text)

    return agent(ledger, "root", calls(("make", {})), says("done"), tools=[make])


@pytest.mark.parametrize(("most", "size", "attempts"), [("1MB", 2 * MB, 2), ("64MB", 17 * MB, 1)])
async def test_a_failure_above_the_document_limit_is_one_like_any_other(
    make_app: Any, ledger: Ledger, clock: Any, most: str, size: int, attempts: int
) -> None:
    config = {"payload": {"max": most}, "retry": {"max_attempts": attempts}}
    app = make_app(failing(ledger, "x" * size), config=config)
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    if attempts > 1:
        assert out.status == "queued"
        clock.advance(120_000)
        (out,) = await app.recover()
    shown = f"{'x' * 9_940}... ({size - 9_940} more characters are left out)"
    assert out.error.position.endswith("|tool|1")
    assert (out.status, out.error.type, out.error.message) == ("failed", "ValueError", shown)
    assert [row[0] for row in ledger.rows()].count("tool") == attempts
    found = await app.executions.activities("e")
    assert [(one.kind, one.status) for one in found][1:] == [("tool", "failed")]


async def test_a_large_failure_is_handled_the_same_before_and_after(
    make_app: Any, ledger: Ledger, clock: Any
) -> None:
    seen: list[str] = []

    def handle(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, str]:
        seen.append(f"{type(error).__name__} {error}")
        return {"result": str(len(str(error)))}

    def handling() -> LlmAgent:
        root = failing(ledger, "x" * 70_000)
        root.on_tool_error_callback = handle
        return root

    config = {"payload": {"max": "64KB"}}
    dying = make_app(
        handling(), config=config, faults=FaultPlan().fail("in model:root", Died(), at=2)
    )
    with pytest.raises(Died):
        await dying.invoke(user_id="u", message="go", execution_id="e")
    clock.advance(120_000)
    (out,) = await make_app(handling(), config=config).recover()
    assert (out.status, results_of(out)) == ("completed", [str(len(seen[0]) - len("ValueError "))])
    assert seen[0] == seen[1]
    assert len(seen[0]) < 11_000
    assert [row[0] for row in ledger.rows()].count("tool") == 1


class Died(BaseException):
    """The process is gone."""


async def test_200_waits_are_one_frontier(make_app: Any, ledger: Ledger) -> None:
    async def pay(order: int, note: str) -> int:
        """Pay."""
        ledger.add("pay", order)
        return order

    def root() -> LlmAgent:
        asked = calls(*(("pay", {"order": n, "note": "x" * 2_000}) for n in range(200)))
        tools = [FunctionTool(pay, require_confirmation=True)]
        return agent(ledger, "root", asked, says("done"), tools=tools)

    out = await make_app(root()).invoke(user_id="u", message="go", execution_id="e")
    assert (out.status, len(out.waits)) == ("suspended", 200)
    answers = {wait.id: {"confirmed": wait.tool_call.args["order"] % 2 == 0} for wait in out.waits}
    out = await make_app(root()).resume("e", answers)
    assert out.status == "completed", out.error
    paid = [row[1] for row in ledger.rows() if row[0] == "pay"]
    assert sorted(paid) == list(range(0, 200, 2))


async def test_5000_results_are_one_step(make_app: Any, ledger: Ledger) -> None:
    """Recorded calls of one node: 5,000 calls of one model response take ADK itself a minute."""

    def root() -> Workflow:
        async def many(node_input: Any) -> int:
            ledger.add("node", "many")
            found = await asyncio.gather(*(step("look", abs, -n) for n in range(5_000)))
            return sum(found)

        async def ask(node_input: Any) -> RequestInput:
            return RequestInput(interrupt_id="q", message=f"{node_input}?")

        first = FunctionNode(func=many, name="many")
        return Workflow(name="flow", edges=[(START, first), (first, FunctionNode(func=ask))])

    out = await make_app(root()).invoke(user_id="u", message="go", execution_id="e")
    assert out.status == "suspended", out.error
    app = make_app(root(), mode="walk")
    out = await app.resume("e", {wait.id: "yes" for wait in out.waits})
    assert out.status == "completed", out.error
    found = await app.executions.activities("e")
    assert sum(one.kind == "step" for one in found) == 5_000
    assert ledger.rows() == [("node", "many")]
