"""The user's agents, tools and models are as they were after an execution."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
from google.adk.agents import BaseAgent
from google.adk.workflow import BaseNode, Workflow

from durable_adk import App
from durable_adk.adk import _seam, tree
from durable_adk.testing import memory_client
from tests.faults.catalogue import CASES
from tests.support.lives import Ledger, default_answer


def walk(root: BaseNode) -> list[BaseNode]:
    """The root and every node declared below it."""
    return list(tree.walk(root))


def snapshot(root: BaseNode) -> list[Any]:
    """Every declared node's fields, and the identity of its tools, model and graph."""
    seen = []
    for node in walk(root):
        fields = {name: getattr(node, name) for name in type(node).model_fields}
        shown = {
            name: value if isinstance(value, str | bool | int | float | None) else id(value)
            for name, value in fields.items()
        }
        subs = [sub.name for sub in getattr(node, "sub_agents", ())]
        tools = [id(tool) for tool in getattr(node, "tools", ())]
        parent = getattr(getattr(node, "parent_agent", None), "name", None)
        seen.append((id(node), type(node).__name__, shown, subs, tools, parent, node_edges(node)))
    return seen


def node_edges(node: BaseNode) -> list[tuple[int, int]]:
    graph = _seam.workflow_graph(node) if isinstance(node, Workflow) else None
    return [(id(e.from_node), id(e.to_node)) for e in graph.edges] if graph is not None else []


@pytest.mark.parametrize(
    "name", ["two confirmations and a question", "transfer and back", "nested workflow"]
)
async def test_a_tree_is_untouched_by_attempts_over_it(name: str, tmp_path: Any) -> None:
    case = CASES[name]
    root = case.build(Ledger(tmp_path / "ledger"))
    before = copy.copy(snapshot(root))
    config = {"features": {"durable_workflow": True}}
    async with App("clones", root_agent=root, config=config, mongodb=memory_client()) as app:
        out = await app.invoke(user_id="u", message="go")
        while out.status == "suspended":
            answers = {wait.id: default_answer(wait.to_dict()) for wait in out.waits}
            out = await app.resume(out.execution_id, answers)
        assert out.status == "completed"
    assert snapshot(root) == before
    agents = [node for node in walk(root) if isinstance(node, BaseAgent)]
    assert agents


async def test_a_tool_keeps_its_signature_docstring_and_identity_in_callbacks(
    tmp_path: Any,
) -> None:
    from tests.faults.catalogue import Tools, agent, calls, says

    tools = Tools(Ledger(tmp_path / "ledger"))
    seen: list[Any] = []

    def note(tool: Any, args: Any, tool_context: Any) -> None:
        seen.append(tool)

    script = [calls(("pay", {"amount": 1})), says("done")]
    root = agent(
        Ledger(tmp_path / "ledger"),
        "root",
        *script,
        tools=[tools.confirmed_pay],
        before_tool_callback=note,
    )
    signature, doc = inspect.signature(tools.pay), tools.pay.__doc__
    config = {"features": {"durable_workflow": True}}
    async with App("clones", root_agent=root, config=config, mongodb=memory_client()) as app:
        out = await app.invoke(user_id="u", message="go")
        await app.resume(out.execution_id, {out.waits[0].id: {"confirmed": True}})
    assert [tool is tools.confirmed_pay for tool in seen] == [True, True]
    assert (inspect.signature(tools.confirmed_pay.func), tools.pay.__doc__) == (signature, doc)
