"""Shapes of nodes that run other nodes as they go: ``ctx.run_node``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, FunctionNode, RetryConfig, Workflow

from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import Tools, agent
from tests.shapes.composite import end_of, payer, tail
from tests.shapes.shape import Shape
from tests.shapes.workflows import as_text, question
from tests.support.lives import Ledger


def run_by(ledger: Ledger, orchestrate: Callable[..., Any]) -> Workflow:
    """A workflow of one node that runs others, and an end."""
    runner = FunctionNode(func=orchestrate, name="runner", rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, runner), (runner, end_of(ledger))])


def double_of(ledger: Ledger) -> Any:
    async def double(node_input: Any) -> Any:
        ledger.add("node", "double", str(node_input))
        await asyncio.sleep(0.002)
        return f"2 x {node_input}"

    return double


def looking(ledger: Ledger, name: str) -> LlmAgent:
    tools = Tools(ledger)
    return agent(
        ledger, name, calls(("slow", {"q": name})), says(f"{name} done"), tools=[tools.slow]
    )


def children(ledger: Ledger) -> Workflow:
    """Agents and functions made at run time, one after the other and gathered."""

    async def runner(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "runner")
        double = double_of(ledger)
        first = await ctx.run_node(looking(ledger, "made"), node_input="x")
        second = await ctx.run_node(double, node_input=first)
        rest = await asyncio.gather(*(ctx.run_node(double, node_input=n) for n in range(3)))
        yield as_text([first, second, rest])

    return run_by(ledger, runner)


def children_that_ask(ledger: Ledger) -> Workflow:
    async def runner(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "runner", bool(ctx.resume_inputs))
        double = double_of(ledger)
        first = await ctx.run_node(double, node_input=1)
        second = await ctx.run_node(payer(ledger, "made", 1), node_input="x")

        async def ask(ctx: Any, node_input: Any) -> Any:
            ledger.add("node", "ask", len(ctx.resume_inputs))
            if ctx.resume_inputs:
                yield next(iter(ctx.resume_inputs.values()))
                return
            yield RequestInput(message="how?")

        asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
        third = await ctx.run_node(asker, node_input=1)
        fourth = await ctx.run_node(double, node_input=second)
        yield as_text([first, second, third, fourth])

    return run_by(ledger, runner)


def gathered_that_ask(ledger: Ledger) -> Workflow:
    async def runner(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "runner", bool(ctx.resume_inputs))
        made = [payer(ledger, name, n) for n, name in enumerate("abc", 1)]
        found = await asyncio.gather(
            *(ctx.run_node(one, node_input="x", use_sub_branch=True) for one in made),
            return_exceptions=True,
        )
        for one in found:
            if isinstance(one, BaseException):
                raise one
        yield as_text(found)

    return run_by(ledger, runner)


def named_runs(ledger: Ledger) -> Workflow:
    """Run ids given by hand, and one node asked for twice."""

    async def runner(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "runner", bool(ctx.resume_inputs))
        double = FunctionNode(func=double_of(ledger), name="double")
        first = await ctx.run_node(double, node_input="a", run_id="left")
        second = await ctx.run_node(double, node_input="b", run_id="right")
        asked = await ctx.run_node(question(ledger, "ask", "q1"), node_input=1, run_id="ask-1")
        third = await ctx.run_node(double, node_input="c", run_id="last")
        yield as_text([first, second, asked, third])

    return run_by(ledger, runner)


def nested_runners(ledger: Ledger) -> Workflow:
    """A node that runs a node that runs a node that asks."""

    async def inner(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "inner", bool(ctx.resume_inputs))
        before = await ctx.run_node(double_of(ledger), node_input="deep")
        asked = await ctx.run_node(question(ledger), node_input=1)
        yield as_text([before, asked])

    async def runner(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "runner", bool(ctx.resume_inputs))
        below = FunctionNode(func=inner, name="inner", rerun_on_resume=True)
        first = await ctx.run_node(double_of(ledger), node_input="top")
        yield as_text([first, await ctx.run_node(below, node_input=1)])

    return run_by(ledger, runner)


def workflow_at_run_time(ledger: Ledger) -> Workflow:
    """A workflow and a sequence that are made and run at run time; both ask."""

    async def runner(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "runner", bool(ctx.resume_inputs))
        a = payer(ledger, "a", 1)
        flow = Workflow(name="made", edges=[(START, a), (a, double_of(ledger))])
        first = await ctx.run_node(flow, node_input="x")
        sequence = SequentialAgent(name="seq", sub_agents=[payer(ledger, "b", 2), tail(ledger)])
        await ctx.run_node(sequence, node_input="y")
        yield as_text([first])

    return run_by(ledger, runner)


def retried_runner(ledger: Ledger) -> Workflow:
    """A node that runs others fails after two of them, and is tried again."""

    async def runner(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "runner", ctx.attempt_count)
        n = ctx.attempt_count
        first = await ctx.run_node(double_of(ledger), node_input=f"a{n}")
        second = await ctx.run_node(double_of(ledger), node_input=f"b{n}")
        if n < 3:
            raise ConnectionError("no answer")
        yield as_text([first, second])

    retry = RetryConfig(max_attempts=5, initial_delay=0.001, jitter=0)
    node = FunctionNode(func=runner, name="runner", rerun_on_resume=True, retry_config=retry)
    ask = question(ledger)
    return Workflow(name="flow", edges=[(START, node), (node, ask), (ask, end_of(ledger))])


def from_a_tool(ledger: Ledger) -> LlmAgent:
    """A tool that runs nodes: a function, then an agent that asks."""

    async def work(order: str, tool_context: ToolContext) -> dict[str, Any]:
        """Work an order off."""
        ledger.add("runner", "work", order)
        first = await tool_context.run_node(double_of(ledger), node_input=order)
        second = await tool_context.run_node(payer(ledger, f"for_{order}", 1), node_input="x")
        return {"first": first, "second": second}

    return agent(
        ledger, "root", calls(("work", {"order": "pens"})), says("done"), tools=[FunctionTool(work)]
    )


def route_by_model(ledger: Ledger) -> Workflow:
    """A model decides in a loop which node runs next: the pattern of a router."""
    router = agent(ledger, "router", says("double"))

    async def runner(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "runner", bool(ctx.resume_inputs))
        picked = []
        for n in range(2):
            choice = await ctx.run_node(router, node_input=f"turn {n}")
            picked.append(await ctx.run_node(double_of(ledger), node_input=f"{choice}{n}"))
            picked.append(await ctx.run_node(question(ledger, "ask", f"q{n}"), node_input=n))
        yield as_text(picked)

    return run_by(ledger, runner)


AGAIN = (("node", "runner"), ("node", "inner"), ("runner", "work"))

SHAPES = {
    "children at run time": Shape(
        build=children, feature="`ctx.run_node`: agents, functions, gathered", in_flight=4
    ),
    "children that ask": Shape(
        build=children_that_ask,
        feature="`ctx.run_node` with waits inside",
        waits=(1, 1),
        reentered=AGAIN,
        in_flight=3,
    ),
    "gathered children that ask": Shape(
        build=gathered_that_ask,
        feature="`ctx.run_node` with waits inside",
        waits=(3,),
        reentered=AGAIN,
        in_flight=6,
    ),
    "children with run ids": Shape(
        build=named_runs,
        feature="`ctx.run_node` with `run_id`, the same node twice",
        waits=(1,),
        reentered=AGAIN,
        in_flight=3,
    ),
    "children of children": Shape(
        build=nested_runners,
        feature="`ctx.run_node` with waits inside",
        waits=(1,),
        reentered=AGAIN,
        in_flight=3,
    ),
    "workflow and sequence at run time": Shape(
        build=workflow_at_run_time,
        feature="`ctx.run_node` of workflows and composite agents",
        waits=(1, 1),
        reentered=AGAIN,
        in_flight=3,
        stock="the answer becomes the output of the sequence: the rest of it never runs",
    ),
    "a runner that is tried again": Shape(
        build=retried_runner,
        feature="`ctx.run_node` in a node with `retry_config`",
        waits=(1,),
        reentered=AGAIN,
    ),
    "nodes from a tool": Shape(
        build=from_a_tool,
        feature="`tool_context.run_node`",
        waits=(1,),
        reentered=AGAIN,
        in_flight=3,
        stock="what the tool ran before it asked runs again",
    ),
    "a router loop": Shape(
        build=route_by_model,
        feature="`ctx.run_node` with waits inside",
        waits=(1, 1),
        reentered=AGAIN,
        repeats={("model", "router", 0): 2},
        in_flight=3,
    ),
}
