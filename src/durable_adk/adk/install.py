"""Put the durable wrappers where ADK looks, once per process.

Every wrapper is inert outside an attempt: without a scope it does what ADK wrote.
"""

from __future__ import annotations

from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.auth.auth_handler import AuthHandler
from google.adk.flows.llm_flows.base_llm_flow import BaseLlmFlow
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import BaseNode

from durable_adk.adk import (
    _seam,
    _seam_telemetry,
    agents,
    compaction,
    credentials,
    executors,
    gate,
    leftovers,
    limits,
    models,
    nodes,
    spans,
    tools,
    toolsets,
)
from durable_adk.adk._patches import replays_out_of_time, transfers_inside_composites
from durable_adk.adk.scope import current

_MARK = "__durable_adk__"

_TELEMETRY = {
    _seam_telemetry.SCOPE: spans.wrap_response,
    _seam_telemetry.USAGE: spans.wrap_usage,
    _seam_telemetry.DURATION: spans.wrap_duration,
    _seam_telemetry.LEFTOVERS: leftovers.wrap,
}


def install() -> None:
    """Repeat: yes; the second time does nothing."""
    _wrap(BaseNode, "run", nodes.wrap)
    _wrap(BaseAgent, "run_async", agents.wrap_agent)
    _wrap(BaseLlmFlow, "run_async", agents.wrap_flow)
    _wrap(LlmAgent, "canonical_model_async", models.wrap)
    _wrap(InvocationContext, "_enqueue_event", nodes.wrap_enqueue)
    _wrap(BaseToolset, "get_tools_with_prefix", toolsets.wrap)
    _wrap(AuthHandler, "exchange_auth_token", credentials.wrap_exchange)
    for owner, name in _seam.INTERCEPTED:
        if name in _PRIVATE:
            _wrap(owner, name, _PRIVATE[name])
    for point, wrap in _TELEMETRY.items():
        if point.exists():
            _wrap(*_seam_telemetry.owner_of(point), wrap)


def _wrap(owner: Any, name: str, wrap: Any) -> None:
    adks = _seam.original(owner, name)
    if hasattr(adks, _MARK):
        return
    wrapper = wrap(adks)
    wrapper.__name__ = adks.__name__
    wrapper.__qualname__ = getattr(adks, "__qualname__", adks.__name__)
    wrapper.__doc__ = adks.__doc__
    setattr(wrapper, _MARK, adks)
    _seam.replace(owner, name, wrapper)


def _wrap_delay(adk_delay: Any) -> Any:
    """A delay that an earlier attempt served is not served again: of one that begins with a
    failure from before, what is left of it by now."""

    def _get_retry_delay(*args: Any, **kwargs: Any) -> float:
        delay: float = adk_delay(*args, **kwargs)
        scope = current()
        if scope is None:
            return delay
        stage = scope.stage
        began, stage.failed_before = stage.failed_before, None
        if stage.attempt.unserved():
            return 0.0
        if began is not None:
            delay = max(0.0, delay - (stage.attempt.now() - began) / 1000)
        stage.sleepers.busy_for(delay)
        return delay

    return _get_retry_delay


_PRIVATE = {
    "_call_tool_async": tools.wrap,
    "apply_confirmation_gate": gate.wrap,
    "_execute_single_prepared_call_async": tools.wrap_prepared,
    "_get_retry_delay": _wrap_delay,
    "_run_node_loop_with_timeout": limits.wrap,
    "build_node": nodes.wrap_build,
    "check_interception": transfers_inside_composites.wrap,
    "asyncio": executors.wrap,
    "_summarize_events_with_trace": compaction.wrap,
    "wait": replays_out_of_time.wrap,
}
"""Interception points that are no public name of ADK."""
