"""Every private name of google-adk that this package touches, checked when it is imported.

Nothing else in the package names a private ADK attribute. A missing interception point or
attribute refuses every app with the installed and the tested versions, before anything runs;
``tests/adapter/test_seam.py`` has a contract test for each: it fails when ADK no longer calls
the point, or keeps the value somewhere else.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from durable_adk.adk import versions

try:
    from google.adk.agents import BaseAgent, LlmAgent
    from google.adk.agents.context import Context
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.agents.readonly_context import ReadonlyContext
    from google.adk.apps import compaction as _compaction
    from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
    from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
    from google.adk.auth.auth_credential import AuthCredentialTypes
    from google.adk.auth.auth_tool import AuthConfig
    from google.adk.events import Event
    from google.adk.flows.llm_flows.base_llm_flow import BaseLlmFlow
    from google.adk.flows.llm_flows.extensions import _code_execution
    from google.adk.flows.llm_flows.tools import _batch_executor, _caller
    from google.adk.models import BaseLlm
    from google.adk.platform import time as platform_time
    from google.adk.platform import uuid as platform_uuid
    from google.adk.tools._node_tool import NodeTool as NodeTool
    from google.adk.tools.agent_tool import AgentTool
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.base_toolset import BaseToolset
    from google.adk.tools.function_tool import FunctionTool
    from google.adk.workflow import (
        BaseNode,
        FunctionNode,
        JoinNode,
        Workflow,
        _dynamic_node_scheduler,
        _tool_node,
        _workflow,
    )
    from google.adk.workflow._errors import NodeInterruptedError as NodeInterruptedError
    from google.adk.workflow._function_node import _ResolvedParameters
    from google.adk.workflow._node_runner import NodeRunner
    from google.adk.workflow._parallel_worker import _ParallelWorker
    from google.adk.workflow._tool_node import _ToolNode
    from google.adk.workflow.utils import _retry_utils
    from google.adk.workflow.utils._replay_sequence_barrier import ReplaySequenceBarrier
except ImportError as error:  # a module or a name of this list is gone
    raise versions.unfit(because=str(error.msg).partition(" (")[0]) from error

INTERCEPTED: tuple[tuple[Any, str], ...] = (
    (BaseNode, "run"),
    (BaseAgent, "run_async"),
    (BaseLlmFlow, "run_async"),
    (LlmAgent, "canonical_model_async"),
    (InvocationContext, "_enqueue_event"),
    (BaseToolset, "get_tools_with_prefix"),
    (_caller, "_call_tool_async"),
    (_caller, "apply_confirmation_gate"),
    (_tool_node, "apply_confirmation_gate"),
    (_batch_executor, "_execute_single_prepared_call_async"),
    (_retry_utils, "_get_retry_delay"),
    (NodeRunner, "_run_node_loop_with_timeout"),
    (_dynamic_node_scheduler, "build_node"),
    (_dynamic_node_scheduler, "check_interception"),
    (_workflow, "check_interception"),
    (_code_execution, "asyncio"),
    (_compaction, "_summarize_events_with_trace"),
    (ReplaySequenceBarrier, "wait"),
)
"""Where a durable attempt steps in; outside one, each does what ADK wrote."""

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
    missing = [f"{at.__name__}.{name}" for at, name in INTERCEPTED if not hasattr(at, name)]
    unset = _CONTEXT_FIELDS - set(Context.__init__.__code__.co_names)
    missing += [f"Context.{name}" for name in unset]
    missing += [] if hasattr(BaseTool, "_defers_response") else ["BaseTool._defers_response"]
    if missing:
        raise versions.lacks(missing)


_check()


@dataclass(frozen=True, slots=True)
class Private:
    """A name that one remedy needs (``adk/_patches``): without it only some apps are refused."""

    module: str
    path: str

    def exists(self) -> bool:
        try:
            self._find()
        except (AttributeError, ImportError):
            return False
        return True

    def get(self) -> Any:
        """What has the name.

        Raises:
            ConfigError: nothing has.
        """
        try:
            return self._find()
        except (AttributeError, ImportError) as error:
            raise versions.lacks([self.path]) from error

    def _find(self) -> Any:
        found: Any = importlib.import_module(self.module)
        for name in self.path.split("."):
            fields = getattr(found, "model_fields", {})
            found = fields[name] if name in fields else getattr(found, name)
        return found


SINGLE_TURN_TOOL = Private("google.adk.tools.agent_tool", "_SingleTurnAgentTool")
FIND_AGENT_TO_RUN = Private("google.adk.runners", "Runner._find_agent_to_run")
PROCESS_EVENT = Private("google.adk.runners", "Runner._process_event_with_plugin_callbacks")
EVENT_QUEUE = Private("google.adk.agents.invocation_context", "InvocationContext._event_queue")
NEW_INVOCATION_CONTEXT = Private("google.adk.runners", "Runner._new_invocation_context")
JSON_SCHEMA = Private("google.adk.utils._schema_utils", "schema_to_json_schema")
RERUN_ON_RESUME = Private("google.adk.workflow", "BaseNode.rerun_on_resume")

Step = Callable[..., AsyncGenerator[Event, None]]
"""An async generator method of ADK that yields events."""


def original(owner: Any, name: str) -> Any:
    """What ADK has there now."""
    return getattr(owner, name)


def replace(owner: Any, name: str, wrapper: Any) -> None:
    """Put ``wrapper`` where ADK looks the name up."""
    setattr(owner, name, wrapper)


def owner_of(point: str) -> Any:
    """The module or class in which ADK looks an interception point up."""
    return next(owner for owner, name in INTERCEPTED if name == point)


def model_of(summarizer: BaseEventsSummarizer) -> BaseLlm | None:
    """The model that writes the summaries, if it is ADK's summarizer."""
    return summarizer._llm if isinstance(summarizer, LlmEventSummarizer) else None


def set_model(summarizer: BaseEventsSummarizer, llm: BaseLlm) -> None:
    cast(LlmEventSummarizer, summarizer)._llm = llm


def invocation_of(ctx: ReadonlyContext) -> InvocationContext:
    return ctx._invocation_context


def interrupts_of(ctx: Context) -> set[str]:
    return ctx._interrupt_ids


def has_queue(invocation: InvocationContext) -> bool:
    """Whether the runner takes events of node runs off a queue."""
    return invocation._event_queue is not None


def enqueue(invocation: InvocationContext, event: Event) -> Awaitable[None]:
    """Hand an event to the runner's loop, as a node run does."""
    return invocation._enqueue_event(event)


def as_single_turn(tool: AgentTool) -> BaseTool:
    """The tool that runs the same agent in the caller's session, as a single-turn sub-agent.

    Raises:
        ConfigError: this ADK has no such tool.
    """
    made: BaseTool = SINGLE_TURN_TOOL.get()(tool.agent)
    return made


def asks_first(tool: FunctionTool) -> bool:
    """Whether calls of the tool may need a confirmation."""
    return bool(tool._require_confirmation)


def needs(tool: FunctionTool) -> list[str]:
    """Names of the parameters without which ADK answers a call with an error."""
    return tool._get_mandatory_args()


def takes_context(tool: FunctionTool) -> bool:
    """Whether the function gets the tool's context, with which it can ask."""
    return tool._context_param_name in inspect.signature(tool.func).parameters


def defers_response(tool: BaseTool) -> bool:
    """A marker of task delegation: there is no body behind it."""
    return bool(tool._defers_response)


def is_orchestrator(node: BaseNode) -> bool:
    """Whether a node only arranges others; its run is never recorded as one outcome."""
    if isinstance(node, BaseAgent | Workflow | JoinNode):
        return True
    return worked_on(node) is not None


def static_children(node: BaseNode) -> Iterator[BaseNode]:
    """The nodes that are declared on this one and run in the same invocation."""
    return node._iter_static_children()


def worked_on(node: BaseNode) -> BaseNode | None:
    """The node that a parallel worker runs once for each item; None for other nodes."""
    if isinstance(node, _ParallelWorker):
        return node._node
    # Its copy that works on one item may carry the inner node along.
    inner = getattr(node, "_inner_node", None) if getattr(node, "parallel_worker", None) else None
    return inner._node if isinstance(inner, _ParallelWorker) else None


def function_of(node: BaseNode) -> object:
    """The function that a node runs, if it is a function node."""
    return node._func if isinstance(node, FunctionNode) else None


def given_to(node_input: Any) -> Any:
    """The input of a node; of a function that is bound to it, before ADK made parameters of it."""
    return node_input.source if isinstance(node_input, _ResolvedParameters) else node_input


def generator_of(node: BaseNode) -> object:
    """The function that a node runs, if that is a generator."""
    plain = node._unwrapped_func if isinstance(node, FunctionNode) else None
    is_one = inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)
    return function_of(node) if is_one else None


def tool_of(node: BaseNode) -> BaseTool | None:
    """The tool that a node runs, if it is a tool node."""
    return node.tool if isinstance(node, _ToolNode) else None


_NOBODY_IS_ASKED = (
    AuthCredentialTypes.API_KEY,
    AuthCredentialTypes.HTTP,
    AuthCredentialTypes.SERVICE_ACCOUNT,
)


def transfers(agent: LlmAgent) -> bool:
    """Whether a sub-agent of it can be the target of a transfer."""
    return any(
        getattr(sub_agent, "mode", None) not in ("task", "single_turn")
        for sub_agent in agent.sub_agents
    )


def asks_for_credentials(thing: object) -> bool:
    """Whether a node, a tool or a toolset is gated by a credential that the user must give.

    One that has a key, a token or a service account of its own asks nobody.
    """
    if isinstance(thing, FunctionNode):
        return thing.auth_config is not None
    if isinstance(thing, _ToolNode):
        return any(isinstance(one, AuthConfig) for one in _auth_of(thing.tool))
    return any(map(_is_for_the_user, _auth_of(thing)))


def _auth_of(thing: object) -> Iterator[object]:
    """What tools and toolsets of ADK keep of how they are authorized."""
    manager = getattr(thing, "_credentials_manager", None)
    for holder in (thing, manager):
        for name in ("_auth_config", "_credentials_config", "credentials_config"):
            yield getattr(holder, name, None)


def _is_for_the_user(auth: object) -> bool:
    if not isinstance(auth, AuthConfig):  # of Google's own tools
        return getattr(auth, "client_id", None) is not None
    given = auth.raw_auth_credential
    if given is not None and given.auth_type in _NOBODY_IS_ASKED:
        return False
    scheme = auth.auth_scheme
    if getattr(getattr(scheme, "flows", None), "clientCredentials", None) is not None:
        return False
    return "client_credentials" not in (getattr(scheme, "grant_types_supported", None) or ())


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


def restore_pending(
    ctx: Context, state: Mapping[str, Any] = MappingProxyType({}), artifacts: Any = ()
) -> None:
    """Change state and artifacts as a body did before it yielded."""
    for key, value in state.items():
        ctx.state[key] = value
    ctx.actions.artifact_delta.update(artifacts)


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
