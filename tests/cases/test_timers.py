"""``durable_adk.sleep``: in every kind of body, beside others, in forks, and where it cannot be."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import jsonschema
import pytest
from google.adk.agents import BaseAgent, LlmAgent, ParallelAgent, SequentialAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event, RequestInput
from google.adk.models import BaseLlm
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow
from google.genai import types

import durable_adk
from durable_adk import App, ConfigError, InvalidAnswer, SessionBusy, durable_tool, step
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.store.clock import ServerClock
from tests.support.lives import Ledger

MINUTE_MS = 60_000
MODES = pytest.mark.parametrize("mode", ["restore", "walk"])


def agent(name: str, *script: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(script=list(script)), **fields)


class Bodies:
    """Bodies that sleep for a minute, or not at all, with what they did in a ledger."""

    def __init__(self, ledger: Ledger, *, naps: bool = True) -> None:
        self.ledger = ledger
        self.naps = naps

    async def sleep(self) -> None:
        if self.naps:
            await durable_adk.sleep(60)

    async def nap(self, who: str = "n") -> str:
        """Sleep for a while."""
        self.ledger.add("entered", who)
        await step("before", self.ledger.add, "once", who)
        await self.sleep()
        self.ledger.add("after", who)
        return f"{who} slept"

    async def node(self, node_input: Any) -> Any:
        return await self.nap("node")

    async def quick(self, node_input: Any) -> Any:
        await asyncio.sleep(0.05)
        self.ledger.add("quick")
        return "quick"

    def ask(self, node_input: Any) -> Any:
        yield RequestInput(message="?")

    def end(self, node_input: Any) -> Any:
        self.ledger.add("end")
        return node_input


class Sleepy(BaseAgent):
    """A custom agent that sleeps between the events of another one."""

    bodies: Any = None

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        async for event in self.sub_agents[0].run_async(ctx):
            await self.bodies.sleep()
            yield event
        self.bodies.ledger.add("after", "agent")
        content = types.Content(role="model", parts=[types.Part(text="up")])
        yield Event(invocation_id=ctx.invocation_id, author=self.name, content=content)


def in_a_tool(bodies: Bodies) -> Any:
    return agent("a", calls(("nap", {"who": "tool"})), says("done"), tools=[bodies.nap])


def in_parallel_tools(bodies: Bodies) -> Any:
    both = calls(("nap", {"who": "one"}), ("nap", {"who": "two"}))
    return agent("a", both, says("done"), tools=[bodies.nap])


def in_a_node(bodies: Bodies) -> Any:
    return Workflow(name="w", edges=[(START, bodies.node, bodies.end)])


def beside_a_node(bodies: Bodies) -> Any:
    nodes = (FunctionNode(func=bodies.node, name="slow"), bodies.quick)
    return Workflow(name="w", edges=[(START, nodes, JoinNode(name="join"), bodies.end)])


def in_an_orchestrator(bodies: Bodies) -> Any:
    async def lead(ctx: Any, node_input: Any) -> Any:
        first = await ctx.run_node(bodies.quick)
        await bodies.sleep()
        bodies.ledger.add("after", "lead")
        return [first, await ctx.run_node(FunctionNode(func=bodies.quick, name="again"))]

    node = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    return Workflow(name="w", edges=[(START, node)])


def in_a_child(bodies: Bodies) -> Any:
    async def lead(ctx: Any, node_input: Any) -> Any:
        return await ctx.run_node(FunctionNode(func=bodies.node, name="child"))

    node = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    return Workflow(name="w", edges=[(START, node)])


def in_an_agent_of_ones_own(bodies: Bodies) -> Any:
    return Sleepy(name="own", sub_agents=[agent("a", says("hello"))], bodies=bodies)


def in_a_parallel_agent(bodies: Bodies) -> Any:
    def one(name: str) -> LlmAgent:
        return agent(name, calls(("nap", {"who": name})), says("done"), tools=[bodies.nap])

    both = ParallelAgent(name="both", sub_agents=[one("a"), one("b")])
    return SequentialAgent(name="seq", sub_agents=[both, agent("tail", says("tail"))])


def in_an_agent_tool(bodies: Bodies) -> Any:
    inner = agent("inner", calls(("nap", {"who": "deep"})), says("in"), tools=[bodies.nap])
    ask = calls(("inner", {"request": "r"}))
    return agent("a", ask, says("done"), tools=[AgentTool(inner)])


def in_a_callback(bodies: Bodies) -> Any:
    async def before_tool(**_: Any) -> None:
        await bodies.nap("callback")

    async def look() -> str:
        """Look."""
        bodies.ledger.add("looked")
        return "seen"

    return agent(
        "a",
        calls(("look", {})),
        says("done"),
        tools=[look],
        before_tool_callback=lambda tool, args, tool_context: before_tool(),
    )


def in_a_tool_node(bodies: Bodies) -> Any:
    def first(node_input: Any) -> Any:
        return {"who": "tool node"}

    return Workflow(name="w", edges=[(START, first, FunctionTool(bodies.nap))])


PLACES = [
    in_a_tool,
    in_parallel_tools,
    in_a_node,
    beside_a_node,
    in_an_orchestrator,
    in_a_child,
    in_an_agent_of_ones_own,
    in_a_parallel_agent,
    in_an_agent_tool,
    in_a_callback,
    in_a_tool_node,
]


async def asleep(app: App) -> Any:
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    assert out.status == "suspended", out.error
    return out


@MODES
@pytest.mark.parametrize("build", PLACES, ids=lambda build: build.__name__)
async def test_a_body_sleeps_and_goes_on_as_if_it_had_waited(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, build: Any, mode: str
) -> None:
    app = make_app(build(Bodies(ledger)), mode=mode)
    out = await asleep(app)
    assert {wait.kind for wait in out.waits} == {"timer"}
    assert all(wait.expires_at is not None for wait in out.waits)
    assert not [row for row in ledger.rows() if row[0] in ("after", "end", "looked")]
    assert (("quick",) in ledger.rows()) == (build in (beside_a_node, in_an_orchestrator))
    assert await app.recover() == ()
    clock.advance(MINUTE_MS + 1)
    other = make_app(build(Bodies(ledger)), mode=mode)
    (out,) = await other.recover()
    assert out.status == "completed", out.error
    rows = ledger.rows()
    for who in {row[1] for row in rows if row[0] == "once"}:
        assert [row[0] for row in rows if row[1:] == (who,)] == [
            "entered",
            "once",
            "entered",
            "after",
        ]
    assert len({row for row in rows if row[0] in ("after", "quick")}) > 0
    assert max(rows.count(row) for row in rows if row[0] in ("after", "end", "looked")) == 1
    timers = [one for one in await app.executions.activities("x") if one.kind == "timer"]
    assert {one.status for one in timers} == {"completed"}
    if mode == "restore":
        awake = make_app(build(Bodies(ledger, naps=False)), namespace=f"awake-{time.time_ns()}")
        plain = await awake.invoke(user_id="u", session_id="s", message="go", execution_id="x")
        assert told(out) == told(plain)


def told(out: Any) -> list[Any]:
    """The events by author: branches may end in another order."""
    return sorted((event.author, event.branch or "", str(event.content)) for event in out.events)


# ---------------------------------------------------------------- with people


@MODES
@pytest.mark.parametrize("first", ["the answer", "the timer"])
async def test_beside_a_question_it_sleeps_until_both_are_there(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, mode: str, first: str
) -> None:
    bodies = Bodies(ledger)
    nodes = (FunctionNode(func=bodies.node, name="slow"), FunctionNode(func=bodies.ask, name="ask"))
    root = Workflow(name="w", edges=[(START, nodes, JoinNode(name="join"), bodies.end)])
    app = make_app(root, mode=mode)
    out = await asleep(app)
    waits = {wait.kind: wait.id for wait in out.waits}
    question, timer = waits["adk_request_input"], waits["timer"]
    schema = jsonschema.Draft202012Validator(out.resume_schema)
    assert schema.is_valid({question: "blue"})
    assert not schema.is_valid({question: "blue", timer: 1})
    with pytest.raises(InvalidAnswer, match="timer"):
        await app.answer(timer, 1)
    with pytest.raises(InvalidAnswer, match="timer"):
        await app.resume("x", {question: "blue", timer: 1})
    assert (await app.executions.outcome("x")).waits == out.waits
    with pytest.raises(SessionBusy, match=r"open waits: x~.*Answer its waits"):
        await app.invoke(user_id="u", session_id="s", message="more")
    if first == "the answer":
        out = await app.resume("x", {question: "blue"})
        assert [wait.kind for wait in out.waits] == ["timer"]
        with pytest.raises(SessionBusy, match=r"it sleeps until \d{4}-.*A worker or recover\(\)"):
            await app.invoke(user_id="u", session_id="s", message="more")
        assert (await app.resume("x")).status == "suspended"
        clock.advance(MINUTE_MS + 1)
        (out,) = await app.recover()
    else:
        clock.advance(MINUTE_MS + 1)
        assert await app.recover() == ()
        assert ("after", "node") not in ledger.rows()
        out = await app.resume("x", {question: "blue"})
    assert (out.status, out.output) == ("completed", {"slow": "node slept", "ask": "blue"})
    assert ledger.rows().count(("end",)) == 1
    with pytest.raises(durable_adk.AnswerConflict):
        await app.resume("x", {question: "red"})


@MODES
async def test_a_question_after_a_sleep_keeps_what_was_answered_before_it(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, mode: str
) -> None:
    async def late(ctx: Any, node_input: Any) -> Any:
        await durable_adk.sleep(60)
        yield RequestInput(message="late?")

    bodies = Bodies(ledger)
    nodes = (FunctionNode(func=late, name="late"), FunctionNode(func=bodies.ask, name="ask"))
    root = Workflow(name="w", edges=[(START, nodes, JoinNode(name="join"), bodies.end)])
    app = make_app(root, mode=mode)
    (question,) = [wait for wait in (await asleep(app)).waits if wait.kind != "timer"]
    await app.resume("x", {question.id: "blue"}, by="ann")
    clock.advance(MINUTE_MS + 1)
    (out,) = await app.recover()
    assert [wait.message for wait in out.waits] == ["late?"]
    out = await app.resume("x", {question.id: "blue", out.waits[0].id: "red"}, by="bob")
    assert out.output == {"late": "red", "ask": "blue"}
    waits = [one for one in await app.executions.activities("x") if one.kind == "wait"]
    assert sorted(str(one.details["by"]) for one in waits) == ["ann", "bob"]


async def test_a_question_beside_a_sleep_keeps_its_expiry(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    def ask(node_input: Any) -> Any:
        yield durable_adk.expiring(RequestInput(message="?"), "1h", "nobody")

    async def twice(node_input: Any) -> Any:
        await durable_adk.sleep(60)
        yield RequestInput(message="late?")

    nodes = (FunctionNode(func=twice, name="twice"), FunctionNode(func=ask, name="ask"))
    app = make_app(Workflow(name="w", edges=[(START, nodes, JoinNode(name="join"))]))
    (first,) = [wait for wait in (await asleep(app)).waits if wait.message == "?"]
    clock.advance(MINUTE_MS + 1)
    await app.recover()
    out = await app.executions.outcome("x")
    assert [wait.kind for wait in out.waits] == ["adk_request_input"]  # the timer is over
    clock.advance(60 * MINUTE_MS)
    await app.recover()
    await app.recover()
    (late,) = (await app.executions.outcome("x")).waits
    assert late.message == "late?"
    waits = [one for one in await app.executions.activities("x") if one.kind == "wait"]
    assert [one.ended_at for one in waits if one.ended_at] == [first.expires_at]


async def test_what_slept_before_it_asked_does_not_sleep_again_after_the_answer(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    async def lead(ctx: Any, node_input: Any) -> Any:
        await durable_adk.sleep(60)
        ledger.add("up")
        return await ctx.run_node(FunctionNode(func=Bodies(ledger).ask, name="ask"))

    node = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    app = make_app(Workflow(name="w", edges=[(START, node)]))
    await asleep(app)
    clock.advance(MINUTE_MS + 1)
    (out,) = await app.recover()
    out = await app.resume("x", {out.waits[0].id: "blue"})
    assert (out.status, out.output) == ("completed", "blue")


# ---------------------------------------------------------------- how long


async def test_until_is_a_time_of_the_servers_clock_and_a_loop_sleeps_each_time(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    at = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=3)

    async def rounds(node_input: Any) -> Any:
        for k in range(2):
            await durable_adk.sleep("1m" if k else dt.timedelta(minutes=1))
            await step("round", ledger.add, "round", k)
        await durable_adk.sleep(until=at)
        return "morning"

    app = make_app(Workflow(name="w", edges=[(START, rounds)]))
    out = await asleep(app)
    for k in range(2):
        assert ledger.rows() == [("round", done) for done in range(k)]
        clock.advance(MINUTE_MS + 1)
        (out,) = await app.recover()
    (wait,) = out.waits
    assert wait.expires_at is not None
    assert abs(wait.expires_at - at) < dt.timedelta(milliseconds=2)
    clock.advance(MINUTE_MS)
    (out,) = await app.recover()
    assert out.output == "morning"
    assert ledger.rows() == [("round", 0), ("round", 1)]


async def test_what_sleeps_shorter_than_others_work_goes_on_beside_them(
    make_app: Callable[..., App], ledger: Ledger
) -> None:
    bell = asyncio.Event()

    async def sleeper(node_input: Any) -> Any:
        await durable_adk.sleep(0.05)
        bell.set()
        return "up"

    async def worker(node_input: Any) -> Any:
        await bell.wait()  # never quiet before the other one has slept
        return "heard"

    root = Workflow(name="w", edges=[(START, (sleeper, worker), JoinNode(name="join"))])
    out = await make_app(root).invoke(user_id="u", message="go")
    assert (out.status, out.output) == ("completed", {"sleeper": "up", "worker": "heard"})


async def test_rivals_wake_it_and_one_goes_on(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    apps = [make_app(in_a_node(Bodies(ledger))) for _ in range(4)]
    await asleep(apps[0])
    clock.advance(MINUTE_MS + 1)
    outs = [out for found in await asyncio.gather(*(a.recover() for a in apps)) for out in found]
    assert {out.status for out in outs} == {"completed"}
    assert ledger.rows().count(("after", "node")) == 1


async def test_a_cancelled_one_is_closed_and_never_wakes(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    app = make_app(in_a_tool(Bodies(ledger)))
    await asleep(app)
    assert (await app.cancel("x", "no more")).status == "cancelled"
    clock.advance(MINUTE_MS + 1)
    assert await app.recover() == ()
    out = await app.executions.outcome("x")
    closing = [r for event in out.events for r in event.get_function_responses()]
    assert [one.response["status"] for one in closing if one.response] == ["closed"]
    again = await app.invoke(user_id="u", session_id="s", message="next")
    assert again.status in ("completed", "suspended")
    assert ("after", "tool") not in ledger.rows()


@pytest.mark.parametrize("where", ["a node", "a tool"])
async def test_a_body_that_swallows_its_cancellation_records_nothing(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, where: str
) -> None:
    async def stubborn() -> str:
        """Sleep."""
        try:
            await durable_adk.sleep(60)
        except asyncio.CancelledError:
            return "gave up"
        ledger.add("slept")
        return "slept"

    async def node(node_input: Any) -> Any:
        return await stubborn()

    in_tool = agent("a", calls(("stubborn", {})), says("done"), tools=[stubborn])
    app = make_app(in_tool if where == "a tool" else Workflow(name="w", edges=[(START, node)]))
    await asleep(app)
    clock.advance(MINUTE_MS + 1)
    (out,) = await app.recover()
    assert out.status == "completed"
    assert ledger.rows() == [("slept",)]


# ---------------------------------------------------------------- forks


async def test_a_fork_at_a_timer_sleeps_again_and_one_behind_it_does_not(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    app = make_app(in_a_node(Bodies(ledger)))
    (timer,) = (await asleep(app)).waits
    clock.advance(MINUTE_MS // 2)
    before = await app.sessions.fork(user_id="u", session_id="s", before=timer.id)
    assert before.execution_id is not None
    assert (await app.executions.get(before.execution_id)).status == "queued"
    with pytest.raises(ConfigError, match="sleeps"):
        await app.sessions.fork(user_id="u", session_id="s", after=timer.id)
    (out,) = await app.recover()
    assert (out.execution_id, out.status) == (before.execution_id, "suspended")
    assert out.waits[0].expires_at is not None
    assert timer.expires_at is not None
    assert out.waits[0].expires_at - timer.expires_at > dt.timedelta(seconds=29)
    clock.advance(MINUTE_MS // 2 + 1_000)
    (source,) = await app.recover()
    assert source.execution_id == "x"
    behind = await app.sessions.fork(user_id="u", session_id="s", after=timer.id)
    (out,) = await app.recover()
    assert (out.execution_id, out.status) == (behind.execution_id, "completed")
    assert ledger.rows().count(("once", "node")) == 1


@MODES
@pytest.mark.parametrize("where", ["node", "tool"])
async def test_what_sleeps_and_is_renamed_is_not_run_under_its_new_name(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, where: str, mode: str
) -> None:
    bodies = Bodies(ledger)

    def app(name: str) -> App:
        async def nap(who: str) -> str:
            """Sleep for a while."""
            return await bodies.nap("n")

        nap.__name__ = name
        node = FunctionNode(func=bodies.node, name=name)
        root = agent("a", calls(("nap", {"who": "n"})), says("done"), tools=[nap])
        return make_app(
            root if where == "tool" else Workflow(name="w", edges=[(START, node)]), mode=mode
        )

    await asleep(app("nap"))
    renamed = app("other")
    assert not (await renamed.executions.replay("x")).ok
    clock.advance(MINUTE_MS + 1_000)
    (out,) = await renamed.recover()
    assert (out.status, out.error and out.error.type) == ("stuck", "ReplayMismatch")
    await app("nap").retry("x")
    (out,) = await app("nap").recover()
    assert out.status == "completed"
    assert [row[0] for row in ledger.rows()].count("once") == 1


# ---------------------------------------------------------------- where it cannot be


async def test_a_body_that_must_not_run_twice_may_not_sleep(
    make_app: Callable[..., App], ledger: Ledger
) -> None:
    nap = durable_tool(on_unknown_outcome="fail")(Bodies(ledger).__class__.nap)

    async def pay() -> str:
        """Pay."""
        return await nap(Bodies(ledger), "fail")

    durable_tool(on_unknown_outcome="fail")(pay)
    root = agent("a", calls(("pay", {})), says("done"), tools=[pay])
    out = await make_app(root).invoke(user_id="u", message="go")
    assert out.status == "failed"
    assert out.error is not None
    assert out.error.type == "ConfigError"
    assert "entered again" in out.error.message
    assert out.error.remedy


class SleepyModel(BaseLlm):
    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        await durable_adk.sleep(1)
        yield says("never")


async def test_inside_a_step_or_a_model_it_is_refused(
    make_app: Callable[..., App], ledger: Ledger
) -> None:
    async def node(node_input: Any) -> Any:
        return await step("nap", durable_adk.sleep, 1)

    for root in (
        Workflow(name="w", edges=[(START, node)]),
        LlmAgent(name="a", model=SleepyModel(model="sleepy")),
    ):
        app = make_app(root, config={"retry": {"max_attempts": 1}})
        out = await app.invoke(user_id="u", message="go")
        assert out.status == "failed"
        assert "recorded as one call" in str(out.error)


BAD = [None, "soon", "1 week", True, -1, float("nan"), float("inf"), dt.datetime(2030, 1, 1), [1]]  # noqa: DTZ001


@pytest.mark.parametrize("given", BAD, ids=str)
async def test_what_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        await durable_adk.sleep(given)
    assert caught.value.remedy


async def test_outside_an_execution_it_is_plain() -> None:
    began = time.monotonic()
    await durable_adk.sleep(0.01)
    await durable_adk.sleep("5ms")
    await durable_adk.sleep(dt.timedelta(milliseconds=5))
    await durable_adk.sleep(until=dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
    assert time.monotonic() - began >= 0.02
