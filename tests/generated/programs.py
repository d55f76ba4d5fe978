"""Roots made from descriptions: plain data, so that one that fails can be printed and pinned."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, RetryConfig, Workflow, node
from google.genai import types

from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.support.lives import Ledger

Data = Mapping[str, Any]


def build(program: Data, ledger: Ledger) -> Any:
    """The root of a description, made anew."""
    return Maker(ledger).root(program["root"])


def waits_of(program: Data) -> Callable[[Mapping[str, Any]], Any]:
    """How the world answers: by what a wait shows, so that its order does not matter."""
    approvals, values = {}, {}
    for part in parts_of(program["root"]):
        if "approve" in part:
            approvals[part["amount"]] = part["approve"]
        if "value" in part:
            values[part["name"]] = part["value"]

    def answer(wait: Mapping[str, Any]) -> Any:
        if wait["kind"] == "adk_request_confirmation":
            confirmed = approvals[wait["tool_call"]["args"]["amount"] // 10 * 10]
            return {"confirmed": confirmed, "payload": None}
        if wait["tool_call"]:
            return values[wait["tool_call"]["args"]["q"].partition(".")[0]]
        named = set(re.findall(r"\w+", wait["message"])) & set(values)
        return values[named.pop()]

    return answer


def parts_of(data: Any) -> list[Data]:
    """Every mapping in a description."""
    if isinstance(data, Mapping):
        return [data, *(part for value in data.values() for part in parts_of(value))]
    if isinstance(data, list):
        return [part for value in data for part in parts_of(value)]
    return []


def width(data: Any) -> int:
    """How many bodies of a description may be at work at once."""
    if isinstance(data, list):
        return max((width(one) for one in data), default=1)
    if not isinstance(data, Mapping):
        return 1
    if data.get("kind") == "fan":
        return sum(width(branch) for branch in data["branches"])
    inner = max((width(value) for value in data.values()), default=1)
    if data.get("kind") == "worker":
        return inner * len(data["items"])
    if data.get("kind") == "dynamic":
        return max(inner, data["gathered"])
    return max(inner, len(data.get("calls", ())))


def as_text(value: Any) -> str:
    """An input or output as a ledger shows it."""
    if isinstance(value, types.Content):
        return "".join(part.text or "" for part in value.parts or ())
    return json.dumps(value, sort_keys=True, default=str)


async def moment(what: str) -> None:
    """Take 0 to 3 ms, always the same for the same: instant bodies hide races."""
    await asyncio.sleep(zlib.crc32(what.encode()) % 4 / 1000)


class Maker:
    """Makes agents and nodes that write into one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def root(self, data: Data) -> Any:
        return self.flow(data) if data["kind"] == "flow" else self.agent(data)

    # Agents

    def agent(self, data: Data) -> LlmAgent:
        model = ScriptedModel(model=data["name"], script=self.script(data))
        subs = [self.agent(sub) for sub in data.get("subs", ())]
        tools = self.tools(asking=not data.get("quiet"))
        tools += [AgentTool(self.agent(inner)) for inner in data.get("agent_tools", ())]
        fields = {key: data[key] for key in ("mode", "output_key") if data.get(key)}
        return LlmAgent(
            name=data["name"],
            description=data["name"],
            model=model,
            tools=tools,
            sub_agents=subs,
            **fields,
        )

    def script(self, data: Data) -> Any:
        """The k-th model turn of the conversation chooses the reply, round and round."""
        replies = data["turns"]

        def choose(request: Any, _turn: int) -> Any:
            own = sum(1 for content in request.contents if content.role == "model")
            item = _item_of(request, data.get("items", ()))
            self.ledger.add("model", data["name"], own, item)
            return _reply(replies[own % len(replies)], item)

        return choose

    def tools(self, *, asking: bool) -> list[Any]:
        add = self.ledger.add

        def look(q: str) -> dict[str, Any]:
            """Look something up."""
            add("tool", "look", q)
            return {"found": q}

        async def slow(q: str) -> dict[str, Any]:
            """Take a moment."""
            add("tool", "slow", q)
            await moment(q)
            return {"slow": q}

        async def note(q: str, tool_context: Any) -> str:
            """Write into the state."""
            add("tool", "note", q)
            await moment(q)
            scope = ("", "user:", "app:", "temp:")[zlib.crc32(q.encode()) % 4]
            tool_context.state[f"{scope}note:{q}"] = q
            return q

        def nothing(q: str) -> None:
            """Return nothing."""
            add("tool", "nothing", q)

        def soft(q: str) -> dict[str, Any]:
            """Fail, and say so."""
            add("tool", "soft", q)
            return {"error": f"no {q}"}

        def boom(q: str) -> None:
            """Fail."""
            add("tool", "boom", q)
            raise ValueError(f"no {q}")

        async def pay(amount: int) -> dict[str, Any]:
            """Pay."""
            add("tool", "pay", amount)
            await moment(str(amount))
            return {"paid": amount}

        def spend(amount: int) -> dict[str, Any]:
            """Spend; every other amount is asked about."""
            add("tool", "spend", amount)
            return {"spent": amount}

        def book(amount: int, tool_context: Any) -> dict[str, Any]:
            """Book; ask first."""
            answer = tool_context.tool_confirmation
            if answer is None:
                tool_context.request_confirmation(hint="book?", payload={"n": 0})
                return {"status": "waits"}
            add("tool", "book", amount, answer.confirmed)
            return {"booked": answer.confirmed}

        def later(q: str) -> None:
            """Be answered later."""
            add("tool", "later", q)

        def tell(q: str) -> dict[str, Any]:
            """Take long, but have something to say."""
            add("tool", "tell", q)
            return {"told": q}

        plain = [look, slow, nothing, soft, boom]
        if not asking:
            return plain
        return [
            *plain,
            note,
            book,
            FunctionTool(pay, require_confirmation=True),
            FunctionTool(spend, require_confirmation=lambda amount: amount // 10 % 2 == 1),
            LongRunningFunctionTool(later),
            LongRunningFunctionTool(tell),
        ]

    # Workflows

    def flow(self, data: Data) -> Workflow:
        edges: list[Any] = []
        self.chain(data["steps"], [START], edges)
        return Workflow(name=data["name"], edges=edges, max_concurrency=data["at_once"])

    def chain(self, steps: list[Data], before: list[Any], edges: list[Any]) -> list[Any]:
        """Add steps after nodes. Returns: the last nodes."""
        for step in steps:
            before = self.step(step, before, edges)
        return before

    def step(self, step: Data, before: list[Any], edges: list[Any]) -> list[Any]:
        kind = step["kind"]
        if kind == "fan":
            lasts = []
            for branch in step["branches"]:
                lasts += self.chain(branch, before, edges)
            join = JoinNode(name=step["name"])
            edges.extend((last, join) for last in lasts)
            return [join]
        if kind == "loop":
            return self.loop(step, before, edges)
        if kind == "choice":
            return self.choice(step, before, edges)
        if kind == "worker":
            source = self.function({**step, "kind": "fn", "out": step["items"]})
            edges.extend((one, source) for one in before)
            one = self.leaf(step["child"])
            worker = node(one, parallel_worker=True, max_parallel_workers=step["at_once"])
            edges.append((source, worker))
            return [worker]
        made = self.leaf(step)
        edges.extend((one, made) for one in before)
        return [made]

    def loop(self, step: Data, before: list[Any], edges: list[Any]) -> list[Any]:
        first = self.leaf(step["body"][0])
        lasts = self.chain(step["body"][1:], [first], edges)

        def check(node_input: Any, ctx: Any) -> str:
            done = ctx.state.get(step["name"], 0) + 1
            ctx.state[step["name"]] = done
            self.ledger.add("check", step["name"], done, as_text(node_input))
            ctx.route = "again" if done % step["rounds"] else "ok"
            return f"round {done}"

        checker = FunctionNode(func=check, name=step["name"])
        after = self.function({"kind": "fn", "name": f"after_{step['name']}", "out": "on"})
        edges.extend((one, first) for one in before)
        edges.extend((one, checker) for one in lasts)
        edges.append((checker, {"again": first, "ok": after}))
        return [after]

    def choice(self, step: Data, before: list[Any], edges: list[Any]) -> list[Any]:
        def choose(node_input: Any, ctx: Any) -> str:
            self.ledger.add("choose", step["name"], as_text(node_input))
            ctx.route = step["taken"]
            return f"took {step['taken']}"

        chooser = FunctionNode(func=choose, name=step["name"])
        edges.extend((one, chooser) for one in before)
        lasts, ways = [], {}
        for route, steps in step["routes"].items():
            ways[route] = self.leaf(steps[0])
            lasts += self.chain(steps[1:], [ways[route]], edges)
        edges.append((chooser, ways))
        return lasts

    def leaf(self, step: Data) -> Any:
        return getattr(self, LEAVES[step["kind"]])(step)

    def function(self, step: Data) -> Any:
        def act(node_input: Any, ctx: Any) -> Any:
            self.ledger.add("fn", step["name"], ctx.attempt_count, as_text(node_input))
            if ctx.attempt_count <= step.get("fails", 0):
                raise ValueError(f"no {step['name']}")
            for key, value in step.get("state", {}).items():
                ctx.state[key] = value
            return step["out"]

        async def act_slowly(node_input: Any, ctx: Any) -> Any:
            await moment(step["name"])
            return act(node_input, ctx)

        async def generate(node_input: Any, ctx: Any) -> Any:
            await moment(step["name"])
            out = act(node_input, ctx)
            if out is not None:
                yield out

        retry = None
        if step.get("retries"):
            retry = RetryConfig(max_attempts=4, initial_delay=0.001, jitter=0)
        forms = {"sync": act, "async": act_slowly, "generator": generate}
        func: Any = forms[step.get("form", "async")]
        return FunctionNode(func=func, name=step["name"], retry_config=retry)

    def question(self, step: Data) -> Any:
        async def ask(ctx: Any, node_input: Any) -> Any:
            answers = list(ctx.resume_inputs.values())
            self.ledger.add("ask", step["name"], as_text(answers), as_text(node_input))
            await moment(step["name"])
            if ctx.resume_inputs:
                yield {"answer": answers}
                return
            named = {}
            if step.get("keyed"):
                done = ctx.state.get(step["loop"], 0) if step.get("loop") else 0
                named["interrupt_id"] = f"{step['name']}-{done}"
            yield RequestInput(message=f"{step['name']} ?", **named)

        return FunctionNode(func=ask, name=step["name"], rerun_on_resume=True)

    def gate(self, step: Data) -> Any:
        def act(node_input: Any) -> str:
            self.ledger.add("gate", step["name"], as_text(node_input))
            return f"{step['name']} done"

        act.__name__ = step["name"]
        return node(act, require_confirmation=True)

    def dynamic(self, step: Data) -> Any:
        async def run(ctx: Any, node_input: Any) -> Any:
            got = []
            for child in step["children"]:
                got.append(await ctx.run_node(self.leaf(child), node_input="given"))
            if step["gathered"]:
                part = self.function({"kind": "fn", "name": f"part_{step['name']}", "out": "part"})
                runs = (ctx.run_node(part, node_input=n) for n in range(step["gathered"]))
                got += await asyncio.gather(*runs)
            yield as_text(got)

        return FunctionNode(func=run, name=step["name"], rerun_on_resume=True)


LEAVES = {
    "fn": "function",
    "ask": "question",
    "gate": "gate",
    "dynamic": "dynamic",
    "agent": "agent",
    "flow": "flow",
}


def _item_of(request: Any, items: Any) -> int:
    """Which item of a parallel worker an agent is at; -1 outside of one.

    After a wait ADK shows the agent its calls, but no longer its input.
    """
    for content in request.contents:
        for part in content.parts or ():
            if part.text in items:
                return int(items.index(part.text))
            args = (part.function_call.args or {}) if part.function_call else {}
            if "q" in args and "." in args["q"]:
                return int(args["q"].partition(".")[2])
            if "amount" in args and items:
                return int(args["amount"]) % 10
    return -1


def _reply(turn: Data, item: int) -> Any:
    if "says" in turn:
        return says(turn["says"])
    if "transfer" in turn:
        return calls(("transfer_to_agent", {"agent_name": turn["transfer"]}))
    if "finish" in turn:
        return calls(("finish_task", {"result": turn["finish"]}))
    return calls(*(_call(call, item) for call in turn["calls"]))


def _call(call: Data, item: int) -> tuple[str, dict[str, Any]]:
    if "amount" in call:
        return call["tool"], {"amount": call["amount"] + max(item, 0)}
    if "request" in call:
        return call["tool"], {"request": call["request"]}
    return call["tool"], {"q": call["name"] if item < 0 else f"{call['name']}.{item}"}
