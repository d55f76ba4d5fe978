"""What cannot be durable is refused before the first call: node path, reason, alternative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.apps import App as AdkApp
from google.adk.apps.app import EventsCompactionConfig
from google.adk.code_executors import BuiltInCodeExecutor
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, BaseNode, Workflow, node

from durable_adk import App, UnsupportedNode
from durable_adk.adk.adapter import Adapter
from durable_adk.adk.scripted_model import says
from durable_adk.errors import ConfigError
from durable_adk.model.activity import UnknownOutcome
from durable_adk.testing import memory_client
from tests.adapter.stock import agent


def helper() -> LlmAgent:
    return agent("helper", says("hello"), description="helper")


def of_flow(*parts: Any) -> Workflow:
    return Workflow(name="flow", edges=[(START, part) for part in parts])


class Custom(BaseAgent):
    pass


class CustomNode(BaseNode):
    pass


def with_mode(mode: str) -> LlmAgent:
    return agent("root", says("hi"), sub_agents=[LlmAgent(name="sub", mode=mode, description="s")])


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "sequential root": (lambda: SequentialAgent(name="seq", sub_agents=[helper()]), "seq"),
    "parallel root": (lambda: ParallelAgent(name="par", sub_agents=[helper()]), "par"),
    "loop in a workflow": (
        lambda: of_flow(LoopAgent(name="again", sub_agents=[helper()])),
        "flow/again",
    ),
    "custom agent": (
        lambda: agent("root", says("hi"), sub_agents=[Custom(name="own")]),
        "root/own",
    ),
    "custom node": (lambda: of_flow(CustomNode(name="own")), "flow/own"),
    "agent tool": (lambda: agent("root", says("hi"), tools=[AgentTool(helper())]), "root"),
    "node tool": (lambda: agent("root", says("hi"), tools=[of_flow(helper())]), "root"),
    "task sub-agent": (lambda: with_mode("task"), "root/sub"),
    "single-turn sub-agent": (lambda: with_mode("single_turn"), "root/sub"),
    "parallel worker": (lambda: of_flow(node(helper(), parallel_worker=True)), "flow/helper"),
    "code executor": (
        lambda: agent("root", says("hi"), code_executor=BuiltInCodeExecutor()),
        "root",
    ),
    "transfers in a single-turn node": (
        lambda: of_flow(agent("root", says("hi"), sub_agents=[helper()])),
        "flow/root",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_it_is_refused_with_path_reason_and_alternative(name: str) -> None:
    build, path = REFUSED[name]
    config = {"features": {"durable_workflow": True}}
    app = App("refusing", root_agent=build(), config=config, mongodb=memory_client())
    with pytest.raises(UnsupportedNode) as refused:
        await app.invoke(user_id="u", message="go")
    error = refused.value
    assert error.node_path == path
    assert error.because
    assert error.instead in str(error)


def test_compaction_is_refused_because_its_model_call_is_not_recorded() -> None:
    root = helper()
    adk_app = AdkApp(
        name="compacting",
        root_agent=root,
        events_compaction_config=EventsCompactionConfig(compaction_interval=2, overlap_size=1),
    )
    with pytest.raises(UnsupportedNode, match="compaction"):
        Adapter(root, app_name="a", adk_app=adk_app).check()


def test_what_is_no_node_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected an agent"):
        Adapter("refunds", app_name="a").check()


def test_a_policy_for_a_tool_that_does_not_exist_is_an_error() -> None:
    policies = {"no_such_tool": UnknownOutcome.FAIL}
    with pytest.raises(ConfigError, match="no_such_tool"):
        Adapter(helper(), app_name="a", tool_policies=policies).check()
