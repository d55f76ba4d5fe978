"""Tool calls: ADK calls every tool body through one function, and this stands in its place.

Callbacks, plugins and the confirmation gate are ADK's and run before it: a declined call never
gets here. A call is known by who asked for it and where in the response, not by its name,
arguments or id. Its record holds the result and what the body changed on ``EventActions``.
"""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Any

from google.adk.events import EventActions
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from durable_adk.adk import _seam
from durable_adk.adk import events as stored
from durable_adk.adk.scope import Scope, bound, current
from durable_adk.adk.stage import Stage
from durable_adk.engine.attempt import Call, Replayed
from durable_adk.errors import ReplayMismatch
from durable_adk.model import codec, failure
from durable_adk.model.activity import POLICY_MARK, Kind, RecordStatus, UnknownOutcome
from durable_adk.model.position import Position


def wrap(adk_call: Any) -> Any:
    """The durable ``_call_tool_async``; outside an attempt it is ADK's."""

    async def _call_tool_async(
        tool: BaseTool, args: dict[str, Any], tool_context: ToolContext
    ) -> object:
        agent = current()
        if agent is None or agent.kind == "recorded" or _seam.defers_response(tool):
            return await adk_call(tool, args, tool_context)
        return await _recorded(adk_call, tool, args, tool_context, agent)

    return _call_tool_async


def _policy(stage: Stage, tool: BaseTool) -> UnknownOutcome:
    """By the tool's name in the App or its configuration, else by its mark or its function's."""
    named = stage.policies.get(tool.name)
    if named is not None:
        return named
    for marked in (tool, getattr(tool, "func", None)):
        mark = getattr(marked, POLICY_MARK, None)
        if isinstance(mark, UnknownOutcome):
            return mark
    return UnknownOutcome.RERUN


def wrap_gate(adk_gate: Any) -> Any:
    """Note what a call that is held back would run with: that is what a person must see."""

    async def apply_confirmation_gate(
        tool: BaseTool, function_args: dict[str, Any], tool_context: ToolContext
    ) -> Any:
        held_back = await adk_gate(tool, function_args, tool_context)
        scope = current()
        if held_back is not None and scope is not None:
            _note(scope, tool, function_args, tool_context)
        return held_back

    return apply_confirmation_gate


def _note(agent: Scope, tool: BaseTool, args: dict[str, Any], context: ToolContext) -> None:
    place = (agent.path, context.function_call_id or "")
    agent.stage.gated[place] = (tool.name, copy.deepcopy(args))


async def _recorded(
    adk_call: Any, tool: BaseTool, args: dict[str, Any], context: ToolContext, agent: Scope
) -> object:
    stage = agent.stage
    attempt = stage.attempt
    path = stage.tool_path(agent, context.function_call_id or "")
    ordinal = agent.count(f"tool:{path}")
    position = Position(stage.step, path, agent.entry, Kind.TOOL, ordinal)
    request = codec.digest(codec.encode([tool.name, args], where=f"{tool.name} arguments"))
    asked = describe(tool.name, args)
    await _check_shown(context, agent, position, request, asked)
    _note(agent, tool, args, context)
    admitted = await attempt.admit(
        Call(
            position=position,
            name=tool.name,
            request=request,
            asked=asked,
            node_path=agent.node_path,
            policy=_policy(stage, tool),
        )
    )
    if isinstance(admitted, Replayed):
        return await _replay(admitted, context, agent)
    scope = _tool_scope(tool, path, agent, stage.activity_id(position))
    scope.asked_before = stage.is_earlier_call(agent, context.function_call_id or "")
    before = _snapshot(context)
    agent.bodies += 1
    try:
        with bound(scope):
            result = await adk_call(tool, args, context)
        payload = codec.encode(
            {"result": result, **_changes(before, context), "log": _log_of(scope)},
            where=f"{tool.name} result",
        )
    except asyncio.CancelledError:
        await attempt.cancelled(admitted)
        raise
    except _seam.NodeInterruptedError:
        await _hold(agent, context)
        raise
    except Exception as error:
        payload = failure.encode_failure(error)
        record = await attempt.record(admitted, RecordStatus.FAILED, payload)
        agent.handed_out(record.ended_at)
        raise failure.decode_failure(payload) from error
    finally:
        agent.bodies -= 1
        agent.body_ended.set()
    record = await attempt.record(
        admitted, RecordStatus.COMPLETED, payload, durable=_has_after_hook(context)
    )
    agent.handed_out(record.ended_at)
    result = codec.decode(payload)["result"]
    agent.stage.references.know_result(result, record.slot)
    return result


async def _replay(admitted: Replayed, context: ToolContext, agent: Scope) -> object:
    record = admitted.record
    agent.handed_out(record.ended_at)
    if record.status is RecordStatus.FAILED:
        raise failure.decode_failure(record.body or "")
    body = codec.decode(record.body or "")
    for _own, data in body.get("log", ()):
        await _seam.enqueue(_seam.invocation_of(context), stored.from_data(data))
    _apply(context, body)
    agent.stage.references.know_result(body["result"], record.slot)
    return body["result"]


def _tool_scope(tool: BaseTool, path: str, agent: Scope, activity_id: str) -> Scope:
    return Scope(
        stage=agent.stage,
        path=path,
        entry=agent.entry,
        kind="tool",
        name=tool.name,
        node_path=agent.node_path,
        invocation_id=agent.invocation_id,
        parent=agent,
        in_body=True,
        ended_at=agent.ended_at,
        log=[],
        activity_id=activity_id,
    )


def _log_of(scope: Scope) -> list[list[Any]]:
    return [list(item) for item in scope.log or ()]


async def _check_shown(
    context: ToolContext, agent: Scope, position: Position, request: str, asked: str
) -> None:
    """A person agreed to one tool with certain arguments; nothing else may run for it."""
    shown = agent.stage.shown.get(context.function_call_id or "")
    if shown is not None and context.tool_confirmation is not None and shown.digest != request:
        await agent.stage.attempt.halt(
            ReplayMismatch(position.text, recorded=f"shown {shown.text}", asked=asked)
        )


async def _hold(agent: Scope, context: ToolContext) -> None:
    """Keep a wait back until no sibling body runs: ADK cancels siblings when one raises."""
    agent.interrupts |= _seam.interrupts_of(context)
    while agent.bodies > 1:
        agent.body_ended.clear()
        await agent.body_ended.wait()


def _has_after_hook(context: ToolContext) -> bool:
    """Whether somebody looks at the result at once: then it must be durable before."""
    invocation = _seam.invocation_of(context)
    if getattr(invocation.agent, "canonical_after_tool_callbacks", None):
        return True
    return any(
        type(plugin).after_tool_callback is not BasePlugin.after_tool_callback
        for plugin in invocation.plugin_manager.plugins
    )


def _snapshot(context: ToolContext) -> dict[str, Any]:
    actions = context.actions
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name in EventActions.model_fields
        if (value := getattr(actions, name)) is not None
    }


def _changes(before: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """What the body changed on its ``EventActions``, by field; empty for most tools."""
    changed: dict[str, Any] = {}
    for name, value in _snapshot(context).items():
        old = before.get(name)
        if isinstance(value, dict):
            value = {k: v for k, v in value.items() if not old or k not in old or old[k] is not v}
            if value:
                changed[name] = value
        elif value != old:
            changed[name] = value
    return {"actions": changed} if changed else {}


def _apply(context: ToolContext, body: dict[str, Any]) -> None:
    actions = context.actions
    for name, value in body.get("actions", {}).items():
        if name == "state_delta":
            for key, item in value.items():
                context.state[key] = item
        elif isinstance(value, dict):
            getattr(actions, name).update(value)
        else:
            setattr(actions, name, value)


def describe(name: str, args: Any) -> str:
    """A call in short, for people."""
    text = json.dumps(args, ensure_ascii=False, default=str)
    return f"{name}({text if len(text) <= 200 else text[:197] + '...'})"
