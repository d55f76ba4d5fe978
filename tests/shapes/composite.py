"""Shapes of ``SequentialAgent``, ``ParallelAgent``, ``LoopAgent`` and agents of one's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import App, ResumabilityConfig
from google.adk.events import Event
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, JoinNode, Workflow

from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import Tools, agent, approve_even, by_own_turns
from tests.shapes.shape import Shape
from tests.support.lives import Ledger


def payer(ledger: Ledger, name: str, amount: int, *, asks: bool = True) -> LlmAgent:
    tools = Tools(ledger)
    return agent(
        ledger,
        name,
        calls(("slow", {"q": name})),
        calls(("pay", {"amount": amount})),
        says(f"{name} done"),
        tools=[tools.slow, FunctionTool(tools.pay, require_confirmation=asks)],
    )


def tail(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    return by_own_turns(
        agent(ledger, "tail", tools=[tools.slow]), calls(("slow", {"q": "tail"})), says("tail done")
    )


def end_of(ledger: Ledger) -> Any:
    def end(node_input: Any) -> str:
        ledger.add("node", "end")
        return f"end of {node_input}"

    return end


def sequence(ledger: Ledger, *, asks: bool = True) -> SequentialAgent:
    parts = [payer(ledger, "a", 1, asks=asks), tail(ledger)]
    return SequentialAgent(name="seq", sub_agents=parts)


def asks_last(ledger: Ledger) -> SequentialAgent:
    parts = [payer(ledger, "a", 1, asks=False), payer(ledger, "b", 2)]
    return SequentialAgent(name="seq", sub_agents=parts)


def fan(ledger: Ledger) -> ParallelAgent:
    parts = [payer(ledger, "a", 1), payer(ledger, "b", 2), payer(ledger, "c", 3, asks=False)]
    return ParallelAgent(name="par", sub_agents=parts)


def fan_then_tail(ledger: Ledger) -> SequentialAgent:
    both = ParallelAgent(name="par", sub_agents=[payer(ledger, "a", 1), payer(ledger, "b", 2)])
    return SequentialAgent(name="seq", sub_agents=[both, tail(ledger)])


def loop(ledger: Ledger, *, asks: bool) -> LoopAgent:
    """Three rounds of paying and noting; the third note escalates."""
    tools = Tools(ledger)

    def note(tool_context: Any) -> dict[str, Any]:
        """Note a round."""
        n = tool_context.state.get("n", 0) + 1
        tool_context.state["n"] = n
        ledger.add("tool", "note", n)
        if n >= 3:
            tool_context.actions.escalate = True
        return {"n": n}

    def choose(request: Any, turn: int) -> Any:
        last = request.contents[-1]
        names = [p.function_response.name for p in last.parts if p.function_response]
        if "pay" in names:
            return calls(("note", {}))
        if "note" in names:
            return says("round done")
        return calls(("pay", {"amount": turn}))

    worker = agent(
        ledger, "worker", tools=[note, FunctionTool(tools.pay, require_confirmation=asks)]
    )
    model: Any = worker.model
    model.script = choose
    return LoopAgent(name="loop", max_iterations=5, sub_agents=[worker])


def as_node(root: BaseAgent, ledger: Ledger) -> Workflow:
    return Workflow(name="flow", edges=[(START, root), (root, end_of(ledger))])


def beside_one_that_waits(ledger: Ledger) -> Workflow:
    """ADK enters a finished SequentialAgent node again, beside a node that waits."""
    done, waits = sequence(ledger, asks=False), payer(ledger, "b", 2)
    join = JoinNode(name="join")
    return Workflow(
        name="flow", edges=[(START, (done, waits)), ((done, waits), join), (join, end_of(ledger))]
    )


def transfer_below(ledger: Ledger) -> SequentialAgent:
    """A part of a sequence hands over to an agent that asks, and the tail follows."""
    helper = payer(ledger, "helper", 1)
    helper.description = "helper"
    move = calls(("transfer_to_agent", {"agent_name": "helper"}))
    first = agent(ledger, "first", move, sub_agents=[helper])
    return SequentialAgent(name="seq", sub_agents=[first, tail(ledger)])


class Chooser(BaseAgent):
    """An agent of one's own: runs one of its agents, then another by what it left."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        first, second = self.sub_agents
        async for event in first.run_async(ctx):
            yield event
        if ctx.session.state.get("never"):
            return
        async for event in second.run_async(ctx):
            yield event


def own(ledger: Ledger) -> Chooser:
    return Chooser(name="own", sub_agents=[payer(ledger, "a", 1), payer(ledger, "b", 2)])


def resumable(root: BaseAgent) -> App:
    return App(
        name="lives", root_agent=root, resumability_config=ResumabilityConfig(is_resumable=True)
    )


SEQ, PAR, LOOP = "`SequentialAgent`", "`ParallelAgent`", "`LoopAgent`"
ROUNDS = {("model", "worker", 2): 2, ("model", "worker", 4): 2}  # the end of one, the next
TAIL_LOST = "only the agent that asked goes on: the rest never runs"
ANSWER_IS_OUTPUT = "the answer becomes the node's output: the approved tool never runs"

SHAPES = {
    "sequence as root": Shape(
        build=lambda ledger: sequence(ledger, asks=False), feature=f"{SEQ} as root"
    ),
    "sequence as root, waiting": Shape(
        build=sequence, feature=f"{SEQ} as root", waits=(1,), stock=TAIL_LOST
    ),
    "sequence as root, the last one asks": Shape(
        build=asks_last, feature=f"{SEQ} as root", waits=(1,)
    ),
    "parallel as root, waiting": Shape(
        build=fan, feature=f"{PAR} as root", waits=(2,), in_flight=6, stock=TAIL_LOST
    ),
    "parallel in a sequence as root, waiting": Shape(
        build=fan_then_tail, feature=f"{PAR} as root", waits=(2,), in_flight=4, stock=TAIL_LOST
    ),
    "parallel in a sequence as root, one declined": Shape(
        build=fan_then_tail,
        feature=f"{PAR} as root",
        waits=(2,),
        answer=approve_even,
        in_flight=4,
        stock=TAIL_LOST,
    ),
    "transfer below a sequence as root": Shape(
        build=transfer_below,
        feature=f"{SEQ} as root",
        waits=(1,),
        stock=TAIL_LOST,
    ),
    "loop as root": Shape(
        build=lambda ledger: loop(ledger, asks=False),
        feature=f"{LOOP} as root, `escalate`",
        repeats=ROUNDS,
    ),
    "loop as root, waiting each round": Shape(
        build=lambda ledger: loop(ledger, asks=True),
        feature=f"{LOOP} as root, `escalate`",
        waits=(1, 1, 1),
        repeats=ROUNDS,
        stock=TAIL_LOST,
    ),
    "sequence as node, waiting": Shape(
        build=lambda ledger: as_node(sequence(ledger), ledger),
        feature=f"{SEQ} in a `Workflow`",
        waits=(1,),
        stock=ANSWER_IS_OUTPUT,
    ),
    "sequence as node, finished beside one that waits": Shape(
        build=beside_one_that_waits,
        feature=f"{SEQ} in a `Workflow`",
        waits=(1,),
        in_flight=4,
    ),
    "parallel as node, waiting": Shape(
        build=lambda ledger: as_node(fan(ledger), ledger),
        feature=f"{PAR} in a `Workflow`",
        waits=(2,),
        in_flight=6,
        stock=ANSWER_IS_OUTPUT,
    ),
    "loop as node, waiting each round": Shape(
        build=lambda ledger: as_node(loop(ledger, asks=True), ledger),
        feature=f"{LOOP} in a `Workflow`",
        waits=(1, 1, 1),
        repeats=ROUNDS,
        stock=ANSWER_IS_OUTPUT,
    ),
    "an agent of one's own as root": Shape(
        build=own, feature="custom `BaseAgent`", waits=(2,), stock=TAIL_LOST
    ),
    "an agent of one's own as node": Shape(
        build=lambda ledger: as_node(own(ledger), ledger),
        feature="custom `BaseAgent`",
        waits=(2,),
        stock=ANSWER_IS_OUTPUT,
    ),
}
