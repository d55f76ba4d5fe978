"""Tools and functions that are nodes: what their confirmations show, and that nothing else runs.

ADK draws the id of such a call anew in every run: its place is the path of the node, which has one
call at a time. Of a function's node only the names are compared: ADK has no gate for it that could
be stepped into, and its values come from its input and the state as they did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any, NamedTuple, NoReturn

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.adk.utils.content_utils import extract_text_from_content
from google.adk.workflow import BaseNode
from google.genai import types
from pydantic import BaseModel

from durable_adk.adk import _seam
from durable_adk.adk.parameters import (
    Fit,
    SinceEntered,
    copied,
    fit_of,
    misfit,
    since_entered,
    unlike,
)
from durable_adk.adk.scope import Scope
from durable_adk.adk.stage import Shown
from durable_adk.adk.tools import describe
from durable_adk.errors import NotStorable, ReplayMismatch
from durable_adk.model import codec
from durable_adk.model.activity import Kind, Record, RecordStatus
from durable_adk.model.redaction import redacted

GATED = "gated"
"""In the record of a node that waits: the arguments of its call."""


class Function(NamedTuple):
    """The function of a node that asks before it runs, as a tool that has no more to it."""

    name: str
    func: Any


def called_by(node: BaseNode) -> BaseTool | Function | None:
    """What a node calls that may be asked about first; None for what is no such node."""
    tool = _seam.tool_of(node)
    if tool is not None or not getattr(node, "require_confirmation", False):
        return tool
    return Function(node.name, _seam.function_of(node))


def note_question(scope: Scope, node: BaseNode, call: types.FunctionCall) -> None:
    """Note what the question of a function's node is about: the names of what it runs with. ADK has
    no gate for it; the values come as they did, from the node's input and the state."""
    function, shown = called_by(node), confirmed_in(call)
    if isinstance(function, Function) and shown is not None:
        names: dict[str, Any] = dict.fromkeys(shown["args"])
        scope.stage.gated[scope.path, ""] = (function.name, names, fit_of(function, names))


def confirmed_in(call: types.FunctionCall) -> Mapping[str, Any] | None:
    """``{"tool_name", "args"}`` of the question whether a node may run; None for any other."""
    payload = (call.args or {}).get("payload")
    if not isinstance(payload, Mapping) or "tool_name" not in payload:
        return None
    return payload if isinstance(payload.get("args"), Mapping) else None


def note(scope: Scope, tool: BaseTool, args: Mapping[str, Any]) -> None:
    """Note what the call of a node runs with, or would: what a person is shown."""
    given = copied(tool.name, args)
    scope.stage.gated[scope.path, ""] = (tool.name, given, fit_of(tool, args))


def noted(scope: Scope) -> dict[str, Any]:
    """For the record of a node that waits: the arguments of the call that it asks about, if any."""
    found = scope.stage.gated.get((scope.path, ""))
    return {} if found is None else {GATED: found[1]}


def note_again(scope: Scope, tool: BaseTool | None, record: Record) -> None:
    """Note what a recorded node asked about, and how the tool takes it now."""
    if tool is None or record.status is not RecordStatus.WAITING:
        return
    found = codec.decode(record.body or "{}").get(GATED)
    if found is not None:
        scope.stage.gated[scope.path, ""] = (tool.name, found, fit_of(tool, found))


async def check_agreed(scope: Scope, tool: BaseTool | Function | None) -> None:
    """Refuse what does not take the arguments that a person agreed to before it is entered: a check
    does not enter it, and no call is then in doubt that did not begin."""
    stage = scope.stage
    shown = stage.shown.get((scope.path, ""))
    if tool is None or shown is None or shown.names is None:
        return
    if stage.attempt.records.find(stage.position(scope, Kind.NODE, 1).digest) is not None:
        return  # it ran
    fit = fit_of(tool, dict.fromkeys(shown.names))
    if fit.is_worse_than(shown.fit):
        await _refuse(scope, shown, misfit(tool.name, shown.fit, fit))


async def _refuse(scope: Scope, shown: Shown, asked: str) -> NoReturn:
    position = scope.stage.position(scope, Kind.NODE, 1).text
    await scope.stage.attempt.halt(
        ReplayMismatch(position, recorded=f"shown {shown.text}", asked=asked)
    )


async def check_shown(
    scope: Scope, tool: BaseTool, args: Mapping[str, Any], context: ToolContext
) -> None:
    """A person agreed to one tool with certain arguments; nothing else may run for it."""
    stage = scope.stage
    shown = stage.shown.get((scope.path, ""))
    if shown is None or context.tool_confirmation is None:
        return
    try:
        request = codec.digest_of([tool.name, args], where=f"{tool.name} arguments")
    except NotStorable as error:
        await stage.attempt.halt(error)
    fit = fit_of(tool, args)
    if shown.digest != request:
        asked = unlike(shown.text, describe(tool.name, redacted(args, stage.redact)))
        await _refuse(scope, shown, asked)
    if fit.is_worse_than(shown.fit):
        await _refuse(scope, shown, misfit(tool.name, shown.fit, fit))


def of_input(
    tool: BaseTool | None, node_input: Any, secret: Set[str]
) -> tuple[Fit | None, SinceEntered | None]:
    """How a tool takes the arguments that ADK finds in the input of its node, and what compares
    that with an earlier time; None for what is no tool, or where they have no names: then they are
    the parameters of the tool as it is."""
    args = _args_in(node_input)
    if tool is None or args is None:
        return None, None
    fit = fit_of(tool, args)
    return fit, since_entered(tool, fit, describe(tool.name, redacted(args, secret)))


def _args_in(node_input: Any) -> dict[str, Any] | None:
    found = node_input
    if isinstance(found, types.Content):
        found = extract_text_from_content(found)
    if isinstance(found, BaseModel):
        found = found.model_dump()
    elif isinstance(found, str):
        try:
            found = json.loads(found)
        except ValueError:
            return None
    return found if isinstance(found, dict) else None
