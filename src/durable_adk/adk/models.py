"""Model calls: an ``LlmAgent``'s model answers from the record, or is asked and recorded.

ADK gets a copy of the user's model whose ``generate_content_async`` is ours; the body calls
the user's own object, so its cached client is used and nothing of it is changed. Plugins and
callbacks run around it as always: nothing is short-circuited.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse

from durable_adk.adk import plain, prompts, toolsets
from durable_adk.adk._patches import siblings_cancelled
from durable_adk.adk.call_ids import CallIds
from durable_adk.adk.scope import Scope, current
from durable_adk.engine.attempt import Call, Replayed
from durable_adk.errors import NotStorable, ReplayMismatch
from durable_adk.model import codec
from durable_adk.model.activity import Kind, Payload, Record, RecordStatus
from durable_adk.model.position import Position, call_segment, join


def wrap(adk_model: Any) -> Any:
    """The durable ``LlmAgent.canonical_model_async``; outside an attempt it is ADK's."""

    async def canonical_model_async(self: Any, ctx: Any) -> BaseLlm:
        llm: BaseLlm = await adk_model(self, ctx)
        scope = current()
        return llm if scope is None or scope.kind == "recorded" else recording(llm)

    return canonical_model_async


def recording(llm: BaseLlm) -> BaseLlm:
    """A copy that keeps every ``isinstance`` check and records its calls."""

    def generate(
        llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        return _call(llm, llm_request, stream=stream)

    twin = copy.copy(llm)
    object.__setattr__(twin, "generate_content_async", generate)
    return twin


async def _call(
    llm: BaseLlm, request: LlmRequest, *, stream: bool
) -> AsyncGenerator[LlmResponse, None]:
    scope = current()
    if scope is None:  # the copy outlived its attempt
        async with aclosing(llm.generate_content_async(request, stream)) as responses:
            async for response in responses:
                yield response
        return
    ordinal = scope.count("model")
    scope.mark_ids(f"m{ordinal}")
    position = scope.stage.position(scope, Kind.MODEL, ordinal)
    attempt = scope.stage.attempt
    admitted = await scope.stage.admit(
        scope,
        Call(
            position=position,
            name=llm.model,
            request=prompts.digest(request),
            explain=lambda recorded: prompts.difference(recorded, request),
            asked=f"model {llm.model}",
            node_path=scope.node_path,
        ),
    )
    if isinstance(admitted, Replayed):
        recorded = _handed_out(scope, admitted.record, ordinal)
        await _check_tools(scope, request)
        for response in recorded:
            yield response
        return
    finals: list[LlmResponse | dict[str, Any]] = []
    called: set[str] = set()
    ids = _call_ids(scope, ordinal)
    with siblings_cancelled.Body(scope):
        scope.asks_model = True
        try:
            admitted.enter()
            async with aclosing(llm.generate_content_async(request, stream)) as responses:
                async for given in responses:
                    response = ids.filled(given)
                    if response.partial:
                        yield response
                    else:
                        finals.append(_taken(response, request))
                        called |= toolsets.called_by(response)
            payload = _to_payload(scope, finals, called, request)
            await attempt.leave(admitted)
        except (asyncio.CancelledError, GeneratorExit):
            await attempt.cancelled(admitted)
            raise
        except Exception as error:
            payload = scope.stage.encode_failure(error)
            record = await attempt.record(admitted, RecordStatus.FAILED, payload)
            scope.handed_out(record.ended_at)
            raise scope.stage.failure_of(record) from error
        finally:
            scope.asks_model = False
        record = await attempt.record(admitted, RecordStatus.COMPLETED, payload)
    for response in _handed_out(scope, record, ordinal):
        yield response


async def _check_tools(scope: Scope, request: LlmRequest) -> None:
    """ADK answers the call of a tool that is not there with an error. If it was entered, that would
    hide what is known of it, so the attempt ends instead."""
    attempt = scope.stage.attempt
    for ordinal, place in list(scope.calls.values()):
        path = join(scope.path, call_segment(ordinal, place))
        position = Position(scope.stage.step, path, scope.entry, Kind.TOOL, 1)
        entry = attempt.records.find(position.digest)
        record = attempt.records.entered(position.digest) if entry is None else entry.record
        name = attempt.asleep_at(path, scope.entry) if record is None else record.name
        if name and name not in request.tools_dict:
            await attempt.halt(
                ReplayMismatch(
                    position.text,
                    recorded=f"a call of {name}",
                    asked=f"{scope.name} has no such tool",
                )
            )


def _call_ids(scope: Scope, ordinal: int) -> CallIds:
    place = (scope.path, str(scope.entry), str(ordinal))
    return CallIds(lambda n: f"adk-{scope.stage.derive_id('call', *place, str(n))[:18]}")


def _taken(response: LlmResponse, request: LlmRequest) -> LlmResponse | dict[str, Any]:
    """A response as it is recorded, at once: the model's object may be used again. One that cannot
    be is kept for when the model has ended: that is refused then."""
    try:
        return _to_plain(response, request)
    except NotStorable:
        return response.model_copy(deep=True)


def _to_plain(response: LlmResponse, request: LlmRequest) -> dict[str, Any]:
    for place, part in enumerate((response.content.parts if response.content else None) or ()):
        call = part.function_call
        if call and call.id and call.name in request.tools_dict and not codec.is_text(call.id):
            raise NotStorable(
                f"response.content.parts[{place}].function_call.id",
                f"has a character that is no Unicode text (a lone surrogate): {call.id[:300]!r}",
                "Have the model leave the id out: it gets one.",
            )
    return plain.to_plain(response, "response")


def _to_payload(
    scope: Scope,
    responses: list[LlmResponse | dict[str, Any]],
    called: set[str],
    request: LlmRequest,
) -> Payload:
    dumped = [
        _to_plain(response, request) if isinstance(response, LlmResponse) else response
        for response in responses
    ]
    left = {"responses": dumped, **toolsets.marks(scope, called)}
    payload: Payload = scope.stage.encode(left, where="response")
    return payload


def _handed_out(scope: Scope, record: Record, ordinal: int) -> list[LlmResponse]:
    """Fresh responses from the record, and their calls noted by place."""
    scope.handed_out(record.ended_at)
    scope.mark_ids(f"r{ordinal}")  # a body may have drawn ids, a replay draws none
    if record.status is RecordStatus.FAILED:
        raise scope.stage.failure_of(record)
    responses, place = [], 0
    scope.calls = {}
    for index, data in enumerate(codec.decode(record.body or "")["responses"]):
        response = plain.from_plain(LlmResponse, data)
        if "content" in data:
            scope.stage.references.know_response(data, record.slot, index)
        for part in (response.content.parts if response.content else None) or ():
            if part.function_call and part.function_call.id:
                scope.stage.note_call(scope, part.function_call.id, ordinal, place)
                place += 1
        responses.append(response)
    return responses
