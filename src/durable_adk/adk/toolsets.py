"""Toolsets: where a tool came from, and what it means when its toolset cannot be listed.

ADK goes on without the tools of a toolset that fails to list, and answers their calls with "tool
not found". With calls of that toolset on record that would be another run than the recorded one,
so the attempt ends instead and is made again later. Every other toolset fails as in ADK.

A model's record says which toolset a called tool was listed by: a call is on record from then
on, whether it has run, was cut off, or is held back until somebody agrees to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset

from durable_adk.adk import _seam
from durable_adk.adk.scope import Scope, current
from durable_adk.errors import Unavailable
from durable_adk.model import codec
from durable_adk.model.activity import Kind, RecordStatus

List = Callable[[BaseToolset, ReadonlyContext], Awaitable[list[BaseTool]]]

MARK = "toolsets"
"""In a model's record: toolset by name of a called tool, for those that came from one."""


def wrap(adk_list: Any) -> Any:
    """The durable ``BaseToolset.get_tools_with_prefix``; outside an attempt it is ADK's."""

    async def get_tools_with_prefix(
        self: BaseToolset, readonly_context: ReadonlyContext | None = None
    ) -> list[BaseTool]:
        scope = current()
        if scope is None or scope.kind not in ("node", "agent") or readonly_context is None:
            tools: list[BaseTool] = await adk_list(self, readonly_context)
            return tools
        return await _listed(adk_list, self, readonly_context, scope)

    return get_tools_with_prefix


def called_by(response: LlmResponse) -> set[str]:
    """The names of the tools that a response calls."""
    parts = (response.content.parts if response.content else None) or ()
    return {part.function_call.name or "" for part in parts if part.function_call}


def marks(scope: Scope, called: Iterable[str]) -> dict[str, Any]:
    """What a model's record says of the toolsets whose tools its responses call."""
    listed = scope.stage.toolsets
    from_toolsets = {
        name: listed[scope.path, name] for name in sorted(called) if (scope.path, name) in listed
    }
    return {MARK: from_toolsets} if from_toolsets else {}


async def _listed(
    adk_list: List, toolset: BaseToolset, context: ReadonlyContext, scope: Scope
) -> list[BaseTool]:
    place = _place(_seam.invocation_of(context).agent, toolset)
    try:
        tools = await adk_list(toolset, context)
    except Exception as error:  # whatever a transport raises
        called = _called(scope, place)
        if called:
            await scope.stage.attempt.halt(_unavailable(place, called, error))
        raise
    for tool in tools:
        # A toolset inside another one is listed first, and is where the tool is from.
        scope.stage.toolsets.setdefault((scope.path, tool.name), place)
    return tools


def _place(agent: Any, toolset: BaseToolset) -> str:
    """A name for a toolset of an agent that a later process finds again."""
    label = _label(toolset)
    alike = [one for one in _toolsets(agent) if _label(one) == label]
    number = next((k for k, one in enumerate(alike, 1) if one is toolset), 0)
    return f"{getattr(agent, 'name', '')}/{label}#{number}"


def _label(toolset: BaseToolset) -> str:
    prefix = toolset.tool_name_prefix
    return f"{type(toolset).__name__}:{prefix}" if prefix else type(toolset).__name__


def _toolsets(agent: Any) -> Iterator[BaseToolset]:
    for tool in getattr(agent, "tools", None) or ():
        if isinstance(tool, BaseToolset):
            yield tool


def _called(scope: Scope, place: str) -> list[str]:
    """Names of a toolset's tools that this execution has called, in any step."""
    called: set[str] = set()
    for record in scope.stage.attempt.recorded.of_kind(Kind.MODEL):
        if record.status is RecordStatus.COMPLETED and f'"{MARK}"' in (record.body or ""):
            from_toolsets = codec.decode(record.body or "").get(MARK, {})
            called |= {name for name, at in from_toolsets.items() if at == place}
    return sorted(called)


def _unavailable(place: str, called: list[str], error: Exception) -> Unavailable:
    why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Unavailable(
        f"toolset {place}",
        f"cannot be listed ({why}), and this execution has called {', '.join(called)}",
        "The attempt is made again with back-off; bring its server back, or cancel().",
    )
