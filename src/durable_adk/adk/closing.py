"""The end of a turn that is not run to its end: cancelled, given up, or failed for good.

The next prompt must be valid, so every function call that nobody answered gets a recorded
closing response; what the open step has recorded already becomes events first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from google.adk.events import Event
from google.genai import types

from durable_adk.adk import events as stored
from durable_adk.adk.stage import Stage
from durable_adk.model import codec
from durable_adk.model.activity import Kind, Record, RecordStatus
from durable_adk.model.position import Position, parent_of


def events_of(stage: Stage, records: Sequence[Record]) -> list[Event]:
    """The open step's recorded model responses and tool results, as events in log order."""
    made: list[Event] = []
    calls: dict[str, types.FunctionCall] = {}
    authors: dict[str, str] = {}
    if stage.step == 1:
        made.append(_input_event(stage))
    for record in sorted(records, key=lambda r: r.seq):
        if record.status is not RecordStatus.COMPLETED or record.body is None:
            continue
        position = Position.parse(record.position)
        body = codec.decode(record.body)
        if position.kind is Kind.MODEL:
            author = authors[position.path] = _author(record)
            made += _model_events(stage, record, position, body, calls, author)
        elif position.kind is Kind.TOOL and position.path in calls:
            author = authors.get(parent_of(position.path), "")
            made.append(_tool_event(stage, record, calls.pop(position.path), body, author))
        elif position.kind is Kind.NODE:
            made += [stored.from_data(data) for _own, data in body["log"]]
    return made


def _input_event(stage: Stage) -> Event:
    execution = stage.attempt.execution
    given = codec.decode(execution.input)
    event = Event(
        invocation_id=stage.invocation_id,
        author="user",
        content=stored.content_from_data(given["message"]),
        timestamp=execution.created_at / 1000,
    )
    event.actions.state_delta.update(given.get("state_delta") or {})
    return event


def _author(record: Record) -> str:
    """The name of the agent that asked, from its node path."""
    return record.node_path.rpartition("/")[2].partition("@")[0] or "agent"


def _model_events(
    stage: Stage,
    record: Record,
    position: Position,
    body: Any,
    calls: dict[str, types.FunctionCall],
    author: str,
) -> list[Event]:
    made, place = [], 0
    for response in body["responses"]:
        content = stored.content_from_data(response.get("content") or {})
        for part in content.parts or ():
            if part.function_call is not None:
                calls[f"{position.path}/:m{position.ordinal}.{place}"] = part.function_call
                place += 1
        made.append(_event(stage, record, author, content))
    return made


def _tool_event(
    stage: Stage, record: Record, call: types.FunctionCall, body: Any, author: str
) -> Event:
    response = types.FunctionResponse(
        id=call.id, name=call.name, response=stored.tool_response(body["result"])
    )
    content = types.Content(role="user", parts=[types.Part(function_response=response)])
    return _event(stage, record, author, content)


def _event(stage: Stage, record: Record, author: str, content: types.Content) -> Event:
    event = Event(
        invocation_id=stage.invocation_id,
        author=author,
        content=content,
        timestamp=record.ended_at / 1000,
    )
    event.node_info.path = record.node_path
    return event


def responses(stage: Stage, events: Iterable[Event], note: str) -> list[Event]:
    """One closing response per function call of this execution that has none."""
    unanswered: dict[str, tuple[types.FunctionCall, Event]] = {}
    for event in events:
        if event.invocation_id != stage.invocation_id:
            continue
        for response in event.get_function_responses():
            unanswered.pop(response.id or "", None)
        for call in event.get_function_calls():
            unanswered[call.id or ""] = (call, event)
    return [_closing(stage, call, event, note) for call, event in unanswered.values()]


def _closing(stage: Stage, call: types.FunctionCall, asked: Event, note: str) -> Event:
    response = types.FunctionResponse(
        id=call.id, name=call.name, response={"status": "closed", "reason": note}
    )
    event = Event(
        invocation_id=stage.invocation_id,
        author=asked.author,
        branch=asked.branch,
        isolation_scope=asked.isolation_scope,
        timestamp=asked.timestamp,
        content=types.Content(role="user", parts=[types.Part(function_response=response)]),
    )
    event.node_info.path = asked.node_info.path
    return event
