"""Marks on tools, registered tools, and policies from ``agent.yaml``."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest
from google.adk.tools.function_tool import FunctionTool

from durable_adk import App, ConfigError, durable_tool
from durable_adk.model.activity import POLICY_MARK as MARK
from durable_adk.model.activity import UnknownOutcome
from durable_adk.testing import FaultPlan
from tests.app import agents
from tests.app.conftest import ON, MakeApp
from tests.support.ids import shown


def pay(amount: int, to: str = "me") -> dict[str, Any]:
    """Pay somebody."""
    return {"paid": amount, "to": to}


def fresh() -> Any:
    def pay(amount: int) -> int:
        """Pay somebody."""
        return amount

    return pay


def test_a_marked_function_is_the_same_function() -> None:
    before = (pay.__doc__, inspect.signature(pay), pay.__name__)
    assert durable_tool(on_unknown_outcome="fail")(pay) is pay
    assert (pay.__doc__, inspect.signature(pay), pay.__name__) == before
    assert getattr(pay, MARK) is UnknownOutcome.FAIL


def test_the_brackets_may_be_left_out() -> None:
    function = fresh()
    assert durable_tool(function) is function
    assert getattr(function, MARK) is UnknownOutcome.RERUN


def test_a_tool_object_may_be_marked() -> None:
    tool = FunctionTool(fresh())
    assert durable_tool(on_unknown_outcome="fail")(tool) is tool
    assert getattr(tool, MARK) is UnknownOutcome.FAIL
    assert not hasattr(tool.func, MARK)


@pytest.mark.parametrize("thing", [5, "pay", int, FunctionTool, object(), [pay]], ids=shown)
def test_only_a_function_or_a_tool_may_be_marked(thing: Any) -> None:
    with pytest.raises(ConfigError, match="expected a function or a tool"):
        durable_tool(thing)


@pytest.mark.parametrize("thing", [len, "".join, agents.Log().append], ids=shown)
def test_what_takes_no_mark_is_refused_with_the_remedy(thing: Any) -> None:
    with pytest.raises(ConfigError, match="takes no mark"):
        durable_tool(thing)


@pytest.mark.parametrize("policy", ["Fail", "", None, 1, ["fail"]], ids=shown)
def test_another_policy_is_refused(policy: Any) -> None:
    with pytest.raises(ConfigError, match="expected rerun, fail or ask"):
        durable_tool(on_unknown_outcome=policy)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"reconcile": print}, "never in doubt"),
        ({"reconcile": "look", "on_unknown_outcome": "ask"}, "expected a function"),
    ],
    ids=["rerun", "text"],
)
def test_a_callback_that_nobody_would_call_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        durable_tool(**given)
    with pytest.raises(ConfigError, match=why):
        App("desk", config=ON).tool(**given)


def test_registering_returns_the_function_and_changes_nothing() -> None:
    app, first, second = App("desk", config=ON), fresh(), functools.wraps(pay)(lambda: None)
    second.__name__ = "other"
    assert app.tool(first) is first
    assert app.tool(on_unknown_outcome="fail")(second) is second
    assert app.tools() == [first, second]
    assert not hasattr(first, MARK)


def test_two_tools_of_one_name_are_refused() -> None:
    app = App("desk", config=ON)
    app.tool(fresh())
    with pytest.raises(ConfigError, match="'pay': is registered already"):
        app.tool(fresh())


def test_the_same_tool_may_be_registered_again() -> None:
    app, function = App("desk", config=ON), fresh()
    app.tool(function)
    app.tool(on_unknown_outcome="fail")(function)
    assert app.tools() == [function]


def with_policy(policy: str, name: str = "pay") -> dict[str, Any]:
    return {**ON, "tools": {name: {"on_unknown_outcome": policy}}}


async def test_a_policy_for_a_tool_that_does_not_exist_is_refused(make_app: MakeApp) -> None:
    app = make_app(agents.plain_payer([]), config=with_policy("fail", "pya"))
    with pytest.raises(ConfigError, match=r"tools\.pya"):
        await app.open()


async def test_a_policy_of_the_file_reaches_the_tool(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.plain_payer(log), config=with_policy("fail"))
    out = await app.invoke(user_id="u", message="pay")
    assert (out.status, log) == ("completed", [("pay", 1)])


def marked() -> Any:
    return durable_tool(on_unknown_outcome="fail")(fresh())


POLICIES: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "a plain function": (fresh(), ON, False),
    "a marked function": (marked(), ON, True),
    "a tool over a marked function": (FunctionTool(marked()), ON, True),
    "a marked tool": (durable_tool(on_unknown_outcome="fail")(FunctionTool(fresh())), ON, True),
    "a name in the file": (fresh(), with_policy("fail"), True),
    "a mark, overruled by the file": (marked(), with_policy("rerun"), False),
}


@pytest.mark.parametrize("case", POLICIES)
async def test_a_tool_that_must_not_run_twice_has_its_intent_stored(
    make_app: MakeApp, case: str
) -> None:
    tool, config, has_intent = POLICIES[case]
    agent = agents.plain_payer([])
    agent.tools = [tool]
    plan = FaultPlan()
    await make_app(agent, config=config, faults=plan).invoke(user_id="u", message="pay")
    assert ("before intent" in plan.reached) is has_intent


async def test_a_registered_policy_reaches_the_tool(make_app: MakeApp) -> None:
    plan = FaultPlan()
    app, agent = make_app(faults=plan), agents.plain_payer([])
    app.tool(on_unknown_outcome="fail")(fresh())
    app.entrypoint(lambda: agent)
    agent.tools = app.tools()
    await app.invoke(user_id="u", message="pay")
    assert "before intent" in plan.reached


async def test_a_registered_tool_that_no_agent_has_is_no_mistake(make_app: MakeApp) -> None:
    app = make_app(agents.talker())
    app.tool(fresh())
    await app.open()


async def test_code_and_file_may_not_contradict_each_other(make_app: MakeApp) -> None:
    app = make_app(config=with_policy("rerun"))
    app.tool(on_unknown_outcome="fail")(fresh())
    app.entrypoint(lambda: agents.talker(tools=app.tools()))
    with pytest.raises(ConfigError, match=r"tools\.pay\.on_unknown_outcome: is rerun.*says fail"):
        await app.open()
