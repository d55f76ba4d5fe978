"""Node runs: every one passes ``BaseNode.run``, and this is what it passes through.

A leaf (a function node) is one activity: its events, output, route, state and artifact changes
come back on a later attempt without entering its body. Orchestrators (agents, workflows, joins)
run again over recorded children. A run that finished in an earlier step is never entered again,
also where ADK would.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.adk.agents.context import Context
from google.adk.events import Event
from google.adk.workflow import BaseNode
from google.genai import types

from durable_adk.adk import _seam, check, clone, expiring, outcomes, tool_nodes
from durable_adk.adk import events as stored
from durable_adk.adk._patches import (
    answer_as_output,
    interrupts_below_tools,
    two_runs_at_one_place,
)
from durable_adk.adk.one_id import AskedHere
from durable_adk.adk.parameters import Fit
from durable_adk.adk.scope import Scope, current, within
from durable_adk.adk.stage import Stage
from durable_adk.engine.attempt import Call, Dispatched, Replayed
from durable_adk.engine.calls import AGAIN, Entering
from durable_adk.errors import ConfigError, NotStorable
from durable_adk.model import codec, failure
from durable_adk.model.activity import Kind, RecordStatus, UnknownOutcome
from durable_adk.model.doubt import SETTLED


def wrap(adk_run: Any) -> Any:
    """The durable ``BaseNode.run``; outside an attempt it is ADK's."""

    async def run(self: BaseNode, *, ctx: Context, node_input: Any) -> AsyncGenerator[Event, None]:
        outer = current()
        if outer is None or outer.kind == "recorded" or _is_part_of(outer, self, ctx):
            inner = adk_run(self, ctx=ctx, node_input=node_input)
        else:
            inner = _durable(adk_run, self, outer, ctx, node_input)
        async with aclosing(inner) as events:
            async for event in events:
                yield event

    return run


def _is_part_of(outer: Scope, node: BaseNode, ctx: Context) -> bool:
    """Whether a node runs another in its own context, as its own run (a parallel worker)."""
    return outer.kind == "node" and outer.node_path == ctx.node_path and ctx.node is not node


async def _durable(
    adk_run: Any, node: BaseNode, outer: Scope, ctx: Context, node_input: Any
) -> AsyncGenerator[Event, None]:
    stage = outer.stage
    invocation = _seam.invocation_of(ctx)
    path = stage.node_path(outer, node.name, ctx.node_path, invocation.invocation_id)
    left = stage.left_by(outer, path, ctx.run_id)
    if left is not None:
        _seam.restore_result(ctx, _result_from(left), same_step=False)
        return
    if outer.has_items and stage.attempt.was_held_back(path, outer.path):
        # Over records others end sooner than they did: it must not be begun now either.
        _seam.interrupts_of(ctx).add(f"{path} was held back")
        return
    place = two_runs_at_one_place.place_of(ctx)
    if place in stage.active:
        await stage.attempt.halt(two_runs_at_one_place.refusal(ctx))
    stage.active.add(place)
    scope = Scope(
        stage=stage,
        path=path,
        entry=stage.enter(path, outer.entry),
        kind="node",
        name=node.name,
        node_path=ctx.node_path,
        invocation_id=invocation.invocation_id,
        parent=outer,
        ended_at=outer.ended_at,
        has_items=_seam.worked_on(node) is not None,
        limit=stage.limits.get(id(ctx)),
    )
    scope.ran_out = node.timeout is not None and _ran_out(scope)
    body = adk_run(node, ctx=ctx, node_input=node_input)
    tool = _seam.tool_of(node)
    if tool is not None:
        expiring.note(stage, path, "", tool)
    runs = _orchestrate if _seam.is_orchestrator(node) else _leaf
    asked = AskedHere(stage)
    stage.sleepers.enter(scope)  # to its end: ADK takes its time between two of its events
    try:
        async with aclosing(runs(body, scope, node, ctx, node_input)) as events:
            async for event in events:
                for call in event.get_function_calls():
                    tool_nodes.note_question(scope, node, call)
                    if call.id:
                        key = (event.branch or invocation.branch, call.id)
                        stage.asked_by.setdefault(key, (scope.path, scope.entry))
                        asked.note(key, call, event)
                yield event
    finally:
        stage.active.discard(place)
        stage.sleepers.left(scope)


async def _orchestrate(
    body: AsyncGenerator[Event, None], scope: Scope, node: BaseNode, ctx: Context, _input: Any
) -> AsyncGenerator[Event, None]:
    try:
        async with aclosing(within(scope, body)) as events:
            async for event in events:
                yield event
    except _seam.NodeInterruptedError:
        interrupts_below_tools.pass_on(ctx, scope.interrupts)
        raise
    if not _seam.interrupts_of(ctx):
        _finish(scope, ctx)


async def _leaf(
    body: AsyncGenerator[Event, None], scope: Scope, node: BaseNode, ctx: Context, node_input: Any
) -> AsyncGenerator[Event, None]:
    attempt, stage = scope.stage.attempt, scope.stage
    position = stage.position(scope, Kind.NODE, 1)
    if scope.ran_out:
        again = _again(body, scope, ctx, TimeoutError())
        async with aclosing(again) as events:
            async for event in events:
                yield event
        return
    is_generator = _is_its_generator(scope.parent, node)
    request = _request(node_input, where=f"{ctx.node_path}.input", is_compared=not is_generator)
    is_part = is_generator and scope.parent is not None and scope.parent.once
    tool = _seam.tool_of(node)
    await tool_nodes.check_agreed(scope, tool_nodes.called_by(node))
    fit, since = tool_nodes.of_input(tool, node_input, stage.redact)
    terms = AGAIN if is_part else _terms(stage, node, node_input if request else None, fit)
    admitted = await stage.admit(
        scope,
        Call(
            position=position,
            name=node.name,
            request=request,
            alike=outcomes.alike(scope, _input_data(node_input), "input") if request else (),
            asked=f"node {node.name}",
            node_path=ctx.node_path,
            policy=terms.policy,
            intent=terms.intent,
            reconcile=terms.reconcile,
            is_part=is_part,
            since_entered=since,
        ),
    )
    if isinstance(admitted, Replayed):
        tool_nodes.note_again(scope, tool, admitted.record)
        replayed = _replay(admitted, body, scope, ctx)
        async with aclosing(replayed) as events:
            async for event in events:
                yield event
        return
    scope.activity_id, scope.log = None if is_part else stage.activity_id(position), []
    scope.runs, scope.once = _runs(node), terms.policy is not UnknownOutcome.RERUN
    scope.in_body = scope.asked_before = True
    try:
        admitted.enter()
        async with aclosing(within(scope, body)) as events:
            async for event in events:
                data = stored.check_storable(event, ctx.node_path)
                scope.log.append((True, {**data, **_pending(ctx)}))
                yield event
        asks = tool_nodes.noted(scope) if _seam.interrupts_of(ctx) else {}
        payload = stage.encode({**_left(scope, ctx), **asks}, where=ctx.node_path)
        await attempt.leave(admitted)
    except _seam.NodeInterruptedError:
        interrupts_below_tools.pass_on(ctx, scope.interrupts)
        raise
    except (asyncio.CancelledError, GeneratorExit):
        await attempt.cancelled(admitted)
        raise
    except Exception as error:
        raise await _failed(admitted, scope, ctx, error) from error
    waiting = bool(_seam.interrupts_of(ctx))
    status = RecordStatus.WAITING if waiting else RecordStatus.COMPLETED
    # Whoever ran it from a body of its own acts on it at once: then it must be durable before.
    is_looked_at = scope.parent is not None and scope.parent.in_body
    record = await attempt.record(admitted, status, payload, durable=is_looked_at)
    scope.handed_out(record.ended_at)
    if not waiting:
        _finish(scope, ctx)


def _runs(node: BaseNode) -> object:
    """The function of the tool that a node runs, which may be a generator."""
    return getattr(_seam.tool_of(node), "func", None)


def _is_its_generator(around: Scope | None, node: BaseNode) -> bool:
    """Whether a node is how ADK runs the generator that the tool around it is: one call, of which
    the tool has the intent and the key if it must not run twice."""
    if around is None or around.runs is None:
        return False
    function = _seam.generator_of(node)  # perhaps wrapped by ADK, to take arguments by name
    return around.runs is function or around.runs is getattr(function, "__wrapped__", None)


def _ran_out(scope: Scope) -> bool:
    """Whether an entry of a node with a timeout was cut off by it: it left no outcome itself, and a
    later entry left something."""
    own = scope.stage.position(scope, Kind.NODE, 1)
    stage = scope.stage
    return stage.attempt.records.find(own.digest) is None and stage.has_later_entry(
        scope.path, scope.entry
    )


def _terms(stage: Stage, node: BaseNode, node_input: Any, fit: Fit | None) -> Entering:
    tool, args = _seam.tool_of(node), {"node_input": _input_data(node_input)}
    if tool is not None:
        return stage.policy_of(tool.name, args, tool, getattr(tool, "func", None), fit=fit)
    return stage.policy_of("", args, node, _seam.function_of(node))


async def _failed(admitted: Dispatched, scope: Scope, ctx: Context, error: Exception) -> Exception:
    """Record the failure and what was emitted before it; a replay raises the same."""
    payload = scope.stage.encode_failure(error, _left(scope, ctx))
    record = await scope.stage.attempt.record(admitted, RecordStatus.FAILED, payload)
    scope.handed_out(record.ended_at)
    return scope.stage.failure_of(record)


async def _again(
    body: AsyncGenerator[Event, None], scope: Scope, ctx: Context, failure_of_it: Exception
) -> AsyncGenerator[Event, None]:
    """End as the record says; but if it ran nodes, enter it again over their records first.

    ADK counts the runs below a node on over its retries: without them the next entry's children
    would get the numbers of this one's.
    """
    if scope.stage.ran_nodes(scope.path, scope.entry):
        scope.in_body = scope.asked_before = True
        with contextlib.suppress(Exception):
            async with aclosing(within(scope, body)) as events:
                async for event in events:
                    yield event
    else:
        await body.aclose()
    raise failure_of_it


async def _replay(
    admitted: Replayed, body: AsyncGenerator[Event, None], scope: Scope, ctx: Context
) -> AsyncGenerator[Event, None]:
    record = admitted.record
    scope.handed_out(record.ended_at)
    payload = record.body or ""
    has_failed = record.status is RecordStatus.FAILED
    if has_failed and scope.stage.ran_nodes(scope.path, scope.entry):
        again = _again(body, scope, ctx, scope.stage.failure_of(record))
        async with aclosing(again) as events:
            async for event in events:
                yield event
        return
    await body.aclose()
    left = failure.left_behind(payload) if has_failed else codec.decode(payload)
    if left.get(SETTLED) is not None:  # what a person says that it returned
        yield Event(output=left[SETTLED])
    for own, data in left.get("log", ()):
        event = stored.from_data(data)
        if own:
            _seam.restore_pending(ctx, *data.get(_PENDING, ()))
            yield event
        else:
            await _seam.enqueue(_seam.invocation_of(ctx), event)
    _seam.restore_result(ctx, _result_from(left), same_step=True)
    if has_failed:
        raise scope.stage.failure_of(record)
    if record.status is not RecordStatus.WAITING:
        _finish(scope, ctx)


_PENDING = "pending"


def _pending(ctx: Context) -> dict[str, Any]:
    """State and artifact changes that ADK will put on the event that is yielded now."""
    state, artifacts = dict(ctx.actions.state_delta), dict(ctx.actions.artifact_delta)
    if not state and not artifacts:
        return {}
    found: dict[str, Any] = codec.decode(
        codec.encode({_PENDING: [state, artifacts]}, where=f"{ctx.node_path}.state")
    )
    return found


def _left(scope: Scope, ctx: Context) -> dict[str, Any]:
    return {"log": [list(item) for item in scope.log or ()], **_result_data(ctx)}


def _result_data(ctx: Context) -> dict[str, Any]:
    """What a node run left, as it is: values of a node's own keep their classes."""
    result = _seam.result_of(ctx)
    named = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    # A flag that is not set says nothing; False is an output, and a route, like any other.
    return {
        key: value
        for key, value in named.items()
        if value is not None and (value is not False or key in ("output", "route"))
    }


def _result_from(left: dict[str, Any]) -> _seam.NodeResult:
    known = {field.name for field in dataclasses.fields(_seam.NodeResult)}
    return _seam.NodeResult(**{key: value for key, value in left.items() if key in known})


def _finish(scope: Scope, ctx: Context) -> None:
    """Note what a finished run left, for the steps after this one."""
    left = _result_data(ctx)
    left.pop("state", None)
    left.pop("artifacts", None)
    left = codec.decode(scope.stage.encode(left, where=ctx.node_path))  # others may change it
    scope.stage.finished[scope.path] = left
    if scope.parent is not None and scope.parent.kind == "root":
        scope.stage.output = left.get("output")


def _request(node_input: Any, *, where: str, is_compared: bool) -> str:
    """The digest of the input. A generator that is a tool gets its tool's context and arguments of
    any class: those were compared as the model, or the node before it, sent them."""
    try:
        return codec.digest_of(_input_data(node_input), where=where)
    except NotStorable:
        if is_compared:
            raise
        return ""


def _input_data(node_input: Any) -> Any:
    """Contents are compared as ADK's JSON: their classes carry no meaning of their own."""
    given = _seam.given_to(node_input)
    return stored.content_to_data(given) if isinstance(given, types.Content) else given


def wrap_build(adk_build: Any) -> Any:
    """Look at what is made at run time before it runs, as at what the topology shows."""

    def build_node(node_like: Any, *args: Any, **named: Any) -> BaseNode:
        built: BaseNode = adk_build(node_like, *args, **named)
        scope = current()
        if scope is None or scope.kind == "recorded":
            return built
        try:
            path = f"{scope.node_path or scope.name}/{built.name}".lstrip("/")
            check.check_tree(built, path, keeps_secrets=scope.stage.keeps_secrets)
            if scope.kind != "root":  # which has been checked
                answer_as_output.require(built)
            return clone.ready(built)
        except ConfigError as error:
            scope.stage.attempt.stop(error)  # whoever catches it: the attempt is over
            raise

    return build_node


def wrap_enqueue(adk_enqueue: Any) -> Any:
    """Note whose events are whose: those of descendants belong to every recorded ancestor."""

    async def _enqueue_event(self: Any, event: Event) -> None:
        scope = current()
        if scope is not None and scope.stage.attempt.fatal is not None:
            # A body that swallowed its cancellation: nobody takes its event any more.
            await scope.stage.attempt.ending.park()
        deliver = scope.stage.deliver if scope is not None and not _seam.has_queue(self) else None
        if scope is not None and not event.partial:
            data: dict[str, Any] | None = None
            while scope is not None:
                if scope.log is not None and self.invocation_id == scope.stage.invocation_id:
                    data = data or stored.check_storable(event, event.node_info.path)
                    scope.log.append((False, data))
                scope = scope.parent
        if deliver is not None:
            await deliver(self, event)
        else:
            await adk_enqueue(self, event)

    return _enqueue_event
