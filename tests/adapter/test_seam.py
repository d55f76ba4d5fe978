"""A contract test for each place where the adapter steps in: it fails when ADK leaves it."""

from __future__ import annotations

import asyncio
import importlib.util
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import BaseAgent, LlmAgent, SequentialAgent
from google.adk.agents.context import Context
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import RequestInput
from google.adk.flows.llm_flows.base_llm_flow import BaseLlmFlow
from google.adk.runners import Runner
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import (
    START,
    BaseNode,
    FunctionNode,
    NodeTimeoutError,
    RetryConfig,
    Workflow,
)
from google.genai import types
from pydantic import BaseModel

from durable_adk import App
from durable_adk.adk import _seam
from durable_adk.adk.install import install
from durable_adk.adk.scripted_model import calls, says
from durable_adk.errors import ConfigError
from durable_adk.testing import memory_client
from tests.adapter.stock import Stock, agent, confirmed, user

CONFIG = {"features": {"durable_workflow": True}}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[Any]]:
    """Count the calls of an interception point by the class or name of its first argument."""

    def count(owner: Any, name: str) -> list[Any]:
        seen: list[Any] = []
        before = getattr(owner, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            first = args[0] if args else kwargs
            seen.append(getattr(first, "name", type(first).__name__))
            return before(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapper)
        return seen

    return count


def look(q: str) -> dict[str, str]:
    """Look."""
    return {"found": q}


async def test_every_kind_of_tool_body_is_called_through_the_one_function(counted) -> None:
    seen = counted(_seam.owner_of("_call_tool_async"), "_call_tool_async")

    def later(q: str) -> None:
        """Answer later."""

    def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    async def stream(q: str) -> Any:
        """Yield."""
        yield q

    def steps(q: str) -> Any:
        """Yield, at once."""
        yield q

    class Own(BaseTool):
        def _get_declaration(self) -> types.FunctionDeclaration:
            return types.FunctionDeclaration(name=self.name, description=self.description)

        async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> Any:
            return args

    class Tools(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            def listed(q: str) -> str:
                """Listed."""
                return q

            return [FunctionTool(listed)]

    names = ("look", "later", "stream", "steps", "own", "listed")
    script = [calls(*((name, {"q": "x"}) for name in names), ("pay", {"cents": 1})), says("end")]
    own = Own(name="own", description="own")
    tools = [look, LongRunningFunctionTool(later), stream, steps, own, Tools(), confirmed(pay)]
    stock = Stock(agent("root", *script, tools=tools))
    await stock.run(user("go"))
    assert sorted(seen) == sorted(names), "the gate holds pay back"
    ask = next(call for call, _ in stock.open_calls() if "confirmation" in str(call.name))
    await stock.run(types.Content(role="user", parts=[stock.reply(ask)]))
    assert sorted(seen) == sorted((*names, "pay"))


async def test_tools_that_adk_adds_are_called_through_the_one_function_too(counted) -> None:
    """So they are recorded; none of them does more than set ``EventActions``."""
    seen = counted(_seam.owner_of("_call_tool_async"), "_call_tool_async")

    class Verdict(BaseModel):
        ok: bool

    other = agent("other", says("hello"), description="other")
    move = calls(("transfer_to_agent", {"agent_name": "other"}))
    await Stock(agent("root", move, sub_agents=[other])).run(user("go"))
    script = [calls(("look", {"q": "a"})), calls(("set_model_response", {"ok": True}))]
    await Stock(agent("root", *script, tools=[look], output_schema=Verdict)).run(user("go"))
    assert seen == ["transfer_to_agent", "look", "set_model_response"]


async def test_every_toolset_is_listed_through_the_method_for_calls_and_for_approvals() -> None:
    listed: list[str] = []
    before = BaseToolset.get_tools_with_prefix

    async def get_tools_with_prefix(self: Any, readonly_context: Any = None) -> Any:
        listed.append(readonly_context.agent_name)
        return await before(self, readonly_context)

    class Tools(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            return [confirmed(look)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseToolset, "get_tools_with_prefix", get_tools_with_prefix)
        stock = Stock(agent("root", calls(("look", {"q": "a"})), says("end"), tools=[Tools()]))
        await stock.run(user("go"))
        assert listed == ["root"]
        ask = next(call for call, _ in stock.open_calls() if "confirmation" in str(call.name))
        await stock.run(types.Content(role="user", parts=[stock.reply(ask)]))
    assert listed == ["root"] * 3, "to approve, and for the next turn"


async def test_a_toolset_that_cannot_be_listed_is_left_out_by_adk() -> None:
    """What the wrapper leaves as it is, and what it must not leave so."""
    offered: list[list[str]] = []

    class Gone(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            raise ConnectionError("no server")

    def choose(request: Any, turn: int) -> Any:
        offered.append(sorted(request.tools_dict))
        return says("end")

    made = agent("root", tools=[look, Gone()])
    model: Any = made.model
    model.script = choose
    await Stock(made).run(user("go"))
    assert offered == [["look"]]


async def test_the_confirmation_gate_is_asked_with_what_callbacks_made_of_the_arguments() -> None:
    asked: list[dict[str, Any]] = []
    owner = _seam.owner_of("_call_tool_async")
    before = owner.apply_confirmation_gate

    async def gate(tool: Any, function_args: dict[str, Any], tool_context: Any) -> Any:
        asked.append(dict(function_args))
        return await before(tool, function_args, tool_context)

    def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    def doubles(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
        args["cents"] *= 2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, "apply_confirmation_gate", gate)
        script = [calls(("pay", {"cents": 1})), says("end")]
        root = agent("root", *script, tools=[confirmed(pay)], before_tool_callback=doubles)
        await Stock(root).run(user("go"))
    assert asked == [{"cents": 2}]


async def test_every_model_turn_resolves_its_model_through_the_method(counted) -> None:
    seen = counted(LlmAgent, "canonical_model_async")
    await Stock(agent("root", calls(("look", {"q": "a"})), says("end"), tools=[look])).run(
        user("go")
    )
    assert seen == ["root", "root"]


async def test_node_runs_agent_runs_and_flows_pass_their_boundaries(counted) -> None:
    nodes = counted(BaseNode, "run")
    agents = counted(BaseAgent, "run_async")
    flows = counted(BaseLlmFlow, "run_async")

    def first(node_input: Any) -> str:
        return "one"

    writer = agent("writer", says("text"))
    await Stock(Workflow(name="flow", edges=[(START, first), (first, writer)])).run(user("go"))
    assert nodes == ["flow", "first", "writer"]
    assert agents == ["writer"]
    assert len(flows) == 1


async def test_a_transfer_is_a_node_run_below_the_one_that_transfers(counted) -> None:
    nodes = counted(BaseNode, "run")
    other = agent("other", says("hello"), description="other")
    root = agent("root", calls(("transfer_to_agent", {"agent_name": "other"})), sub_agents=[other])
    stock = Stock(root)
    await stock.run(user("go"))
    assert nodes == ["root", "other"]
    assert stock.events[-1].node_info.path == "root@1/other@1"


async def test_events_of_nodes_are_enqueued_through_the_method(counted) -> None:
    seen = counted(InvocationContext, "_enqueue_event")

    def first(node_input: Any) -> str:
        return "one"

    stock = Stock(Workflow(name="flow", edges=[(START, first)]))
    await stock.run(user("go"))
    assert len(seen) == len(stock.events) > 0


async def test_a_node_retry_asks_for_its_delay(counted, monkeypatch) -> None:
    seen = counted(_seam.owner_of("_get_retry_delay"), "_get_retry_delay")
    fails = [True]

    def flaky(node_input: Any) -> str:
        if fails.pop() if fails else False:
            raise ValueError("once")
        return "ok"

    retried = FunctionNode(
        func=flaky, name="flaky", retry_config=RetryConfig(initial_delay=0.0, jitter=0.0)
    )
    stock = Stock(Workflow(name="flow", edges=[(START, retried)]))
    await stock.run(user("go"))
    assert len(seen) == 1
    assert stock.events[-1].output == "ok"


async def test_a_node_with_a_timeout_is_run_through_one_method_that_runs_its_loop(counted) -> None:
    seen = counted(_seam.owner_of("_run_node_loop_with_timeout"), "_run_node_loop_with_timeout")
    runs = counted(_seam.owner_of("_run_node_loop_with_timeout"), "_run_node_loop")

    async def quick(node_input: Any) -> str:
        return "in time"

    async def hangs(node_input: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    limited = FunctionNode(func=quick, name="limited", timeout=60.0)
    late = FunctionNode(func=hangs, name="late", timeout=0.01)
    with pytest.raises(NodeTimeoutError, match=r"'late' timed out after 0.01 seconds"):
        await Stock(Workflow(name="flow", edges=[(START, limited, late)])).run(user("go"))
    assert (len(seen), len(runs)) == (2, 3), "the Workflow has no timeout"


async def test_a_runner_asks_its_overridable_methods() -> None:
    asked: list[str] = []

    class Asked(Runner):
        def _find_agent_to_run(self, session: Any, root_agent: Any) -> Any:
            asked.append("agent")
            return super()._find_agent_to_run(session, root_agent)

        def _new_invocation_context(self, session: Any, **kwargs: Any) -> Any:
            asked.append("context")
            return super()._new_invocation_context(session, **kwargs)

    stock = Stock(agent("root", says("hello")))
    stock.runner = Asked(
        agent=agent("root", says("hello")), app_name="t", session_service=stock.service
    )
    await stock.run(user("go"))
    assert asked == ["agent", "context"]


async def test_what_a_node_leaves_is_where_the_adapter_reads_it(monkeypatch) -> None:
    left: dict[str, _seam.NodeResult] = {}
    interrupts: dict[str, set[str]] = {}
    before = BaseNode.run

    async def run(self: BaseNode, *, ctx: Context, node_input: Any) -> Any:
        async for event in before(self, ctx=ctx, node_input=node_input):
            yield event
        left[self.name] = _seam.result_of(ctx)
        interrupts[self.name] = set(_seam.interrupts_of(ctx))

    monkeypatch.setattr(BaseNode, "run", run)

    def routes(node_input: Any, ctx: Any) -> str:
        ctx.state["seen"] = True
        ctx.route = "yes"
        return "value"

    async def asks(ctx: Any, node_input: Any) -> Any:
        yield RequestInput(interrupt_id="q1", message="?")

    waiting = FunctionNode(func=asks, name="asks", rerun_on_resume=True)
    await Stock(Workflow(name="flow", edges=[(START, routes), (routes, {"yes": waiting})])).run(
        user("go")
    )
    assert (left["routes"].output, left["routes"].route) == ("value", "yes")
    assert interrupts["asks"] == {"q1"} <= interrupts["flow"]


def test_the_wrappers_are_installed_once_and_keep_adks_names() -> None:
    install()
    first = BaseNode.run
    install()
    assert BaseNode.run is first
    assert (first.__name__, first.__qualname__) == ("run", "BaseNode.run")


async def test_outside_an_attempt_the_wrappers_are_inert() -> None:
    install()

    def first(node_input: Any) -> str:
        return "one"

    writer = agent("writer", calls(("look", {"q": "a"})), says("text"), tools=[look])
    stock = Stock(Workflow(name="flow", edges=[(START, first), (first, writer)]))
    await stock.run(user("go"))
    ids = {call.id for event in stock.events for call in event.get_function_calls()}
    assert [type(i) for i in ids] == [str]
    assert len({event.id for event in stock.events}) == len(stock.events)


async def test_a_wrapped_generator_may_be_closed_by_another_task() -> None:
    """A context variable held across a yield would raise here."""
    install()
    stock = Stock(agent("root", calls(("look", {"q": "a"})), says("end"), tools=[look]))
    await stock.session()
    run = stock.runner.run_async(user_id="u", session_id="s", new_message=user("go"))
    await anext(run)
    await asyncio.create_task(run.aclose())


REFUSAL = r"google-adk 2\.\d+.*{}.*2\.13\.0"


def test_a_missing_point_refuses_with_installed_and_tested_versions(monkeypatch) -> None:
    monkeypatch.setattr(_seam, "INTERCEPTED", (*_seam.INTERCEPTED, (BaseNode, "no_such_point")))
    with pytest.raises(ConfigError, match=REFUSAL.format("no_such_point")):
        _seam._check()


@pytest.mark.parametrize(
    ("module", "gone"),
    [
        ("google.adk.workflow._tool_node", "_ToolNode"),
        ("google.adk.workflow._dynamic_node_scheduler", None),
    ],
)
def test_a_private_module_or_name_that_is_gone_refuses_every_app(
    module: str, gone: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if gone is None:
        monkeypatch.setitem(sys.modules, module, None)
        monkeypatch.delattr(module)
    else:
        monkeypatch.delattr(f"{module}.{gone}")
    seam = importlib.util.spec_from_file_location("seam_of_another_adk", _seam.__file__)
    assert seam is not None and seam.loader is not None
    with pytest.raises(ConfigError, match=REFUSAL.format(gone or module.rpartition(".")[2])):
        seam.loader.exec_module(importlib.util.module_from_spec(seam))


def pay(cents: int) -> str:
    """Pay."""
    return "paid"


def in_a_tool(**fields: Any) -> LlmAgent:
    """An agent whose tool runs another one."""
    inner = agent("inner", says("hello"), description="inner", **fields)
    return agent("root", calls(("inner", {"request": "x"})), says("done"), tools=[AgentTool(inner)])


def waiting_sequence() -> Workflow:
    sequence = SequentialAgent(name="seq", sub_agents=[agent("a", says("a"))])
    return Workflow(name="flow", edges=[(START, sequence)])


NEEDED: dict[str, tuple[Any, Callable[[], BaseNode], Callable[[], BaseNode]]] = {
    "the tool for a single turn": (
        _seam.SINGLE_TURN_TOOL,
        lambda: in_a_tool(tools=[confirmed(pay)]),
        in_a_tool,
    ),
    "where to go on": (
        _seam.FIND_AGENT_TO_RUN,
        lambda: SequentialAgent(name="seq", sub_agents=[agent("a", says("a"))]),
        lambda: agent("root", says("hello")),
    ),
    "how an invocation begins": (
        _seam.NEW_INVOCATION_CONTEXT,
        lambda: SequentialAgent(name="seq", sub_agents=[agent("a", says("a"))]),
        lambda: agent("root", says("hello"), sub_agents=[agent("a", says("a"), description="a")]),
    ),
    "to be entered again": (
        _seam.RERUN_ON_RESUME,
        waiting_sequence,
        lambda: agent("root", says("hello")),
    ),
}


def make_missing(private: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    find = _seam.Private._find

    def _find(self: Any) -> Any:
        if self == private:
            raise AttributeError(self.path)
        return find(self)

    monkeypatch.setattr(_seam.Private, "_find", _find)


@pytest.mark.parametrize("name", NEEDED)
async def test_what_a_remedy_needs_and_is_gone_refuses_the_apps_that_need_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    private, needing, other = NEEDED[name]
    make_missing(private, monkeypatch)
    client = memory_client()
    with pytest.raises(ConfigError, match=REFUSAL.format(re.escape(private.path))):
        await App("refused", root_agent=needing(), config=CONFIG, mongodb=client).invoke(
            user_id="u", message="go"
        )
    assert await client.list_database_names() == []
    async with App("runs", root_agent=other(), config=CONFIG, mongodb=memory_client()) as app:
        out = await app.invoke(user_id="u", message="go")
    assert out.status == "completed"


@pytest.mark.parametrize("private", [one for one, _needs, _other in NEEDED.values()], ids=str)
def test_a_name_that_is_gone_is_noticed(private: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert private.exists()
    assert not _seam.Private(private.module, f"{private.path}_of_old").exists()
    assert not _seam.Private(f"{private.module}_of_old", private.path).exists()
    with pytest.raises(ConfigError, match=REFUSAL.format("_of_old")):
        _seam.Private(private.module, f"{private.path}_of_old").get()


async def test_a_tool_made_at_run_time_that_needs_what_is_gone_ends_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not an error text for the model: the topology does not show what a toolset lists."""
    asked: list[int] = []

    class Tools(BaseToolset):
        async def get_tools(self, readonly_context: Any = None) -> list[Any]:
            inner = agent("inner", says("hello"), description="inner", tools=[confirmed(pay)])
            return [AgentTool(inner)]

    root = agent("root", calls(("inner", {"request": "x"})), says("done"), tools=[Tools()])
    model: Any = root.model
    model.on_call = asked.append
    make_missing(_seam.SINGLE_TURN_TOOL, monkeypatch)
    async with App("late", root_agent=root, config=CONFIG, mongodb=memory_client()) as app:
        out = await app.invoke(user_id="u", message="go")
    assert_ended(out, "_SingleTurnAgentTool")
    assert asked == [0]


async def test_an_agent_made_at_run_time_that_needs_what_is_gone_ends_the_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def runner(ctx: Any, node_input: Any) -> Any:
        return await ctx.run_node(agent("made", says("hello")), node_input="x")

    root = FunctionNode(func=runner, name="runner", rerun_on_resume=True)
    make_missing(_seam.RERUN_ON_RESUME, monkeypatch)
    async with App("late", root_agent=root, config=CONFIG, mongodb=memory_client()) as app:
        out = await app.invoke(user_id="u", message="go")
    assert_ended(out, "BaseNode.rerun_on_resume")


def assert_ended(out: Any, missing: str) -> None:
    assert (out.status, out.error.type) == ("failed", "ConfigError")
    assert re.search(REFUSAL.format(missing), f"{out.error.message} {out.error.remedy}")


async def test_a_call_without_what_the_seam_says_is_needed_is_answered_with_an_error() -> None:
    def pay(cents: int, tool_context: Any, reason: str, note: str = "") -> str:
        raise AssertionError("never called")

    tool = FunctionTool(pay)
    assert _seam.needs(tool) == ["cents", "reason"]
    context: Any = None
    answer = await tool.run_async(args={"cents": 1}, tool_context=context)
    assert "mandatory input parameters are not present" in str(answer)
    assert "reason" in str(answer)
