"""``durable_adk.testing``: a MongoDB in memory, a clock, faults."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk import App, ConfigError
from durable_adk.testing import (
    FaultPlan,
    ManualClock,
    ScriptedModel,
    Write,
    calls,
    memory_client,
    says,
)
from tests.app import agents
from tests.app.agents import yes
from tests.app.conftest import ON
from tests.support.mongo import ROOT


def test_each_client_in_memory_is_a_new_mongodb() -> None:
    assert memory_client() is not memory_client()


def test_a_fault_strikes_at_the_nth_reach_of_its_point() -> None:
    plan = FaultPlan().fail("before frontier", KeyError("now"), at=2)
    plan.before(Write.FRONTIER)
    plan.before(Write.END)
    with pytest.raises(KeyError, match="now"):
        plan.before(Write.FRONTIER)
    plan.before(Write.FRONTIER)
    assert plan.reached == ["before frontier", "before end", "before frontier", "before frontier"]


def test_a_body_is_a_point_before_and_after_it_ran() -> None:
    plan = FaultPlan().fail("ran tool:pay", ValueError("lost"))
    plan.body("tool", "pay", ran=False)
    plan.body("tool", "look", ran=True)
    with pytest.raises(ValueError, match="lost"):
        plan.body("tool", "pay", ran=True)


@pytest.mark.parametrize(
    "point",
    [
        "",
        "frontier",
        "before fronteer",
        "before",
        "before renew",
        "during end",
        "in tool",
        "in tool:",
    ]
    + ["ran wait:x", "ran tol:pay", "after tool:pay", "before FRONTIER"],
)
def test_a_point_that_is_never_reached_is_refused_at_once(point: str) -> None:
    with pytest.raises(ConfigError, match="fault point"):
        FaultPlan().fail(point, ValueError("x"))
    with pytest.raises(ConfigError, match="fault point"):
        FaultPlan().kill(point)


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (lambda plan: plan.fail("before end", "Unavailable"), "expected an exception"),
        (lambda plan: plan.fail("before end", ValueError), "expected an exception"),
        (lambda plan: plan.lose_reply("end"), "expected a Write"),
        (lambda plan: plan.delay("before end", 0), "seconds over 0"),
        (lambda plan: plan.delay("before end", -1.5), "seconds over 0"),
        (lambda plan: plan.delay("before end", "1s"), "seconds over 0"),
        (lambda plan: plan.delay("before end", float("nan")), "seconds over 0"),
        (lambda plan: plan.hold("in tool"), "no known form"),
        (lambda plan: plan.stop("during end"), "no known form"),
        (lambda plan: plan.kill(Write.END), "no known form"),
        (lambda plan: plan.kill("before end", at=True), "whole number"),
        (lambda plan: plan.kill("before end", at=1.0), "whole number"),
        (lambda plan: plan.kill("before end").kill("before end"), "cannot strike"),
        (lambda plan: plan.lose_reply(Write.END).fail("after end", ValueError()), "cannot strike"),
        (lambda plan: plan.fail("in tool:a", ValueError()).stop("in tool:a"), "cannot strike"),
    ],
)
def test_a_plan_that_cannot_happen_is_refused(plan: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        plan(FaultPlan())


async def test_a_held_point_waits_until_it_is_released() -> None:
    plan = FaultPlan()
    held = plan.hold("before end", at=2)
    assert plan.before(Write.END) is None
    waiting = asyncio.ensure_future(plan.before(Write.END))
    await held.reached()
    assert not waiting.done()
    held.release()
    await waiting
    assert plan.before(Write.END) is None
    plan.assert_all_struck()


async def test_what_holds_comes_first_then_the_faults_in_their_order() -> None:
    plan = FaultPlan().lose_reply(Write.END).delay("after end", 0.001)
    assert await plan.after(Write.END) is True
    plan = FaultPlan().delay("ran tool:pay", 0.001).fail("ran tool:pay", ValueError("lost"))
    with pytest.raises(ValueError, match="lost"):
        await plan.body("tool", "pay", ran=True)
    plan.assert_all_struck()


def test_a_point_can_be_released_before_it_is_reached_and_from_another_loop() -> None:
    plan = FaultPlan()
    early, late = plan.hold("before end"), plan.hold("before end", at=2)
    early.release()
    asyncio.run(plan.before(Write.END))
    threading.Timer(0.01, late.release).start()
    asyncio.run(plan.before(Write.END))
    assert early.is_reached
    assert late.is_reached


def test_renewals_cannot_lose_their_reply() -> None:
    with pytest.raises(ConfigError, match="names no write"):
        FaultPlan().lose_reply(Write.RENEW)
    with pytest.raises(ConfigError, match="at="):
        FaultPlan().lose_reply(Write.END, at=0)


def test_a_fault_that_never_struck_fails_the_test_by_name() -> None:
    plan = FaultPlan().lose_reply(Write.END).lose_reply(Write.STEP, at=2).kill("in tool:pay")
    plan.after(Write.END)
    plan.after(Write.STEP)
    with pytest.raises(AssertionError) as caught:
        plan.assert_all_struck()
    assert "'after step' (reach 2), 'in tool:pay' (reach 1)" in str(caught.value)
    assert "'after end' (reach" not in str(caught.value)


def test_a_plan_whose_faults_all_struck_passes() -> None:
    FaultPlan().assert_all_struck()
    plan = FaultPlan().fail("ran tool:pay", ValueError("lost")).lose_reply(Write.END)
    with pytest.raises(ValueError, match="lost"):
        plan.body("tool", "pay", ran=True)
    assert plan.after(Write.END)
    plan.assert_all_struck()


def test_renewals_are_no_points() -> None:
    plan = FaultPlan()
    plan.before(Write.RENEW)
    assert not plan.after(Write.RENEW)
    assert plan.reached == []


@pytest.mark.parametrize(("sigkill", "code"), [(False, 9), (True, -signal.SIGKILL)])
def test_a_process_is_ended_without_cleanup(sigkill: bool, code: int) -> None:
    program = (
        "import atexit; atexit.register(print, 'cleaned up')\n"
        "from durable_adk.testing import FaultPlan, Write\n"
        f"plan = FaultPlan().kill('after end', sigkill={sigkill})\n"
        "plan.before(Write.END); plan.after(Write.END)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert (done.returncode, done.stdout) == (code, "")


def test_a_stopped_process_does_nothing_until_it_is_continued() -> None:
    pid = os.fork()
    if pid == 0:
        FaultPlan().stop("before end").before(Write.END)
        os._exit(0)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(pid, signal.SIGCONT)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


async def once(plan: FaultPlan) -> tuple[Any, agents.Log]:
    """A run with a frontier, under a plan; what it ends with, and what ran."""
    log: agents.Log = []
    app = App(
        "desk",
        root_agent=agents.two_and_a_question(log),
        config=ON,
        mongodb=memory_client(),
        clock=ManualClock(),
        faults=plan,
    )
    async with app:
        out = await app.invoke(user_id="u", session_id="s", execution_id="e", message="go")
        out = await app.resume("e", yes(*out.waits))
        return (out.status, out.output, [event.id for event in out.events]), sorted(log)


async def test_a_reply_that_is_lost_changes_nothing() -> None:
    plan = FaultPlan()
    undisturbed = await once(plan)
    assert undisturbed[0][0] == "completed"
    writes = {point.removeprefix("after ") for point in plan.reached if point.startswith("after")}
    assert {"begin", "frontier", "answer", "continue", "end", "outcomes", "step"} <= writes
    for write in Write:
        if write.name.lower() in writes:
            plan = FaultPlan().lose_reply(write)
            assert await once(plan) == undisturbed, write
            plan.assert_all_struck()


async def test_a_delay_at_any_point_changes_nothing() -> None:
    plan = FaultPlan()
    undisturbed = await once(plan)
    slow = FaultPlan()
    for point in dict.fromkeys(plan.reached):
        slow.delay(point, 0.001)
    assert await once(slow) == undisturbed
    slow.assert_all_struck()


@pytest.mark.parametrize(
    ("point", "paid"),
    [("in tool:pay", 0), ("ran tool:pay", 1), ("in model:desk", 0), ("ran model:desk", 0)],
)
async def test_an_error_at_a_body_is_the_failure_of_that_body(point: str, paid: int) -> None:
    """In it: nothing has happened; after it: its effect has."""
    ran: list[int] = []

    def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    model = ScriptedModel(model="desk", script=[calls(("pay", {"cents": 5})), says("done")])
    root = LlmAgent(name="desk", model=model, tools=[pay])
    plan = FaultPlan().fail(point, ConnectionError("lost"))
    clock = ManualClock()
    client = memory_client()
    given = {"config": ON, "mongodb": client, "clock": clock, "faults": plan}
    async with App("desk", root_agent=root, **given) as app:
        out = await app.invoke(user_id="u", message="go", execution_id="e")
        assert out.status == "queued"
        assert (out.error.type, out.error.message) == ("ConnectionError", "lost")
        assert ran == [5] * paid
        plan.assert_all_struck()
        records = client["durable_adk"]["durable_activities"].find({"st": "f"})
        assert [record["name"] for record in await records.to_list(None)] == [point.split(":")[1]]
        clock.advance(60_000)
        (out,) = await app.recover()
        assert (out.status, out.response) == ("completed", "done")
        assert ran == [5] * (paid + 1)


@pytest.mark.parametrize("point", ["in model:inner", "ran tool:look"])
async def test_a_failure_in_a_node_that_a_node_runs_is_tried_again(point: str) -> None:
    """ADK raises another error for it, which holds the first one and was not raised from it."""

    def look(q: str) -> str:
        """Look."""
        return q

    model = ScriptedModel(model="inner", script=[calls(("look", {"q": "a"})), says("done")])
    inner = LlmAgent(name="inner", model=model, tools=[look])

    async def outer(ctx: Any, node_input: Any) -> Any:
        yield await ctx.run_node(inner, node_input="x")

    runner = FunctionNode(func=outer, name="outer", rerun_on_resume=True)
    root = Workflow(name="flow", edges=[(START, runner)])
    plan = FaultPlan().fail(point, ConnectionError("lost"))
    clock = ManualClock()
    given = {"config": ON, "mongodb": memory_client(), "clock": clock, "faults": plan}
    async with App("desk", root_agent=root, **given) as app:
        out = await app.invoke(user_id="u", message="go", execution_id="e")
        assert (out.status, out.error.type) == ("queued", "ConnectionError")
        clock.advance(60_000)
        (out,) = await app.recover()
        assert (out.status, out.output) == ("completed", "done")
