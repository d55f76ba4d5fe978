"""The programs that the histories of this folder were made with. Never change one: add another.

A stored history has to fit the very program that made it. A change here would be the changed code
that a mismatch is for.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi.openapi.models import APIKey, APIKeyIn
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.auth.auth_credential import AuthCredential
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events import RequestInput
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.authenticated_function_tool import AuthenticatedFunctionTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, RetryConfig, Workflow, node
from google.genai import types

from durable_adk import MongoArtifactService, durable_tool, expiring, sleep, step, uuid4
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.support.lives import Ledger


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A program, and what is said to it. The last message is the one whose execution is kept open.

    Attributes:
        frontiers: How many it has; the open history stands at the last one. 0: its owner died at
            ``dies_at`` instead.
        dies_at: A fault point and the how-manyeth time it is reached. With frontiers: it was
            recovered then, and the first of them is what the recovery asked.
        forks: The last message goes to a fork of the session.
        answer: The value for a wait (its ``to_dict()``); None leaves it open until it expires.
        deadline: Of the execution.
        ends: How it ends.
        inside: How many recorded steps are in bodies that a check of the open history does not
            enter, because they have not returned.
        streams: Partial responses too.
        app: More arguments of ``App``.
        config: More keys of its configuration.
    """

    build: Callable[[Ledger], Any]
    messages: Sequence[str] = ("go",)
    frontiers: int = 1
    dies_at: tuple[str, int] | None = None
    forks: bool = False
    answer: Callable[[Mapping[str, Any]], Any] | None = None
    streams: bool = False
    deadline: Any = None
    ends: str = "completed"
    inside: int = 0
    app: Callable[[], dict[str, Any]] = field(default=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def answers(self, waits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Empty where all goes on by itself: when it has slept, or expires."""
        asked = [wait for wait in waits if wait["kind"] != "timer"]
        given = {wait["id"]: (self.answer or agreed)(wait) for wait in asked}
        return {wait: value for wait, value in given.items() if value is not None}

    @property
    def run_config(self) -> RunConfig | None:
        return RunConfig(streaming_mode=StreamingMode.SSE) if self.streams else None


def agreed(wait: Mapping[str, Any]) -> Any:
    return {"confirmed": True} if wait["kind"] == "adk_request_confirmation" else "blue"


# ------------------------------------------------------------------ parts


def agent(ledger: Ledger, name: str, *script: Any, **fields: Any) -> LlmAgent:
    model = ScriptedModel(
        model=name, script=script, on_call=lambda turn: ledger.add("model", name, turn)
    )
    return LlmAgent(name=name, model=model, **fields)


def by_own_turns(llm: LlmAgent, *script: Any) -> LlmAgent:
    """Let the k-th model turn of the conversation choose the reply."""

    def choose(request: Any, _turn: int) -> Any:
        own = sum(1 for content in request.contents if content.role == "model")
        return script[min(own, len(script) - 1)]

    model: Any = llm.model
    model.script = choose
    return llm


def look_tool(ledger: Ledger) -> Any:
    def look(q: str) -> dict[str, Any]:
        """Look something up."""
        ledger.add("look", q)
        return {"found": q}

    return look


def pay_tool(ledger: Ledger) -> FunctionTool:
    def pay(amount: int) -> dict[str, Any]:
        """Pay."""
        ledger.add("pay", amount)
        return {"paid": amount}

    return FunctionTool(pay, require_confirmation=True)


def asking(ledger: Ledger, name: str = "ask", key: str = "q") -> FunctionNode:
    async def ask(ctx: Any, node_input: Any) -> Any:
        ledger.add(name, len(ctx.resume_inputs))
        if key in ctx.resume_inputs:
            yield {"answer": ctx.resume_inputs[key]}
            return
        yield RequestInput(interrupt_id=key, message=f"{name}?")

    return FunctionNode(func=ask, name=name, rerun_on_resume=True)


def plain(ledger: Ledger, name: str) -> FunctionNode:
    def run(node_input: Any, ctx: Any) -> str:
        ledger.add(name)
        ctx.state[name] = 1
        return f"{name} of {json.dumps(node_input, sort_keys=True, default=str)}"

    return FunctionNode(func=run, name=name)


def payer(ledger: Ledger, name: str, amount: int = 1, **fields: Any) -> LlmAgent:
    script = [
        calls(("look", {"q": name})),
        calls(("pay", {"amount": amount})),
        says(f"{name} done"),
    ]
    tools = [look_tool(ledger), pay_tool(ledger)]
    return agent(ledger, name, *script, tools=tools, **fields)


# ------------------------------------------------------------------ programs


def single(ledger: Ledger) -> LlmAgent:
    @durable_tool(on_unknown_outcome="fail")
    def charge(amount: int) -> str:
        """Charge."""
        ledger.add("charge", amount)
        return "charged"

    look = look_tool(ledger)
    script = [
        calls(("look", {"q": "a"}), ("look", {"q": "b"})),
        calls(("charge", {"amount": 5})),
        calls(("look", {"q": "c"})),
        says("all looked up"),
    ]
    return agent(ledger, "single", *script, tools=[look, charge])


def w1(ledger: Ledger) -> Workflow:
    parts = (payer(ledger, "a", 1), payer(ledger, "b", 2), asking(ledger), plain(ledger, "plain"))
    join = JoinNode(name="join")
    return Workflow(
        name="flow", edges=[(START, parts), (parts, join), (join, plain(ledger, "end"))]
    )


def nested(ledger: Ledger) -> Workflow:
    inner = Workflow(
        name="inner", edges=[(START, m := plain(ledger, "middle")), (m, payer(ledger, "p"))]
    )
    return Workflow(
        name="outer",
        edges=[(START, f := plain(ledger, "first")), (f, inner), (inner, plain(ledger, "end"))],
    )


def dynamic(ledger: Ledger) -> Workflow:
    child, asker = plain(ledger, "child"), asking(ledger)

    async def lead(ctx: Any, node_input: Any) -> Any:
        first = await ctx.run_node(child, node_input="one")
        second = await ctx.run_node(child, node_input="two")
        answer = await ctx.run_node(asker, node_input="three")
        yield [first, second, answer]

    leader = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, leader)])


def agent_tool(ledger: Ledger) -> LlmAgent:
    helper = agent(
        ledger,
        "helper",
        calls(("look", {"q": "x"})),
        says("helped"),
        tools=[look_tool(ledger)],
        description="helps",
    )
    asker = payer(ledger, "asker", description="pays")
    script = [
        calls(("helper", {"request": "please"})),
        calls(("asker", {"request": "pay"})),
        says("both done"),
    ]
    return agent(ledger, "root", *script, tools=[AgentTool(helper), AgentTool(asker)])


def parallel_worker(ledger: Ledger) -> Workflow:
    def make(node_input: Any) -> list[int]:
        return [1, 2, 3]

    def work(node_input: Any) -> int:
        ledger.add("work", node_input)
        return int(node_input) * 10

    first = FunctionNode(func=make, name="make")
    worker = node(work, name="work", parallel_worker=True)
    asker = asking(ledger)
    edges = [(START, first), (first, worker), (worker, asker), (asker, plain(ledger, "end"))]
    return Workflow(name="flow", edges=edges)


def retried(ledger: Ledger) -> Workflow:
    tries: list[int] = []

    def flaky(node_input: Any) -> str:
        tries.append(1)
        ledger.add("flaky", len(tries))
        if len(tries) < 3:
            raise ValueError(f"not yet {len(tries)}")
        return "worked"

    retry = RetryConfig(max_attempts=3, initial_delay=0.0, jitter=0.0)
    first = FunctionNode(func=flaky, name="flaky", retry_config=retry)
    return Workflow(name="flow", edges=[(START, first), (first, payer(ledger, "p"))])


def review_loop(ledger: Ledger) -> Workflow:
    def draft(node_input: Any, ctx: Any) -> int:
        n = int(ctx.state.get("n", 0)) + 1
        ctx.state["n"] = n
        ledger.add("draft", n)
        return n

    async def review(ctx: Any, node_input: Any) -> Any:
        ledger.add("review", node_input, len(ctx.resume_inputs))
        key = f"r{node_input}"
        if key in ctx.resume_inputs:
            ctx.route = "ok" if ctx.resume_inputs[key]["ok"] else "again"
            yield "reviewed"
            return
        yield RequestInput(interrupt_id=key, message=f"review {node_input}")

    reviewer = FunctionNode(func=review, name="review", rerun_on_resume=True)
    edges = [
        (START, draft),
        (draft, reviewer),
        (reviewer, {"again": draft, "ok": plain(ledger, "end")}),
    ]
    return Workflow(name="flow", edges=edges)


def two_turns(ledger: Ledger) -> LlmAgent:
    def later(q: str) -> None:
        """Answer later."""
        ledger.add("later", q)

    return by_own_turns(
        agent(ledger, "desk", tools=[LongRunningFunctionTool(later), look_tool(ledger)]),
        calls(("later", {"q": "first"})),
        calls(("look", {"q": "x"})),
        says("first turn done"),
        calls(("later", {"q": "second"})),
        says("second turn done"),
    )


def forked(ledger: Ledger) -> LlmAgent:
    return by_own_turns(
        agent(ledger, "desk", tools=[look_tool(ledger), pay_tool(ledger)]),
        calls(("look", {"q": "x"})),
        says("first turn done"),
        calls(("pay", {"amount": 3})),
        says("second turn done"),
    )


def streaming(ledger: Ledger) -> LlmAgent:
    script = [
        [says("I ", partial=True), says("look", partial=True), calls(("look", {"q": "a"}))],
        calls(("pay", {"amount": 1})),
        [says("all ", partial=True), says("done", partial=True), says("all done")],
    ]
    return agent(ledger, "root", *script, tools=[look_tool(ledger), pay_tool(ledger)])


def transfers(ledger: Ledger) -> LlmAgent:
    def move(name: str) -> Any:
        return calls(("transfer_to_agent", {"agent_name": name}))

    helper = by_own_turns(
        agent(ledger, "helper", description="helper", tools=[pay_tool(ledger)]),
        calls(("pay", {"amount": 1})),
        move("root"),
        calls(("pay", {"amount": 2})),
        move("root"),
    )
    root = agent(ledger, "root", sub_agents=[helper])
    return by_own_turns(root, move("helper"), move("helper"), says("done"))


def task(ledger: Ledger) -> LlmAgent:
    helper = agent(
        ledger,
        "helper",
        calls(("pay", {"amount": 1})),
        calls(("finish_task", {"result": "ok"})),
        tools=[pay_tool(ledger)],
        description="helps",
        mode="task",
    )
    return agent(
        ledger, "root", calls(("helper", {"request": "x"})), says("done"), sub_agents=[helper]
    )


def sequential(ledger: Ledger) -> SequentialAgent:
    first = agent(
        ledger, "first", calls(("look", {"q": "1"})), says("one"), tools=[look_tool(ledger)]
    )
    return SequentialAgent(
        name="line",
        sub_agents=[first, payer(ledger, "second"), agent(ledger, "third", says("three"))],
    )


def parallel(ledger: Ledger) -> ParallelAgent:
    return ParallelAgent(name="fan", sub_agents=[payer(ledger, "a", 1), payer(ledger, "b", 2)])


def loop(ledger: Ledger) -> LoopAgent:
    return LoopAgent(
        name="rounds",
        max_iterations=2,
        sub_agents=[agent(ledger, "talk", says("talked")), payer(ledger, "p")],
    )


def kept_things(ledger: Ledger) -> LlmAgent:
    """State of all scopes, an artifact, a recorded step, a drawn id, and a tool that fails."""

    async def keep(text: str, tool_context: Any) -> str:
        """Keep."""
        ledger.add("keep", text)
        tool_context.state["kept"] = (text, 1)
        tool_context.state["user:kept"] = text
        tool_context.state["app:kept"] = [text]
        tool_context.state["temp:kept"] = text
        await tool_context.save_artifact("a.txt", types.Part.from_text(text=text))
        return text

    def fails(text: str) -> str:
        """Fail."""
        ledger.add("fails", text)
        raise LookupError(f"no {text}")

    def caught(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, Any]:
        return {"error": str(error)}

    async def noted(callback_context: Any) -> None:
        def note() -> str:
            ledger.add("note")
            return "noted"

        callback_context.state["noted"] = await step("note", note)
        callback_context.state["drawn"] = str(uuid4())

    script = [
        calls(("keep", {"text": "one"}), ("fails", {"text": "two"})),
        calls(("pay", {"amount": 1})),
        says("kept"),
    ]
    return agent(
        ledger,
        "keeper",
        *script,
        tools=[keep, fails, pay_tool(ledger)],
        before_agent_callback=noted,
        on_tool_error_callback=caught,
    )


def large(ledger: Ledger) -> LlmAgent:
    """Contents that are stored compressed."""

    def fetch(n: int) -> str:
        """Fetch."""
        ledger.add("fetch", n)
        return "".join(f"line {k * n} of the report\n" for k in range(200))

    script = [calls(("fetch", {"n": 7})), calls(("pay", {"amount": 1})), says("read")]
    return agent(ledger, "reader", *script, tools=[fetch, pay_tool(ledger)])


def sleeping(ledger: Ledger) -> Workflow:
    """A tool and a node that sleep at once, each after a recorded step."""

    async def nap(who: str) -> str:
        """Sleep."""
        drawn = await step("before", noted, ledger, who)
        await sleep(60)
        ledger.add("nap", who)
        return f"{drawn} slept"

    async def doze(node_input: Any) -> str:
        await sleep(30)
        ledger.add("doze")
        return "up"

    napper = agent(ledger, "napper", calls(("nap", {"who": "a"})), says("rested"), tools=[nap])
    join = JoinNode(name="join")
    edges = [(START, (napper, doze), join, plain(ledger, "end"))]
    return Workflow(name="night", edges=edges)


def noted(ledger: Ledger, who: str) -> str:
    ledger.add("noted", who)
    return f"{who} has"


def sleeping_beside_a_question(ledger: Ledger) -> Workflow:
    async def doze(node_input: Any) -> str:
        await sleep(30)
        ledger.add("doze")
        return "up"

    parts = (doze, payer(ledger, "p"), asking(ledger))
    join = JoinNode(name="join")
    return Workflow(name="night", edges=[(START, parts, join, plain(ledger, "end"))])


def nobody_answers(ledger: Ledger) -> Workflow:
    """A confirmation and a question that expire."""

    @durable_tool(expires_after="60s")
    def pay(amount: int) -> dict[str, Any]:
        """Pay."""
        ledger.add("pay", amount)
        return {"paid": amount}

    def ask(node_input: Any) -> Any:
        yield expiring(RequestInput(message="which?", response_schema=str), "60s", "none")

    tools = [FunctionTool(pay, require_confirmation=True)]
    buyer = agent(ledger, "buyer", calls(("pay", {"amount": 5})), says("told"), tools=tools)
    join = JoinNode(name="join")
    return Workflow(name="flow", edges=[(START, (buyer, ask), join, plain(ledger, "end"))])


def in_doubt(ledger: Ledger) -> LlmAgent:
    @durable_tool(on_unknown_outcome="ask")
    def charge(amount: int) -> dict[str, Any]:
        """Charge."""
        ledger.add("charge", amount)
        return {"charged": amount}

    script = [calls(("look", {"q": "a"})), calls(("charge", {"amount": 5})), says("charged")]
    return agent(ledger, "single", *script, tools=[look_tool(ledger), charge])


def told_done(wait: Mapping[str, Any]) -> Any:
    return {"outcome": "done", "result": {"charged": 5}}


def told_not_done(wait: Mapping[str, Any]) -> Any:
    return {"outcome": "not_done"}


def credential(ledger: Ledger) -> LlmAgent:
    """Two calls need a key that only the user has."""

    async def fetch(q: str, credential: AuthCredential) -> str:
        """Fetch."""
        ledger.add("fetch", q, credential.api_key)
        return q

    key = AuthConfig(
        auth_scheme=APIKey(**{"in": APIKeyIn.header, "name": "X-Key"}), credential_key="of_user"
    )
    tool = AuthenticatedFunctionTool(func=fetch, auth_config=key)
    script = [calls(("fetch", {"q": "a"})), calls(("fetch", {"q": "b"})), says("fetched")]
    return agent(ledger, "root", *script, tools=[tool])


def signed_in(wait: Mapping[str, Any]) -> Any:
    given = {"authType": "apiKey", "apiKey": "of the user"}
    return {**wait["payload"], "exchangedAuthCredential": given}


OF_THE_HISTORIES = base64.b64encode(bytes(range(32))).decode()
"""The key that histories are encrypted with."""
ENCRYPTED = {"encryption": {"keys": {"k1": OF_THE_HISTORIES}, "read_plain": False}}


SCENARIOS: dict[str, Scenario] = {
    "single_agent": Scenario(
        build=single, frontiers=0, dies_at=("after: outcomes are recorded", 4)
    ),
    "single_agent_first_call": Scenario(
        build=single, frontiers=0, dies_at=("after: outcomes are recorded", 1)
    ),
    "two_confirmations_and_a_question": Scenario(build=w1),
    "one_approved_one_declined": Scenario(
        build=w1,
        answer=lambda wait: (
            {"confirmed": wait["tool_call"]["args"]["amount"] == 2} if wait["tool_call"] else 42
        ),
    ),
    "nested_workflow": Scenario(build=nested),
    "dynamic_nodes": Scenario(build=dynamic),
    "agent_tools": Scenario(build=agent_tool),
    "parallel_worker": Scenario(build=parallel_worker),
    "retried_node": Scenario(build=retried),
    "review_loop": Scenario(
        build=review_loop, frontiers=3, answer=lambda wait: {"ok": wait["message"] == "review 3"}
    ),
    "two_turns": Scenario(build=two_turns, messages=("one", "two")),
    "fork": Scenario(build=forked, messages=("one", "two"), forks=True),
    "streaming": Scenario(build=streaming, streams=True),
    "transfers": Scenario(build=transfers, frontiers=2),
    "task": Scenario(build=task),
    "sequential": Scenario(build=sequential),
    "parallel": Scenario(build=parallel),
    "loop": Scenario(build=loop),
    "kept_things": Scenario(
        build=kept_things, app=lambda: {"artifact_service": MongoArtifactService()}
    ),
    "large_contents": Scenario(build=large),
    "sleeping": Scenario(build=sleeping, inside=1),
    "sleeping_beside_a_question": Scenario(build=sleeping_beside_a_question),
    "nobody_answers": Scenario(build=nobody_answers, answer=lambda wait: None),
    "in_doubt_done": Scenario(build=in_doubt, dies_at=("ran: tool charge", 1), answer=told_done),
    "in_doubt_not_done": Scenario(
        build=in_doubt, dies_at=("in: tool charge", 1), answer=told_not_done
    ),
    "credential": Scenario(build=credential, answer=signed_in, config=ENCRYPTED),
    "encrypted": Scenario(build=w1, config=ENCRYPTED),
    "deadline_far": Scenario(build=nested, deadline=dt.datetime(2900, 1, 1, tzinfo=dt.UTC)),
    "deadline_passed": Scenario(
        build=nested, deadline="60s", answer=lambda wait: None, ends="failed"
    ),
}
