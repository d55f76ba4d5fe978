"""Shapes of agents that other agents call: ``AgentTool``, ``single_turn``, ``task``, node tools."""

from __future__ import annotations

import asyncio
from typing import Any

from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.events import RequestInput
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, FunctionNode, Workflow
from pydantic import BaseModel

from durable_adk.adk.scripted_model import calls, says
from tests.faults.catalogue import Tools, agent, by_own_turns
from tests.shapes.composite import end_of, payer, tail
from tests.shapes.shape import Shape
from tests.support.lives import Ledger


def inner_agent(ledger: Ledger, **fields: Any) -> LlmAgent:
    tools = Tools(ledger)
    return agent(
        ledger,
        "inner",
        calls(("slow", {"q": "i"})),
        says("inner done"),
        description="inner",
        tools=[tools.slow],
        **fields,
    )


def asking_agent(ledger: Ledger, name: str = "inner", **fields: Any) -> LlmAgent:
    """Looks, then pays what its request says, once a person agrees."""
    tools = Tools(ledger)

    async def slow(q: str) -> dict[str, Any]:
        """Take a moment; the second of two at once takes longer than the first needs to ask."""
        ledger.add("tool", "slow", q)
        await asyncio.sleep(0.1 if q.endswith("2") else 0.002)
        return {"slow": q}

    def choose(request: Any, turn: int) -> Any:
        texts = [p.text for c in request.contents for p in c.parts or () if p.text]
        amount = 2 if any(text.strip().endswith("y") for text in texts) else 1
        replies = [
            calls(("slow", {"q": f"{name}{amount}"})),
            calls(("pay", {"amount": amount})),
            says(f"{name} done {amount}"),
        ]
        return replies[min(turn, 2)]

    made = agent(ledger, name, description=name, tools=[slow, tools.confirmed_pay], **fields)
    model: Any = made.model
    model.script = choose
    return made


def calling(ledger: Ledger, *named: str, tools: Any = (), **fields: Any) -> LlmAgent:
    """A root that asks the named tools at once, each with a request of its own."""
    asked = [(name, {"request": "xyz"[place]}) for place, name in enumerate(named)]
    return agent(ledger, "root", calls(*asked), says("done"), tools=list(tools), **fields)


def agent_tool(ledger: Ledger) -> LlmAgent:
    return calling(ledger, "inner", tools=[AgentTool(inner_agent(ledger))])


def agent_tool_twice(ledger: Ledger) -> LlmAgent:
    return calling(ledger, "inner", "inner", tools=[AgentTool(inner_agent(ledger))])


def agent_tool_nested(ledger: Ledger) -> LlmAgent:
    middle = agent(
        ledger,
        "middle",
        calls(("inner", {"request": "x"})),
        says("middle done"),
        description="middle",
        tools=[AgentTool(inner_agent(ledger))],
    )
    return calling(ledger, "middle", tools=[AgentTool(middle)])


def agent_tool_of_a_sequence(ledger: Ledger) -> LlmAgent:
    parts = [payer(ledger, "a", 1, asks=False), tail(ledger)]
    seq = SequentialAgent(name="seq", description="seq", sub_agents=parts)
    return calling(ledger, "seq", tools=[AgentTool(seq)])


def agent_tool_asks(ledger: Ledger) -> LlmAgent:
    return calling(ledger, "inner", tools=[AgentTool(asking_agent(ledger))])


def agent_tool_asks_in_a_node(ledger: Ledger) -> Workflow:
    root = agent_tool_asks(ledger)
    return Workflow(name="flow", edges=[(START, root), (root, end_of(ledger))])


def agent_tool_asks_twice(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    inner = AgentTool(asking_agent(ledger))
    asked = [("inner", {"request": "x"}), ("inner", {"request": "y"}), ("slow", {"q": "side"})]
    return agent(ledger, "root", calls(*asked), says("done"), tools=[inner, tools.slow])


def agent_tool_asks_nested(ledger: Ledger) -> LlmAgent:
    middle = agent(
        ledger,
        "middle",
        calls(("inner", {"request": "x"})),
        says("middle done"),
        description="middle",
        tools=[AgentTool(asking_agent(ledger))],
    )
    return calling(ledger, "middle", tools=[AgentTool(middle)])


def agent_tool_of_a_sequence_asks(ledger: Ledger) -> LlmAgent:
    parts = [payer(ledger, "a", 1), tail(ledger)]
    seq = SequentialAgent(name="seq", description="seq", sub_agents=parts)
    return calling(ledger, "seq", tools=[AgentTool(seq)])


def asked_again(ledger: Ledger, **how: Any) -> LlmAgent:
    """The same agent is called again after its first call has asked."""
    return by_own_turns(
        agent(ledger, "root", **how),
        calls(("inner", {"request": "x"})),
        calls(("inner", {"request": "y"})),
        says("done"),
    )


def single_turn_asks_again(ledger: Ledger) -> LlmAgent:
    return asked_again(ledger, sub_agents=[asking_agent(ledger, mode="single_turn")])


def agent_tool_asks_again(ledger: Ledger) -> LlmAgent:
    return asked_again(ledger, tools=[AgentTool(asking_agent(ledger))])


def workflow_tool_asks_again(ledger: Ledger) -> LlmAgent:
    inner = asking_agent(ledger)
    return asked_again(
        ledger, tools=[Workflow(name="inner", input_schema=str, edges=[(START, inner)])]
    )


def single_turn_asks_beside_a_branch(ledger: Ledger) -> ParallelAgent:
    """One branch asks below a tool while the model of another takes its time, three times."""
    tools = Tools(ledger)
    asks = calling(ledger, "inner", sub_agents=[asking_agent(ledger, mode="single_turn")])
    works = agent(
        ledger,
        "works",
        calls(("slow", {"q": "1"})),
        calls(("slow", {"q": "2"})),
        says("worked"),
        tools=[tools.slow],
    )
    model: Any = works.model
    model.delay = 0.05
    return ParallelAgent(name="par", sub_agents=[asks, works])


def single_turn(ledger: Ledger) -> LlmAgent:
    return calling(ledger, "inner", sub_agents=[inner_agent(ledger, mode="single_turn")])


def single_turn_twice(ledger: Ledger) -> LlmAgent:
    return calling(ledger, "inner", "inner", sub_agents=[inner_agent(ledger, mode="single_turn")])


def single_turn_asks(ledger: Ledger) -> LlmAgent:
    return calling(ledger, "inner", sub_agents=[asking_agent(ledger, mode="single_turn")])


def single_turn_asks_twice(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    asked = [("inner", {"request": "x"}), ("inner", {"request": "y"}), ("slow", {"q": "side"})]
    sub_agent = asking_agent(ledger, mode="single_turn")
    return agent(
        ledger, "root", calls(*asked), says("done"), tools=[tools.slow], sub_agents=[sub_agent]
    )


def single_turn_asks_in_a_node(ledger: Ledger) -> Workflow:
    root = single_turn_asks(ledger)
    return Workflow(name="flow", edges=[(START, root), (root, end_of(ledger))])


def task(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    tk = agent(
        ledger,
        "tk",
        calls(("slow", {"q": "t"})),
        calls(("finish_task", {"result": "ok"})),
        description="task",
        mode="task",
        tools=[tools.slow],
    )
    return by_own_turns(
        agent(ledger, "root", sub_agents=[tk], tools=[tools.look]),
        calls(("look", {"q": "r"})),
        calls(("tk", {"request": "x"})),
        says("done"),
    )


def task_asks(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    tk = agent(
        ledger,
        "tk",
        calls(("pay", {"amount": 1})),
        calls(("slow", {"q": "t"})),
        calls(("finish_task", {"result": "ok"})),
        description="task",
        mode="task",
        tools=[tools.slow, tools.confirmed_pay],
    )
    return by_own_turns(
        agent(ledger, "root", sub_agents=[tk], tools=[tools.look]),
        calls(("look", {"q": "r"})),
        calls(("tk", {"request": "x"})),
        says("done"),
    )


def task_talks(ledger: Ledger) -> LlmAgent:
    """A task that asks the user in words, and finishes in the next turn."""
    tk = by_own_turns(
        agent(ledger, "tk", description="task", mode="task"),
        says("how many?"),
        calls(("finish_task", {"result": "three"})),
    )
    return by_own_turns(
        agent(ledger, "root", sub_agents=[tk]), calls(("tk", {"request": "x"})), says("done")
    )


def task_root(ledger: Ledger) -> LlmAgent:
    tools = Tools(ledger)
    return by_own_turns(
        agent(ledger, "root", mode="task", tools=[tools.confirmed_pay]),
        calls(("pay", {"amount": 1})),
        says("anything else?"),
        calls(("finish_task", {"result": "ok"})),
    )


class Order(BaseModel):
    item: str
    count: int


def function_tool_node(ledger: Ledger) -> LlmAgent:
    """A function node and a workflow as tools of an agent."""

    def pack(node_input: Order) -> str:
        ledger.add("node", "pack", node_input.item)
        return f"{node_input.count} x {node_input.item}"

    def label(node_input: Any) -> str:
        ledger.add("node", "label")
        return f"label for {node_input}"

    async def ask(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "ask", len(ctx.resume_inputs))
        if ctx.resume_inputs:
            yield f"{node_input}: {next(iter(ctx.resume_inputs.values()))}"
            return
        yield RequestInput(message="where to?")

    packer = FunctionNode(func=pack, name="pack")
    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    ship = Workflow(
        name="ship", input_schema=Order, edges=[(START, packer), (packer, label), (label, asker)]
    )
    return agent(
        ledger,
        "root",
        calls(("ship", {"item": "pen", "count": 2})),
        says("done"),
        tools=[ship],
    )


def workflow_tools(ledger: Ledger) -> LlmAgent:
    """Two calls of a workflow tool at once, each with an agent that asks in it."""
    inner = asking_agent(ledger)
    flow = Workflow(name="flow", input_schema=str, edges=[(START, inner)])
    return calling(ledger, "flow", "flow", tools=[flow])


AT = "`AgentTool`"
LOST = "the wait is lost: an error text goes to the model"
CANCELLED = "one that asks cancels the other in the middle of a tool, which runs again"
TWICE = {
    ("model", "inner", 0): 2,
    ("model", "inner", 1): 2,
    ("tool", "slow", "i"): 2,
}
ASKED_TWICE = {("model", "inner", turn): 2 for turn in range(3)}
# In a run that was resumed ADK does not show the second call's input to its model: both look alike.
ALIKE = {**ASKED_TWICE, ("tool", "slow", "inner1"): 2, ("tool", "pay", 1): 2}

SHAPES = {
    "agent tool": Shape(build=agent_tool, feature=AT),
    "agent tool twice at once": Shape(
        build=agent_tool_twice, feature=AT, repeats=TWICE, in_flight=4
    ),
    "agent tool in an agent tool": Shape(build=agent_tool_nested, feature=AT),
    "agent tool of a sequence": Shape(build=agent_tool_of_a_sequence, feature=AT),
    "agent tool that asks": Shape(
        build=agent_tool_asks, feature=f"{AT} with waits inside", waits=(1,), stock=LOST
    ),
    "agent tool that asks, in a node": Shape(
        build=agent_tool_asks_in_a_node, feature=f"{AT} with waits inside", waits=(1,), stock=LOST
    ),
    "agent tools that ask at once": Shape(
        build=agent_tool_asks_twice,
        feature=f"{AT} with waits inside",
        waits=(2,),
        repeats=ASKED_TWICE,
        in_flight=4,
        stock=LOST,
    ),
    "agent tool that asks in an agent tool": Shape(
        build=agent_tool_asks_nested, feature=f"{AT} with waits inside", waits=(1,), stock=LOST
    ),
    "agent tool of a sequence that asks": Shape(
        build=agent_tool_of_a_sequence_asks,
        feature=f"{AT} with waits inside",
        waits=(1,),
        stock=LOST,
    ),
    "single turn": Shape(build=single_turn, feature='`mode="single_turn"`'),
    "single turn twice at once": Shape(
        build=single_turn_twice, feature='`mode="single_turn"`', repeats=TWICE, in_flight=4
    ),
    "single turn that asks": Shape(
        build=single_turn_asks, feature='`mode="single_turn"` with waits inside', waits=(1,)
    ),
    "single turns that ask at once": Shape(
        build=single_turn_asks_twice,
        feature='`mode="single_turn"` with waits inside',
        waits=(2,),
        repeats=ASKED_TWICE,
        in_flight=4,
        stock=CANCELLED,
    ),
    "single turn that asks, in a node": Shape(
        build=single_turn_asks_in_a_node,
        feature='`mode="single_turn"` with waits inside',
        waits=(1,),
    ),
    "single turn that asks beside a branch": Shape(
        build=single_turn_asks_beside_a_branch,
        feature='`mode="single_turn"` with waits inside',
        waits=(1,),
        in_flight=3,
        stock="the other branch is cancelled in the middle of a model call",
    ),
    "single turn that asks, called again": Shape(
        build=single_turn_asks_again,
        feature='`mode="single_turn"` with waits inside',
        waits=(1, 1),
        repeats=ALIKE,
    ),
    "agent tool that asks, called again": Shape(
        build=agent_tool_asks_again,
        feature=f"{AT} with waits inside",
        waits=(1, 1),
        repeats=ALIKE,
        stock=LOST,
    ),
    "workflow tool that asks, called again": Shape(
        build=workflow_tool_asks_again,
        feature="nodes and workflows as tools",
        waits=(1, 1),
        repeats=ASKED_TWICE,
    ),
    "task": Shape(build=task, feature='`mode="task"`'),
    "task that asks": Shape(build=task_asks, feature='`mode="task"`', waits=(1,)),
    "task over two messages": Shape(
        build=task_talks,
        feature='`mode="task"`',
        messages=("one", "two"),
        repeats={("model", "tk", 0): 2},
    ),
    "task as root": Shape(
        build=task_root,
        feature='`mode="task"`',
        waits=(1,),
        messages=("one", "two"),
        repeats={("model", "root", 1): 2},
    ),
    "workflow as a tool": Shape(
        build=function_tool_node, feature="nodes and workflows as tools", waits=(1,)
    ),
    "workflow tools that ask at once": Shape(
        build=workflow_tools,
        feature="nodes and workflows as tools",
        waits=(2,),
        repeats=ASKED_TWICE,
        in_flight=4,
        stock=CANCELLED,
    ),
}
