"""Refuse what cannot be durable yet, before the first call, with path, reason, alternative."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, BaseNode, FunctionNode, JoinNode, Workflow

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
    if isinstance(root, LlmAgent) and root.mode not in (None, "chat"):
        raise UnsupportedNode(
            root.name,
            because=f"mode={root.mode!r} is not supported for a root agent yet",
            instead="use mode='chat'",
        )
    if adk_app is not None and getattr(adk_app, "events_compaction_config", None) is not None:
        raise UnsupportedNode(
            root.name,
            because="context compaction calls a model outside of any agent, which is not recorded",
            instead="leave events_compaction_config out for now",
        )
    for node, path in _nodes(root, root.name, set()):
        _check_node(node, path)


def _nodes(node: BaseNode, path: str, seen: set[int]) -> Iterator[tuple[BaseNode, str]]:
    if node is START or node.name == START.name or id(node) in seen:
        return
    seen.add(id(node))
    yield node, path
    below: list[BaseNode] = []
    if isinstance(node, BaseAgent):
        below = list(node.sub_agents)
    elif isinstance(node, Workflow):
        graph = _seam.workflow_graph(node)
        edges = graph.edges if graph is not None else ()
        below = [end for edge in edges for end in (edge.from_node, edge.to_node)]
        for child in below:
            _check_in_graph(child, f"{path}/{child.name}")
    for child in below:
        yield from _nodes(child, f"{path}/{child.name}", seen)


def _check_in_graph(node: BaseNode, path: str) -> None:
    if isinstance(node, LlmAgent) and node.sub_agents and node.mode != "chat":
        raise UnsupportedNode(
            path,
            because="a Workflow runs it for a single turn, and ADK then enters the target of a"
            " transfer twice",
            instead="set mode='chat' on the agent that has sub_agents",
        )


def _check_node(node: BaseNode, path: str) -> None:
    if isinstance(node, LlmAgent):
        _check_agent(node, path)
    elif _seam.is_parallel_worker(node):
        raise UnsupportedNode(
            path,
            because="parallel_worker is not supported yet",
            instead="fan out with edges, or loop with a route",
        )
    elif isinstance(node, BaseAgent):
        raise UnsupportedNode(
            path,
            because=f"{type(node).__name__} is not supported yet",
            instead="write it as a Workflow: edges for a sequence, a join for a parallel part,"
            " a route for a loop",
        )
    elif not isinstance(node, Workflow | FunctionNode | JoinNode):
        raise UnsupportedNode(
            path,
            because=f"{type(node).__name__} nodes are not supported yet",
            instead="wrap the work in a function node, or give the tool to an agent",
        )
    elif type(node) not in (Workflow, FunctionNode, JoinNode):
        raise UnsupportedNode(
            path,
            because=f"{type(node).__name__} is a subclass with behaviour of its own",
            instead="use Workflow, function nodes and JoinNode as they are",
        )
    if isinstance(node, FunctionNode) and getattr(node, "auth_config", None) is not None:
        raise UnsupportedNode(
            path,
            because="it asks for a credential, which would be stored as plain text",
            instead="give the function its credential, or a credential service",
        )


def _check_agent(agent: LlmAgent, path: str) -> None:
    for sub_agent in agent.sub_agents:
        mode = getattr(sub_agent, "mode", None)
        if mode not in (None, "chat"):
            raise UnsupportedNode(
                f"{path}/{sub_agent.name}",
                because=f"a sub-agent with mode={mode!r} is not supported yet",
                instead="use mode='chat' (transfer), or a Workflow",
            )
    if agent.code_executor is not None:
        raise UnsupportedNode(
            path,
            because="what a code executor runs is not recorded yet",
            instead="run the code in a tool",
        )
    for tool in agent.tools:
        _check_tool(tool, path)


def _check_tool(tool: Any, path: str) -> None:
    if isinstance(tool, AgentTool):
        raise UnsupportedNode(
            path,
            because=f"AgentTool({tool.agent.name}) is not supported yet: a wait inside it would"
            " be lost",
            instead="make the agent a sub_agent (transfer), or a node of a Workflow",
        )
    if isinstance(tool, BaseNode | _seam.NodeTool):
        raise UnsupportedNode(
            path,
            because=f"the node {tool.name} as a tool is not supported yet",
            instead="give the agent a function tool, or make the node part of a Workflow",
        )


def tool_names(root: BaseNode) -> set[str]:
    """Names of the tools that the topology shows; toolsets may have more."""
    names: set[str] = set()
    for node, _path in _nodes(root, root.name, set()):
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
        for node, _path in _nodes(root, root.name, set())
        for tool in getattr(node, "tools", ())
    )
