"""Programs that are killed everywhere: small, but each with something that can be lost."""

from __future__ import annotations

import asyncio
import functools
import json
import random
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow

from durable_adk import durable_tool, expiring, sleep, step
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.support.lives import Case, Ledger


class Tools:
    """Tools that write to a ledger; some take a moment, because instant ones hide races."""

    def __init__(self, ledger: Ledger) -> None:
        def look(q: str) -> dict[str, Any]:
            """Look something up."""
            ledger.add("tool", "look", q)
            return {"found": q}

        def pay(amount: int) -> dict[str, Any]:
            """Pay."""
            ledger.add("tool", "pay", amount)
            return {"paid": amount}

        async def slow(q: str) -> dict[str, Any]:
            """Take a moment."""
            ledger.add("tool", "slow", q)
            await asyncio.sleep(random.random() * 0.01)
            return {"slow": q}

        def later(q: str) -> None:
            """Answer later."""
            ledger.add("tool", "later", q)

        self.look, self.pay, self.slow = look, pay, slow
        self.confirmed_pay = FunctionTool(pay, require_confirmation=True)
        self.later = LongRunningFunctionTool(later)


def agent(ledger: Ledger, name: str, *script: Any, **fields: Any) -> LlmAgent:
    model = ScriptedModel(
        model=name, script=script, on_call=lambda turn: ledger.add("model", name, turn)
    )
    return LlmAgent(name=name, model=model, **fields)


def by_own_turns(llm: LlmAgent, *script: Any) -> LlmAgent:
    """Let the k-th model turn of the conversation (not the k-th answer) choose the reply."""

    def choose(request: Any, _turn: int) -> Any:
        own = sum(1 for content in request.contents if content.role == "model")
        return script[min(own, len(script) - 1)]

    model: Any = llm.model
    model.script = choose
    return llm


def two_confirmations_and_a_question(ledger: Ledger) -> Workflow:
    """W1: two agents with a confirmed tool, a node that asks, a node without output; a join."""
    tools = Tools(ledger)

    def payer(name: str, amount: int) -> LlmAgent:
        return agent(
            ledger,
            name,
            calls(("slow", {"q": name})),
            calls(("pay", {"amount": amount})),
            says(f"{name} done"),
            tools=[tools.slow, tools.confirmed_pay],
        )

    async def ask(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "ask", len(ctx.resume_inputs))
        if "q1" in ctx.resume_inputs:
            yield {"answer": ctx.resume_inputs["q1"]}
            return
        yield RequestInput(interrupt_id="q1", message="which?")

    def plain(node_input: Any, ctx: Any) -> None:
        ledger.add("node", "plain")
        ctx.state["plain"] = ("seen", 1)

    def end(node_input: Any) -> str:
        ledger.add("node", "end")
        return json.dumps(node_input, sort_keys=True, default=str)

    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    join = JoinNode(name="join")
    parts = (payer("a", 1), payer("b", 2), asker, plain)
    return Workflow(name="flow", edges=[(START, parts), (parts, join), (join, end)])


def ten_tools(ledger: Ledger) -> LlmAgent:
    """Ten tool calls: some alone, some in parallel, one that must not run twice."""
    tools = Tools(ledger)

    @durable_tool(on_unknown_outcome="rerun")
    def note(text: str, tool_context: Any) -> str:
        """Write a note into the state."""
        ledger.add("tool", "note", text)
        tool_context.state[f"note:{text}"] = text
        return text

    return agent(
        ledger,
        "ten",
        calls(("look", {"q": "1"})),
        calls(("note", {"text": "2"})),
        calls(("slow", {"q": "3"}), ("slow", {"q": "4"}), ("look", {"q": "5"})),
        calls(("look", {"q": "6"}, "call_0")),
        calls(("look", {"q": "7"}, "call_0")),
        calls(("slow", {"q": "8"}), ("note", {"text": "9"})),
        calls(("pay", {"amount": 10})),
        says("ten calls done"),
        tools=[tools.look, tools.slow, tools.pay, note],
    )


def transfer_and_back(ledger: Ledger) -> LlmAgent:
    """A sub-agent that asks twice, once in each of two visits."""
    tools = Tools(ledger)

    def move(name: str) -> Any:
        return calls(("transfer_to_agent", {"agent_name": name}))

    helper = by_own_turns(
        agent(ledger, "helper", description="helper", tools=[tools.confirmed_pay]),
        calls(("pay", {"amount": 1})),
        move("root"),
        calls(("pay", {"amount": 2})),
        move("root"),
    )
    return by_own_turns(
        agent(ledger, "root", sub_agents=[helper]), move("helper"), move("helper"), says("done")
    )


def review_loop(ledger: Ledger) -> Workflow:
    """A draft that a person rejects twice: state, a route and a wait in each round."""

    def draft(node_input: Any, ctx: Any) -> int:
        n = ctx.state.get("n", 0) + 1
        ctx.state["n"] = n
        ledger.add("node", "draft", n)
        return n

    async def review(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "review", node_input, len(ctx.resume_inputs))
        key = f"r{node_input}"
        if key in ctx.resume_inputs:
            ctx.route = "ok" if ctx.resume_inputs[key]["ok"] else "again"
            yield "reviewed"
            return
        yield RequestInput(interrupt_id=key, message=f"review {node_input}")

    def end(node_input: Any) -> str:
        ledger.add("node", "end")
        return "published"

    reviewer = FunctionNode(func=review, name="review", rerun_on_resume=True)
    return Workflow(
        name="flow",
        edges=[(START, draft), (draft, reviewer), (reviewer, {"again": draft, "ok": end})],
    )


def nested(ledger: Ledger) -> Workflow:
    """A workflow in a workflow, with a confirmation inside."""
    tools = Tools(ledger)

    def prepare(node_input: Any) -> str:
        ledger.add("node", "prepare")
        return "prepared"

    def middle(node_input: Any, ctx: Any) -> str:
        ledger.add("node", "middle")
        ctx.state["middle"] = 1
        return f"middle of {node_input}"

    def end(node_input: Any) -> str:
        ledger.add("node", "end")
        return f"end of {node_input}"

    payer = agent(
        ledger,
        "payer",
        calls(("look", {"q": "a"})),
        calls(("pay", {"amount": 1})),
        says("paid"),
        tools=[tools.look, tools.confirmed_pay],
    )
    inner = Workflow(name="inner", edges=[(START, middle), (middle, payer)])
    return Workflow(name="outer", edges=[(START, prepare), (prepare, inner), (inner, end)])


def long_running(ledger: Ledger) -> LlmAgent:
    """Two turns, each with a tool that is answered later."""
    tools = Tools(ledger)
    return by_own_turns(
        agent(ledger, "desk", tools=[tools.later, tools.look]),
        calls(("later", {"q": "first"})),
        calls(("look", {"q": "x"})),
        says("first turn done"),
        calls(("later", {"q": "second"})),
        says("second turn done"),
    )


def approve_even(wait: Any) -> Any:
    if wait["kind"] == "adk_request_confirmation":
        return {"confirmed": wait["tool_call"]["args"]["amount"] % 2 == 0}
    return 42


def sleeps(ledger: Ledger, *, expire: bool = False) -> Workflow:
    """A node and a tool that sleep, beside a confirmation and a question; they may expire."""

    async def nap(who: str) -> str:
        """Sleep for a while."""
        await step("before", ledger.add, "nap", who)
        await sleep(60)
        ledger.add("tool", "nap", who)
        return f"{who} slept"

    @durable_tool(expires_after="90s" if expire else None)
    def pay(amount: int) -> dict[str, Any]:
        """Pay."""
        ledger.add("tool", "pay", amount)
        return {"paid": amount}

    async def doze(node_input: Any) -> str:
        await step("before", ledger.add, "nap", "node")
        await sleep(30)
        ledger.add("node", "doze")
        return "up"

    def ask(node_input: Any) -> Any:
        question = RequestInput(message="?", response_schema=str)
        yield expiring(question, "60s", "nobody") if expire else question

    def end(node_input: Any) -> Any:
        ledger.add("node", "end")
        return node_input

    script = [calls(("nap", {"who": "tool"}), ("pay", {"amount": 5})), says("done")]
    tools = [nap, FunctionTool(pay, require_confirmation=True)]
    branches = (agent(ledger, "desk", *script, tools=tools), doze, ask)
    return Workflow(name="night", edges=[(START, branches, JoinNode(name="join"), end)])


CASES = {
    "two confirmations and a question": Case(build=two_confirmations_and_a_question, in_flight=4),
    "one approved, one declined": Case(
        build=two_confirmations_and_a_question, in_flight=4, answer=approve_even
    ),
    "ten tools": Case(build=ten_tools, in_flight=4),
    "transfer and back": Case(build=transfer_and_back),
    "review loop": Case(
        build=review_loop, answer=lambda wait: {"ok": wait["message"].endswith("3")}
    ),
    "nested workflow": Case(build=nested),
    "two turns with a long-running tool": Case(build=long_running, messages=("one", "two")),
    "sleeps and expiries": Case(
        build=functools.partial(sleeps, expire=True), in_flight=4, answer=lambda wait: None
    ),
    "sleeps beside questions": Case(build=sleeps, in_flight=4),
}
