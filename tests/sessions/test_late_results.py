"""A message that holds answers and the later results of long-running tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import ParallelAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, Workflow

from durable_adk import ConfigError, DurableRunner, NotFound
from durable_adk.testing import calls, memory_client, says
from tests.app import agents
from tests.sessions.test_runner_parity import (
    PENDING,
    Events,
    asked,
    committee_and_payment,
    late_beside,
    message,
    response,
    run,
    says_text,
)
from tests.shapes.workflows import question
from tests.support.lives import Ledger


def given(turn: dict[str, Any]) -> Any:
    return lambda _before: turn


def responses_of_users(events: Events) -> list[list[str]]:
    return [
        [part.function_response.name for part in event.content.parts]
        for event in events
        if event.author == "user" and event.get_function_responses()
    ]


async def stored(runner: Any) -> Events:
    session = await runner.session_service.get_session(app_name="desk", user_id="u", session_id="s")
    events: Events = session.events
    return events


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_it_is_kept_for_a_later_attempt_of_another_process(tmp_path: Path, mode: str) -> None:
    ledger = Ledger(tmp_path / "ledger")
    log: agents.Log = []
    client = memory_client()
    config = {"features": {"durable_workflow": True}, "replay": {"mode": mode}}

    def opened() -> DurableRunner:
        root = committee_and_payment(log)
        flow = Workflow(name="flow", edges=[(START, root), (root, question(ledger))])
        return DurableRunner(node=flow, app_name="desk", mongodb=client, config=config)

    async with opened() as runner:
        first = await run(runner, says_text())
        turn = late_beside(first)
        second = await run(runner, given(turn))
    async with opened() as runner:
        again = await run(runner, given(turn))
        assert [event.id for event in again] == [event.id for event in second]
        (call,) = asked(second, "adk_request_input")
        await run(runner, given({"new_message": message(response(call, {"result": "blue"}))}))
        events = await stored(runner)
    assert responses_of_users(events) == [
        ["adk_request_confirmation", "ask_committee"],
        ["adk_request_input"],
    ]
    assert log == [("ask", "choir"), ("pay", 1)]


async def test_one_of_another_branch_stands_before_the_answers() -> None:
    log: agents.Log = []

    def pay(amount: int) -> str:
        """Pay."""
        log.append(("pay", amount))
        return "paid"

    def ask_committee(project: str) -> dict[str, str]:
        """Ask."""
        return {"status": "pending"}

    a = agents.talker(
        calls(("ask_committee", {"project": "choir"})),
        says("a done"),
        name="a",
        tools=[LongRunningFunctionTool(ask_committee)],
    )
    b = agents.talker(
        calls(("pay", {"amount": 1})),
        says("b done"),
        name="b",
        tools=[FunctionTool(pay, require_confirmation=True)],
    )
    root = ParallelAgent(name="both", sub_agents=[a, b])
    async with DurableRunner(agent=root, app_name="desk", mongodb=memory_client()) as runner:
        first = await run(runner, says_text())
        await run(runner, late_beside, first)
        events = await stored(runner)
    assert responses_of_users(events) == [["ask_committee"], ["adk_request_confirmation"]]
    assert log == [("pay", 1)]


@pytest.mark.parametrize("wrong", ["unknown", "too large", "after the answer"])
async def test_what_is_refused_changes_nothing(wrong: str) -> None:
    log: agents.Log = []
    root = committee_and_payment(log)
    async with DurableRunner(agent=root, app_name="desk", mongodb=memory_client()) as runner:
        first = await run(runner, says_text())
        (confirmation,), (committee,) = asked(first), asked(first, "ask_committee")
        answer = response(confirmation, {"confirmed": True})
        late = response(committee, PENDING)
        if wrong == "unknown":
            late = response(committee, PENDING, id_="no-such-call")
        if wrong == "too large":
            late = response(committee, {"text": "x" * 20_000})
        if wrong == "after the answer":
            await run(runner, given({"new_message": message(answer)}))
        before = await stored(runner)
        with pytest.raises(ConfigError if wrong == "too large" else NotFound):
            await run(runner, given({"new_message": message(answer, late)}))
        assert [event.id for event in await stored(runner)] == [event.id for event in before]
        if wrong == "after the answer":
            await run(runner, given({"new_message": message(late)}))  # alone, as the error says
        else:
            await run(runner, late_beside, first)
    assert log == [("ask", "choir"), ("pay", 1)]
