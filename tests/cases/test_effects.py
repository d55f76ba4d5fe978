"""Rows E of the case list: effects, cancellation, streams."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk import durable_tool
from durable_adk.adk.scripted_model import calls, says
from tests.adapter.stock import Stock, user
from tests.cases.conftest import approve
from tests.faults.catalogue import CASES, Tools, agent
from tests.faults.differences import differences
from tests.support.lives import Case, Ledger, World, points_of


def pays_once(ledger: Ledger) -> Any:
    tools = Tools(ledger)

    @durable_tool(on_unknown_outcome="fail")
    def pay_once(amount: int) -> str:
        """Pay, and never twice."""
        ledger.add("tool", "pay_once", amount)
        return "paid"

    return agent(
        ledger,
        "root",
        calls(("look", {"q": "a"})),
        calls(("pay_once", {"amount": 1})),
        says("done"),
        tools=[tools.look, pay_once],
    )


@pytest.mark.parametrize("mode", ["restore", "walk"])
def test_a_fail_tool_runs_at_most_once_wherever_the_process_dies(
    replica_set_uri: str, database: str, tmp_path: Path, mode: str
) -> None:
    """E1: every point; where it may have run, the execution fails and says so."""
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    case = Case(build=pays_once)
    undisturbed = world.live(case)
    (reached,) = undisturbed.reached
    ends: dict[str, set[str]] = {}
    for point in points_of(reached):
        name, life = point[0], world.live(case, kill=(1, point))
        ran = life.ledger[("tool", "pay_once", 1)]
        assert ran <= 1, f"killed {name}"
        ends.setdefault(life.status[0], set()).add(name)
        if life.status == ["completed"]:
            assert ran == 1
            assert differences(case, undisturbed, life, name) == []
    assert "in: tool pay_once" in ends["failed"]
    assert "ran: tool pay_once" in ends["failed"]
    assert "in: tool look" in ends["completed"]


async def test_a_cancelled_sibling_is_no_outcome_and_the_execution_can_go_on(
    make_app, ledger, clock
) -> None:
    """E2: one of two parallel tools raises while the other sleeps."""
    fails = [RuntimeError("broken")]

    async def breaks(q: str) -> str:
        """Raise once."""
        ledger.add("breaks")
        await asyncio.sleep(0)
        if fails:
            raise fails.pop()
        return "mended"

    async def sleeps(q: str) -> str:
        """Sleep for ever in the first attempt."""
        ledger.add("sleeps")
        if ledger.rows().count(("sleeps",)) == 1:
            await asyncio.Event().wait()
        return "slept"

    script = [calls(("breaks", {"q": "a"}), ("sleeps", {"q": "b"})), says("done")]
    app = make_app(agent(ledger, "root", *script, tools=[breaks, sleeps]))
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, out.error.type) == ("queued", "RuntimeError")
    statuses = {a.name: a.status for a in await app.executions.activities(out.execution_id)}
    assert "sleeps" not in statuses or statuses["sleeps"] not in ("completed", "failed")
    clock.advance(60_000)
    (out,) = await app.recover()
    assert (out.status, out.response) == ("completed", "done")
    assert ledger.rows().count(("sleeps",)) == 2


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_a_body_that_swallows_its_cancellation_holds_nothing_up(
    make_app, ledger, how: str
) -> None:
    """E2: in a branch of a ``ParallelAgent``, whose task group hands on one cancellation only."""
    begun = asyncio.Event()

    async def stubborn(q: str) -> str:
        """Make a result of being cancelled."""
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ledger.add("swallowed")
        return "late"

    def branch(name: str) -> LlmAgent:
        return agent(ledger, name, calls(("stubborn", {"q": "a"})), says("done"), tools=[stubborn])

    app = make_app(ParallelAgent(name="both", sub_agents=[branch("a"), branch("b")]))
    running = asyncio.create_task(app.invoke(user_id="u", message="go", execution_id="e"))
    await begun.wait()
    if how == "cancel":
        assert (await app.cancel("e")).status == "cancelled"
    else:
        await app.close()
        other = make_app(agent(ledger, "other", says("hello")))
        assert (await other.executions.get("e")).status == "queued"
    await asyncio.gather(running, return_exceptions=True)
    assert ("swallowed",) in ledger.rows()


async def test_a_cancelled_fail_tool_is_in_doubt_at_once(make_app, ledger, clock) -> None:
    """E2 with ``fail``."""

    entered = asyncio.Event()

    async def breaks(q: str) -> str:
        """Raise."""
        await entered.wait()
        raise RuntimeError("broken")

    @durable_tool(on_unknown_outcome="fail")
    async def pays(q: str) -> str:
        """Start to pay."""
        ledger.add("pays")
        entered.set()
        await asyncio.Event().wait()
        return "paid"

    script = [calls(("pays", {"q": "b"}), ("breaks", {"q": "a"})), says("done")]
    app = make_app(agent(ledger, "root", *script, tools=[breaks, pays]))
    out = await app.invoke(user_id="u", message="go")
    statuses = {a.name: a.status for a in await app.executions.activities(out.execution_id)}
    assert statuses["pays"] == "in_doubt"
    for _ in range(2):
        clock.advance(120_000)
        await app.recover()
    out = await app.invoke(user_id="u", message="go", execution_id=out.execution_id)
    assert (out.status, out.error.type) == ("failed", "OutcomeUnknown")
    assert ledger.rows() == [("model", "root", 0), ("pays",)]


async def test_a_node_that_times_out_runs_again_under_its_retry(make_app, ledger) -> None:
    """E2: a timeout is no outcome either."""
    tools = Tools(ledger)

    async def slow(node_input: Any) -> str:
        ledger.add("slow")
        if ledger.rows().count(("slow",)) == 1:
            await asyncio.Event().wait()
        return "in time"

    from google.adk.workflow import RetryConfig

    node = FunctionNode(
        func=slow,
        name="slow",
        timeout=0.3,
        retry_config=RetryConfig(max_attempts=2, initial_delay=0.0, jitter=0.0),
    )
    payer = agent(
        ledger, "payer", calls(("pay", {"amount": 1})), says("done"), tools=[tools.confirmed_pay]
    )
    flow = Workflow(name="flow", edges=[(START, node), (node, payer)])
    out = await make_app(flow).invoke(user_id="u", message="go")
    assert out.status == "suspended"
    out = await make_app(flow, mode="walk").resume(out.execution_id, approve(out))
    assert out.status == "completed"
    assert ledger.rows().count(("slow",)) == 2


class Observer(BasePlugin):
    """Writes down every hook call."""

    def __init__(self) -> None:
        super().__init__(name="observer")
        self.seen: list[str] = []

    async def on_user_message_callback(self, **_: Any) -> None:
        self.seen.append("user_message")

    async def before_run_callback(self, **_: Any) -> None:
        self.seen.append("before_run")

    async def after_run_callback(self, **_: Any) -> None:
        self.seen.append("after_run")

    async def on_event_callback(self, *, event: Any, **_: Any) -> None:
        self.seen.append(f"event by {event.author}")

    async def before_agent_callback(self, *, agent: Any, **_: Any) -> None:
        self.seen.append(f"before {agent.name}")

    async def after_agent_callback(self, *, agent: Any, **_: Any) -> None:
        self.seen.append(f"after {agent.name}")

    async def before_model_callback(self, **_: Any) -> None:
        self.seen.append("before model")

    async def after_model_callback(self, **_: Any) -> None:
        self.seen.append("after model")

    async def before_tool_callback(self, *, tool: Any, **_: Any) -> None:
        self.seen.append(f"before {tool.name}")

    async def after_tool_callback(self, *, tool: Any, **_: Any) -> None:
        self.seen.append(f"after {tool.name}")


def observed(ledger: Ledger) -> Any:
    tools = Tools(ledger)
    script = [calls(("look", {"q": "a"})), calls(("pay", {"amount": 1})), says("done")]
    return agent(ledger, "root", *script, tools=[tools.look, tools.confirmed_pay])


async def test_hooks_are_called_live_as_without_the_library(make_app, ledger) -> None:
    """E3, the first attempt."""
    plain, ours = Observer(), Observer()
    stock = Stock(observed(ledger))
    stock.runner.plugin_manager.register_plugin(plain)
    await stock.run(user("go"))
    app = make_app(observed(ledger), plugins=[ours])
    await app.invoke(user_id="u", message="go")
    assert ours.seen == plain.seen


@pytest.mark.parametrize(
    ("mode", "silent", "again"),
    [
        ("restore", {"before look", "user_message"}, {"before_run", "before root", "before pay"}),
        ("walk", set(), {"user_message", "before look", "after look", "before pay", "after pay"}),
    ],
)
async def test_hooks_of_a_later_attempt_are_those_of_the_table(
    make_app, ledger, mode, silent, again
) -> None:
    """E3, later attempts: the rows of the table in ``adk/README.md``."""
    later = Observer()
    out = await make_app(observed(ledger)).invoke(user_id="u", message="go")
    out = await make_app(observed(ledger), mode=mode, plugins=[later]).resume(
        out.execution_id, approve(out)
    )
    assert out.status == "completed"
    assert not silent & set(later.seen)
    assert again <= set(later.seen)
    assert ledger.rows().count(("tool", "look", "a")) == 1


async def test_hooks_of_an_open_step_are_called_again_after_a_failed_attempt(
    make_app, ledger, clock
) -> None:
    """E3, an open step: orchestrators run over recorded children."""
    tools = Tools(ledger)
    fails = [RuntimeError("down")]

    def script(_request: Any, turn: int) -> Any:
        if turn == 0:
            return calls(("look", {"q": "a"}))
        return fails.pop() if fails else says("done")

    root = agent(ledger, "root", tools=[tools.look])
    root.model.script = script
    later = Observer()
    app = make_app(root, plugins=[later])
    await app.invoke(user_id="u", message="go")
    first = list(later.seen)
    later.seen.clear()
    clock.advance(60_000)
    (out,) = await app.recover()
    assert out.status == "completed"
    assert "before look" in first
    assert {"before look", "after look", "before model", "before root"} <= set(later.seen)
    assert ledger.rows().count(("tool", "look", "a")) == 1


async def test_a_caller_that_stops_at_any_event_changes_nothing(make_app, ledger) -> None:
    """E4: the generator is closed after each event in turn; the execution goes on."""

    def root() -> Any:
        return CASES["ten tools"].build(ledger)

    undisturbed = await make_app(root(), namespace="e4").invoke(user_id="u", message="go")
    rows = len(ledger.rows())
    for stop_at in range(1, len(undisturbed.events)):
        app = make_app(root())
        stream = app.stream(user_id="u", message="go", execution_id=f"stop{stop_at}")
        seen = 0
        async for _item in stream:
            seen += 1
            if seen == stop_at:
                break
        await stream.aclose()
        out = await app.invoke(user_id="u", message="go", execution_id=f"stop{stop_at}")
        assert (out.status, out.response) == ("completed", undisturbed.response)
        assert len(out.events) == len(undisturbed.events)
        assert len(ledger.rows()) == rows * (stop_at + 1)
