"""An agent that a task calls, and that asks, starts over after every answer."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import BaseNode

from durable_adk.adk import _seam
from durable_adk.adk._patches.patch import Patch
from durable_adk.errors import UnsupportedNode

PATCH = Patch(
    symptom="A single-turn sub-agent of a task asks: after the answer its model no longer sees what"
    " it did, and calls its tools again and again.",
    target="`adk/check.py`: refused",
    proof="test_an_agent_that_asks_below_a_task_starts_over_for_ever",
    until="ADK shows an agent below a task its earlier turns after an answer",
)


def refusal(node: BaseNode, path: str) -> UnsupportedNode | None:
    if not isinstance(node, LlmAgent) or node.mode != "task":
        return None
    for tool in node.tools:
        if isinstance(tool, AgentTool) and not _seam.defers_response(tool) and _asks(tool.agent):
            return UnsupportedNode(
                f"{path}/{tool.agent.name}",
                because="a task calls it and it asks: after an answer ADK no longer shows it what"
                " it did, and it would start over for ever",
                instead=f"give its tools to the task {node.name}, or set mode='task' on it too",
            )
    return None


def _asks(node: BaseNode) -> bool:
    """Whether it surely may ask by what the topology shows."""
    if not isinstance(node, LlmAgent):
        return any(_asks(below) for below in getattr(node, "sub_agents", ()))
    return any(_tool_asks(tool) for tool in node.tools)


def _tool_asks(tool: object) -> bool:
    if isinstance(tool, AgentTool):
        return _asks(tool.agent)
    if isinstance(tool, FunctionTool) and _seam.asks_first(tool):
        return True
    return isinstance(tool, BaseTool) and tool.is_long_running
