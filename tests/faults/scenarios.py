"""The catalogue of scenarios: each is lived undisturbed, and with every fault at every point.

To add one (a timer, a tool that asks when in doubt): an entry in ``SCENARIOS`` over a program that
writes each effect to the ledger. A clock that must pass is moved by the driver after each death
(``LEASE_PASSED_MS``); what a person would be asked is answered by ``Case.answer``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, RetryConfig, Workflow

from durable_adk import durable_tool
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.faults.catalogue import CASES, Tools, agent, by_own_turns
from tests.shapes.all_shapes import SHAPES
from tests.shapes.composite import end_of
from tests.shapes.shape import Shape
from tests.support.acts import Forked
from tests.support.lives import Case, Ledger

# ---------------------------------------------------------------- retries


def fails_twice(ledger: Ledger) -> Workflow:
    """A model that fails in the first two tries of a node: at once, and after a tool."""
    tools = Tools(ledger)

    def script(request: Any, turn: int) -> Any:
        said = re.findall(r"try (\d)", str(request.contents))
        n, looked = int(said[-1]), f"flaky {said[-1]}" in str(request.contents)
        ledger.add("model", "flaky", n, looked)
        if (n, looked) in ((1, False), (2, True)):
            raise ConnectionError("no answer")
        return says("flaky done") if looked else calls(("look", {"q": f"flaky {n}"}))

    worker = LlmAgent(
        name="flaky", model=ScriptedModel(model="flaky", script=script), tools=[tools.look]
    )

    async def tries(ctx: Any, node_input: Any) -> Any:
        yield await ctx.run_node(worker, node_input=f"try {ctx.attempt_count}")

    retry = RetryConfig(max_attempts=6, initial_delay=0.001, jitter=0)
    retried = FunctionNode(func=tries, name="tries", rerun_on_resume=True, retry_config=retry)
    before = agent(ledger, "before", says("ready"))
    return Workflow(
        name="flow", edges=[(START, before), (before, retried), (retried, end_of(ledger))]
    )


# ---------------------------------------------------------------- streams

FIRST, SECOND = ("I ", "ask ", "for it"), ("it ", "is ", "done")


def speaks(ledger: Ledger) -> LlmAgent:
    """Text in pieces before a confirmed call, and after it."""
    tools = Tools(ledger)

    def stream(*words: str, then: Any = None) -> list[Any]:
        whole = says("".join(words))
        if then is not None:
            whole.content.parts.extend(then.content.parts)
        return [*(says(word, partial=True) for word in words), whole]

    return agent(
        ledger,
        "speaker",
        stream(*FIRST, then=calls(("pay", {"amount": 1}))),
        stream(*SECOND),
        tools=[tools.confirmed_pay],
    )


# ---------------------------------------------------------------- tools that must not run twice


def pays_once(ledger: Ledger) -> Workflow:
    """Two tools that must not run twice, one of them confirmed, and one that may."""
    tools = Tools(ledger)

    @durable_tool(on_unknown_outcome="fail")
    def charge(cents: int) -> dict[str, Any]:
        """Charge a card."""
        ledger.add("once", "charge", cents)
        return {"charged": cents}

    @durable_tool(on_unknown_outcome="fail")
    def refund(cents: int) -> dict[str, Any]:
        """Refund."""
        ledger.add("once", "refund", cents)
        return {"refunded": cents}

    payer = agent(
        ledger,
        "payer",
        calls(("look", {"q": "card"})),
        calls(("charge", {"cents": 5})),
        calls(("refund", {"cents": 2})),
        says("settled"),
        tools=[tools.look, charge, FunctionTool(refund, require_confirmation=True)],
    )
    return Workflow(name="flow", edges=[(START, payer), (payer, end_of(ledger))])


# ---------------------------------------------------------------- calls in doubt


def look_up(ledger: Ledger, name: str, result: Any) -> dict[str, Any]:
    """What is true of a call that runs once."""
    if any(row[:2] == ("once", name) for row in ledger.rows()):
        return {"outcome": "done", "result": result}
    return {"outcome": "not_done"}


RESULTS = {"charge": {"charged": 5}, "refund": {"refunded": 2}, "ship": "shipped"}


def look_wait_up(ledger: Ledger, wait: Mapping[str, Any]) -> Any:
    name = wait["tool_call"]["name"]
    return look_up(ledger, name, RESULTS[name])


def in_doubt(ledger: Ledger, *, reconcile: bool = False) -> Workflow:
    """Two tools, one of them confirmed, and a node: each is asked about when it is in doubt.

    Args:
        reconcile: A callback knows of two of them; of ``refund`` it does not.
    """
    tools = Tools(ledger)

    def known(doubt: Any) -> Any:
        ledger.add("reconcile", doubt.name)
        return None if doubt.name == "refund" else look_up(ledger, doubt.name, RESULTS[doubt.name])

    ask = durable_tool(on_unknown_outcome="ask", reconcile=known if reconcile else None)

    @ask
    def charge(cents: int) -> dict[str, Any]:
        """Charge a card."""
        ledger.add("once", "charge", cents)
        return {"charged": cents}

    @ask
    def refund(cents: int) -> dict[str, Any]:
        """Refund."""
        ledger.add("once", "refund", cents)
        return {"refunded": cents}

    @ask
    def ship(node_input: Any) -> str:
        ledger.add("once", "ship")
        return "shipped"

    payer = agent(
        ledger,
        "payer",
        calls(("look", {"q": "card"})),
        calls(("charge", {"cents": 5})),
        calls(("refund", {"cents": 2})),
        says("settled"),
        tools=[tools.look, charge, FunctionTool(refund, require_confirmation=True)],
    )
    shipped = FunctionNode(func=ship, name="ship")
    return Workflow(
        name="flow", edges=[(START, payer), (payer, shipped), (shipped, end_of(ledger))]
    )


# ---------------------------------------------------------------- forks


def two_payments(ledger: Ledger) -> LlmAgent:
    """A turn that looks, one that pays when it may, and what a fork adds."""
    tools = Tools(ledger)
    return by_own_turns(
        agent(ledger, "desk", tools=[tools.look, tools.confirmed_pay]),
        calls(("look", {"q": "price"})),
        says("it costs 7"),
        calls(("pay", {"amount": 7})),
        says("second turn done"),
        says("third turn done"),
    )


def decline(_wait: Mapping[str, Any]) -> Any:
    return {"confirmed": False}


FORKED = Case(
    build=two_payments,
    messages=("price?", "pay"),
    forks=(
        Forked(turn=0, after=True, message="pay"),
        Forked(wait=0, answer=decline),
        Forked(wait=0, after=True),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A case and what may differ after a fault.

    Attributes:
        case: A ``Shape`` may say more about what repeats.
        once: Its ledger rows that begin with "once" are effects of tools that must not run twice:
            an execution may end with ``OutcomeUnknown`` instead.
        asked: Which of them somebody is asked about when it is in doubt.
        told: The words told to listeners before and after the first frontier.
        tries: A fault in a body counts as one of the tries of ADK's ``retry_config``, or is handled
            by the program: what follows is another, right, run.
    """

    case: Case
    once: bool = False
    asked: frozenset[str] = frozenset()
    told: tuple[tuple[str, ...], ...] = ()
    tries: bool = False


def _shape(name: str) -> Scenario:
    return Scenario(case=SHAPES[name])


SCENARIOS: dict[str, Scenario] = {
    **{name: Scenario(case=case) for name, case in CASES.items()},
    "dynamic nodes": _shape("children that ask"),
    # A node that fails beside others is run again when they are answered.
    "gathered dynamic nodes": Scenario(case=SHAPES["gathered children that ask"], tries=True),
    # ADK's AgentTool tells the model of an error in its agent.
    "an agent tool that asks": Scenario(case=SHAPES["agent tool that asks"], tries=True),
    "a parallel worker, one item asks": _shape("parallel worker, one item asks"),
    "composite agents": _shape("parallel in a sequence as root, waiting"),
    "state scopes": _shape("state scopes"),
    "artifacts": _shape("artifacts that tools save"),
    "a node that is retried": Scenario(case=SHAPES["retries"], tries=True),
    "a model that fails twice": Scenario(
        case=Shape(build=fails_twice, feature="", in_flight=3), tries=True
    ),
    "a stream": Scenario(
        case=Case(
            build=speaks,
            listens=True,
            run_config=lambda: RunConfig(streaming_mode=StreamingMode.SSE),
        ),
        told=(FIRST, SECOND),
    ),
    "tools that must not run twice": Scenario(case=Case(build=pays_once), once=True),
    "calls in doubt that a person is asked about": Scenario(
        case=Case(build=in_doubt, settle=look_wait_up), asked=frozenset(RESULTS)
    ),
    "calls in doubt that a callback settles": Scenario(
        case=Case(
            build=functools.partial(in_doubt, reconcile=True),
            settle=look_wait_up,
            reentered=(("reconcile",),),
        ),
        asked=frozenset({"refund"}),
    ),
    "forks": Scenario(case=FORKED),
}
