"""E3: hooks are called as in plain ADK; on a later attempt, as the table in ``adk/README.md`` says.

What a plugin or a callback returns counts as in plain ADK.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, Workflow
from google.genai import types

from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.adapter.stock import Stock, user
from tests.adapter.test_stock import places
from tests.cases.conftest import approve
from tests.faults.catalogue import Tools, agent
from tests.support.lives import Ledger

HOOKS = sorted(name for name in dir(BasePlugin) if name.endswith("_callback"))
AGENT_HOOKS = [
    "before_agent_callback",
    "after_agent_callback",
    "before_model_callback",
    "after_model_callback",
    "on_model_error_callback",
    "before_tool_callback",
    "after_tool_callback",
    "on_tool_error_callback",
]
Returns = Mapping[str, Callable[..., Any]]


def subject(given: Mapping[str, Any]) -> str:
    """What a hook is called about."""
    for key, attribute in (("tool", "name"), ("event", "author"), ("agent", "name")):
        if key in given:
            return str(getattr(given[key], attribute))
    context = given.get("callback_context")
    named = [str(context.agent_name)] if context is not None else []
    return " ".join(named + ([type(given["error"]).__name__] if "error" in given else []))


class Observer(BasePlugin):
    """Writes down every call of every hook; returns what it is told to."""

    def __init__(self, returns: Returns | None = None) -> None:
        super().__init__(name="observer")
        self.seen: list[str] = []
        self.returns = dict(returns or {})

    def told(self, name: str) -> list[str]:
        """What one hook was called about."""
        return [text.removeprefix(f"{name} ") for text in self.seen if text.startswith(f"{name} ")]


def _plugin_hook(name: str) -> Any:
    async def hook(self: Observer, **given: Any) -> Any:
        short = name.removesuffix("_callback")
        self.seen.append(f"{short} {subject(given)}".strip() + (" " if not subject(given) else ""))
        return self.returns[short](**given) if short in self.returns else None

    return hook


for _name in HOOKS:
    setattr(Observer, _name, _plugin_hook(_name))


def callbacks(seen: list[str]) -> dict[str, Any]:
    """Every callback that an ``LlmAgent`` takes."""

    def make(name: str) -> Any:
        async def callback(*args: Any, **given: Any) -> None:
            about = dict(given)
            if args and "tool" in name:
                about["tool"] = args[0]
            seen.append(f"own {name.removesuffix('_callback')} {subject(about)}")

        return callback

    return {name: make(name) for name in AGENT_HOOKS}


def test_the_observer_has_every_hook_there_is() -> None:
    """A hook that a newer ADK adds needs a row in the table."""
    assert [name.removesuffix("_callback") for name in HOOKS] == [
        "after_agent",
        "after_model",
        "after_run",
        "after_tool",
        "before_agent",
        "before_model",
        "before_run",
        "before_tool",
        "on_agent_error",
        "on_event",
        "on_model_error",
        "on_run_error",
        "on_tool_error",
        "on_user_message",
    ]


# ---------------------------------------------------------------- the same calls live


def plain_agent(ledger: Ledger, seen: list[str], **fields: Any) -> LlmAgent:
    tools = Tools(ledger)
    script = [calls(("look", {"q": "a"})), calls(("look", {"q": "b"})), says("done")]
    return agent(ledger, "root", *script, tools=[tools.look], **callbacks(seen), **fields)


def hands_over(ledger: Ledger, seen: list[str]) -> LlmAgent:
    tools = Tools(ledger)
    helper = agent(
        ledger,
        "helper",
        calls(("look", {"q": "h"})),
        says("helped"),
        description="helper",
        tools=[tools.look],
        **callbacks(seen),
    )
    move = calls(("transfer_to_agent", {"agent_name": "helper"}))
    return agent(ledger, "root", move, sub_agents=[helper], **callbacks(seen))


def in_sequence(ledger: Ledger, seen: list[str]) -> SequentialAgent:
    tools = Tools(ledger)

    def part(name: str) -> LlmAgent:
        script = [calls(("look", {"q": name})), says(name)]
        return agent(ledger, name, *script, tools=[tools.look], **callbacks(seen))

    return SequentialAgent(name="seq", sub_agents=[part("a"), part("b")])


def in_a_flow(ledger: Ledger, seen: list[str]) -> Workflow:
    def first(node_input: Any, ctx: Any) -> str:
        ctx.state["first"] = 1
        return "one"

    def last(node_input: Any) -> str:
        return f"end of {node_input}"

    writer = agent(ledger, "writer", says("text"), **callbacks(seen))
    return Workflow(name="flow", edges=[(START, first), (first, writer), (writer, last)])


def with_a_tool_that_fails(ledger: Ledger, seen: list[str]) -> LlmAgent:
    def breaks(q: str) -> str:
        """Raise."""
        raise LookupError(q)

    script = [calls(("breaks", {"q": "a"})), says("done")]
    return agent(ledger, "root", *script, tools=[breaks], **callbacks(seen))


def with_a_model_that_fails(ledger: Ledger, seen: list[str]) -> LlmAgent:
    return agent(ledger, "root", ConnectionError("down"), **callbacks(seen))


SEQUENTIAL: dict[str, Callable[[Ledger, list[str]], Any]] = {
    "agent": plain_agent,
    "transfer": hands_over,
    "sequence": in_sequence,
    "workflow": in_a_flow,
    "tool that fails": with_a_tool_that_fails,
    "model that fails": with_a_model_that_fails,
}


def at_once(ledger: Ledger, seen: list[str]) -> ParallelAgent:
    tools = Tools(ledger)

    def part(name: str) -> LlmAgent:
        script = [calls(("slow", {"q": f"{name}1"}), ("slow", {"q": f"{name}2"})), says(name)]
        return agent(ledger, name, *script, tools=[tools.slow], **callbacks(seen))

    return ParallelAgent(name="par", sub_agents=[part("a"), part("b"), part("c")])


async def both(make_app: Any, ledger: Ledger, build: Any) -> tuple[list[str], list[str]]:
    """The hook calls of plain ADK, and ours."""
    lists = []
    for ours in (False, True):
        seen: list[str] = []
        observer, root = Observer(), build(ledger, seen)
        observer.seen = seen  # one list: the order between plugin and callbacks counts
        if ours:
            app = make_app(root, plugins=[observer], config={"retry": {"max_attempts": 1}})
            await app.invoke(user_id="u", message="go")
        else:
            stock = Stock(root)
            stock.runner.plugin_manager.register_plugin(observer)
            with contextlib.suppress(LookupError, ConnectionError):
                await stock.run(user("go"))
        lists.append(seen)
    return lists[0], lists[1]


@pytest.mark.parametrize("name", SEQUENTIAL)
async def test_every_hook_is_called_live_as_in_plain_adk(make_app, ledger, name: str) -> None:
    theirs, ours = await both(make_app, ledger, SEQUENTIAL[name])
    assert ours == theirs
    assert len(theirs) > 8


async def test_parallel_agents_call_the_same_hooks_in_some_order(make_app, ledger) -> None:
    theirs, ours = await both(make_app, ledger, at_once)
    assert collections.Counter(ours) == collections.Counter(theirs)


# ---------------------------------------------------------------- the table: later attempts


def two_parts(ledger: Ledger) -> Workflow:
    """An agent that is done when the one after it asks."""
    tools = Tools(ledger)
    script = [calls(("look", {"q": "a"})), says("looked")]
    first = agent(ledger, "first", *script, tools=[tools.look])
    script = [calls(("pay", {"amount": 1})), says("paid")]
    payer = agent(ledger, "payer", *script, tools=[tools.confirmed_pay])

    def between(node_input: Any) -> str:
        ledger.add("node", "between")
        return "between"

    return Workflow(name="flow", edges=[(START, first), (first, between), (between, payer)])


async def resumed(make_app: Any, ledger: Ledger, mode: str) -> Observer:
    """What a plugin of the process that resumes sees."""
    later = Observer()
    out = await make_app(two_parts(ledger)).invoke(user_id="u", message="go")
    app = make_app(two_parts(ledger), mode=mode, plugins=[later])
    out = await app.resume(out.execution_id, approve(out))
    assert out.status == "completed"
    return later


async def failed_and_recovered(make_app: Any, ledger: Ledger, clock: Any) -> Observer:
    """What a plugin sees of an attempt over an open step."""
    tools, fails = Tools(ledger), [RuntimeError("down")]

    def script(_request: Any, turn: int) -> Any:
        if turn == 0:
            return calls(("look", {"q": "a"}))
        return fails.pop() if fails else says("done")

    first = agent(ledger, "first", tools=[tools.look])
    model: Any = first.model
    model.script = script

    def before(node_input: Any) -> str:
        ledger.add("node", "between")
        return "before"

    later = Observer()
    flow = Workflow(name="flow", edges=[(START, before), (before, first)])
    app = make_app(flow, plugins=[later])
    out = await app.invoke(user_id="u", message="go")
    assert out.status == "queued"
    later.seen.clear()
    clock.advance(60_000)
    (out,) = await app.recover()
    assert out.status == "completed"
    return later


async def test_a_committed_step_that_is_restored_is_silent_but_for_before_run(
    make_app, ledger
) -> None:
    later = await resumed(make_app, ledger, "restore")
    assert later.told("on_user_message") == []
    assert later.told("before_run") == later.told("after_run") == [""], "the step that runs"
    for hook in ("before_agent", "after_agent", "before_model", "after_model"):
        assert "first" not in later.told(hook)
    assert "first" not in later.told("on_event")
    assert "look" not in later.told("before_tool") + later.told("after_tool")
    assert later.told("before_tool") == later.told("after_tool") == ["pay"]


async def test_run_and_message_hooks_of_an_open_step_are_called_again(
    make_app, ledger, clock
) -> None:
    later = await failed_and_recovered(make_app, ledger, clock)
    assert later.told("on_user_message") == [""]
    assert later.told("before_run") == [""]
    assert later.told("after_run") == [""]


async def test_agent_hooks_of_an_open_step_are_called_again(make_app, ledger, clock) -> None:
    later = await failed_and_recovered(make_app, ledger, clock)
    assert later.told("before_agent") == later.told("after_agent") == ["first"]


async def test_model_and_event_hooks_of_an_open_step_are_called_again(
    make_app, ledger, clock
) -> None:
    later = await failed_and_recovered(make_app, ledger, clock)
    assert later.told("before_model") == later.told("after_model") == ["first", "first"]
    assert later.told("on_event").count("first") == 3, "the call, its response, the answer"


async def test_tool_hooks_of_an_open_step_are_called_again(make_app, ledger, clock) -> None:
    later = await failed_and_recovered(make_app, ledger, clock)
    assert later.told("before_tool") == later.told("after_tool") == ["look"]


async def test_bodies_never_run_again_in_an_open_step(make_app, ledger, clock) -> None:
    await failed_and_recovered(make_app, ledger, clock)
    assert (
        collections.Counter(ledger.rows())
        == {
            ("node", "between"): 1,
            ("model", "first", 0): 1,
            ("tool", "look", "a"): 1,
            ("model", "first", 1): 2,  # it failed: that call is made again
        }
        or ("model", "first", 0) not in ledger.rows()
    )


async def test_run_and_message_hooks_are_called_again_in_a_walk(make_app, ledger) -> None:
    later = await resumed(make_app, ledger, "walk")
    assert later.told("on_user_message") == [""]
    assert later.told("before_run") == later.told("after_run") == ["", ""], "once for each step"


async def test_agent_hooks_are_called_again_in_a_walk(make_app, ledger) -> None:
    later = await resumed(make_app, ledger, "walk")
    assert later.told("before_agent").count("first") == 1
    assert later.told("after_agent").count("first") == 1


async def test_model_and_event_hooks_are_called_again_in_a_walk(make_app, ledger) -> None:
    later = await resumed(make_app, ledger, "walk")
    assert later.told("before_model") == later.told("after_model")
    assert later.told("before_model").count("first") == 2
    assert later.told("on_event").count("first") == 3


async def test_tool_hooks_are_called_again_in_a_walk(make_app, ledger) -> None:
    later = await resumed(make_app, ledger, "walk")
    assert later.told("before_tool").count("look") == later.told("after_tool").count("look") == 1


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_bodies_never_run_again_in_a_later_attempt(make_app, ledger, mode: str) -> None:
    await resumed(make_app, ledger, mode)
    assert set(collections.Counter(ledger.rows()).values()) == {1}


ERRORS: dict[str, Returns] = {
    "tool": {"on_tool_error": lambda **_: {"instead": 1}},
    "model": {"on_model_error": lambda **_: calls(("pay", {"amount": 1}))},
}


def with_an_error(ledger: Ledger, kind: str) -> LlmAgent:
    """A failure that a hook answers for, and a wait after it."""

    def breaks(q: str) -> str:
        """Raise."""
        ledger.add("tool", "breaks")
        raise LookupError(q)

    tools, pay = Tools(ledger), calls(("pay", {"amount": 1}))
    script = [ConnectionError("down"), says("done")]
    if kind == "tool":
        script = [calls(("breaks", {"q": "a"})), pay, says("done")]
    return agent(ledger, "root", *script, tools=[breaks, tools.confirmed_pay])


@pytest.mark.parametrize(("mode", "again"), [("restore", 0), ("walk", 1)])
@pytest.mark.parametrize("kind", ["tool", "model"])
async def test_error_hooks_of_a_recorded_failure_are_called_again_in_a_walk_only(
    make_app, ledger, kind: str, mode: str, again: int
) -> None:
    """Over the recorded failure: the body does not run again."""
    first = make_app(with_an_error(ledger, kind), plugins=[Observer(ERRORS[kind])])
    out = await first.invoke(user_id="u", message="go")
    assert out.status == "suspended"
    later = Observer(ERRORS[kind])
    app = make_app(with_an_error(ledger, kind), mode=mode, plugins=[later])
    out = await app.resume(out.execution_id, approve(out))
    assert out.status == "completed"
    assert len(later.told(f"on_{kind}_error")) == again
    assert set(collections.Counter(ledger.rows()).values()) == {1}


@pytest.mark.parametrize("kind", ["tool", "model"])
async def test_error_hooks_of_an_open_step_are_called_again(
    make_app, ledger, clock, kind: str
) -> None:
    fails = [RuntimeError("the attempt ends here")]

    def after_agent(**_: Any) -> None:
        if fails:
            raise fails.pop()

    returns = {
        "tool": {**ERRORS["tool"], "after_agent": after_agent},
        "model": {"on_model_error": lambda **_: says("rescued"), "after_agent": after_agent},
    }[kind]

    def breaks(q: str) -> str:
        """Raise."""
        ledger.add("tool", "breaks")
        raise LookupError(q)

    broken = calls(("breaks", {"q": "a"})) if kind == "tool" else ConnectionError("down")
    observer = Observer(returns)
    app = make_app(agent(ledger, "root", broken, says("done"), tools=[breaks]), plugins=[observer])
    out = await app.invoke(user_id="u", message="go")
    assert out.status == "queued"
    clock.advance(60_000)
    (out,) = await app.recover()
    assert out.status == "completed"
    assert len(observer.told(f"on_{kind}_error")) == 2
    assert set(collections.Counter(ledger.rows()).values()) == {1}


# ---------------------------------------------------------------- what hooks return


def text(words: str) -> types.Content:
    return types.Content(role="model", parts=[types.Part(text=words)])


def first_of(*replies: Any) -> Callable[..., Any]:
    """Return these, one a call, and then nothing."""
    left = list(replies)
    return lambda **_: left.pop(0) if left else None


SHORT: dict[str, Callable[[], Returns]] = {
    "a response instead of the model's": lambda: {"before_model": first_of(says("no call"))},
    "calls instead of the model's": lambda: {
        "before_model": first_of(calls(("look", {"q": "of the plugin"})))
    },
    "another response": lambda: {"after_model": lambda **_: says("other words")},
    "a result instead of the tool's": lambda: {"before_tool": lambda **_: {"found": "cached"}},
    "another result": lambda: {"after_tool": lambda **_: {"found": "other"}},
    "an answer instead of the agent's": lambda: {"before_agent": lambda **_: text("not today")},
    "an answer after the agent's": lambda: {"after_agent": lambda **_: text("and more")},
    "an answer instead of the run": lambda: {"before_run": lambda **_: text("closed")},
    "another message": lambda: {
        "on_user_message": lambda **_: types.Content(
            role="user", parts=[types.Part(text="rewritten")]
        )
    },
    "a response for a failing model": lambda: {"on_model_error": lambda **_: says("rescued")},
    "a result for a failing tool": lambda: {"on_tool_error": lambda **_: {"found": "rescued"}},
}


def root_of(ledger: Ledger, name: str) -> LlmAgent:
    tools = Tools(ledger)

    def look(q: str) -> dict[str, Any]:
        """Look."""
        ledger.add("tool", "look", q)
        if "failing tool" in name:
            raise LookupError(q)
        return {"found": q}

    first = ConnectionError("down") if "failing model" in name else calls(("look", {"q": "a"}))
    return agent(ledger, "root", first, says("done"), tools=[look, tools.pay])


@pytest.mark.parametrize("name", SHORT)
async def test_what_a_plugin_returns_counts_as_in_plain_adk(
    make_app, ledger, name: str, tmp_path: Any
) -> None:
    elsewhere = Ledger(tmp_path / "theirs")
    theirs, ours = Observer(SHORT[name]()), Observer(SHORT[name]())
    stock = Stock(root_of(elsewhere, name))
    stock.runner.plugin_manager.register_plugin(theirs)
    await stock.run(user("go"))
    app = make_app(root_of(ledger, name), plugins=[ours])
    out = await app.invoke(user_id="u", session_id="s", message="go")
    assert out.status == "completed", out.error
    assert ours.seen == theirs.seen
    assert ledger.rows() == elsewhere.rows()
    events = await app.sessions.events(user_id="u", session_id="s")
    assert places(events) == places((await stock.session()).events)


@pytest.mark.parametrize("field", ["before_model", "before_tool", "after_tool", "after_model"])
async def test_what_an_agents_own_callback_returns_counts_as_in_plain_adk(
    make_app, ledger, field: str, tmp_path: Any
) -> None:
    def made(rows: Ledger) -> LlmAgent:
        tools, left = Tools(rows), [1]

        def callback(*_args: Any, **_given: Any) -> Any:
            if not left:
                return None
            left.pop()
            return {"found": "own"} if "tool" in field else says("own words")

        script = [calls(("look", {"q": "a"})), says("done")]
        hook = {f"{field}_callback": callback}
        return agent(rows, "root", *script, tools=[tools.look], **hook)

    elsewhere = Ledger(tmp_path / "theirs")
    stock = Stock(made(elsewhere))
    await stock.run(user("go"))
    app = make_app(made(ledger))
    await app.invoke(user_id="u", session_id="s", message="go")
    events = await app.sessions.events(user_id="u", session_id="s")
    assert ledger.rows() == elsewhere.rows()
    assert places(events) == places((await stock.session()).events)


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_short_circuited_call_is_no_body_on_any_attempt(make_app, ledger, mode) -> None:
    """A plugin answers for the model and for a tool, before and after a wait."""
    tools = Tools(ledger)

    def returns() -> Returns:
        def before_model(*, llm_request: Any, **_: Any) -> LlmResponse | None:
            if len(llm_request.contents) == 1:
                return calls(("look", {"q": "a"}))
            return None

        return {
            "before_model": before_model,
            "before_tool": lambda *, tool, **_: {"found": "x"} if tool.name == "look" else None,
        }

    def root() -> LlmAgent:
        script = [says("never"), calls(("pay", {"amount": 1})), says("done")]
        return agent(ledger, "root", *script, tools=[tools.look, tools.confirmed_pay])

    out = await make_app(root(), plugins=[Observer(returns())]).invoke(user_id="u", message="go")
    app = make_app(root(), mode=mode, plugins=[Observer(returns())])
    out = await app.resume(out.execution_id, approve(out))
    assert (out.status, out.response) == ("completed", "done")
    assert ledger.rows() == [
        ("model", "root", 1),
        ("tool", "pay", 1),
        ("model", "root", 2),
    ]


async def test_an_exception_of_a_plugin_fails_the_turn_as_in_plain_adk(make_app, ledger) -> None:
    def breaks(**_: Any) -> None:
        raise ValueError("of the plugin")

    observer = Observer({"before_tool": breaks})
    stock = Stock(root_of(ledger, ""))
    stock.runner.plugin_manager.register_plugin(observer)
    with pytest.raises(RuntimeError, match="of the plugin"):
        await stock.run(user("go"))
    config = {"retry": {"max_attempts": 1}}
    app = make_app(root_of(ledger, ""), plugins=[observer], config=config)
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, out.error.type) == ("failed", "RuntimeError")
    assert "of the plugin" in out.error.message


async def test_plugins_see_the_calls_inside_of_an_agent_tool(make_app, ledger) -> None:
    tools = Tools(ledger)

    def build(rows: Ledger, seen: list[str]) -> LlmAgent:
        script = [calls(("look", {"q": "in"})), says("inner done")]
        inner = agent(rows, "inner", *script, description="inner", tools=[tools.look])
        script = [calls(("inner", {"request": "do it"})), says("done")]
        return agent(rows, "root", *script, tools=[AgentTool(inner)])

    _theirs, ours = await both(make_app, ledger, build)
    assert "before_tool look" in ours
    assert "before_tool inner" in ours


async def test_a_hook_that_waits_holds_nothing_up_but_its_own_call(make_app, ledger) -> None:
    """Slow hooks around parallel tools: positions do not depend on which is faster."""

    async def wait(*_: Any, tool: Any, args: dict[str, Any], tool_context: Any) -> None:
        await asyncio.sleep(0.02 if args["q"] == "a" else 0)

    tools = Tools(ledger)
    script = [calls(("slow", {"q": "a"}), ("slow", {"q": "b"})), says("done")]
    model = ScriptedModel(model="root", script=script)
    root = LlmAgent(name="root", model=model, tools=[tools.slow], before_tool_callback=wait)
    app = make_app(root)
    out = await app.invoke(user_id="u", message="go")
    made = [a for a in await app.executions.activities(out.execution_id) if a.kind == "tool"]
    assert sorted(a.operation_path for a in made) == ["agent#1/:m1.0", "agent#1/:m1.1"]


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_hooks_that_run_again_leave_the_state_that_was_committed(
    make_app, ledger: Ledger, mode: str
) -> None:
    """They ran in the order in which calls came back; over records that is another one."""
    held_back = asyncio.Event()

    async def later() -> None:
        """Ask somebody."""
        await held_back.wait()

    def pay() -> dict[str, bool]:
        """Pay."""
        return {"paid": True}

    def count(tool: Any, tool_context: Any, **_: Any) -> None:
        tool_context.state["count"] = tool_context.state.get("count", 0) + 1
        if tool.name == "pay":
            held_back.set()

    def root() -> LlmAgent:
        asking = [FunctionTool(pay, require_confirmation=True), LongRunningFunctionTool(later)]
        script = calls(("later", {}), ("pay", {})), says("done")
        return agent(ledger, "root", *script, tools=asking, after_tool_callback=count)

    def answered(out: Any) -> dict[str, Any]:
        return {
            w.id: {"confirmed": True} if w.tool_call.name == "pay" else "yes" for w in out.waits
        }

    first = await make_app(root(), mode=mode).invoke(user_id="u", session_id="s", message="go")
    app = make_app(root(), mode=mode)
    out = await app.resume(first.execution_id, answered(first))
    deltas = [event.actions.state_delta.get("count") for event in out.events]
    assert [delta for delta in deltas if delta is not None] == [1, 2]
    session = await app.sessions.get(user_id="u", session_id="s")
    assert (out.status, session.state["count"]) == ("completed", 2)
