"""Row R4: code that changed while an execution was suspended.

What would run something a second time, or hand a result to something else, is refused, kept, and
goes on after a rollback; what cannot is not refused.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow, node

from durable_adk import App, step
from durable_adk.adk import topology
from durable_adk.adk.scripted_model import calls, says
from durable_adk.store.clock import ServerClock
from tests.cases.conftest import approve
from tests.faults.catalogue import agent
from tests.support.lives import LEASE_PASSED_MS, Ledger, begin_fork, warm

Build = Callable[[Ledger], Any]


def looking(ledger: Ledger, *, arg: str = "q", name: str = "look", more: bool = False) -> Any:
    """A tool that writes to the ledger, with an argument of this name."""
    if arg == "q" and not more:

        def tool(q: str) -> str:
            """Look."""
            ledger.add("look", q)
            return "seen"

    elif more:

        def tool(q: str, deep: bool = False) -> str:  # type: ignore[misc]
            """Look."""
            ledger.add("look", q)
            return "seen"

    else:

        def tool(query: str) -> str:  # type: ignore[misc]
            """Look."""
            ledger.add("look", query)
            return "seen"

    tool.__name__ = name
    return tool


def paying(ledger: Ledger) -> FunctionTool:
    def pay(amount: int) -> str:
        """Pay."""
        ledger.add("pay", amount)
        return "paid"

    return FunctionTool(pay, require_confirmation=True)


def payer(ledger: Ledger, name: str, tools: Any = None, **fields: Any) -> LlmAgent:
    """Looks, then pays if a person agrees."""
    script = [calls(("look", {"q": name})), calls(("pay", {"amount": 1})), says("done")]
    tools = [looking(ledger)] if tools is None else tools
    return agent(ledger, name, *script, tools=[*tools, paying(ledger)], **fields)


def looker(ledger: Ledger, name: str, **fields: Any) -> LlmAgent:
    script = [calls(("look", {"q": name})), says("looked")]
    return agent(ledger, name, *script, tools=[looking(ledger)], **fields)


def speaker(ledger: Ledger, name: str) -> LlmAgent:
    return agent(ledger, name, says(f"{name} spoke"))


def one(**fields: Any) -> Build:
    name = fields.pop("name", "root")
    tools = fields.pop("tools", lambda ledger: [looking(ledger)])
    model = fields.pop("model", None)

    def build(ledger: Ledger) -> LlmAgent:
        root = payer(ledger, "root", tools(ledger), **fields)
        root.name = name
        if model:
            root.model.model = model
        return root

    return build


def pipeline(*names: str, kind: type = SequentialAgent, **fields: Any) -> Build:
    """``p`` pays, all the others look."""

    def build(ledger: Ledger) -> Any:
        parts = [payer(ledger, n) if n == "p" else looker(ledger, n) for n in names]
        return kind(name=fields.pop("name", "line"), sub_agents=parts, **fields)

    return build


def loop(*names: str) -> Build:
    return pipeline(*names, kind=LoopAgent, max_iterations=1)


def graph(*names: str, last: str = "", insert: str = "") -> Build:
    """Function nodes in a row; the one called ``ask`` asks."""

    def build(ledger: Ledger) -> Workflow:
        def made(name: str) -> Any:
            async def ask(ctx: Any, node_input: Any) -> Any:
                if "q" in ctx.resume_inputs:
                    yield "answered"
                    return
                yield RequestInput(interrupt_id="q", message="?")

            def effect(node_input: Any) -> str:
                ledger.add(name)
                return name

            if name.startswith("join"):
                return JoinNode(name=name)
            func = ask if name.startswith("ask") else effect
            return FunctionNode(func=func, name=name, rerun_on_resume=func is ask)

        row = [START, *(made(name) for name in names)]
        return Workflow(name="flow", edges=list(itertools.pairwise(row)))

    return build


def transfer(name: str = "helper", *more: str, mode: str | None = None) -> Build:
    def build(ledger: Ledger) -> LlmAgent:
        if mode is None:
            helper = payer(ledger, "helper", description="helps")
            first = calls(("transfer_to_agent", {"agent_name": "helper"}))
        else:
            helper = agent(
                ledger,
                "helper",
                calls(("pay", {"amount": 1})),
                calls(("finish_task", {"result": "ok"})),
                tools=[paying(ledger)],
                description="helps",
                mode=mode,
            )
            first = calls(("helper", {"request": "x"}))
        helper.name = name
        others = [speaker(ledger, one) for one in more]
        return agent(ledger, "root", first, says("done"), sub_agents=[helper, *others])

    return build


def workers(name: str = "work", *, parallel: bool = True) -> Build:
    def build(ledger: Ledger) -> Workflow:
        def make(node_input: Any) -> list[int]:
            return [1, 2]

        def work(node_input: Any) -> Any:
            ledger.add("work", str(node_input))
            return node_input

        async def ask(ctx: Any, node_input: Any) -> Any:
            if "q" in ctx.resume_inputs:
                yield "answered"
                return
            yield RequestInput(interrupt_id="q", message="?")

        first = FunctionNode(func=make, name="make")
        middle = (
            node(work, name=name, parallel_worker=True)
            if parallel
            else FunctionNode(func=work, name=name)
        )
        last = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
        return Workflow(name="flow", edges=[(START, first), (first, middle), (middle, last)])

    return build


def nested(inner: str = "inner") -> Build:
    def build(ledger: Ledger) -> Workflow:
        flow = graph("charge", "ask")(ledger)
        flow.name = inner
        return Workflow(name="outer", edges=[(START, flow)])

    return build


def only(*names: str) -> Callable[[Ledger], list[Any]]:
    return lambda ledger: [looking(ledger, name=name) for name in names]


def without_pay() -> Build:
    def build(ledger: Ledger) -> LlmAgent:
        root = payer(ledger, "root")
        root.tools = root.tools[:1]
        return root

    return build


REFUSED: dict[str, tuple[Build, Build, str]] = {
    "root agent renamed": (one(), one(name="boss"), "the root root"),
    "tool removed": (one(), one(tools=only()), "call of look"),
    "asked tool removed": (one(), without_pay(), "an approval of pay"),
    "tool renamed": (one(), one(tools=only("search")), "look"),
    "argument renamed": (
        one(),
        one(tools=lambda ledger: [looking(ledger, arg="query")]),
        "look(q)",
    ),
    "node before a finished one": (
        graph("charge", "ask"),
        graph("more", "charge", "ask"),
        "charge",
    ),
    "join before a finished one": (
        graph("charge", "ask"),
        graph("join", "charge", "ask"),
        "charge",
    ),
    "node before the asking one": (graph("charge", "ask"), graph("charge", "more", "ask"), "ask"),
    "finished node renamed": (graph("charge", "ask"), graph("bill", "ask"), "charge"),
    "asking node renamed": (graph("charge", "ask"), graph("charge", "ask2"), "ask"),
    "workflow renamed": (nested(), nested("other"), "inner"),
    "two nodes swapped": (graph("a", "b", "ask"), graph("b", "a", "ask"), ""),
    "finished sub-agent renamed": (pipeline("a", "p"), pipeline("b", "p"), "a"),
    "two sub-agents swapped": (pipeline("a", "b", "p"), pipeline("b", "a", "p"), ""),
    "sub-agent inserted": (pipeline("a", "p"), pipeline("a", "b", "p"), "p"),
    "loop: two sub-agents swapped": (loop("a", "p"), loop("p", "a"), ""),
    "loop: sub-agent removed": (loop("a", "p"), loop("p"), "a"),
    "parallel: sub-agent renamed": (
        pipeline("a", "p", kind=ParallelAgent),
        pipeline("b", "p", kind=ParallelAgent),
        "a",
    ),
    "another kind of pipeline": (pipeline("a", "p"), pipeline("a", "p", kind=ParallelAgent), ""),
    "transfer: helper renamed": (transfer(), transfer("assistant"), "helper"),
    "task: helper renamed": (transfer(mode="task"), transfer("assistant", mode="task"), "helper"),
    "worker renamed": (workers(), workers("toil"), "work"),
    "worker no longer parallel": (workers(), workers(parallel=False), "work"),
}

ACCEPTED: dict[str, tuple[Build, Build]] = {
    "instruction": (one(instruction="be kind"), one(instruction="be very kind")),
    "model": (one(), one(model="another-model")),
    "description": (one(description="pays"), one(description="pays well")),
    "unused tool added": (one(), one(tools=only("look", "search"))),
    "unused tool removed": (one(tools=only("look", "search")), one()),
    "optional argument added": (
        one(),
        one(tools=lambda ledger: [looking(ledger, more=True)]),
    ),
    "node downstream": (graph("charge", "ask"), graph("charge", "ask", "more")),
    "sub-agent downstream": (pipeline("a", "p"), pipeline("a", "p", "b")),
    "loop: sub-agent downstream": (loop("a", "p"), loop("a", "p", "b")),
    "parallel: two swapped": (
        pipeline("a", "p", kind=ParallelAgent),
        pipeline("p", "a", kind=ParallelAgent),
    ),
    "transfer: sub-agent added": (transfer(), transfer("helper", "other")),
    "task: sub-agent added": (
        transfer(mode="task"),
        transfer("helper", "other", mode="task"),
    ),
}


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("change", REFUSED)
async def test_changed_code_is_refused_kept_and_goes_on_after_a_rollback(
    make_app, ledger, change, mode
) -> None:
    before, after, named = REFUSED[change]
    out = await make_app(before(ledger), config={"version": "1"}).invoke(
        user_id="u", message="go", execution_id="x"
    )
    assert out.status == "suspended", out.error
    ran, answers = ledger.rows(), approve(out)
    changed = make_app(after(ledger), mode=mode, config={"version": "2"})
    out = await changed.resume("x", answers)
    assert (out.status, out.error and out.error.type) == ("stuck", "ReplayMismatch")
    assert out.error.position and "agent#1" in out.error.position
    assert "recorded " in out.error.message and ", asked " in out.error.message
    if mode == "restore":
        assert named in out.error.message
    assert "agent version 1; running" in out.error.message
    assert ledger.rows() == ran, "nothing ran"
    assert await changed.recover() == (), "it is not tried again by itself"
    (listed,) = await changed.executions.list(status="stuck")
    assert (listed.id, listed.attempt, listed.error.type) == ("x", 2, "ReplayMismatch")
    assert "end it with cancel() or give_up()" in listed.error.remedy
    assert [one.agent for one in listed.ran_under] == ["1", "2"]
    rolled_back = make_app(before(ledger), mode=mode, config={"version": "1"})
    (out,) = await rolled_back.recover()
    assert out.status == "completed", out.error
    assert not [row for row in ran if row[0] != "model" and ledger.rows().count(row) > 1]


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("agent#1", True),
        ("agent#1/inner#1/charge#2", True),
        ("agent#1/inner#1/bill#1", False),
        ("agent#1/other#1/charge#1", False),
        ("agent#1/inner#1/charge#1/made#1", True),  # at run time
        ("agent#1/line#1/a~1", True),
        ("agent#1/line#1/a~1/:m1.0/any#1", True),  # below a call
        ("agent#1/line#1/a~1/%3Acall#1", True),  # one that is known by its count only
        ("agent#1/line#1/c~1/:m1.0", False),
    ],
)
def test_a_place_that_is_gone_is_told_from_one_that_the_topology_does_not_say(
    ledger: Ledger, path: str, is_there: bool
) -> None:
    line = pipeline("a", "p", name="line")(ledger)
    inner = graph("charge", "ask")(ledger)
    inner.name = "inner"
    assert topology.has(Workflow(name="outer", edges=[(START, inner, line)]), path) is is_there


def charging(ledger: Ledger, first: str, second: str, *, dies: bool) -> Workflow:
    """Two effects in a row: one node has finished when the other one is cut off behind its own."""

    def charge(node_input: Any) -> None:
        ledger.add("charge")

    async def pay(node_input: Any) -> None:
        await step("paid", ledger.add, "pay")
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    row = [FunctionNode(func=charge, name=first), FunctionNode(func=pay, name=second)]
    return Workflow(name="flow", edges=[(START, *row)])


def looking_in_line(ledger: Ledger, first: str, second: str, *, dies: bool) -> Any:
    """The same of agents that are no nodes: the tool that the second one calls is cut off."""

    def stop(q: str) -> str:
        """Stop."""
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        ledger.add("look", "stop")
        return "stopped"

    stop.__name__ = "look"
    parts = [looker(ledger, first), agent(ledger, second, *LOOKS, tools=[stop])]
    return SequentialAgent(name="line", sub_agents=parts)


LOOKS = (calls(("look", {"q": "stop"})), says("looked"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("names", [("a2", "b"), ("a", "b2")], ids=["finished", "under way"])
@pytest.mark.parametrize("root", [charging, looking_in_line])
def test_a_node_that_was_renamed_after_a_crash_does_not_run_again(
    ledger: Ledger, replica_set_uri: str, database: str, root: Any, names: Any, mode: str
) -> None:
    """Nothing was suspended: its owner was killed in the second node of the step."""
    warm()
    clock, namespace = ServerClock(), f"n{os.urandom(6).hex()}"

    async def acts(names: tuple[str, str], *what: str, dies: bool = False) -> Any:
        config = {
            "features": {"durable_workflow": True},
            "namespace": namespace,
            "replay": {"mode": mode},
            "shutdown": {"grace": "0s"},
        }
        place = {"mongodb": replica_set_uri, "database": database, "clock": clock}
        code = root(ledger, *names, dies=dies)
        async with App("cases", root_agent=code, config=config, **place) as app:
            if dies:
                await app.invoke(user_id="u", message="go", execution_id="x")
            if "check" in what:
                return (await app.executions.replay("x")).error.message
            if "retry" in what:
                await app.retry("x")
            (out,) = await app.recover()
            return out.status, out.error and out.error.type, out.error and out.error.message

    code, _ = begin_fork(lambda: asyncio.run(acts(("a", "b"), dies=True))).wait()
    assert code == -signal.SIGKILL
    ran = ledger.rows()
    clock.advance(LEASE_PASSED_MS)
    told = asyncio.run(acts(names, "check"))
    status, error, message = asyncio.run(acts(names))
    assert (status, error, ledger.rows()) == ("stuck", "ReplayMismatch", ran)
    assert "asked no such node, and " in message
    assert message == told, "the check says it in the words of an attempt"
    status, *_ = asyncio.run(acts(("a", "b"), "retry"))
    assert status == "completed"
    effects = [row for row in ledger.rows() if row[0] != "model"]
    assert len(effects) == len(set(effects)) == 2


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("change", ACCEPTED)
async def test_what_no_result_depends_on_may_change(make_app, ledger, change, mode) -> None:
    before, after = ACCEPTED[change]
    out = await make_app(before(ledger)).invoke(user_id="u", message="go")
    assert out.status == "suspended", out.error
    ran = ledger.rows()
    out = await make_app(after(ledger), mode=mode).resume(out.execution_id, approve(out))
    assert out.status == "completed", out.error
    assert not [row for row in ran if row[0] != "model" and ledger.rows().count(row) > 1]


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_recorded_call_is_not_handed_to_a_tool_that_takes_other_arguments(
    make_app, ledger, clock, mode
) -> None:
    """Nothing was suspended: its owner failed in the second model call."""

    def root(arg: str) -> LlmAgent:
        fails = agent(ledger, "root", tools=[looking(ledger, arg=arg)])
        fails.model.script = [calls(("look", {"q": "a"})), RuntimeError("down")]
        return fails

    await make_app(root("q")).invoke(user_id="u", message="go", execution_id="x")
    clock.advance(60_000)
    (out,) = await make_app(root("query"), mode=mode).recover()
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
    assert out.error.position.endswith("/:m1.0|1|tool|1")
    assert "recorded look(q), asked look(query)" in out.error.message
    assert ledger.rows().count(("look", "a")) == 1


async def test_an_argument_that_a_model_made_up_is_no_changed_code(make_app, ledger, clock) -> None:
    root = agent(ledger, "root", tools=[looking(ledger)])
    root.model.script = [calls(("look", {"q": "a", "made_up": 1})), RuntimeError("down")]
    await make_app(root).invoke(user_id="u", message="go")
    clock.advance(60_000)
    root.model.script = [says("never asked"), says("done")]
    (out,) = await make_app(root).recover()
    assert (out.status, out.response) == ("completed", "done")
    assert ledger.rows().count(("look", "a")) == 1
