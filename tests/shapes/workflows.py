"""Shapes of static workflows and of the kinds of nodes in them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.artifacts import FileArtifactService
from google.adk.events import Event, RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, FunctionNode, JoinNode, Node, RetryConfig, Workflow, node
from google.genai import types
from pydantic import BaseModel

from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import (
    Tools,
    agent,
    nested,
    review_loop,
    two_confirmations_and_a_question,
)
from tests.shapes.composite import end_of, payer
from tests.shapes.shape import Shape
from tests.support.lives import Ledger


def as_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def gathering(ledger: Ledger) -> Any:
    def end(node_input: Any) -> str:
        ledger.add("node", "end")
        return as_text(node_input)

    return end


def question(ledger: Ledger, name: str = "ask", key: str = "q1") -> FunctionNode:
    """Acts once it is answered."""

    async def ask(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", name, key, len(ctx.resume_inputs))
        if key in ctx.resume_inputs:
            yield {"answer": ctx.resume_inputs[key]}
            return
        yield RequestInput(interrupt_id=key, message=f"which for {name}?")

    return FunctionNode(func=ask, name=name, rerun_on_resume=True)


def nested_parallel(ledger: Ledger) -> Workflow:
    a, b, c = payer(ledger, "a", 1), payer(ledger, "b", 2), payer(ledger, "c", 3)
    first, second = JoinNode(name="first"), JoinNode(name="second")
    inner = Workflow(name="inner", edges=[(START, (a, b)), ((a, b), first)])
    return Workflow(
        name="flow",
        edges=[(START, (inner, c)), ((inner, c), second), (second, gathering(ledger))],
    )


def loop_by_route(ledger: Ledger) -> Workflow:
    def draft(node_input: Any, ctx: Any) -> str:
        ledger.add("node", "draft", ctx.state.get("n", 0))
        return "draft"

    def check(node_input: Any, ctx: Any) -> dict[str, int]:
        n = ctx.state.get("n", 0) + 1
        ctx.state["n"] = n
        ledger.add("node", "check", n)
        ctx.route = "again" if n < 3 else "ok"
        return {"n": n}

    checker = FunctionNode(func=check, name="check")
    return Workflow(
        name="flow",
        edges=[(START, draft), (draft, checker), (checker, {"again": draft, "ok": end_of(ledger)})],
    )


def charge_then_ask(ledger: Ledger) -> Workflow:
    """R13: charges a card, then asks twice."""

    def charge(node_input: Any, ctx: Any) -> str:
        ledger.add("effect", "charge")
        ctx.state["charged"] = True
        ctx.route = "paid"
        return "receipt"

    charger = FunctionNode(func=charge, name="charge")
    first, second = question(ledger, "first", "q1"), question(ledger, "second", "q2")
    return Workflow(
        name="flow",
        edges=[
            (START, charger),
            (charger, {"paid": first}),
            (first, second),
            (second, end_of(ledger)),
        ],
    )


class Line(BaseModel):
    item: str
    count: int = 1


def bound_to_input(ledger: Ledger) -> Workflow:
    """Functions with parameters of their own: ADK takes them from the input of their node."""

    def order(node_input: Any) -> Any:
        ledger.add("node", "order")
        return {"lines": [{"item": "tea", "count": 2}, {"item": "jam"}], "note": "soon"}

    def check(ctx: Any, lines: list[Line], note: str = "none") -> Any:
        ledger.add("node", "check", ctx.attempt_count, len(lines))
        lines.pop()  # a retry gets them anew
        if ctx.attempt_count < 2:
            raise ConnectionError("no answer")
        return {"item": lines[0].item, "count": lines[0].count, "note": note}

    async def ask(ctx: Any, item: str, count: int, note: str) -> Any:
        ledger.add("node", "ask", item, count, note, len(ctx.resume_inputs))
        if "q1" in ctx.resume_inputs:
            yield {"item": item, "count": count + 1}
            return
        yield RequestInput(interrupt_id="q1", message=f"{count} of {item}?")

    def ship(item: str, count: int) -> Any:
        ledger.add("node", "ship", item, count)
        return f"{count} of {item}"

    bound = functools.partial(FunctionNode, parameter_binding="node_input")
    retry = RetryConfig(max_attempts=5, initial_delay=0.001, jitter=0)
    checker = bound(func=check, name="check", retry_config=retry)
    asker = bound(func=ask, name="ask", rerun_on_resume=True)
    shipper = bound(func=ship, name="ship", require_confirmation=True, rerun_on_resume=True)
    edges = [(START, order), (order, checker), (checker, asker), (asker, shipper)]
    return Workflow(name="flow", edges=[*edges, (shipper, end_of(ledger))])


@dataclasses.dataclass
class Parcel:
    item: str
    size: tuple[int, int] = (2, 3)
    tags: list[str] = dataclasses.field(default_factory=list)


def typed_values(ledger: Ledger) -> Workflow:
    """What nodes hand to each other, and leave in the state, keeps its class."""

    def pack(node_input: Any) -> Any:
        ledger.add("node", "pack")
        return [Parcel("tea"), Parcel("jam", tags=["sweet"])]

    async def weigh(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "weigh", repr(node_input))
        yield {"heaviest": node_input[1]}
        ctx.state["first"] = {"parcel": node_input[0]}  # ADK writes it at the end of the run

    def label(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "label", repr(node_input), repr(ctx.state["first"]))
        return node_input["heaviest"]

    async def ask(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "ask", repr(node_input), len(ctx.resume_inputs))
        if "q1" in ctx.resume_inputs:
            ctx.state["sent"] = node_input
            yield node_input
            return
        yield RequestInput(interrupt_id="q1", message=f"send {node_input.item}?")

    def send(ctx: Any, node_input: Any) -> str:
        ledger.add("node", "send", repr(node_input), repr(ctx.state["sent"]))
        return f"{node_input.item} of {node_input.size[0]}"

    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    edges = [(START, pack), (pack, weigh), (weigh, label), (label, asker), (asker, send)]
    return Workflow(name="flow", edges=[*edges, (send, end_of(ledger))])


class Stamp(Node):
    """A node class of one's own: streams two events and keeps state."""

    ledger: Any = None

    async def run_node_impl(self, *, ctx: Any, node_input: Any) -> AsyncGenerator[Any, None]:
        self.ledger.add("node", self.name, str(node_input))
        await asyncio.sleep(0.002)
        yield Event(content=types.Content(role="model", parts=[types.Part(text="stamping")]))
        ctx.state[self.name] = "stamped"
        await ctx.save_artifact("stamp.txt", types.Part(text="stamp"))
        yield f"{node_input} stamped"


class AskingStamp(Node):
    """One that asks."""

    ledger: Any = None

    async def run_node_impl(self, *, ctx: Any, node_input: Any) -> AsyncGenerator[Any, None]:
        self.ledger.add("node", self.name, len(ctx.resume_inputs))
        if ctx.resume_inputs:
            yield f"asked: {next(iter(ctx.resume_inputs.values()))}"
            return
        yield RequestInput(message="stamp it?")


def with_artifacts(ledger: Ledger) -> dict[str, Any]:
    """Artifacts that every process sees."""
    return {"artifact_service": FileArtifactService(root_dir=f"{ledger.path}.artifacts")}


def own_nodes(ledger: Ledger) -> Workflow:
    stamp = Stamp(name="stamp", ledger=ledger)
    ask = AskingStamp(name="asking", rerun_on_resume=True, ledger=ledger)
    again = Stamp(name="again", ledger=ledger)
    return Workflow(
        name="flow", edges=[(START, stamp), (stamp, ask), (ask, again), (again, end_of(ledger))]
    )


def tool_nodes(ledger: Ledger) -> Workflow:
    """Tools as nodes, one of them confirmed."""

    def price(item: str) -> dict[str, Any]:
        """Look a price up."""
        ledger.add("tool", "price", item)
        return {"amount": 5}

    def pay(amount: int, tool_context: ToolContext) -> dict[str, Any]:
        """Pay."""
        ledger.add("tool", "pay", amount)
        tool_context.state["paid"] = amount
        return {"paid": amount}

    def first(node_input: Any) -> dict[str, str]:
        return {"item": "pen"}

    pricing, paying = FunctionTool(price), FunctionTool(pay, require_confirmation=True)
    return Workflow(
        name="flow",
        edges=[(START, first), (first, pricing), (pricing, paying), (paying, end_of(ledger))],
    )


def confirmed_function_node(ledger: Ledger) -> Workflow:
    def remove(node_input: Any) -> str:
        ledger.add("effect", "remove")
        return "removed"

    removing = node(remove, require_confirmation=True)
    return Workflow(name="flow", edges=[(START, removing), (removing, end_of(ledger))])


def items(ledger: Ledger) -> Any:
    def source(node_input: Any) -> list[int]:
        ledger.add("node", "source")
        return [0, 1, 2]

    return source


def worker_that_asks(
    ledger: Ledger, *, at_once: int | None = None, all_ask: bool = False
) -> Workflow:
    async def item(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "item", node_input, len(ctx.resume_inputs))
        await asyncio.sleep(0.002)
        if node_input != 1 and not all_ask:
            yield node_input * 10
        elif ctx.resume_inputs:
            yield f"{node_input}: {next(iter(ctx.resume_inputs.values()))}"
        else:
            yield RequestInput(message=f"item {node_input}?")

    source = items(ledger)
    worker = node(
        FunctionNode(func=item, name="item", rerun_on_resume=True),
        parallel_worker=True,
        max_parallel_workers=at_once,
    )
    return Workflow(
        name="flow", edges=[(START, source), (source, worker), (worker, gathering(ledger))]
    )


def worker_of_agents(ledger: Ledger) -> Workflow:
    tools = Tools(ledger)

    def choose(request: Any, turn: int) -> Any:
        # After a wait ADK shows the agent its calls, but no longer its input.
        parts = [part for content in request.contents for part in content.parts or ()]
        asked = [part.function_call.args.get("q") for part in parts if part.function_call]
        texts = [part.text for part in parts if part.text]
        n = next(int(text) for text in [*asked, *texts] if text and text.isdigit())
        replies = [calls(("slow", {"q": str(n)})), calls(("pay", {"amount": n})), says(f"done {n}")]
        return replies[min(turn, 2)]

    one = agent(ledger, "one", tools=[tools.slow, tools.confirmed_pay])
    model: Any = one.model
    model.script = choose

    def source(node_input: Any) -> list[str]:
        ledger.add("node", "source")
        return ["10", "11", "12"]

    worker = node(one, parallel_worker=True)
    return Workflow(
        name="flow", edges=[(START, source), (source, worker), (worker, gathering(ledger))]
    )


class Squaring(Node):
    ledger: Any = None

    async def run_node_impl(self, *, ctx: Any, node_input: Any) -> AsyncGenerator[Any, None]:
        self.ledger.add("node", self.name, node_input)
        await asyncio.sleep(0.002)
        yield node_input * node_input


def own_node_as_worker(ledger: Ledger) -> Workflow:
    source = items(ledger)
    squaring = Squaring(name="squaring", parallel_worker=True, ledger=ledger)
    ask = question(ledger)
    return Workflow(
        name="flow",
        edges=[(START, source), (source, squaring), (squaring, ask), (ask, end_of(ledger))],
    )


def retried(ledger: Ledger) -> Workflow:
    """Fails twice, then works; what precedes it and what follows run once."""
    failures = [0]

    def prepare(node_input: Any) -> str:
        ledger.add("node", "prepare")
        return "prepared"

    def flaky(node_input: Any, ctx: Any) -> str:
        ledger.add("node", "flaky", ctx.attempt_count)
        failures[0] += 1
        if ctx.attempt_count < 3:
            raise ConnectionError("no answer")
        return "got it"

    retry = RetryConfig(max_attempts=5, initial_delay=0.001, jitter=0)
    flaky_node = FunctionNode(func=flaky, name="flaky", retry_config=retry)
    ask = question(ledger)
    return Workflow(
        name="flow",
        edges=[(START, prepare), (prepare, flaky_node), (flaky_node, ask), (ask, end_of(ledger))],
    )


def timed_out(ledger: Ledger) -> Workflow:
    async def slow(node_input: Any, ctx: Any) -> str:
        ledger.add("node", "slow", ctx.attempt_count)
        if ctx.attempt_count == 1:
            await asyncio.sleep(5)
        return "in time"

    retry = RetryConfig(max_attempts=3, initial_delay=0.001, jitter=0)
    slow_node = FunctionNode(func=slow, name="slow", retry_config=retry, timeout=0.4)
    ask = question(ledger)
    return Workflow(
        name="flow", edges=[(START, slow_node), (slow_node, ask), (ask, end_of(ledger))]
    )


def two_at_a_time(ledger: Ledger) -> Workflow:
    """``max_concurrency``: five branches, two of them at once, two that ask."""

    def branch(name: str) -> Any:
        async def run(node_input: Any) -> str:
            ledger.add("node", name)
            await asyncio.sleep(0.002)
            return name

        return FunctionNode(func=run, name=name)

    parts = (branch("a"), question(ledger, "q1", "q1"), branch("b"), question(ledger, "q2", "q2"))
    join = JoinNode(name="join")
    return Workflow(
        name="flow",
        max_concurrency=2,
        edges=[(START, parts), (parts, join), (join, gathering(ledger))],
    )


def waits_for_output(ledger: Ledger) -> Workflow:
    """A node that is triggered by each predecessor and answers when it has seen both."""

    def one(node_input: Any) -> int:
        ledger.add("node", "one")
        return 1

    async def two(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "two", len(ctx.resume_inputs))
        if ctx.resume_inputs:
            yield 2
            return
        yield RequestInput(interrupt_id="two", message="two?")

    def collect(node_input: Any, ctx: Any) -> int | None:
        seen = [*ctx.state.get("seen", []), node_input]
        ctx.state["seen"] = seen
        ledger.add("node", "collect", len(seen))
        return sum(seen) if len(seen) == 2 else None

    asking = FunctionNode(func=two, name="two", rerun_on_resume=True)
    collector = FunctionNode(func=collect, name="collect")
    collector.wait_for_output = True
    return Workflow(
        name="flow",
        edges=[
            (START, (one, asking)),
            ((one, asking), collector),
            (collector, end_of(ledger)),
        ],
    )


def transferring_node(ledger: Ledger) -> Workflow:
    """A chat agent in a workflow that hands over to its sub-agent; ADK takes it first only."""
    tools = Tools(ledger)
    helper = agent(
        ledger,
        "helper",
        calls(("pay", {"amount": 1})),
        says("helped"),
        description="helper",
        tools=[tools.confirmed_pay],
    )
    desk = agent(
        ledger,
        "desk",
        calls(("transfer_to_agent", {"agent_name": "helper"})),
        sub_agents=[helper],
        mode="chat",
    )

    return Workflow(name="flow", edges=[(START, desk)])


def task_node(ledger: Ledger) -> Workflow:
    tools = Tools(ledger)
    tk = agent(
        ledger,
        "tk",
        calls(("pay", {"amount": 1})),
        calls(("finish_task", {"result": "ok"})),
        mode="task",
        tools=[tools.confirmed_pay],
    )
    return Workflow(name="flow", edges=[(START, tk), (tk, end_of(ledger))])


def agreed(wait: Any) -> Any:
    """Confirmations of nodes come as questions whose answer has a schema."""
    if wait["kind"] == "adk_request_confirmation" or "confirmed" in as_text(wait):
        return {"confirmed": True}
    return "blue"


def until_third(wait: Any) -> Any:
    return {"ok": wait["message"].endswith("3")}


SHAPES = {
    "nested workflow": Shape(build=nested, feature="`Workflow`: serial, nested", waits=(1,)),
    "parallel workflow with join, asking three ways": Shape(
        build=two_confirmations_and_a_question,
        feature="`Workflow`: parallel branches, joins",
        waits=(3,),
        in_flight=6,
    ),
    "nested parallel workflows": Shape(
        build=nested_parallel,
        feature="`Workflow`: parallel branches, joins",
        waits=(3,),
        in_flight=6,
    ),
    "loop by route": Shape(build=loop_by_route, feature="`Workflow`: routes, loops"),
    "loop with a review": Shape(
        build=review_loop,
        feature="`Workflow`: routes, loops",
        waits=(1, 1, 1),
        answer=until_third,
    ),
    "a charge before two questions": Shape(
        build=charge_then_ask, feature="function nodes, recorded once", waits=(1, 1)
    ),
    "node classes of one's own": Shape(
        build=own_nodes,
        feature="custom `Node` classes, artifacts",
        waits=(1,),
        app=with_artifacts,
        bumps=True,
    ),
    "tools as nodes": Shape(build=tool_nodes, feature="tools as nodes", waits=(1,), answer=agreed),
    "a confirmed function node": Shape(
        build=confirmed_function_node,
        feature="`require_confirmation` of nodes",
        waits=(1,),
        answer=agreed,
    ),
    "functions bound to their input": Shape(
        build=bound_to_input,
        feature="function nodes bound to their input",
        waits=(1, 1),
        answer=agreed,
    ),
    "typed values between nodes": Shape(
        build=typed_values, feature="dataclasses between nodes and in state", waits=(1,)
    ),
    "parallel worker, one item asks": Shape(
        build=worker_that_asks, feature="`parallel_worker`", waits=(1,), in_flight=4
    ),
    "parallel worker, two at a time, all ask": Shape(
        build=lambda ledger: worker_that_asks(ledger, at_once=2, all_ask=True),
        feature="`parallel_worker`, `max_parallel_workers`",
        waits=(2, 1),
        in_flight=3,
    ),
    "parallel worker of agents that ask": Shape(
        build=worker_of_agents,
        feature="`parallel_worker`",
        waits=(3,),
        in_flight=6,
        repeats={("model", "one", turn): 3 for turn in range(3)},
    ),
    "a node class as parallel worker": Shape(
        build=own_node_as_worker, feature="`parallel_worker`", waits=(1,), in_flight=4
    ),
    "retries": Shape(build=retried, feature="node `retry_config`", waits=(1,)),
    "a timeout and a retry": Shape(build=timed_out, feature="node `timeout`", waits=(1,)),
    "two branches at a time": Shape(
        build=two_at_a_time, feature="`max_concurrency`", waits=(2,), in_flight=3
    ),
    "a node that waits for output": Shape(
        build=waits_for_output,
        feature="`wait_for_output`",
        waits=(1,),
        in_flight=3,
        stock="the node that waits is entered once more on resume",
    ),
    "transfer in a workflow node": Shape(
        build=transferring_node,
        feature="transfers inside a chat agent node",
        waits=(1,),
        stock="the approved tool of the agent that took over never runs",
    ),
    "task as a workflow node": Shape(build=task_node, feature='`mode="task"`', waits=(1,)),
}
