"""A wait inside an ``AgentTool`` becomes an error text for the model that called it.

The tool runs its agent in a private runner whose session is thrown away, so what the agent asks
can never be answered. A tool whose agent can wait runs it, in an attempt, as ADK runs a single-turn
sub-agent, in the session and on a branch of its own. A tool whose agent cannot wait stays as it is.
"""

from __future__ import annotations

from typing import Any

from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import BaseNode

from durable_adk.adk import _seam, tree
from durable_adk.adk._patches.patch import Patch


def stand_in(tool: BaseTool) -> BaseTool:
    """The tool to run in its place; itself where nothing inside can wait."""
    if type(tool) is not AgentTool or not can_wait(tool.agent):
        return tool
    return _seam.as_single_turn(tool)


def in_node(node: BaseNode) -> BaseNode:
    """The same for a tool that is run as a node; the node given is left as it is."""
    tool = _seam.tool_of(node)
    if tool is None or stand_in(tool) is tool:
        return node
    return node.model_copy(update={"tool": stand_in(tool)})


def note_options(tool: BaseTool, context: ToolContext) -> None:
    """What ``AgentTool`` does before it runs its agent, and a single-turn tool does not."""
    if type(tool) is AgentTool and tool.skip_summarization:
        context.actions.skip_summarization = True


def can_wait(node: BaseNode) -> bool:
    """Whether something in the tree may ask: when in doubt, yes."""
    if isinstance(node, LlmAgent):
        return any(_tool_can_wait(tool) for tool in node.tools) or any(
            can_wait(sub_agent) for sub_agent in node.sub_agents
        )
    if type(node) in (SequentialAgent, ParallelAgent, LoopAgent):
        assert isinstance(node, BaseAgent)
        return any(can_wait(sub_agent) for sub_agent in node.sub_agents)
    return True


def _tool_can_wait(tool: Any) -> bool:
    if isinstance(tool, AgentTool):  # those of sub-agents run nodes, which need the caller's runner
        return type(tool) is not AgentTool or can_wait(tool.agent)
    if isinstance(tool, _seam.NodeTool):
        return True
    if isinstance(tool, FunctionTool):
        is_plain = type(tool) is FunctionTool and not tool.is_long_running
        return not is_plain or _seam.asks_first(tool) or _seam.takes_context(tool)
    if isinstance(tool, BaseTool):
        return tool.is_long_running or not type(tool).__module__.startswith("google.adk.")
    if callable(tool):
        return _seam.takes_context(FunctionTool(tool))
    return True


def for_a_single_turn(node: BaseNode) -> list[BaseAgent]:
    """The agents in tools of a node that an attempt runs this way."""
    tools = (*(getattr(node, "tools", None) or ()), _seam.tool_of(node))
    return [tool.agent for tool in tools if type(tool) is AgentTool and can_wait(tool.agent)]


def _needs_stand_in(root: BaseNode) -> bool:
    return any(for_a_single_turn(node) for node in tree.walk(root))


PATCH = Patch(
    symptom="What an agent in an `AgentTool` asks is lost: an error text goes to the model that"
    " called the tool.",
    target="`adk/tools.py`, `adk/clone.py`: the tool runs its agent as a single-turn sub-agent, if"
    " that can wait",
    proof="test_a_wait_inside_an_agent_tool_becomes_text_for_the_model",
    until="ADK suspends the outer run for a wait inside an `AgentTool`",
    needs=(_seam.SINGLE_TURN_TOOL,),
    needed_by=_needs_stand_in,
)
