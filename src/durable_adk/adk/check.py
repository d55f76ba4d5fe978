"""Refuse what cannot be durable, before the first call, with path, reason, alternative."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, BaseNode

from durable_adk.adk import _seam
from durable_adk.errors import ConfigError, UnsupportedNode


def check_root(root: object, adk_app: Any = None) -> None:
    """Walk the topology.

    Raises:
        ConfigError: the root is no node.
        UnsupportedNode: the first part that cannot be made durable.
    """
    if not isinstance(root, BaseNode):
        raise ConfigError(
            "root_agent",
            f"expected an agent, a Workflow or another ADK node, got {type(root).__name__}",
        )
    if isinstance(root, LlmAgent) and root.mode not in (None, "chat", "task"):
        raise UnsupportedNode(
            root.name,
            because=f"ADK runs no root agent with mode={root.mode!r}",
            instead="use mode='chat' or mode='task', or make it a node of a Workflow",
        )
    check_tree(root, root.name)


def check_tree(root: BaseNode, path: str) -> None:
    """Refuse the first part of a tree that cannot be made durable.

    Raises:
        UnsupportedNode: with node path, reason, alternative.
    """
    for node, at in nodes(root, path, set()):
        check_node(node, at)


def nodes(node: BaseNode, path: str, seen: set[int]) -> Iterator[tuple[BaseNode, str]]:
    """The root and what is declared below it, tools included, each once."""
    if node is START or node.name == START.name or id(node) in seen:
        return
    seen.add(id(node))
    yield node, path
    for child in children_of(node):
        yield from nodes(child, f"{path}/{child.name}", seen)


def children_of(node: BaseNode) -> list[BaseNode]:
    """The nodes that are declared directly below one, those inside of its tools included."""
    below: list[BaseNode] = list(_seam.static_children(node))
    if isinstance(node, BaseAgent):
        below += node.sub_agents
    for tool in getattr(node, "tools", None) or ():
        if isinstance(tool, AgentTool):
            below.append(tool.agent)
        elif isinstance(tool, _seam.NodeTool):
            below.append(tool.node)
        elif isinstance(tool, BaseNode):
            below.append(tool)
    return below


def check_node(node: BaseNode, path: str) -> None:
    """Refuse one node, whatever is below it.

    Raises:
        UnsupportedNode: it cannot be made durable.
    """
    remote = _seam.runs_elsewhere(node)
    if remote:
        raise UnsupportedNode(
            path,
            because=f"a {remote} does its work where nothing of it can be recorded",
            instead="call it from a tool: the call is then recorded as one",
        )
    if isinstance(node, LlmAgent) and node.mode == "single_turn" and _seam.transfers(node):
        raise UnsupportedNode(
            path,
            because="it runs for a single turn, and ADK then enters the target of a transfer twice",
            instead="set mode='chat' on the agent that has sub_agents, or mode='single_turn' or"
            " 'task' on its sub_agents",
        )
    if _seam.asks_for_credentials(node):
        raise UnsupportedNode(
            path,
            because="it asks for a credential, and no encryption key is configured",
            instead="give it its credential, or a credential service",
        )
    for tool in getattr(node, "tools", None) or ():
        if _seam.asks_for_credentials(tool):
            raise UnsupportedNode(
                path,
                because=f"its tool {getattr(tool, 'name', type(tool).__name__)} asks for a"
                " credential, and no encryption key is configured",
                instead="give the tool its credential, or a credential service",
            )


def tool_names(root: BaseNode) -> set[str]:
    """Names of the tools that the topology shows (toolsets may have more), and of the classes of
    code executors."""
    names: set[str] = set()
    for node, _path in nodes(root, root.name, set()):
        executor = getattr(node, "code_executor", None)
        if executor is not None:
            names.add(type(executor).__name__)
        for tool in getattr(node, "tools", ()):
            if isinstance(tool, BaseTool):
                names.add(tool.name)
            elif callable(tool):
                names.add(FunctionTool(tool).name)
    return names


def has_toolsets(root: BaseNode) -> bool:
    """Whether some agent's tools are only known when they are listed."""
    return any(
        not isinstance(tool, BaseTool) and not callable(tool)
        for node, _path in nodes(root, root.name, set())
        for tool in getattr(node, "tools", ())
    )
