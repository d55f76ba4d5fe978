"""Agents: the scope of an agent's run, and its flow of model turns.

``BaseAgent.run_async`` gives a scope to agents that are not run as nodes; ``BaseLlmFlow.run_async``
is where an agent's events get ids and times that every attempt repeats: callbacks and the
agent's own loop state see the events after it, as if live.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent, ParallelAgent, SequentialAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event

from durable_adk.adk._patches import siblings_cancelled
from durable_adk.adk.scope import Scope, current, within
from durable_adk.model.wait import WaitKind

_ASKING = (WaitKind.CONFIRMATION.value, WaitKind.CREDENTIAL.value)


def wrap_agent(adk_run: Any) -> Any:
    """The durable ``BaseAgent.run_async``; outside an attempt it is ADK's."""

    async def run_async(
        self: BaseAgent, parent_context: InvocationContext
    ) -> AsyncGenerator[Event, None]:
        outer = current()
        inner = adk_run(self, parent_context)
        if outer is not None and outer.kind != "recorded":
            inner = _in_scope(inner, self, outer, parent_context)
        async with aclosing(inner) as events:
            async for event in events:
                yield event

    return run_async


async def _in_scope(
    body: AsyncGenerator[Event, None],
    agent: BaseAgent,
    outer: Scope,
    context: InvocationContext,
) -> AsyncGenerator[Event, None]:
    stage = outer.stage
    as_node = outer.kind == "node" and outer.name == agent.name and not outer.agent_entered
    if as_node:  # ADK's node run enters its own agent, maybe several times
        scope = outer
        scope.agent_entered = True
    else:
        path = stage.agent_path(outer, agent.name)
        if path in stage.done and not (context.is_resumable and _may_repeat(agent)):
            await body.aclose()
            return
        scope = Scope(
            stage=stage,
            path=path,
            entry=stage.enter(path, outer.entry),
            kind="agent",
            name=agent.name,
            node_path="",
            invocation_id=context.invocation_id,
            parent=outer,
            ended_at=outer.ended_at,
        )
        goes_on_itself = context.is_resumable and not _is_in_node(outer)
        went_to = None if goes_on_itself else _target(agent, stage.went_to.get(path))
        if went_to is not None:
            await body.aclose()
            body = went_to.run_async(context)
            stage.handed_over[path] = went_to.name
    # The body of an agent of one's own is entered again from its top, like a function's.
    is_own = not isinstance(agent, LlmAgent)
    scope.asked_before = is_own and not (context.is_resumable and _may_repeat(agent))
    still_open: set[str] = set()
    try:
        async with aclosing(within(scope, body)) as events:
            async for event in events:
                still_open |= event.long_running_tool_ids or set()
                still_open -= {response.id or "" for response in event.get_function_responses()}
                if not as_node and event.actions.transfer_to_agent and event.author == agent.name:
                    stage.handed_over[scope.path] = event.actions.transfer_to_agent
                yield event
    except BaseExceptionGroup as group:
        siblings_cancelled.raise_one(group)
    finally:
        if as_node:
            scope.agent_entered = False
    if not as_node and not still_open:
        stage.handed_over.pop(scope.path, None)
        stage.finished[scope.path] = {}


def _target(agent: BaseAgent, name: str | None) -> BaseAgent | None:
    """Whom an agent that is no node handed over to in an earlier step, and who has asked since.

    Entered from its top it would ask its model again; it goes on where it was, as plain ADK does.
    """
    return agent.root_agent.find_agent(name) if name is not None else None


def _is_in_node(scope: Scope | None) -> bool:
    """Whether an agent runs inside a node: a resumable app, which goes on in the middle of its
    agents by itself, does not do so there."""
    while scope is not None and scope.kind != "node":
        scope = scope.parent
    return scope is not None


def _may_repeat(agent: BaseAgent) -> bool:
    """Whether an agent around it may run it again and again.

    A resumable app goes on in the middle of such an agent by itself, so that this attempt's counts
    start there: by them a round that has to run would look like the first one, which is done.
    """
    around = agent.parent_agent
    while around is not None:
        if type(around) not in (SequentialAgent, ParallelAgent, LlmAgent):
            return True
        around = around.parent_agent
    return False


def wrap_flow(adk_run: Any) -> Any:
    """The durable ``BaseLlmFlow.run_async``; outside an attempt it is ADK's."""

    async def run_async(
        self: Any, invocation_context: InvocationContext
    ) -> AsyncGenerator[Event, None]:
        inner = adk_run(self, invocation_context)
        scope = current()
        if scope is not None and scope.kind != "recorded":
            inner = _turns(inner, scope)
        async with aclosing(inner) as events:
            async for event in events:
                yield event

    return run_async


async def _turns(body: AsyncGenerator[Event, None], scope: Scope) -> AsyncGenerator[Event, None]:
    stage = scope.stage
    async with aclosing(within(scope, body)) as events:
        async for event in events:
            _derive_request_ids(event, scope)
            for call in event.get_function_calls():
                if call.id:
                    stage.asked_by[event.branch, call.id] = (scope.path, scope.entry)
            if not event.partial and scope.ended_at:
                event.timestamp = scope.ended_at / 1000
            yield event


def _derive_request_ids(event: Event, scope: Scope) -> None:
    """Ids of ADK's own questions come from the call they ask about.

    ADK draws them in an order that depends on which tool is faster: two confirmations would
    swap ids between attempts.
    """
    for call in event.get_function_calls():
        if call.name not in _ASKING or call.id not in (event.long_running_tool_ids or ()):
            continue
        args = call.args or {}
        about = (args.get("originalFunctionCall") or {}).get("id") or args.get("functionCallId")
        if about and event.long_running_tool_ids is not None and call.id is not None:
            derived = "adk-" + scope.stage.derive_id(call.name, scope.path, about)[:18]
            event.long_running_tool_ids = (event.long_running_tool_ids - {call.id}) | {derived}
            call.id = derived
