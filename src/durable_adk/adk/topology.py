"""Does the code still have what the history ran? Checked before committed steps are restored.

A walk notices any difference at its position. A restore does not run what is committed, so a
renamed or removed node would silently run a second time under its new name: every node that
finished or asked must still be there, after the same predecessors. Children that a function
node makes at run time have no topology; only a walk checks them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from google.adk.agents import BaseAgent
from google.adk.workflow import START, BaseNode, Workflow

from durable_adk.adk import _seam
from durable_adk.errors import ReplayMismatch
from durable_adk.model import codec
from durable_adk.model.position import unescape
from durable_adk.model.wait import AnsweredWait, WaitKind


def predecessors(workflow: object, name: str) -> list[str]:
    """Names of the nodes with an edge to ``name`` in a workflow's graph, sorted."""
    if not isinstance(workflow, Workflow):
        return []
    graph = _seam.workflow_graph(workflow)
    edges = graph.edges if graph is not None else ()
    return sorted({edge.from_node.name for edge in edges if edge.to_node.name == name})


def check_finished(root: BaseNode, finished: Mapping[str, Any]) -> None:
    """Refuse to restore a step whose finished nodes the code no longer has.

    Raises:
        ReplayMismatch: at the first of them.
    """
    for path, left in finished.items():
        found = _find(root, path)
        if found is None:
            continue
        name, before = found.node.name, left.get("before")
        now = predecessors(found.parent, name)
        if before is not None and before != now:
            raise ReplayMismatch(
                path,
                recorded=f"{name} after {', '.join(before)}",
                asked=f"{name} after {', '.join(now) or 'nothing'}",
            )


def check_asked(root: BaseNode, answered: Sequence[AnsweredWait]) -> None:
    """Refuse to feed answers to a node, an agent or a tool that the code no longer has.

    Raises:
        ReplayMismatch: at the first of them.
    """
    for one in answered:
        found = _find(root, one.wait.operation_path)
        call = codec.decode(one.wait.content)["tool_call"]
        if found is None or call is None:
            continue
        names = _tool_names(found.node)
        is_known = names is None or call["name"] in names
        if one.wait.kind is WaitKind.CONFIRMATION and not is_known:
            raise ReplayMismatch(
                one.wait.position,
                recorded=f"an approval of {call['name']}",
                asked=f"{found.node.name} has no such tool",
            )


class _Place(NamedTuple):
    parent: BaseNode | None
    node: BaseNode


def _find(root: BaseNode, path: str) -> _Place | None:
    """The node of an operation path; None where the topology says nothing.

    Raises:
        ReplayMismatch: the topology has no such node.
    """
    parent: BaseNode | None = None
    node: BaseNode = root
    for segment in path.split("/")[1:]:
        name, mark, _run = segment.rpartition("#")
        if not mark or segment.startswith(":"):
            return None  # inside a tool call, or an agent that is not a node
        children = _children(root, node)
        if children is None:
            return None
        name = unescape(name)
        if name not in children:
            raise ReplayMismatch(path, recorded=f"a run of {name}", asked="no such node")
        parent, node = node, children[name]
    return _Place(parent, node)


def _children(root: BaseNode, node: BaseNode) -> dict[str, BaseNode] | None:
    """The nodes that may run below one, by name; None if that is decided at run time."""
    if isinstance(node, Workflow):
        graph = _seam.workflow_graph(node)
        edges = graph.edges if graph is not None else ()
        ends: Iterable[BaseNode] = (end for e in edges for end in (e.from_node, e.to_node))
        return {end.name: end for end in ends if end.name != START.name}
    if isinstance(node, BaseAgent):  # a transfer may lead to any agent of its tree
        return {agent.name: agent for agent in _agents(_top(node))}
    return None


def _top(agent: BaseAgent) -> BaseAgent:
    while isinstance(agent.parent_agent, BaseAgent):
        agent = agent.parent_agent
    return agent


def _agents(agent: BaseAgent) -> Iterable[BaseAgent]:
    yield agent
    for sub_agent in agent.sub_agents:
        yield from _agents(sub_agent)


def _tool_names(agent: object) -> set[str] | None:
    """Names of an agent's tools; None if a toolset may have more."""
    names: set[str] = set()
    for tool in getattr(agent, "tools", None) or ():
        name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
        if not isinstance(name, str) or hasattr(tool, "get_tools"):
            return None
        names.add(name)
    return names
