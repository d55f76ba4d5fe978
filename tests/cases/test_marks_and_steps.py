"""``on_unknown_outcome`` wherever a function runs; ``step()`` in bodies that are entered again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import BaseAgent, LlmAgent, ParallelAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow

from durable_adk import durable_tool, step, uuid4
from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import agent
from tests.shapes.composite import end_of, payer
from tests.support.lives import Case, Ledger, World


def charging(ledger: Ledger) -> Any:
    @durable_tool(on_unknown_outcome="fail")
    def charge(node_input: Any) -> str:
        """Charge a card."""
        ledger.add("charge")
        return "charged"

    return charge


def as_function_node(ledger: Ledger) -> Workflow:
    return Workflow(
        name="flow", edges=[(START, FunctionNode(func=charging(ledger), name="charge"))]
    )


def as_tool_node(ledger: Ledger) -> Workflow:
    @durable_tool(on_unknown_outcome="fail")
    def charge(cents: int) -> str:
        """Charge a card."""
        ledger.add("charge")
        return "charged"

    def first(node_input: Any) -> dict[str, int]:
        return {"cents": 5}

    return Workflow(name="flow", edges=[(START, first), (first, FunctionTool(charge))])


def as_child(ledger: Ledger) -> Workflow:
    async def runner(ctx: Any, node_input: Any) -> Any:
        yield await ctx.run_node(charging(ledger), node_input=1)

    return Workflow(
        name="flow", edges=[(START, FunctionNode(func=runner, name="runner", rerun_on_resume=True))]
    )


def as_step(ledger: Ledger) -> Workflow:
    async def runner(ctx: Any, node_input: Any) -> Any:
        yield await step("charge", charging(ledger), 1)

    return Workflow(name="flow", edges=[(START, FunctionNode(func=runner, name="runner"))])


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (as_function_node, "node charge"),
        (as_tool_node, "node charge"),
        (as_child, "node charge"),
        (as_step, "step charge"),
    ],
    ids=["function node", "tool node", "run_node", "step"],
)
def test_a_marked_function_does_not_run_twice_wherever_it_runs(
    build: Callable[[Ledger], Any], kind: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    case = Case(build=build)
    life = world.live(case, kill=(1, (f"ran: {kind}", 1)))
    assert life.killed_at is not None
    assert life.ledger["charge",] == 1
    assert life.status == ["failed"]
    assert life.error is not None and life.error["type"] == "OutcomeUnknown"


@pytest.mark.parametrize("build", [as_child, as_step], ids=["run_node", "step"])
def test_what_a_body_is_told_is_on_record(
    build: Callable[[Ledger], Any], replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    """Whoever awaits it acts on it at once."""
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    reached = world.live(Case(build=build)).reached[0]
    told = next(
        i for i, name in enumerate(reached) if name.startswith("ran: ") and "charge" in name
    )
    after = [name for name in reached[told + 1 :] if not name.startswith("before")]
    assert after[0] == "after: outcomes are recorded", "before the body around it goes on"


class Sender(BaseAgent):
    """An agent of one's own that sends a mail and then asks below."""

    ledger: Any = None

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        await step("mail", self.ledger.add, "mail", "bob")
        async for event in self.sub_agents[0].run_async(ctx):
            yield event


def sender(ledger: Ledger) -> Sender:
    return Sender(name="sender", ledger=ledger, sub_agents=[payer(ledger, "a", 1)])


def sender_in_a_workflow(ledger: Ledger) -> Workflow:
    return Workflow(name="flow", edges=[(START, sender(ledger))])


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("build", [sender, sender_in_a_workflow])
def test_a_step_in_an_agent_of_one_s_own_is_not_done_again_after_an_answer(
    build: Any, mode: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    life = world.live(Case(build=build))
    assert life.status == ["completed"]
    assert life.ledger["mail", "bob"] == 1


def with_receipt(ledger: Ledger) -> LlmAgent:
    """A receipt is sent for each result that a tool shows: the refusal, and the real one."""

    def pay(amount: int) -> dict[str, int]:
        """Pay."""
        return {"paid": amount}

    async def receipt(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
        await step("receipt", ledger.add, "receipt", sorted(tool_response)[0])

    return agent(
        ledger,
        "root",
        calls(("pay", {"amount": 1})),
        says("done"),
        tools=[FunctionTool(pay, require_confirmation=True)],
        after_tool_callback=receipt,
    )


def test_a_step_with_other_arguments_after_an_answer_is_another(
    replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    life = world.live(Case(build=with_receipt))
    assert life.ledger["receipt", "error"] == 1
    assert life.ledger["receipt", "paid"] == 1


def one_is_done(ledger: Ledger) -> ParallelAgent:
    """A branch that is done, though its tool is long-running, beside one that waits."""

    def tell(name: str) -> dict[str, str]:
        """Tell somebody."""
        ledger.add("tool", "tell")
        return {"status": "pending"}

    done = agent(
        ledger,
        "done",
        calls(("tell", {"name": "bob"})),
        says("told"),
        tools=[LongRunningFunctionTool(tell)],
    )
    return ParallelAgent(name="par", sub_agents=[payer(ledger, "a", 1), done])


def test_a_branch_that_is_done_with_a_pending_tool_is_not_entered_again(
    replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    life = world.live(Case(build=one_is_done))
    assert life.ledger["model", "done", 1] == 1
    assert sum(event.get("author") == "done" for event in life.events) == 3


def at_one_place(ledger: Ledger) -> LlmAgent:
    """A confirmed call, then a plain one: each is the first call of its step."""

    async def send(to: str) -> str:
        """Send something, once for each call."""
        await step("send", ledger.add, "send", "it")
        ledger.add("key", str(uuid4()))
        return to

    async def tell(to: str) -> str:
        """Send something without asking."""
        return await send(to)

    return agent(
        ledger,
        "root",
        calls(("send", {"to": "bob"})),
        calls(("tell", {"to": "eve"})),
        says("done"),
        tools=[FunctionTool(send, require_confirmation=True), tell],
    )


@pytest.mark.parametrize("mode", ["restore", "walk"])
def test_calls_of_two_steps_at_one_place_are_two(
    mode: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    life = world.live(Case(build=at_one_place))
    assert life.status == ["completed"]
    assert life.ledger["send", "it"] == 2
    assert sum(row[0] == "key" for row in life.ledger) == 2, "two keys"


def same_ids_in_branches(ledger: Ledger) -> Workflow:
    """Two models that number their calls alike: one call waits, the other is done later."""

    def later(q: str) -> None:
        """Answer later."""
        ledger.add("tool", "later")

    async def slow(q: str) -> str:
        """Take a moment."""
        ledger.add("tool", "slow")
        await asyncio.sleep(0.05)
        return q

    a = agent(
        ledger,
        "a",
        calls(("later", {"q": "a"}, "call_0")),
        says("a done"),
        tools=[LongRunningFunctionTool(later)],
    )
    b = agent(ledger, "b", calls(("slow", {"q": "b"}, "call_0")), says("b done"), tools=[slow])
    join = JoinNode(name="join")
    return Workflow(name="flow", edges=[(START, (a, b)), ((a, b), join), (join, end_of(ledger))])


@pytest.mark.parametrize("mode", ["restore", "walk"])
def test_a_call_of_another_branch_with_the_same_id_answers_no_wait(
    mode: str, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    life = world.live(Case(build=same_ids_in_branches))
    assert life.status == ["completed"]
    assert [len(waits) for waits in life.waits] == [1]
    assert life.ledger["model", "a", 1] == 1, "it was answered"
    assert life.ledger["node", "end"] == 1
