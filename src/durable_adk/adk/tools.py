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

from durable_adk.adk import _seam, check, expiring, outcomes
from durable_adk.adk import events as stored
from durable_adk.adk._patches import agent_tool_waits, siblings_cancelled
from durable_adk.adk.parameters import (
    Fit,
    copied,
    fit_of,
    misfit,
    names_of,
    since_entered,
    takes,
    unlike,
)
from durable_adk.adk.scope import Scope, bound, current
from durable_adk.engine.attempt import Call, Replayed
from durable_adk.errors import ConfigError, NotStorable, ReplayMismatch
from durable_adk.model import codec, failure
from durable_adk.model.activity import Kind, Record, RecordStatus, UnknownOutcome
from durable_adk.model.doubt import UNFIT
from durable_adk.model.position import Position
from durable_adk.model.redaction import redacted


def wrap(adk_call: Any) -> Any:
    """The durable ``_call_tool_async``; outside an attempt it is ADK's."""

    async def _call_tool_async(
        tool: BaseTool, args: dict[str, Any], tool_context: ToolContext
    ) -> object:
        scope = current()
        if scope is None or scope.kind == "recorded" or _seam.defers_response(tool):
            return await adk_call(tool, args, tool_context)
        if scope.kind != "call":
            scope = _call_scope(scope, tool, tool_context)
        return await _recorded(adk_call, tool, args, tool_context, scope)

    return _call_tool_async


def wrap_prepared(adk_execute: Any) -> Any:
    """Give a call and its callbacks a scope of their own: what they record or derive must not
    depend on which of several parallel calls is faster."""

    async def _execute_single_prepared_call_async(
        invocation_context: Any, prepared_call: Any, agent: Any
    ) -> Any:
        outer = current()
        if outer is None or outer.kind == "recorded":
            return await adk_execute(invocation_context, prepared_call, agent)
        scope = _call_scope(outer, prepared_call.tool, prepared_call.tool_context)
        with bound(scope):
            return await adk_execute(invocation_context, prepared_call, agent)

    return _execute_single_prepared_call_async


def _call_scope(agent: Scope, tool: BaseTool, context: ToolContext) -> Scope:
    call_id = context.function_call_id or ""
    return Scope(
        stage=agent.stage,
        path=agent.stage.tool_path(agent, call_id),
        entry=agent.entry,
        kind="call",
        name=tool.name,
        node_path=agent.node_path,
        invocation_id=agent.invocation_id,
        parent=agent,
        ended_at=agent.ended_at,
        asked_before=agent.stage.is_earlier_call(agent, call_id),
    )


def agent_of(call: Scope) -> Scope:
    """The scope that asked for a call."""
    assert call.parent is not None
    return call.parent


def note(call: Scope, tool: BaseTool, args: dict[str, Any], context: ToolContext) -> Fit:
    """Note what a call runs with, or would: what a person is shown.

    Returns: how the arguments fit the tool's parameters.
    """
    place, fit = (agent_of(call).path, context.function_call_id or ""), fit_of(tool, args)
    call.stage.gated[place] = (tool.name, copied(tool.name, args), fit)
    expiring.note(call.stage, *place, tool)
    return fit


OVER = "over"
"""In a record: the body ended its agent's run (``end_invocation``), or took that back."""


def _over(context: ToolContext, was_over: bool) -> dict[str, bool]:
    is_over = _seam.invocation_of(context).end_invocation
    return {OVER: is_over} if is_over != was_over else {}


def next_position(call: Scope) -> Position:
    """Where the next run of a call in this step is recorded."""
    agent = agent_of(call)
    ordinal = agent.counts.get(f"tool:{call.path}", 0) + 1
    return Position(call.stage.step, call.path, agent.entry, Kind.TOOL, ordinal)


async def _recorded(
    adk_call: Any, tool: BaseTool, args: dict[str, Any], context: ToolContext, call: Scope
) -> object:
    stage, agent = call.stage, agent_of(call)
    attempt = stage.attempt
    position = next_position(call)
    agent.count(f"tool:{call.path}")
    try:
        request = codec.digest_of([tool.name, args], where=f"{tool.name} arguments")
    except NotStorable as error:
        await attempt.halt(error)
    asked = describe(tool.name, redacted(args, stage.redact))
    await _check_shown(tool, args, context, call, position, request, asked)
    try:
        run = agent_tool_waits.stand_in(tool)
    except ConfigError as error:
        await attempt.halt(error)
    fit = note(call, tool, args, context)
    func, call_id = getattr(tool, "func", None), context.function_call_id or ""
    terms = stage.policy_of(tool.name, args, tool, func, call_id=call_id, fit=fit)
    admitted = await stage.admit(
        agent,
        Call(
            position=position,
            name=tool.name,
            request=request,
            alike=outcomes.alike(agent, [tool.name, args], "arguments"),
            asked=asked,
            node_path=agent.node_path,
            policy=terms.policy,
            intent=terms.intent,
            reconcile=terms.reconcile,
            since_entered=since_entered(tool, fit, asked),
        ),
    )
    if isinstance(admitted, Replayed):
        await _check_taken(tool, args, call, position, admitted.record)
        return await _replay(admitted, context, call)
    scope = _tool_scope(tool, call, stage.activity_id(position))
    scope.runs, scope.once = func, terms.policy is not UnknownOutcome.RERUN
    before, was_over = _snapshot(context), _seam.invocation_of(context).end_invocation
    with siblings_cancelled.Body(agent) as body:
        try:
            admitted.enter()
            with bound(scope):
                agent_tool_waits.note_options(tool, context)
                result = await adk_call(run, args, context)
            if context.actions.requested_auth_configs and not stage.keeps_secrets:
                await attempt.halt(check.credential(agent.node_path, tool.name))
            left = {"result": result, **_left(before, context, scope), **_over(context, was_over)}
            if not fit.fits:  # ADK leaves out what a model made up
                left[UNFIT] = True
            payload = stage.encode(left, where=f"{tool.name} result")
            await attempt.leave(admitted)
        except asyncio.CancelledError:
            await attempt.cancelled(admitted)
            raise
        except _seam.NodeInterruptedError:
            await body.hold(_seam.interrupts_of(context) | scope.interrupts)
            raise
        except Exception as error:
            left = {**_left(before, context, scope), **_over(context, was_over)}
            payload = stage.encode_failure(error, left)
            looks = _is_looked_at(context, "on_tool_error_callback")
            record = await attempt.record(admitted, RecordStatus.FAILED, payload, durable=looks)
            call.handed_out(record.ended_at)
            raise stage.failure_of(record) from error
        looks = _is_looked_at(context, "after_tool_callback")
        record = await attempt.record(admitted, RecordStatus.COMPLETED, payload, durable=looks)
    call.handed_out(record.ended_at)
    result = codec.decode(payload)["result"]
    stage.references.know_result(result, record.slot)
    return result


async def _replay(admitted: Replayed, context: ToolContext, call: Scope) -> object:
    record = admitted.record
    call.handed_out(record.ended_at)
    payload = record.body or ""
    has_failed = record.status is RecordStatus.FAILED
    body = failure.left_behind(payload) if has_failed else codec.decode(payload)
    for _own, data in body.get("log", ()):
        await _seam.enqueue(_seam.invocation_of(context), stored.from_data(data))
    _apply(context, body)
    if OVER in body:
        _seam.invocation_of(context).end_invocation = body[OVER]
    if has_failed:
        raise call.stage.failure_of(record)
    call.stage.references.know_result(body["result"], record.slot)
    return body["result"]


def _tool_scope(tool: BaseTool, call: Scope, activity_id: str) -> Scope:
    return Scope(
        stage=call.stage,
        path=call.path,
        entry=call.entry,
        kind="tool",
        name=tool.name,
        node_path=call.node_path,
        invocation_id=call.invocation_id,
        parent=call,
        asked_before=call.asked_before,
        in_body=True,
        ended_at=call.ended_at,
        counts=call.counts,  # one place for the callbacks and the body
        log=[],
        activity_id=activity_id,
    )


def _left(before: dict[str, Any], context: ToolContext, body: Scope) -> dict[str, Any]:
    """What a body leaves beside its result, as far as it is there."""
    left = _changes(before, context)
    if body.log:
        left["log"] = [list(item) for item in body.log]
    return left


async def _check_shown(
    tool: BaseTool,
    args: dict[str, Any],
    context: ToolContext,
    call: Scope,
    position: Position,
    request: str,
    asked: str,
) -> None:
    """A person agreed to one tool with certain arguments; nothing else may run for it."""
    shown = call.stage.shown.get((agent_of(call).path, context.function_call_id or ""))
    if shown is None or context.tool_confirmation is None:
        return
    attempt, fit = call.stage.attempt, fit_of(tool, args)
    if attempt.records.find(position.digest) is not None:  # it ran: nothing is missing
        fit = fit._replace(lacks=())
    if shown.digest != request:
        asked = unlike(shown.text, asked)
    elif fit.is_worse_than(shown.fit):
        asked = misfit(tool.name, shown.fit, fit)
    else:
        return
    await attempt.halt(ReplayMismatch(position.text, recorded=f"shown {shown.text}", asked=asked))


async def _check_taken(
    tool: BaseTool, args: dict[str, Any], call: Scope, position: Position, record: Record
) -> None:
    """A recorded result is not handed to a tool that no longer takes what it was called with."""
    if record.status is not RecordStatus.COMPLETED or takes(tool, args):
        return
    if UNFIT not in codec.decode(record.body or ""):
        recorded, now = ", ".join(sorted(args)), ", ".join(names_of(tool))
        await call.stage.attempt.halt(
            ReplayMismatch(
                position.text, recorded=f"{tool.name}({recorded})", asked=f"{tool.name}({now})"
            )
        )


def _is_looked_at(context: ToolContext, hook: str) -> bool:
    """Whether somebody looks at the outcome at once: then it must be durable before."""
    invocation = _seam.invocation_of(context)
    if getattr(invocation.agent, f"canonical_{hook}s", None):
        return True
    return any(
        getattr(type(plugin), hook) is not getattr(BasePlugin, hook)
        for plugin in invocation.plugin_manager.plugins
    )


def _snapshot(context: ToolContext) -> dict[str, Any]:
    """The ``EventActions`` as they are now; a body may change their dicts and lists in place."""
    actions = context.actions
    return {
        name: copy.copy(value) if isinstance(value, dict | list) else value
        for name in EventActions.model_fields
        if (value := getattr(actions, name)) is not None
    }


def _changes(before: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    """What the body changed on its ``EventActions``, by field; empty for most tools."""
    changed: dict[str, Any] = {}
    for name, value in _snapshot(context).items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            value = {k: v for k, v in value.items() if k not in old or old[k] is not v}
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
        elif isinstance(value, dict) and isinstance(getattr(actions, name), dict):
            getattr(actions, name).update(value)
        else:
            setattr(actions, name, value)


def describe(name: str, args: Any) -> str:
    """A call in short, for people."""
    text = json.dumps(args, ensure_ascii=False, default=str)
    return f"{name}({text if len(text) <= 200 else text[:197] + '...'})"
