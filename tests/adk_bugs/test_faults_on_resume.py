"""What plain ADK repeats, loses or runs too early when a run that waited goes on.

Each fails once ADK has fixed it: then the remedy that has it as its proof can go.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import LlmAgent, LoopAgent, SequentialAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.events import Event, RequestInput
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow
from google.adk.workflow.utils._replay_sequence_barrier import ReplaySequenceBarrier
from google.genai import types

from durable_adk.adk.scripted_model import calls, says
from tests.adapter.stock import Stock, agent, confirmed, user

pytestmark = pytest.mark.usefixtures("inert")


def payer(name: str, ledger: list[str], **fields: Any) -> LlmAgent:
    """Pays when a person has agreed, in one turn."""

    def pay(cents: int) -> str:
        """Pay."""
        ledger.append(f"{name} pays")
        return "paid"

    script = [calls(("pay", {"cents": 1})), says(f"{name} done")]
    return agent(name, *script, description=name, tools=[confirmed(pay)], **fields)


def noting(name: str, ledger: list[str]) -> Any:
    def note(node_input: Any) -> str:
        ledger.append(name)
        return name

    note.__name__ = name
    return note


def texts(events: list[Event]) -> list[str]:
    parts = [part for e in events if e.content for part in e.content.parts or ()]
    return [part.text for part in parts if part.text]


async def answer(stock: Stock, invocation_id: str | None = None) -> None:
    """Agree to what was asked last, by a message."""
    call, _asked = stock.open_calls()[-1]
    message = types.Content(role="user", parts=[stock.reply(call)])
    await stock.run(message, invocation_id)


async def answer_event(stock: Stock, invocation_id: str) -> None:
    """Agree to what was asked last, by an event in its branch, and resume."""
    call, asked = stock.open_calls()[-1]
    event = Event(
        invocation_id=invocation_id,
        author="user",
        branch=asked.branch,
        content=types.Content(role="user", parts=[stock.reply(call)]),
    )
    await stock.service.append_event(await stock.session(), event)
    await stock.run(None, invocation_id)


async def test_an_answer_becomes_the_output_of_a_sequence_in_a_workflow() -> None:
    ledger: list[str] = []
    sequence = SequentialAgent(name="seq", sub_agents=[payer("first", ledger)])
    after = noting("after", ledger)
    stock = Stock(Workflow(name="flow", edges=[(START, sequence), (sequence, after)]))
    await stock.run(user("go"), "e1")
    assert ledger == []
    await answer_event(stock, "e1")
    assert ledger == ["after"]


async def test_the_rest_of_a_sequence_never_runs_after_an_answer() -> None:
    ledger: list[str] = []
    tail = agent("tail", says("the rest"))
    stock = Stock(SequentialAgent(name="seq", sub_agents=[payer("first", ledger), tail]))
    await stock.run(user("go"), "e1")
    await answer(stock, "e1")
    assert ledger == ["first pays"]
    assert "the rest" not in texts(stock.events)


async def test_a_sequence_cannot_be_resumed_without_a_message() -> None:
    ledger: list[str] = []
    stock = Stock(SequentialAgent(name="seq", sub_agents=[payer("first", ledger)]))
    await stock.run(user("go"), "e1")
    with pytest.raises(ValueError, match="new_message"):
        await answer_event(stock, "e1")
    assert ledger == []


async def test_a_resumable_app_of_a_sequence_refuses_an_invocation_id_of_ones_own() -> None:
    root = SequentialAgent(name="seq", sub_agents=[agent("first", says("hello"))])
    resumable = ResumabilityConfig(is_resumable=True)
    stock = Stock(App(name="t", root_agent=root, resumability_config=resumable))
    with pytest.raises(ValueError, match="no events to resume"):
        await stock.run(user("go"), "e1")


def asking(name: str, interrupt_id: str, schema: Any = None) -> FunctionNode:
    """A node that asks, and whose output is the answer."""

    async def ask(ctx: Any, node_input: Any) -> Any:
        if interrupt_id in ctx.resume_inputs:
            yield f"{name}: {ctx.resume_inputs[interrupt_id]}"
            return
        yield RequestInput(interrupt_id=interrupt_id, message="?", response_schema=schema)

    return FunctionNode(func=ask, name=name, rerun_on_resume=True)


async def give(stock: Stock, value: str, branch: str | None = None) -> None:
    """Answer ``q`` by an event in a branch."""
    response = {"result": value}
    named = types.FunctionResponse(id="q", name="adk_request_input", response=response)
    event = Event(
        invocation_id="e1",
        author="user",
        branch=branch,
        content=types.Content(role="user", parts=[types.Part(function_response=named)]),
    )
    await stock.service.append_event(await stock.session(), event)


async def test_an_answer_that_breaks_its_schema_ends_the_run_for_good() -> None:
    stock = Stock(Workflow(name="flow", edges=[(START, asking("a", "q", int))]))
    await stock.run(user("go"), "e1")
    for value in ("none", "5"):
        await give(stock, value)
        with pytest.raises(Exception, match="coerce data to integer"):
            await stock.run(None, "e1")


async def test_of_two_waits_with_one_id_one_is_never_answered() -> None:
    stock = Stock(Workflow(name="flow", edges=[(START, (asking("a", "q"), asking("b", "q")))]))
    await stock.run(user("go"), "e1")
    branches = [e.branch for e in stock.events if e.get_function_calls()]
    assert len(set(branches)) == 2
    for branch in branches:
        await give(stock, "yes", branch)
    await stock.run(None, "e1")
    assert len([event.output for event in stock.events if event.output]) == 1


async def test_a_loop_counts_its_rounds_from_the_start_after_a_wait() -> None:
    ledger: list[str] = []
    worker = payer("worker", ledger)

    def choose(request: Any, turn: int) -> Any:
        has_paid = any(part.function_response for part in request.contents[-1].parts)
        return says("round") if has_paid else calls(("pay", {"cents": 1}))

    model: Any = worker.model
    model.script = choose
    loop = LoopAgent(name="loop", max_iterations=2, sub_agents=[worker], rerun_on_resume=True)
    stock = Stock(Workflow(name="flow", edges=[(START, loop)]))
    await stock.run(user("go"), "e1")
    for _ in range(4):
        await answer_event(stock, "e1")
    assert len(ledger) > 2


async def test_a_finished_branch_fails_a_run_whose_approved_tool_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReplaySequenceBarrier.__init__, "__defaults__", (0.05,))  # not 15 s

    async def slow_pay(cents: int) -> str:
        """Pay."""
        await asyncio.sleep(0.5)
        return "paid"

    script = [calls(("slow_pay", {"cents": 1})), says("done")]
    slow = agent("slow", *script, tools=[confirmed(slow_pay)])

    def look() -> str:
        """Look something up."""
        return "found"

    quick = agent("quick", calls(("look", {})), says("quick done"), tools=[look])
    join = JoinNode(name="join")
    parts = (slow, quick)
    stock = Stock(Workflow(name="flow", edges=[(START, parts), (parts, join)]))
    await stock.run(user("go"), "e1")
    with pytest.raises(Exception, match="Replay divergence"):
        await answer_event(stock, "e1")


async def test_the_next_node_runs_before_an_answer_below_a_tool_is_there() -> None:
    ledger: list[str] = []
    inner = payer("inner", ledger, mode="single_turn")
    root = agent("root", calls(("inner", {"request": "x"})), says("done"), sub_agents=[inner])
    after = noting("after", ledger)
    stock = Stock(Workflow(name="flow", edges=[(START, root), (root, after)]))
    await stock.run(user("go"), "e1")
    assert len(stock.open_calls()) == 1, "it asks"
    assert ledger == ["after"], "and the next node has run already"


async def test_a_model_no_longer_sees_the_input_of_its_node_after_a_wait() -> None:
    """Not mended: a durable run shows the model what plain ADK shows it."""
    ledger: list[str] = []
    seen: list[list[str]] = []

    def look(callback_context: Any, llm_request: Any) -> None:
        parts = [p for c in llm_request.contents for p in c.parts or ()]
        seen.append([p.text for p in parts if p.text])

    def first(node_input: Any) -> str:
        return "THE INPUT"

    worker = payer("worker", ledger, before_model_callback=look)
    stock = Stock(Workflow(name="flow", edges=[(START, first), (first, worker)]))
    await stock.run(user("go"), "e1")
    await answer_event(stock, "e1")
    assert ledger == ["worker pays"]
    assert ["THE INPUT" in texts for texts in seen] == [True, False]


async def test_a_handover_inside_a_pipeline_node_fails_the_resumed_run() -> None:
    ledger: list[str] = []
    lower = payer("lower", ledger)
    move = calls(("transfer_to_agent", {"agent_name": "lower"}))
    upper = agent("upper", move, sub_agents=[lower])
    pipeline = SequentialAgent(name="pipeline", sub_agents=[upper])
    stock = Stock(Workflow(name="flow", edges=[(START, pipeline)]))
    await stock.run(user("go"))
    with pytest.raises(ValueError, match="Cannot transfer from 'pipeline' to unrelated agent"):
        await answer(stock)
    assert ledger == []
