"""The confirmation gate: whether a call is held back is decided once.

A tool may say so with a predicate, and a predicate may look at a limit, a clock or a state that is
another one in a later attempt. What its first verdict led to is on record: a call that ran was let
through, one that somebody was asked about was held back, and stays so whatever is said now.
Otherwise a body that has run would be asked about and run again, and a call that was declined
would run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

from durable_adk.adk import _seam, tool_nodes, tools
from durable_adk.adk.scope import Scope, current
from durable_adk.engine.attempt import Attempt
from durable_adk.errors import NotStorable
from durable_adk.model import entries
from durable_adk.model.position import is_under


class _HeldBack:
    """Stands for a tool whose call was held back."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def check_require_confirmation(self, _args: Any, _context: Any) -> bool:
        return True


def wrap(adk_gate: Any) -> Any:
    """The durable ``apply_confirmation_gate``; outside an attempt it is ADK's. It notes what a call
    that is held back would run with: that is what a person must see."""

    async def apply_confirmation_gate(
        tool: BaseTool, function_args: dict[str, Any], tool_context: ToolContext
    ) -> Any:
        scope = current()
        if scope is None or scope.kind not in ("call", "node"):
            return await adk_gate(tool, function_args, tool_context)
        verdict = _known(scope, tool, tool_context)
        if verdict is False:
            return None
        asked: Any = tool if verdict is None else _HeldBack(tool.name)
        answer = await adk_gate(asked, function_args, tool_context)
        if answer is None and _left_nothing(scope, tool, tool_context):
            answer = await adk_gate(_HeldBack(tool.name), function_args, tool_context)
        if scope.kind == "node" and answer is None:
            await tool_nodes.check_shown(scope, tool, function_args, tool_context)
        try:
            if scope.kind == "node":
                tool_nodes.note(scope, tool, function_args)
            elif answer is not None:
                tools.note(scope, tool, function_args, tool_context)
        except NotStorable as error:
            await scope.stage.attempt.halt(error)
        if answer is not None:
            scope.stage.held_back.add(_place(scope, tool_context))
        return answer

    return apply_confirmation_gate


def _place(scope: Scope, context: ToolContext) -> tuple[str, str]:
    """A call's agent and id; a tool node's path: ADK draws its id anew."""
    if scope.kind == "node":
        return scope.path, ""
    return tools.agent_of(scope).path, context.function_call_id or ""


def _known(scope: Scope, tool: BaseTool, context: ToolContext) -> bool | None:
    """Whether a call is held back, as far as what is recorded of it decides that."""
    if scope.kind == "call" and _may_ask(tool) and _was_entered(scope):
        return False
    if context.tool_confirmation is not None and _place(scope, context) in scope.stage.held:
        return True
    return None


def _was_entered(call: Scope) -> bool:
    """Whether a call was let through before. Callbacks come first and leave records at its path and
    below it as well; they have asked for theirs by now, what its body left is still to come."""
    attempt, position = call.stage.attempt, tools.next_position(call)
    records = attempt.records
    if records.find(position.digest) or records.entered(position.digest):
        return True
    if records.committed:
        return position.text in records.abandoned or attempt.asks_below(position)
    left = itertools.chain(_asleep(attempt, call.path), records.to_come_below(call.path))
    return entries.has(left, call.path, position.entry)


def _asleep(attempt: Attempt, path: str) -> Iterator[tuple[str, int]]:
    """Path and entry of what sleeps at a path or below it, and was not come by in this attempt."""
    for at, _name in attempt.timers():
        entry = attempt.records.find(at.digest)
        if is_under(at.path, path) and (entry is None or attempt.records.is_to_come(entry)):
            yield at.path, at.entry


def _left_nothing(scope: Scope, tool: BaseTool, context: ToolContext) -> bool:
    """Whether a call of a committed step that would be let through now cannot have been: nothing
    of it is recorded, nobody cancelled it, and nothing inside it asked."""
    attempt = scope.stage.attempt
    if scope.kind != "call" or not attempt.records.committed or not _may_ask(tool):
        return False
    if context.tool_confirmation is not None:
        return False
    position = tools.next_position(scope)
    return (
        attempt.records.find(position.digest) is None
        and position.text not in attempt.records.abandoned
        and not attempt.asks_below(position)
    )


def _may_ask(tool: BaseTool) -> bool:
    if isinstance(tool, FunctionTool):
        return _seam.asks_first(tool)
    return type(tool).check_require_confirmation is not BaseTool.check_require_confirmation
