"""What was recorded at an operation path in another entry of it, in another step, or by a callback
says nothing of the call that stands there now."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, RetryConfig, Workflow
from google.genai import types

import durable_adk
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.cases.conftest import approve
from tests.support.lives import Ledger

MINUTE_MS = 60_000
MODES = pytest.mark.parametrize("mode", ["restore", "walk"])
TEXT = {"type": "object", "properties": {"k": {"type": "string"}}}
NO_TRIES = {"retry": {"max_attempts": 1}}


class Pay(BaseTool):
    """A tool of one's own, which leaves it to ADK to hold its calls back."""

    def __init__(self, ledger: Ledger, name: str = "pay") -> None:
        super().__init__(name=name, description=name)
        self.ledger = ledger
        self.asks = True

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(name=self.name, parameters_json_schema=TEXT)

    async def check_require_confirmation(self, args: Any, tool_context: Any) -> bool:
        return self.asks

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        self.ledger.add("ran", self.name, args["k"])
        return "done"


def own(ledger: Ledger) -> BaseTool:
    return Pay(ledger)


def of_function(ledger: Ledger) -> BaseTool:
    def pay(k: str) -> str:
        """Pay."""
        ledger.add("ran", "pay", k)
        return "done"

    return FunctionTool(pay, require_confirmation=True)


PAYS = pytest.mark.parametrize("pays", [own, of_function])


def tries(ledger: Ledger, *first: Any) -> Any:
    """A script: a reply for each entry of its agent, then for what its last call came to."""

    def script(_request: Any, turn: int) -> Any:
        if turn:
            return says("done")
        ledger.add("try")
        return first[min(ledger.rows().count(("try",)), len(first)) - 1]

    return script


def flow(name: str, script: Any, *tools: Any, **fields: Any) -> Workflow:
    retry = RetryConfig(max_attempts=3, initial_delay=0.01)
    model = ScriptedModel(script=script)
    fields = {"mode": "single_turn", "retry_config": retry, **fields}
    agent = LlmAgent(name=name, model=model, tools=list(tools), **fields)
    return Workflow(name="w", edges=[(START, agent)])


def ran(ledger: Ledger, name: str = "pay") -> int:
    return sum(row[:2] == ("ran", name) for row in ledger.rows())


async def woken(app: Any, clock: Any, out: Any) -> Any:
    """Past its timers."""
    while [wait.kind for wait in out.waits] == ["timer"]:
        clock.advance(MINUTE_MS + 1)
        (out,) = await app.recover()
    return out


# ---------------------------------------------------------------- the gate: another entry


def agent_tool(_ledger: Ledger) -> tuple[Any, Any]:
    inner = LlmAgent(name="inner", model=ScriptedModel(script=[RuntimeError("no inner model")]))
    return AgentTool(inner), ("inner", {"request": "r"})


def sleeper(ledger: Ledger) -> tuple[Any, Any]:
    async def nap(k: str) -> str:
        """Sleep."""
        await durable_adk.sleep(60)
        ledger.add("woke")
        raise ValueError("after the sleep")

    return FunctionTool(nap), ("nap", {"k": "1"})


def sleeps_below(ledger: Ledger) -> tuple[Any, Any]:
    nap, call = sleeper(ledger)
    inner = LlmAgent(name="inner", model=ScriptedModel(script=[calls(call)]), tools=[nap])
    return AgentTool(inner), ("inner", {"request": "r"})


@pytest.mark.parametrize(("mode", "confirmed"), [("restore", False), ("walk", True)])
@pytest.mark.parametrize("before", [agent_tool, sleeper, sleeps_below])
@PAYS
async def test_a_call_is_asked_about_whatever_an_earlier_try_left_at_its_place(
    make_app: Any, ledger: Ledger, clock: Any, pays: Any, before: Any, mode: str, confirmed: bool
) -> None:
    tool, call = before(ledger)
    script = tries(ledger, calls(call), calls(("pay", {"k": "1"})))
    app = make_app(flow("ag", script, tool, pays(ledger)), mode=mode, config=NO_TRIES)
    out = await woken(app, clock, await app.invoke(user_id="u", message="go"))
    assert (out.status, ran(ledger)) == ("suspended", 0), out.error
    assert [wait.kind for wait in out.waits] == ["adk_request_confirmation"]
    found = await app.executions.activities(out.execution_id)
    assert "pay" not in [one.name for one in found if one.kind == "tool"]
    assert (await app.executions.replay(out.execution_id)).ok
    out = await app.resume(out.execution_id, {out.waits[0].id: {"confirmed": confirmed}})
    assert (out.status, ran(ledger)) == ("completed", confirmed), out.error
    assert (await app.executions.replay(out.execution_id)).ok


@MODES
@pytest.mark.parametrize("after", [sleeper, sleeps_below])
async def test_a_call_that_was_held_back_does_not_run_for_what_a_later_try_left_at_its_place(
    make_app: Any, ledger: Ledger, clock: Any, after: Any, mode: str
) -> None:
    def boom(k: str) -> str:
        """Fail."""
        raise ValueError("boom")

    tool, call = after(ledger)
    both = calls(("pay", {"k": "1"}), ("boom", {"k": "2"}))
    script = tries(ledger, both, calls(call), says("done"))
    app = make_app(flow("ag", script, tool, boom, own(ledger)), mode=mode, config=NO_TRIES)
    out = await app.invoke(user_id="u", message="go")
    assert [wait.kind for wait in out.waits] == ["timer"], out.error
    out = await woken(app, clock, out)
    assert (out.status, ran(ledger)) == ("completed", 0), (out.error, out.waits)


# ---------------------------------------------------------------- the gate: a callback


async def naps(_ledger: Ledger) -> None:
    await durable_adk.sleep(60)


async def asks_an_agent(ledger: Ledger) -> None:
    guard = LlmAgent(name="guard", model=ScriptedModel(script=[says("fine")]))
    runner = InMemoryRunner(agent=guard, app_name="guards")
    session = await runner.session_service.create_session(app_name="guards", user_id="g")
    content = types.Content(role="user", parts=[types.Part(text="is it?")])
    events = runner.run_async(user_id="g", session_id=session.id, new_message=content)
    async for _event in events:
        ledger.add("guard")


async def does_both(ledger: Ledger) -> None:
    await asks_an_agent(ledger)
    await naps(ledger)


@MODES
@pytest.mark.parametrize("callback", [naps, asks_an_agent, does_both])
@PAYS
async def test_what_a_callback_before_the_gate_left_does_not_open_it(
    make_app: Any, ledger: Ledger, clock: Any, pays: Any, callback: Any, mode: str
) -> None:
    async def before(tool: Any, args: Any, tool_context: Any) -> None:
        await callback(ledger)

    script = [calls(("pay", {"k": "1"})), says("done")]
    root = flow("ag", script, pays(ledger), before_tool_callback=before)
    app = make_app(root, mode=mode, config=NO_TRIES)
    out = await woken(app, clock, await app.invoke(user_id="u", message="go"))
    assert (out.status, ran(ledger)) == ("suspended", 0), out.error
    assert [wait.kind for wait in out.waits] == ["adk_request_confirmation"]
    out = await woken(app, clock, await app.resume(out.execution_id, approve(out)))
    assert (out.status, ran(ledger)) == ("completed", 1), out.error


# ---------------------------------------------------------------- the gate: the call itself


class Napping(Pay):
    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        await durable_adk.sleep(60)
        return await super().run_async(args=args, tool_context=tool_context)


class ByAnAgent(AgentTool):
    asks = True

    async def check_require_confirmation(self, args: Any, tool_context: Any) -> bool:
        return self.asks


def naps_itself(ledger: Ledger) -> tuple[Any, Any]:
    return Napping(ledger), ("pay", {"k": "1"})


def naps_below(ledger: Ledger) -> tuple[Any, Any]:
    nap = Napping(ledger)
    nap.asks = False
    inner = LlmAgent(
        name="inner",
        model=ScriptedModel(script=[calls(("pay", {"k": "1"})), says("in")]),
        tools=[nap],
    )
    return ByAnAgent(inner), ("inner", {"request": "r"})


@MODES
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("build", [naps_itself, naps_below])
async def test_a_call_that_was_let_through_and_sleeps_is_not_asked_about_when_it_wakes(
    make_app: Any, ledger: Ledger, clock: Any, build: Any, again: bool, mode: str
) -> None:
    tool, call = build(ledger)
    tool.asks = False

    def no(k: str) -> str:
        """Fail."""
        raise ValueError("no")

    first = [calls(("no", {"k": "1"}))] if again else []
    root = flow("ag", tries(ledger, *first, calls(call)), tool, no)
    app = make_app(root, mode=mode, config=NO_TRIES)
    out = await app.invoke(user_id="u", message="go")
    assert [wait.kind for wait in out.waits] == ["timer"]
    tool.asks = True
    out = await woken(app, clock, out)
    assert (out.status, ran(ledger)) == ("completed", 1), (out.error, out.waits)


class Recovers(Pay):
    """Fails the first time."""

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
        self.ledger.add("entered")
        if self.ledger.rows().count(("entered",)) == 1:
            raise ValueError("the first time")
        return await super().run_async(args=args, tool_context=tool_context)


@MODES
async def test_a_call_that_was_let_through_and_cut_off_is_not_asked_about_by_a_later_attempt(
    make_app: Any, ledger: Ledger, clock: Any, mode: str
) -> None:
    pay = Recovers(ledger)
    pay.asks = False
    model = ScriptedModel(
        script=[calls(("pay", {"k": "1"})), says("in")], on_call=lambda _turn: ledger.add("inner")
    )
    tool = ByAnAgent(LlmAgent(name="inner", model=model, tools=[pay]))
    tool.asks = False
    script = [calls(("inner", {"request": "r"})), says("done")]
    app = make_app(flow("ag", script, tool, retry_config=None), mode=mode)
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, ran(ledger)) == ("queued", 0), out.error
    tool.asks = True
    clock.advance(MINUTE_MS)
    (out,) = await app.recover()
    assert (out.status, ran(ledger)) == ("completed", 1), (out.error, out.waits)
    assert ledger.rows().count(("inner",)) == 2


# ---------------------------------------------------------------- another step


def confirmed_then_sleeping(ledger: Ledger) -> Workflow:
    async def nap(k: str) -> str:
        """Sleep."""
        await durable_adk.sleep(60)
        ledger.add("ran", "nap", k)
        return "slept"

    script = [calls(("pay", {"k": "1"})), calls(("nap", {"k": "2"})), says("done")]
    return flow("ag", script, of_function(ledger), nap)


def flat(build: Any) -> Any:
    def unwrapped(ledger: Ledger) -> Any:
        agent = build(ledger).edges[0][1]
        return LlmAgent(name="ag", model=agent.model, tools=agent.tools)

    return unwrapped


@MODES
@pytest.mark.parametrize(
    "build", [confirmed_then_sleeping, flat(confirmed_then_sleeping)], ids=["flow", "agent"]
)
async def test_what_sleeps_in_a_later_step_is_not_taken_for_the_call_of_an_earlier_one(
    make_app: Any, ledger: Ledger, clock: Any, build: Any, mode: str
) -> None:
    app = make_app(build(ledger), mode=mode)
    out = await app.invoke(user_id="u", message="go")
    out = await app.resume(out.execution_id, approve(out))
    assert [wait.kind for wait in out.waits] == ["timer"], out.error
    checked = await app.executions.replay_all(status="suspended")
    assert [(one.ok, one.difference) for one in checked] == [(True, None)]
    out = await woken(app, clock, out)
    assert (out.status, ran(ledger), ran(ledger, "nap")) == ("completed", 1, 1), out.error
    assert (await app.executions.replay(out.execution_id)).ok


# ---------------------------------------------------------------- what is not the gate's


@MODES
async def test_what_asks_in_a_later_try_does_not_make_a_walk_run_a_cancelled_call_again(
    make_app: Any, ledger: Ledger, mode: str
) -> None:
    began = asyncio.Event()

    async def slow(k: str) -> str:
        """Take long."""
        ledger.add("ran", "slow", k)
        began.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody wakes it")

    async def boom(k: str) -> str:
        """Fail."""
        await began.wait()
        raise ValueError("boom")

    inner = LlmAgent(
        name="inner",
        model=ScriptedModel(script=[calls(("pay", {"k": "1"})), says("in")]),
        tools=[of_function(ledger)],
    )
    first = calls(("slow", {"k": "1"}), ("boom", {"k": "2"}))
    script = tries(ledger, first, calls(("inner", {"request": "r"})))
    app = make_app(flow("ag", script, slow, boom, AgentTool(inner)), mode=mode, config=NO_TRIES)
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, [wait.kind for wait in out.waits]) == (
        "suspended",
        ["adk_request_confirmation"],
    ), out.error
    report = await app.executions.replay(out.execution_id)
    assert (report.ok, report.matched) == (True, report.recorded), report
    assert ran(ledger, "slow") == 1
    out = await app.resume(out.execution_id, approve(out))
    assert (ran(ledger, "slow"), ran(ledger)) == (1, 1)
    assert out.status == "completed", out.error
    assert (await app.executions.replay(out.execution_id)).ok


@MODES
async def test_children_of_a_later_try_do_not_make_an_earlier_one_run_again(
    make_app: Any, ledger: Ledger, mode: str
) -> None:
    def ask(node_input: Any) -> Any:
        yield RequestInput(message="?")

    async def lead(ctx: Any, node_input: Any) -> Any:
        ledger.add("ran", "lead", len(ledger.rows()))
        if ran(ledger, "lead") == 1:
            raise ValueError("the first try")
        return await ctx.run_node(FunctionNode(func=child, name="child"))

    def child(node_input: Any) -> str:
        ledger.add("ran", "child", "1")
        return "child"

    retry = RetryConfig(max_attempts=3, initial_delay=0.01)
    node = FunctionNode(func=lead, name="lead", rerun_on_resume=True, retry_config=retry)
    app = make_app(Workflow(name="w", edges=[(START, node, ask)]), mode=mode, config=NO_TRIES)
    out = await app.invoke(user_id="u", message="go")
    assert out.status == "suspended", out.error
    assert (await app.executions.replay(out.execution_id)).ok
    out = await app.resume(out.execution_id, approve(out))
    assert (out.status, ran(ledger, "child"), ran(ledger, "lead")) == ("completed", 1, 2), out.error
