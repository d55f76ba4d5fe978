"""What plain ADK gets wrong with agents that call agents, and with what they stream."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, Workflow
from google.genai import types

from durable_adk.adk.scripted_model import calls, says
from tests.adapter.stock import Stock, agent, confirmed, user

pytestmark = pytest.mark.usefixtures("inert")


async def test_a_wait_inside_an_agent_tool_becomes_text_for_the_model() -> None:
    ledger: list[str] = []

    def pay(cents: int) -> str:
        """Pay."""
        ledger.append("pay")
        return "paid"

    script = [calls(("pay", {"cents": 1})), says("inner done")]
    inner = agent("inner", *script, description="inner", tools=[confirmed(pay)])
    asked = calls(("inner", {"request": "x"}))
    stock = Stock(agent("root", asked, says("done"), tools=[AgentTool(inner)]))
    await stock.run(user("go"), "e1")
    assert stock.open_calls() == [], "nobody is asked"
    responses = [r for event in stock.events for r in event.get_function_responses()]
    assert [r.name for r in responses] == ["inner"], "the model got an answer all the same"
    assert stock.events[-1].is_final_response()
    assert ledger == []


async def test_a_node_below_a_composite_root_has_no_queue() -> None:
    inner = agent("inner", says("inner done"), description="inner", mode="single_turn")
    asked = calls(("inner", {"request": "x"}))
    desk = agent("desk", asked, says("done"), sub_agents=[inner])
    stock = Stock(SequentialAgent(name="seq", sub_agents=[desk]))
    await stock.run(user("go"))
    responses = [r for event in stock.events for r in event.get_function_responses()]
    assert "_event_queue is not set" in str(responses[0].response), "an error text for the model"


async def test_a_single_turn_node_that_transfers_enters_the_target_twice() -> None:
    entered: list[str] = []

    def enter(callback_context: Any) -> None:
        entered.append(callback_context.agent_name)

    sub = agent("sub", says("hello"), description="sub", before_agent_callback=enter)
    move = calls(("transfer_to_agent", {"agent_name": "sub"}))
    root = agent("root", move, says("end"), sub_agents=[sub], mode="single_turn")
    stock = Stock(Workflow(name="flow", edges=[(START, root)]))
    await stock.run(user("go"), "e1")
    assert entered == ["sub", "sub"]


async def test_a_streamed_call_changes_its_id_between_partial_and_final() -> None:
    def look(q: str) -> str:
        """Look."""
        return q

    final = calls(("look", {"q": "a"}))
    partial = final.model_copy(update={"partial": True}, deep=True)
    root = agent("root", [partial, final], says("end"), tools=[look])
    stock = Stock(root)
    await stock.session()
    ids: dict[bool, Any] = {}
    run = stock.runner.run_async(
        user_id="u",
        session_id="s",
        new_message=user("go"),
        run_config=RunConfig(streaming_mode=StreamingMode.SSE),
    )
    async for event in run:
        for call in event.get_function_calls():
            ids[bool(event.partial)] = call.id
    assert set(ids) == {True, False}
    assert ids[True] != ids[False]


async def test_an_agent_that_asks_below_a_task_starts_over_for_ever() -> None:
    ledger: list[str] = []

    def look(q: str) -> str:
        """Look."""
        ledger.append("look")
        return q

    def pay(cents: int) -> str:
        """Pay."""
        ledger.append("pay")
        return "paid"

    def choose(request: Any, turn: int) -> Any:
        if len(ledger) > 8:
            return says("enough")
        return [calls(("look", {"q": "a"})), calls(("pay", {"cents": 1})), says("done")][
            min(turn, 2)
        ]

    inner = agent("inner", description="inner", mode="single_turn", tools=[look, confirmed(pay)])
    model: Any = inner.model
    model.script = choose
    asked = calls(("inner", {"request": "x"}))
    finish = calls(("finish_task", {"result": "ok"}))
    task = agent("task", asked, finish, description="task", mode="task", sub_agents=[inner])
    delegate = calls(("task", {"request": "x"}))
    stock = Stock(agent("root", delegate, says("end"), sub_agents=[task]))
    await stock.run(user("go"), "e1")
    [(call, event)] = stock.open_calls()
    answer = Event(
        invocation_id="e1",
        author="user",
        branch=event.branch,
        isolation_scope=event.isolation_scope,
        content=types.Content(role="user", parts=[stock.reply(call)]),
    )
    await stock.service.append_event(await stock.session(), answer)
    await stock.run(None, "e1")
    assert ledger.count("look") > 2
