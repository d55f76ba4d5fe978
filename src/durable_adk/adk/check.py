"""Refuse what cannot be durable, before the first call, with path, reason, alternative."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import BaseNode

from durable_adk.adk import _patches, _seam, tree
from durable_adk.adk._patches import asks_below_tasks, transfers_processed_twice
from durable_adk.errors import ConfigError, UnsupportedNode

_ELSEWHERE = {
    "RemoteA2aAgent": "remote agent",
    "ManagedAgent": "managed agent",
    "LangGraphAgent": "LangGraph agent",
    "AntigravityAgent": "managed agent",
}


def check_root(root: object, adk_app: Any = None, *, keeps_secrets: bool = False) -> None:
    """Walk the topology. ``keeps_secrets``: what is recorded is encrypted.

    Raises:
        ConfigError: the root is no node, or the installed ADK lacks what a remedy needs.
        UnsupportedNode: the first part that cannot be made durable.
    """
    if not isinstance(root, BaseNode):
        raise ConfigError(
            "root_agent",
            f"expected an agent, a Workflow or another ADK node, got {type(root).__name__}",
            "Pass an instance, as LlmAgent(...) makes one.",
        )
    if isinstance(root, LlmAgent) and root.mode not in (None, "chat", "task"):
        raise UnsupportedNode(
            root.name,
            because=f"ADK runs no root agent with mode={root.mode!r}",
            instead="use mode='chat' or mode='task', or make it a node of a Workflow",
        )
    check_tree(root, root.name, keeps_secrets=keeps_secrets)
    _patches.check(root)


def check_tree(root: BaseNode, path: str, *, keeps_secrets: bool) -> None:
    """Refuse the first part of a tree that cannot be made durable.

    Raises:
        UnsupportedNode: with node path, reason, alternative.
    """
    for node, at in tree.nodes(root, path, set()):
        check_node(node, at, keeps_secrets=keeps_secrets)


def check_node(node: BaseNode, path: str, *, keeps_secrets: bool) -> None:
    """Refuse one node, whatever is below it.

    Raises:
        UnsupportedNode: it cannot be made durable.
    """
    remote = _runs_elsewhere(node)
    if remote:
        raise UnsupportedNode(
            path,
            because=f"a {remote} does its work where nothing of it can be recorded",
            instead="call it from a tool: the call is then recorded as one",
        )
    asks_below = asks_below_tasks.refusal(node, path)
    if asks_below is not None:
        raise asks_below
    transfers_twice = transfers_processed_twice.refusal(node, path)
    if transfers_twice is not None:
        raise transfers_twice
    if keeps_secrets:
        return
    if _seam.asks_for_credentials(node):
        raise credential(path)
    for tool in getattr(node, "tools", None) or ():
        if _seam.asks_for_credentials(tool):
            raise credential(path, getattr(tool, "name", type(tool).__name__))


def credential(path: str, tool: str = "") -> UnsupportedNode:
    """Why a node, or a tool of it, that asks for a credential is refused."""
    return UnsupportedNode(
        path,
        because=f"{f'its tool {tool}' if tool else 'it'} asks for a credential, and no encryption"
        " key is configured",
        instead="set encryption.keys, or give it an API key, a token or a service account of its"
        " own",
    )


def tool_names(root: BaseNode) -> set[str]:
    """Names of the tools that the topology shows (toolsets may have more), and of the classes of
    code executors."""
    names: set[str] = set()
    for node, _path in tree.nodes(root, root.name, set()):
        executor = getattr(node, "code_executor", None)
        if executor is not None:
            names.add(type(executor).__name__)
        for tool in (*getattr(node, "tools", ()), _seam.tool_of(node)):
            if isinstance(tool, BaseTool):
                names.add(tool.name)
            elif callable(tool):
                names.add(FunctionTool(tool).name)
    return names


def has_toolsets(root: BaseNode) -> bool:
    """Whether some agent's tools are only known when they are listed."""
    return any(
        not isinstance(tool, BaseTool) and not callable(tool)
        for node, _path in tree.nodes(root, root.name, set())
        for tool in getattr(node, "tools", ())
    )


def _runs_elsewhere(node: BaseNode) -> str:
    """What kind of agent it is, if its calls happen outside of this process; else nothing.

    By name: their modules need packages that may not be installed.
    """
    names = {kind.__name__ for kind in type(node).__mro__ if kind.__module__.startswith("google.")}
    return next((text for name, text in _ELSEWHERE.items() if name in names), "")
