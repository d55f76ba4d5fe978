"""``step``, ``now``, ``uuid4``, ``random``, ``current_activity_id``: the same on every attempt."""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow

import durable_adk
from durable_adk import current_activity_id, current_fencing_token, step
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import Tools, agent


def asks_after(ledger: Any, before: Any) -> FunctionNode:
    """A node that does something, then asks: it is entered once per answer."""

    async def ask(ctx: Any, node_input: Any) -> Any:
        ledger.add("entered")
        seen = await before()
        if "q" in ctx.resume_inputs:
            yield str(seen)
            return
        yield RequestInput(interrupt_id="q", message=str(seen))

    return FunctionNode(func=ask, name="ask", rerun_on_resume=True)


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_step_in_a_callback_runs_once_though_the_callback_runs_again(
    make_app, ledger, clock, mode
) -> None:
    fails = [RuntimeError("down")]

    async def audit(callback_context: Any, llm_request: Any) -> None:
        ledger.add("callback")
        number = await step("audit", ledger.add, "audited")
        assert number is None

    def script(_request: Any, turn: int) -> Any:
        if turn == 0:
            return calls(("look", {"q": "a"}))
        return fails.pop() if fails else says("done")

    root = agent(ledger, "root", tools=[Tools(ledger).look], before_model_callback=audit)
    root.model.script = script
    app = make_app(root, mode=mode)
    await app.invoke(user_id="u", message="go")
    clock.advance(60_000)
    (out,) = await app.recover()
    assert out.status == "completed"
    assert ledger.rows().count(("audited",)) == 2, "two turns, each audited once"
    assert ledger.rows().count(("callback",)) == 4


async def test_a_step_whose_name_cannot_be_stored_is_refused(make_app, ledger) -> None:
    async def parts(node_input: Any) -> None:
        await step("a\ud800b", ledger.add, "ran")

    app = make_app(Workflow(name="flow", edges=[(START, parts)]))
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, out.error.type) == ("failed", "ConfigError")
    assert out.error.message.startswith(r"step('a\ud800b'): has a character that is no")
    assert ledger.rows() == []


@pytest.mark.parametrize("tool", ["plain", "confirmed", "long"])
async def test_a_call_id_that_cannot_be_stored_is_refused_by_its_path(
    make_app, ledger, tool: str
) -> None:
    """A person's answer and ADK's own ids are derived from it."""

    def pay(amount: int) -> None:
        """Pay."""
        ledger.add("pay", amount)

    tools = {
        "plain": pay,
        "confirmed": FunctionTool(pay, require_confirmation=True),
        "long": LongRunningFunctionTool(pay),
    }
    asks = ScriptedModel(script=[calls(("pay", {"amount": 1}, "a\ud800b")), says("done")])
    app = make_app(LlmAgent(name="root", model=asks, tools=[tools[tool]]))
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, out.error.type) == ("failed", "NotStorable")
    assert out.error.message.startswith("response.content.parts[0].function_call.id: has a")
    assert ledger.rows() == []


async def test_a_step_keeps_its_failure_and_its_types(make_app, ledger) -> None:
    seen: list[Any] = []

    async def parts(node_input: Any) -> str:
        seen.append(await step("pair", lambda: (1, {2})))
        try:
            await step("fails", int, "x")
        except ValueError as error:
            seen.append(str(error))
        seen.append(await step("pair", lambda: "second of that name"))
        return "done"

    app = make_app(Workflow(name="flow", edges=[(START, parts)]))
    out = await app.invoke(user_id="u", message="go")
    assert out.status == "completed"
    assert seen[0] == (1, {2})
    assert "invalid literal" in seen[1]
    assert seen[2] == "second of that name"
    kinds = [a.kind for a in await app.executions.activities(out.execution_id)]
    assert kinds.count("step") == 3


async def test_steps_of_parallel_nodes_with_one_name_are_their_own(make_app, ledger) -> None:
    def part(name: str) -> Any:
        async def work(node_input: Any) -> str:
            await asyncio.sleep(0)
            return await step("work", lambda: name)

        work.__name__ = name
        return work

    parts = tuple(part(name) for name in "abc")
    join = JoinNode(name="join")
    app = make_app(Workflow(name="flow", edges=[(START, parts), (parts, join)]))
    out = await app.invoke(user_id="u", message="go")
    assert out.output == {"a": "a", "b": "b", "c": "c"}


async def test_a_step_inside_a_step_is_refused(make_app, ledger) -> None:
    async def outer() -> None:
        await step("inner", lambda: None)

    async def node(node_input: Any) -> None:
        await step("outer", outer)

    app = make_app(Workflow(name="flow", edges=[(START, node)]))
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, out.error.type) == ("failed", "ConfigError")
    assert "inner" in out.error.message


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_derived_values_are_the_same_whenever_a_place_is_entered(
    make_app, ledger, clock, mode
) -> None:
    """In a callback of an open step that runs again: orchestrators see the same values."""
    seen: list[Any] = []
    fails = [RuntimeError("down")]

    def note(callback_context: Any, llm_request: Any) -> None:
        values = (durable_adk.uuid4(), durable_adk.uuid4(), durable_adk.random())
        seen.append((*values, durable_adk.now()))

    def script(_request: Any, turn: int) -> Any:
        if turn == 0:
            return calls(("look", {"q": "a"}))
        return fails.pop() if fails else says("done")

    root = agent(ledger, "root", tools=[Tools(ledger).look], before_model_callback=note)
    root.model.script = script
    app = make_app(root, mode=mode)
    await app.invoke(user_id="u", message="go")
    clock.advance(60_000)
    await app.recover()
    assert len(seen) == 4
    assert seen[:2] == seen[2:]
    first, second = seen[0], seen[1]
    assert len({*first[:2], *second[:2]}) == 4
    assert all(isinstance(value, uuid.UUID) and 0 <= first[2] < 1 for value in first[:2])
    assert first[3].tzinfo is dt.UTC
    assert first[3] <= second[3]


async def test_the_idempotency_key_of_a_tool_is_its_activity_id(make_app, ledger, clock) -> None:
    keys: list[Any] = []
    fails = [True]

    def pays(amount: int) -> str:
        """Pay."""
        keys.append((current_activity_id(), current_fencing_token()))
        if fails:
            fails.pop()
            raise RuntimeError("down")
        return "paid"

    root = agent(ledger, "root", calls(("pays", {"amount": 1})), says("done"), tools=[pays])
    app = make_app(root)
    out = await app.invoke(user_id="u", message="go")
    clock.advance(60_000)
    await app.recover()
    (first, token), (second, later) = keys
    assert first == second
    assert token < later
    activities = await app.executions.activities(out.execution_id)
    assert first in {activity.id for activity in activities}


async def test_acting_and_asking_in_one_node_acts_once_with_a_step(make_app, ledger) -> None:
    """R13 inside one node: per step of the execution it is a new place, so use it before."""

    async def charge() -> Any:
        return await step("charge", ledger.add, "charged")

    flow = Workflow(name="flow", edges=[(START, asks_after(ledger, charge))])
    app = make_app(flow)
    out = await app.invoke(user_id="u", message="go")
    await app.resume(out.execution_id, approve(out))
    assert ledger.rows().count(("entered",)) == 2
    assert ledger.rows().count(("charged",)) == 1


async def test_outside_an_execution_all_act_plainly() -> None:
    assert await step("any", lambda: 7) == 7
    assert durable_adk.uuid4() != durable_adk.uuid4()
    assert 0 <= durable_adk.random() < 1
    assert abs((durable_adk.now() - dt.datetime.now(dt.UTC)).total_seconds()) < 60
    assert current_activity_id() is None
    assert current_fencing_token() is None
