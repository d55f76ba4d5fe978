"""Does the code still have what the history ran? Checked before anything goes on.

A walk notices a difference where a recorded call is made, and a restore does not run what is
committed: a renamed or removed node would silently run a second time under its new name. So each
committed step keeps a *print* of every place of the topology that finished or asked in it: what
kind of node it is, after which nodes it comes, and the parameters of the tools that were called
there. Instructions, models, descriptions, tools that were never called, and nodes downstream are
not in it. Children that a function node makes at run time have no topology: only a walk checks
them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent
from google.adk.workflow import START, BaseNode, Workflow

from durable_adk.adk import _seam
from durable_adk.errors import ReplayMismatch
from durable_adk.model import codec
from durable_adk.model.position import unescape
from durable_adk.model.wait import Frontier, WaitKind, WaitRequest

Prints = dict[str, dict[str, Any]]
"""``{kind, before, tools, name}`` by the operation path of the first run at a place. ``name`` is
only that of the root: the others have it in their path."""


def prints(root: BaseNode, ran: Iterable[str], tools: Iterable[tuple[str, str]]) -> Prints:
    """The prints of what ran or asked at these operation paths, as far as the topology has it.

    ``tools`` are those that were called, with the path of the agent that called.
    """
    found: Prints = {}
    first: dict[str, tuple[str, BaseNode] | None] = {}
    for path in ran:
        place = _place_of(path)
        if place in first:
            continue
        there = _located(root, path)
        first[place] = (path, there.node) if there is not None else None
        if there is not None:
            found[path] = _print(there)
    for place, tool in dict.fromkeys((_place_of(path), tool) for path, tool in tools):
        at = first.get(place)
        listed = _tools(at[1]) if at is not None else {}
        if at is not None and tool in listed:
            found[at[0]].setdefault("tools", {})[tool] = _parameters(listed[tool])
    return found


def check(root: BaseNode, recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to go on from steps that ran on another topology.

    Raises:
        ReplayMismatch: at the first place that differs.
    """
    for path, then in recorded.items():
        there = _find(root, path)
        name = unescape(path.rpartition("/")[2].rpartition("#")[0]) if "/" in path else "the root"
        if there is None:
            raise ReplayMismatch(path, recorded=f"a run of {name}", asked="no such node")
        now = _print(there)
        for part in ("name", "kind", "before"):
            if then.get(part) != now.get(part):
                raise ReplayMismatch(
                    path,
                    recorded=_described(part, there.node.name, then.get(part)),
                    asked=_described(part, there.node.name, now.get(part)),
                )
        _check_tools(path, there.node, then.get("tools", {}))


def _described(part: str, name: str, value: Any) -> str:
    match part:
        case "name":
            return f"the root {value}"
        case "kind":
            return f"{name}, a {value}"
    return f"{name} after {', '.join(value or ()) or 'nothing'}"


def check_finished(root: BaseNode, finished: Mapping[str, Any]) -> None:
    """Refuse to restore a step whose finished nodes the code no longer has.

    Raises:
        ReplayMismatch: at the first of them.
    """
    seen: set[str] = set()
    for path, left in finished.items():
        place = _place_of(path)
        if place in seen:
            continue
        seen.add(place)
        found = _find(root, path)
        before = left.get("before")  # of a step that was stored without prints
        if found is not None and before is not None and before != _predecessors(found):
            raise ReplayMismatch(
                path,
                recorded=_described("before", found.node.name, before),
                asked=_described("before", found.node.name, _predecessors(found)),
            )


def check_asked(root: BaseNode, asked: Iterable[WaitRequest]) -> None:
    """Refuse to feed answers to a node, an agent or a tool that the code no longer has.

    Raises:
        ReplayMismatch: at the first of them.
    """
    for wait in asked:
        found = _find(root, wait.operation_path)
        call = codec.decode(wait.content)["tool_call"]
        asker = _asker(found.node, wait.author) if found is not None else None
        if asker is None or call is None or _may_have_more(asker):
            continue
        if wait.kind is WaitKind.CONFIRMATION and call["name"] not in _tools(asker):
            raise ReplayMismatch(
                wait.position,
                recorded=f"an approval of {call['name']}",
                asked=f"{asker.name} has no such tool",
            )


def check_asleep(root: BaseNode, frontier: Frontier | None) -> None:
    """Refuse to go on with a step in which something slept, or asked beside it, that the code no
    longer has: another node would do again what that one did before.

    Raises:
        ReplayMismatch: at the first of them.
    """
    if frontier is not None and frontier.sleeps:
        for wait in frontier.waits:
            _find(root, wait.operation_path)


def has(root: BaseNode, path: str) -> bool:
    """Whether the topology has what ran at a path, or does not say."""
    try:
        _find(root, path)
    except ReplayMismatch:
        return False
    return True


def _asker(node: BaseNode, author: str) -> BaseNode | None:
    """Who asked at a place: an agent that is no node may have handed over to another one there."""
    if node.name == author or not isinstance(node, BaseAgent):
        return node
    return next((agent for agent in _agents(_top(node)) if agent.name == author), None)


# ------------------------------------------------------------------ places


class _Place(NamedTuple):
    parent: BaseNode | None
    node: BaseNode


def _place_of(path: str) -> str:
    """An operation path without the numbers of runs."""
    return "/".join(_name_of(segment) for segment in path.split("/"))


def _name_of(segment: str) -> str:
    return segment[: max(segment.rfind("#"), segment.rfind("~"))]


def _located(root: BaseNode, path: str) -> _Place | None:
    try:
        return _find(root, path)
    except ReplayMismatch:
        return None


def _find(root: BaseNode, path: str) -> _Place | None:
    """The node of an operation path; None where the topology says nothing.

    Raises:
        ReplayMismatch: the topology has no such node.
    """
    parent: BaseNode | None = None
    node: BaseNode = root
    for segment in path.split("/")[1:]:
        name = unescape(_name_of(segment))
        if not name or name.startswith(":"):  # also a call that is known by its count only
            return None  # inside a tool call
        children = _children(node, as_node="#" in segment)
        if children is None:
            return None
        if name not in children:
            raise ReplayMismatch(path, recorded=f"a run of {name}", asked="no such node")
        parent, node = node, children[name]
    return _Place(parent, node)


def _children(node: BaseNode, *, as_node: bool) -> dict[str, BaseNode] | None:
    """The nodes that may run below one, by name; None if that is decided at run time."""
    if isinstance(node, Workflow):
        graph = _seam.workflow_graph(node)
        edges = graph.edges if graph is not None else ()
        ends: Iterable[BaseNode] = (end for e in edges for end in (e.from_node, e.to_node))
        return {end.name: end for end in ends if end.name != START.name}
    if not isinstance(node, BaseAgent):
        return None
    if not as_node and not isinstance(node, _OF_ADK):
        return None  # an agent of one's own may make agents
    return {agent.name: agent for agent in _agents(_top(node))}  # a transfer may lead to any


_OF_ADK = (LlmAgent, SequentialAgent, ParallelAgent, LoopAgent)


def _top(agent: BaseAgent) -> BaseAgent:
    while isinstance(agent.parent_agent, BaseAgent):
        agent = agent.parent_agent
    return agent


def _agents(agent: BaseAgent) -> Iterator[BaseAgent]:
    yield agent
    for sub_agent in agent.sub_agents:
        yield from _agents(sub_agent)


# ------------------------------------------------------------------ prints


def _print(place: _Place) -> dict[str, Any]:
    made: dict[str, Any] = {"kind": _kind(place.node)}
    if place.parent is None:
        made["name"] = place.node.name
    before = _predecessors(place)
    if before:
        made["before"] = before
    return made


def _kind(node: BaseNode) -> str:
    """The class of ADK's that a node is of: a class of one's own may be renamed."""
    mro = type(node).__mro__
    return next(c.__name__.lstrip("_") for c in mro if c.__module__.startswith("google.adk."))


def _predecessors(place: _Place) -> list[str]:
    """Names of the nodes that come directly before one: in its graph, or in its pipeline."""
    node, parent = place.node, place.parent
    if isinstance(parent, Workflow):
        graph = _seam.workflow_graph(parent)
        edges = graph.edges if graph is not None else ()
        return sorted({edge.from_node.name for edge in edges if edge.to_node.name == node.name})
    around = node.parent_agent if isinstance(node, BaseAgent) else None
    if not isinstance(around, SequentialAgent | LoopAgent):
        return []
    names = [agent.name for agent in around.sub_agents]
    place_in = names.index(node.name)
    return names[place_in - 1 : place_in] if place_in else []


# ------------------------------------------------------------------ tools


def _check_tools(path: str, node: BaseNode, recorded: Mapping[str, Sequence[str] | None]) -> None:
    listed = _tools(node)
    for name, then in recorded.items():
        if name not in listed:
            if _may_have_more(node):
                continue
            raise ReplayMismatch(
                path, recorded=f"a call of {name}", asked=f"{node.name} has no such tool"
            )
        now = _parameters(listed[name])
        if then is None or now is None:
            continue
        if not set(then) <= set(now):  # one that was added was not part of any recorded call
            raise ReplayMismatch(
                path, recorded=f"{name}({', '.join(then)})", asked=f"{name}({', '.join(now)})"
            )


def _tools(agent: object) -> dict[str, Any]:
    """An agent's tools by name, without those that only a toolset can list."""
    found: dict[str, Any] = {}
    for tool in getattr(agent, "tools", None) or ():
        name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
        if isinstance(name, str) and not hasattr(tool, "get_tools"):
            found[name] = tool
    return found


def _may_have_more(agent: object) -> bool:
    """Whether an agent has tools that are not known by name; or is none, and has no list."""
    tools = getattr(agent, "tools", None)
    return tools is None or len(_tools(agent)) < len(tools)


def _parameters(tool: Any) -> list[str] | None:
    """Names of what a model may send, in their order; None where that cannot be seen."""
    func = getattr(tool, "func", None) or (tool if inspect.isroutine(tool) else None)
    try:
        parameters = inspect.signature(func).parameters.values() if func is not None else ()
    except (TypeError, ValueError):
        return None
    if func is None or any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return None
    return [p.name for p in parameters if not _is_context(p)]


def _is_context(parameter: inspect.Parameter) -> bool:
    annotation = parameter.annotation
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return parameter.name == "tool_context" or name.endswith("Context")
