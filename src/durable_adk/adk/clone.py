"""A copy of the agent tree for one attempt, so that the user's objects stay as they are.

Agents are cloned as ADK clones them when they enter a Workflow, and resumed where they asked
(``rerun_on_resume``): without it ADK takes the answer for the output of a waiting agent. Tools,
models and callbacks are the user's own objects.
"""

from __future__ import annotations

from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.workflow import START, BaseNode, Workflow

from durable_adk.adk import _seam
from durable_adk.adk._patches import agent_tool_waits, answer_as_output


def clone_tree(root: BaseNode) -> BaseNode:
    """The root over cloned agents and rebuilt graphs; shared nodes stay shared."""
    return _clone(root, {})


def ready(built: BaseNode) -> BaseNode:
    """A node that was made at run time, as an attempt runs it.

    ADK has cloned an ``LlmAgent`` already. Other agents, and workflows, are still the user's.
    """
    if isinstance(built, LlmAgent):
        answer_as_output.resume_where_asked(built)
        return built
    if isinstance(built, BaseAgent | Workflow):
        return clone_tree(built)
    return agent_tool_waits.in_node(built)


def _clone(node: BaseNode, made: dict[int, BaseNode]) -> BaseNode:
    if node is START or node.name == START.name:
        return node
    if id(node) in made:
        return made[id(node)]
    copy: BaseNode
    if isinstance(node, BaseAgent):
        copy = node.clone()
        answer_as_output.resume_where_asked(copy)
    elif isinstance(node, Workflow):
        copy = _with_graph(node, made)
    else:
        copy = agent_tool_waits.in_node(node.model_copy())
    made[id(node)] = copy
    return copy


def _with_graph(workflow: Workflow, made: dict[int, BaseNode]) -> Workflow:
    copy: Any = workflow.model_copy()  # shares the graph: give the copy one of its own
    graph = _seam.workflow_graph(workflow)
    if graph is not None:
        edges = [
            edge.model_copy(
                update={
                    "from_node": _clone(edge.from_node, made),
                    "to_node": _clone(edge.to_node, made),
                }
            )
            for edge in graph.edges
        ]
        copy.graph = type(graph)(edges=edges)
        copy.graph.validate_graph()
    return copy  # type: ignore[no-any-return]  # model_copy of a Workflow is one
