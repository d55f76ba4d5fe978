"""What runs in a soak: two agents that do what their messages say, over a ledger.

A message is a program, as JSON. The same program gives the same conversation, however often a
process died in it: results, ids and state follow from it alone. Every body writes to the ledger
when it is entered, so what really ran is known from outside.

``desk``    an LlmAgent: ``{"x": execution id, "ops": [[tool, ...], ...]}``, one list of tools for
            each model call; tools of all policies, confirmed ones, one that sleeps, one that is
            answered later, and one that nobody answers until it expires.
``flow``    a Workflow with four branches that run at once: two agents with such ``ops`` (``a``,
            ``b``), a node that asks a person if ``ask``, a node without output; then a join, a
            node that records a step, and a third agent (``tail``).

A tool that must not run twice is always called alone: where its outcome stays unknown, all before
it is recorded, and what the execution leaves follows from the program and that one call.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow

from durable_adk import ConfigError, current_activity_id, durable_tool, sleep, step
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.support.lives import DIED, Ledger

RERUN, ONCE, ASK = "rerun", "fail", "ask"


def is_built(policy: str) -> bool:
    """Whether tools can have this policy."""
    try:
        durable_tool(on_unknown_outcome=policy)  # type: ignore[call-overload]
    except ConfigError:
        return False
    return True


POLICY_OF = {
    "look": RERUN,
    "note": RERUN,
    "look_confirmed": RERUN,
    "pay": ONCE,
    "pay_confirmed": ONCE,
    "later": RERUN,
    "urgent": RERUN,
    "nap": RERUN,
    **({"wire": ASK} if is_built(ASK) else {}),
}
"""Each tool of an agent, with what to do when nobody knows whether it ran."""


@dataclass(frozen=True)
class Bodies:
    """What a body does besides its work.

    Attributes:
        ledger: Takes ``(seconds, pid, "began" | "ended", key, policy, activity id)``.
        longest_s: A body takes this or half of it or between; a model answers at once.
        dies_in: The process ends in the bodies with these keys, as if it had been killed there.
    """

    ledger: Ledger
    longest_s: float = 0.0
    dies_in: frozenset[str] = field(default_factory=frozenset)

    async def enter(self, key: str, policy: str) -> None:
        self.write("began", key, policy)
        if key in self.dies_in:
            os._exit(DIED)
        if self.longest_s:
            await asyncio.sleep(random.uniform(0.5, 1) * self.longest_s)
        self.write("ended", key, policy)

    def write(self, what: str, key: str, policy: str) -> None:
        row = (time.monotonic(), os.getpid(), what, key, policy, current_activity_id())
        self.ledger.add(*row)


NAP_S, URGENT_S = 1.5, 2.0


def answer_to(wait: Mapping[str, Any]) -> Any:
    """What a person says; it follows from what was asked. None: nobody answers in time."""
    call = wait.get("tool_call") or {}
    if wait["kind"] == "timer" or call.get("name") == "urgent":
        return None
    key = (call.get("args") or {}).get("key") or wait.get("message") or ""
    if wait["kind"] == "adk_request_confirmation":
        return {"confirmed": _draw(key) % 4 != 0}
    return {"answer to": key}


def _draw(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])


# -------------------------------------------------------------------- the desk


def _tools(bodies: Bodies) -> dict[str, Any]:
    async def look(key: str) -> dict[str, Any]:
        """Look something up."""
        await bodies.enter(key, RERUN)
        return {"found": key}

    async def note(key: str, tool_context: Any) -> dict[str, Any]:
        """Write a note into the state."""
        await bodies.enter(key, RERUN)
        tool_context.state[f"note {key}"] = key  # its own: calls of one response run at once
        return {"noted": key}

    async def look_confirmed(key: str) -> dict[str, Any]:
        """Look something up, if a person agrees."""
        await bodies.enter(key, RERUN)
        return {"found": key}

    async def pay(key: str) -> dict[str, Any]:
        """Pay."""
        await bodies.enter(key, ONCE)
        return {"paid": key}

    async def pay_confirmed(key: str) -> dict[str, Any]:
        """Pay, if a person agrees."""
        await bodies.enter(key, ONCE)
        return {"paid": key}

    async def later(key: str) -> None:
        """Ask a person."""
        await bodies.enter(key, RERUN)

    async def urgent(key: str) -> None:
        """Ask a person, who never has the time."""
        await bodies.enter(key, RERUN)

    async def nap(key: str) -> dict[str, Any]:
        """Sleep, then look something up."""
        await sleep(NAP_S)
        await bodies.enter(key, RERUN)
        return {"slept": key}

    async def wire(key: str) -> dict[str, Any]:
        """Wire money; a person says whether it went, if nobody knows."""
        await bodies.enter(key, ASK)
        return {"wired": key}

    once = durable_tool(on_unknown_outcome=ONCE)  # type: ignore[call-overload]
    expires = durable_tool(expires_after=URGENT_S, on_expiry={"answer to": "nobody"})
    made = {
        "look": look,
        "nap": nap,
        "urgent": LongRunningFunctionTool(expires(urgent)),
        "note": note,
        "look_confirmed": FunctionTool(look_confirmed, require_confirmation=True),
        "pay": once(pay),
        "pay_confirmed": FunctionTool(once(pay_confirmed), require_confirmation=True),
        "later": LongRunningFunctionTool(later),
    }
    if "wire" in POLICY_OF:
        made["wire"] = durable_tool(on_unknown_outcome=ASK)(wire)  # type: ignore[call-overload]
    return made


def _agent(name: str, bodies: Bodies, ops_of: Callable[[Mapping[str, Any]], Any]) -> LlmAgent:
    """An agent whose model follows the newest program among the messages of the user."""

    def reply(request: Any, _turn: int) -> Any:
        program, since = _newest_program(request.contents)
        ops: Sequence[Sequence[str]] = ops_of(program)
        k = sum(content.role == "model" for content in since)
        at = f"{program['x']}.{name}{k}"
        bodies.write("began", f"{at}.model", RERUN)
        if k >= len(ops):
            return says(f"{name} done {program['x']}: {_responses(since)}")
        return calls(*((tool, {"key": f"{at}.{i}"}) for i, tool in enumerate(ops[k])))

    model = ScriptedModel(model=name, script=reply)
    return LlmAgent(name=name, model=model, tools=list(_tools(bodies).values()))


def _newest_program(contents: Sequence[Any]) -> tuple[dict[str, Any], Sequence[Any]]:
    for place in reversed(range(len(contents))):
        for part in contents[place].parts or ():
            if contents[place].role == "user" and (part.text or "").startswith('{"x"'):
                return json.loads(part.text), contents[place + 1 :]
    raise LookupError("no program among the messages")


def _responses(contents: Sequence[Any]) -> str:
    found = [
        part.function_response.response
        for content in contents
        for part in content.parts or ()
        if part.function_response
    ]
    return json.dumps(found, sort_keys=True)


def desk(bodies: Bodies) -> LlmAgent:
    return _agent("desk", bodies, lambda program: program["ops"])


# -------------------------------------------------------------------- the flow


def flow(bodies: Bodies) -> Workflow:
    async def ask(ctx: Any, node_input: Any) -> Any:
        program = _program(node_input)
        question = f"q.{program['x']}"
        if not program["ask"]:
            yield {"asked": False}
        elif question in ctx.resume_inputs:
            yield {"answer": ctx.resume_inputs[question]}
        else:
            yield RequestInput(interrupt_id=question, message=question)

    async def plain(node_input: Any, ctx: Any) -> None:
        program = _program(node_input)
        await bodies.enter(f"{program['x']}.plain", RERUN)
        ctx.state["flows"] = ctx.state.get("flows", 0) + 1
        ctx.state["flow of"], ctx.state["tail"] = program["x"], program["tail"]

    async def settle(node_input: Any, ctx: Any) -> str:
        x = ctx.state["flow of"]

        async def stamp() -> str:
            await bodies.enter(f"{x}.stamp", RERUN)
            return f"stamp of {x}"

        stamped = await step("stamp", stamp)
        await bodies.enter(f"{x}.settle", RERUN)
        left = {"x": x, "tail": ctx.state["tail"], "stamp": stamped, "joined": node_input}
        return json.dumps(left, default=str)

    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    join = JoinNode(name="join")
    branches = (
        _agent("a", bodies, lambda program: program["a"]),
        _agent("b", bodies, lambda program: program["b"]),
        asker,
        plain,
    )
    tail = _agent("tail", bodies, lambda program: program["tail"])
    edges: list[Any] = [(START, branches), (branches, join), (join, settle), (settle, tail)]
    return Workflow(name="flow", edges=edges)


def _program(node_input: Any) -> dict[str, Any]:
    """The program in a node's input: text, or a content with it."""
    text = node_input if isinstance(node_input, str) else node_input.parts[0].text
    found: dict[str, Any] = json.loads(text)
    return found


AGENTS: Mapping[str, Callable[[Bodies], Any]] = {"desk": desk, "flow": flow}
