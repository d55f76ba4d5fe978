"""Context compaction: its summary is asked for once, wherever ADK decides to make one.

A summary by a model is a model call like an agent's, in a place of its own below the agent or
the root, whose numbers it does not shift. Of a summarizer of another kind the whole summary is
recorded, as a model call.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.apps.base_events_summarizer import BaseEventsSummarizer
from google.adk.events import Event
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse

from durable_adk.adk import _seam, models
from durable_adk.adk import events as stored
from durable_adk.adk.outcomes import below, is_recording, once
from durable_adk.adk.scope import Scope, bound, current
from durable_adk.model.activity import Kind
from durable_adk.model.position import Position


def wrap(adk_summarize: Any) -> Any:
    """The durable ``_summarize_events_with_trace``; outside an attempt it is ADK's."""

    async def _summarize_events_with_trace(*, config: Any, **given: Any) -> Event | None:
        scope = current()
        if scope is None or not is_recording(scope) or config.summarizer is None:
            return await _as_adk(adk_summarize, config, given)
        position = below(scope, "compaction", Kind.MODEL)
        inner = _inner(scope, position)
        ours = config.model_copy(update={"summarizer": _durable(config.summarizer, position)})
        with bound(inner):
            return await _as_adk(adk_summarize, ours, given)

    return _summarize_events_with_trace


async def _as_adk(adk_summarize: Any, config: Any, given: dict[str, Any]) -> Event | None:
    summary: Event | None = await adk_summarize(config=config, **given)
    return summary


def _inner(scope: Scope, position: Position) -> Scope:
    return Scope(
        stage=scope.stage,
        path=position.path,
        entry=scope.entry,
        kind="agent",
        name="compaction",
        node_path=scope.node_path,
        invocation_id=scope.invocation_id,
        parent=scope,
        ended_at=scope.ended_at,
    )


def _durable(summarizer: BaseEventsSummarizer, position: Position) -> BaseEventsSummarizer:
    """A copy that records; ADK's telemetry names its class."""
    twin = copy.copy(summarizer)
    llm = _seam.model_of(summarizer)
    if llm is not None:
        _seam.set_model(twin, _recording(llm))
    else:

        async def maybe_summarize_events(*, events: list[Event]) -> Event | None:
            return await _summary(summarizer, events, position)

        object.__setattr__(twin, "maybe_summarize_events", maybe_summarize_events)
    return twin


def _recording(llm: BaseLlm) -> BaseLlm:
    """A copy whose calls are recorded and run to their end: the summarizer leaves after the first
    response, and half a stream is no outcome."""
    inner = models.recording(llm)

    async def generate(
        llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        responses = [one async for one in inner.generate_content_async(llm_request, stream)]
        for response in responses:
            yield response

    twin = copy.copy(llm)
    object.__setattr__(twin, "generate_content_async", generate)
    return twin


async def _summary(
    summarizer: BaseEventsSummarizer, events: list[Event], position: Position
) -> Event | None:
    scope = current()
    assert scope is not None
    name = type(summarizer).__name__
    summary: Event | None = await once(
        scope,
        position,
        lambda: summarizer.maybe_summarize_events(events=events),
        name=name,
        request=[stored.text_of(event.content) for event in events],
        asked=f"{name} of {len(events)} events",
        encode=lambda made: {
            "responses": [],
            "summary": made and stored.check_storable(made, "summary"),
        },
        decode=lambda body: body["summary"] and stored.from_data(body["summary"]),
    )
    return summary
