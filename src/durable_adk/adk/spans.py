"""What the spans of an attempt say of durability, and that a replayed call costs nothing again.

ADK opens its spans and counts its tokens around a call, whether the answer is new or recorded. So
a call's span gets our attributes when it is admitted, and what a replayed model call would
report of its tokens is held back: from spans, and from ADK's own metrics. Without an exporter
nothing is written anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from durable_adk.adk.scope import Scope, current
from durable_adk.model.activity import Kind

if TYPE_CHECKING:
    from durable_adk.adk.stage import Stage
    from durable_adk.engine.attempt import Call

EXECUTION: Final = "durable_adk.execution.id"
ATTEMPT: Final = "durable_adk.attempt"
STEP: Final = "durable_adk.step"
ACTIVITY: Final = "durable_adk.activity.id"
OPERATION: Final = "durable_adk.operation.path"
REPLAYED: Final = "durable_adk.replayed"

ATTEMPT_SPAN: Final = "durable_adk.attempt"

_tracer = trace.get_tracer("durable_adk")
_IN_SPANS = frozenset({Kind.MODEL, Kind.TOOL, Kind.NODE})
"""What ADK opens a span for."""


@contextmanager
def attempt_span(stage: Stage) -> Iterator[None]:
    """Around what one attempt runs of a step."""
    execution = stage.attempt.execution
    attributes: dict[str, str | int] = {
        EXECUTION: execution.execution_id,
        ATTEMPT: execution.attempt,
        STEP: stage.step,
        "gen_ai.conversation.id": execution.session_id,
    }
    # Texts of errors may hold what is redacted elsewhere: ADK's own spans say what failed.
    with _tracer.start_as_current_span(
        ATTEMPT_SPAN,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ):
        yield


def admitted(scope: Scope, call: Call, *, replayed: bool) -> None:
    """Say on the span around a call what it is, and whether its outcome was recorded before."""
    position, stage = call.position, scope.stage
    if position.kind not in _IN_SPANS:
        return
    span = trace.get_current_span()
    attributes: dict[str, Any] = {REPLAYED: replayed}
    if span.is_recording():
        execution = stage.attempt.execution
        attributes |= {
            EXECUTION: execution.execution_id,
            ATTEMPT: execution.attempt,
            STEP: position.step,
            ACTIVITY: stage.activity_id(position),
            OPERATION: position.path,
        }
        span.set_attributes(attributes)
    if position.kind is Kind.MODEL:
        scope.traced = attributes


def _is_replayed() -> bool:
    """Whether the newest model call here was answered from its record."""
    scope = current()
    return scope is not None and bool(scope.traced.get(REPLAYED))


def wrap_response(adk_record: Any) -> Any:
    """A recorded response is not counted: neither in ADK's metrics nor on its span."""

    def record_llm_response(self: Any, invocation_context: Any, response: Any) -> None:
        if not _is_replayed():
            adk_record(self, invocation_context, response)

    return record_llm_response


def wrap_usage(adk_set: Any) -> Any:
    """``call_llm`` is another span than the one around the call: it gets the same attributes."""

    def _set_usage_metadata_attributes(span: Any, usage_metadata: Any) -> None:
        scope = current()
        if scope is not None and scope.traced:
            span.set_attributes(scope.traced)
        if not _is_replayed():
            adk_set(span, usage_metadata)

    return _set_usage_metadata_attributes


def wrap_duration(adk_record: Any) -> Any:
    """A replayed call is none of the model's client."""

    def record_client_operation_duration(*args: Any, **kwargs: Any) -> None:
        if not _is_replayed():
            adk_record(*args, **kwargs)

    return record_client_operation_duration
