"""Faults of stock ADK that the adapter makes right: each fails once ADK has fixed it.

Then its remedy can go: see the module named in each docstring.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.events import Event, RequestInput
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow
from google.genai import types

from durable_adk.adk.scripted_model import calls, says
from tests.adapter.stock import Stock, agent, confirmed, user

pytestmark = pytest.mark.usefixtures("inert")


def flow_with_two_branches(ledger: list[str]) -> Workflow:
    def pay(cents: int) -> str:
        """Pay."""
        ledger.append("pay")
        return "paid"

    async def ask(ctx: Any, node_input: Any) -> Any:
        if "q1" in ctx.resume_inputs:
            yield "answered"
            return
        yield RequestInput(interrupt_id="q1", message="which?")

    def plain(node_input: Any) -> None:
        ledger.append("plain")

    payer = agent("payer", calls(("pay", {"cents": 5})), says("done"), tools=[confirmed(pay)])
    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    join = JoinNode(name="joined")
    parts = (payer, asker, plain)
    return Workflow(name="flow", edges=[(START, parts), (parts, join)])


async def test_answers_of_two_branches_in_one_message_lose_one() -> None:
    """Remedy: ``adk/waits.py`` sends one event per branch."""
    ledger: list[str] = []
    stock = Stock(flow_with_two_branches(ledger))
    await stock.run(user("go"), "e1")
    answers = [stock.reply(call) for call, _ in stock.open_calls()]
    assert len(answers) == 2
    await stock.run(types.Content(role="user", parts=answers))
    assert "pay" not in ledger


async def test_a_finished_function_node_without_output_runs_again_on_resume() -> None:
    """Remedy: ``adk/nodes.py`` never enters a run that finished in an earlier step."""
    ledger: list[str] = []
    stock = Stock(flow_with_two_branches(ledger))
    await stock.run(user("go"), "e1")
    session = await stock.session()
    for call, asked in stock.open_calls():
        event = Event(
            invocation_id="e1",
            author="user",
            branch=asked.branch,
            content=types.Content(role="user", parts=[stock.reply(call)]),
        )
        await stock.service.append_event(session, event)
    await stock.run(None, "e1")
    assert ledger.count("pay") == 1
    assert ledger.count("plain") == 2


async def test_an_answer_that_looks_like_json_changes_its_type() -> None:
    """Remedy: ``adk/waits.py`` encodes every input answer once more."""
    got: list[Any] = []

    async def ask(ctx: Any, node_input: Any) -> Any:
        if "q1" in ctx.resume_inputs:
            got.append(ctx.resume_inputs["q1"])
            yield "answered"
            return
        yield RequestInput(interrupt_id="q1", message="which?")

    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    stock = Stock(Workflow(name="flow", edges=[(START, asker)]))
    await stock.run(user("go"), "e1")
    response = types.FunctionResponse(id="q1", name="adk_request_input", response={"result": "42"})
    part = types.Part(function_response=response)
    await stock.run(types.Content(role="user", parts=[part]))
    assert got == [42]


async def test_a_model_that_repeats_its_call_ids_gets_them_through() -> None:
    """Why positions never contain a model's call id (``adk/stage.py``)."""

    def look(q: str) -> str:
        """Look."""
        return q

    script = [
        calls(("look", {"q": "a"}, "call_0")),
        calls(("look", {"q": "b"}, "call_0")),
        says("end"),
    ]
    stock = Stock(agent("root", *script, tools=[look]))
    await stock.run(user("go"))
    ids = [call.id for event in stock.events for call in event.get_function_calls()]
    assert ids == ["call_0", "call_0"]


async def test_a_second_transfer_to_the_same_agent_restarts_its_path_after_a_resume() -> None:
    """Remedy: ``adk/runner.py`` goes on where the invocation began."""
    ledger: list[int] = []

    def pay(cents: int) -> str:
        """Pay."""
        ledger.append(cents)
        return "paid"

    def turn(*replies: Any) -> Any:
        def script(request: Any, _turn: int) -> Any:
            own = sum(1 for content in request.contents if content.role == "model")
            return replies[min(own, len(replies) - 1)]

        return script

    def move(name: str) -> Any:
        return calls(("transfer_to_agent", {"agent_name": name}))

    helper = agent("helper", description="helper", tools=[confirmed(pay)])
    helper.model.script = turn(
        calls(("pay", {"cents": 1})), move("root"), calls(("pay", {"cents": 2})), move("root")
    )
    root = agent("root", sub_agents=[helper])
    root.model.script = turn(move("helper"), move("helper"), says("root is done"))
    stock = Stock(root)
    await stock.run(user("go"), "e1")
    for _ in range(2):
        call, _asked = stock.open_calls()[-1]
        await stock.run(types.Content(role="user", parts=[stock.reply(call)]))
    texts = [part.text for e in stock.events for part in (e.content and e.content.parts) or ()]
    assert "root is done" not in texts
