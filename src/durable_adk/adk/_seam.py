"""Every private name of google-adk that this package touches, checked when it is imported.

Nothing else in the package names a private ADK attribute. A missing interception point or
attribute refuses every app with the installed and the tested versions, before anything runs;
``tests/adapter/test_seam.py`` has a contract test for each: it fails when ADK no longer calls
the point, or keeps the value somewhere else.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.context import Context
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.flows.llm_flows.base_llm_flow import BaseLlmFlow
from google.adk.flows.llm_flows.tools import _batch_executor, _caller
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.runners import Runner
from google.adk.tools._node_tool import NodeTool as NodeTool
from google.adk.tools.base_tool import BaseTool
from google.adk.workflow import BaseNode, JoinNode, Workflow
from google.adk.workflow._base_node import _walk_static_nodes
from google.adk.workflow._errors import NodeInterruptedError as NodeInterruptedError
from google.adk.workflow._parallel_worker import _ParallelWorker
from google.adk.workflow.utils import _retry_utils

from durable_adk.errors import ConfigError

TESTED = ("2.13.0",)

INTERCEPTED: tuple[tuple[Any, str], ...] = (
    (BaseNode, "run"),
    (BaseAgent, "run_async"),
    (BaseLlmFlow, "run_async"),
    (LlmAgent, "canonical_model_async"),
    (InvocationContext, "_enqueue_event"),
    (_caller, "_call_tool_async"),
    (_caller, "apply_confirmation_gate"),
    (_batch_executor, "_execute_single_prepared_call_async"),
    (_retry_utils, "_get_retry_delay"),
)
"""Where a durable attempt steps in; outside one, each does what ADK wrote."""

OVERRIDDEN: tuple[str, ...] = ("_find_agent_to_run", "_new_invocation_context")
"""Methods of ``Runner`` that an attempt's runner overrides."""

_CONTEXT_FIELDS = frozenset(
    {
        "_event_actions",
        "_interrupt_ids",
        "_output_delegated",
        "_output_emitted",
        "_output_value",
        "_route_emitted",
        "_route_value",
    }
)


def _check() -> None:
    missing = [
        f"{owner.__name__}.{name}" for owner, name in INTERCEPTED if not hasattr(owner, name)
    ]
    missing += [f"Runner.{name}" for name in OVERRIDDEN if not hasattr(Runner, name)]
    missing += [
        f"Context.{name}" for name in _CONTEXT_FIELDS - set(Context.__init__.__code__.co_names)
    ]
    missing += [] if hasattr(BaseTool, "_defers_response") else ["BaseTool._defers_response"]
    if missing:
        installed = importlib.metadata.version("google-adk")
        raise ConfigError(
            f"google-adk {installed}",
            f"has no {', '.join(sorted(missing))}",
            f"Install a version this release was tested with: {', '.join(TESTED)}.",
        )


_check()

Step = Callable[..., AsyncGenerator[Event, None]]
"""An async generator method of ADK that yields events."""


def original(owner: Any, name: str) -> Any:
    """What ADK has there now."""
    return getattr(owner, name)


def replace(owner: Any, name: str, wrapper: Any) -> None:
    """Put ``wrapper`` where ADK looks the name up."""
    setattr(owner, name, wrapper)


def call_tool_owner() -> Any:
    return _caller


def batch_owner() -> Any:
    return _batch_executor


def retry_owner() -> Any:
    return _retry_utils


def invocation_of(ctx: Context) -> InvocationContext:
    return ctx._invocation_context


def interrupts_of(ctx: Context) -> set[str]:
    return ctx._interrupt_ids


def enqueue(invocation: InvocationContext, event: Event) -> Awaitable[None]:
    """Hand an event to the runner's loop, as a node run does."""
    return invocation._enqueue_event(event)


def defers_response(tool: BaseTool) -> bool:
    """A marker of task delegation: there is no body behind it."""
    return bool(tool._defers_response)


def is_orchestrator(node: BaseNode) -> bool:
    """Whether a node only arranges others; its run is never recorded as one outcome."""
    return isinstance(node, BaseAgent | Workflow | _ParallelWorker | JoinNode)


def is_parallel_worker(node: BaseNode) -> bool:
    return isinstance(node, _ParallelWorker)


def static_nodes(root: BaseNode) -> Iterator[BaseNode]:
    """The root and every node declared below it, each once."""
    return _walk_static_nodes(root)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResult:
    """What a node run leaves on its context for whoever scheduled it."""

    output: Any = None
    output_emitted: bool = False
    output_delegated: bool = False
    route: Any = None
    route_emitted: bool = False
    state: dict[str, Any] | None = None
    artifacts: dict[str, int] | None = None
    transfer: str | None = None
    skip_summarization: bool | None = None


def result_of(ctx: Context) -> NodeResult:
    """Read it, unflushed state and artifact changes included."""
    actions = ctx.actions
    return NodeResult(
        output=ctx._output_value,
        output_emitted=ctx._output_emitted,
        output_delegated=ctx._output_delegated,
        route=ctx._route_value,
        route_emitted=ctx._route_emitted,
        state=dict(actions.state_delta) or None,
        artifacts=dict(actions.artifact_delta) or None,
        transfer=actions.transfer_to_agent,
        skip_summarization=actions.skip_summarization,
    )


def restore_result(ctx: Context, result: NodeResult, *, same_step: bool) -> None:
    """Put it on the context of a run that is not entered.

    In the same step what was not emitted is emitted again by ADK; a run of an earlier step has
    emitted everything, so its output and route must not become events a second time.
    """
    if result.output_delegated:
        ctx._output_delegated = True
    if result.output is not None:
        if result.output_emitted or result.output_delegated or not same_step:
            ctx._output_value = result.output
            ctx._output_emitted = True
        elif ctx._output_value is None:
            ctx.output = result.output
    if result.route is not None:
        ctx._route_value = result.route
        ctx._route_emitted = result.route_emitted if same_step else True
    if same_step:
        for key, value in (result.state or {}).items():
            ctx.state[key] = value
        ctx.actions.artifact_delta.update(result.artifacts or {})
    if result.transfer:
        ctx.actions.transfer_to_agent = result.transfer
    if result.skip_summarization:
        ctx.actions.skip_summarization = result.skip_summarization


def set_providers(new_id: Callable[[], str], now: Callable[[], float]) -> None:
    """Bind ADK's seams for ids and time in the current context."""
    platform_uuid.set_id_provider(new_id)
    platform_time.set_time_provider(now)


def workflow_graph(workflow: Workflow) -> Any:
    return cast(Any, workflow).graph
