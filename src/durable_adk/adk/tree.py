"""The nodes of an app, as far as the topology shows them: graphs, sub-agents and tools."""

from __future__ import annotations

from collections.abc import Iterator

from google.adk.agents import BaseAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import START, BaseNode

from durable_adk.adk import _seam


def walk(root: BaseNode) -> Iterator[BaseNode]:
    """The root and what is declared below it, tools included, each once."""
    return (node for node, _path in nodes(root, root.name, set()))


def nodes(node: BaseNode, path: str, seen: set[int]) -> Iterator[tuple[BaseNode, str]]:
    """The same, each with its path."""
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
    for tool in (*(getattr(node, "tools", None) or ()), _seam.tool_of(node)):
        if isinstance(tool, AgentTool):
            below.append(tool.agent)
        elif isinstance(tool, _seam.NodeTool):
            below.append(tool.node)
        elif isinstance(tool, BaseNode):
            below.append(tool)
    return below
