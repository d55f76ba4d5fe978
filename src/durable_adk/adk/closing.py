"""The end of a turn that is not run to its end: cancelled, given up, or failed for good.

The next prompt must be valid, so every function call that nobody answered gets a recorded
closing response. What came before it is what ADK appended while it ran. Where ADK cannot run over
the records, ``events_of`` makes events of them instead: no tool result is among those, because
nobody knows what a callback would have made of it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.adk.events import Event
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from durable_adk.adk import events as stored
from durable_adk.adk import paths, plain, waits
from durable_adk.adk.stage import Stage
from durable_adk.errors import UnsupportedNode
from durable_adk.model import codec
from durable_adk.model.activity import Kind, Record, RecordStatus
from durable_adk.model.position import Position, call_segment, is_under, join, node_segment
from durable_adk.model.wait import AnsweredWait

_CALL = re.compile(rf"(^|/)(:|{re.escape(node_segment(':call', ''))})")
"""A segment of a tool call: what lies below it is the tool's own affair."""


class _Done(NamedTuple):
    """A completed record with its position and its decoded body."""

    record: Record
    position: Position
    body: dict[str, Any]


def _completed(records: Iterable[Record]) -> Iterator[_Done]:
    for record in sorted(records, key=lambda r: r.seq):
        if record.status is RecordStatus.COMPLETED and record.body is not None:
            position = Position.parse(record.position)
            if position.kind in (Kind.MODEL, Kind.TOOL, Kind.NODE):
                yield _Done(record, position, codec.decode(record.body))


# ---------------------------------------------------------------- events of records


def events_of(
    stage: Stage, records: Sequence[Record], answered: Sequence[AnsweredWait]
) -> list[Event]:
    """What the open step has recorded, as events in log order, without ADK: the message or the
    answers, model responses, and what nodes emitted."""
    made = opening(stage, answered)
    done = list(_completed(records))
    for place, one in enumerate(done):
        path = one.position.path
        if _CALL.search(path) or any(_covers(later, path) for later in done[place + 1 :]):
            continue
        if one.position.kind is Kind.MODEL:
            made += _model_events(stage, one)
        elif one.position.kind is Kind.NODE:
            made += [stored.from_data(data) for _own, data in one.body.get("log", ())]
            if one.body.get("state"):
                event = _event(stage, one.record)
                event.actions.state_delta.update(one.body["state"])
                made.append(event)
    return made


def _covers(later: _Done, path: str) -> bool:
    """Whether a node that ended later emitted what lies at the path."""
    outer = later.position.path
    return later.position.kind is Kind.NODE and path != outer and is_under(path, outer)


def opening(stage: Stage, answered: Sequence[AnsweredWait]) -> list[Event]:
    """What the open step began with: the user's message, or the answers."""
    if stage.step > 1:
        return waits.feed(stage, answered)
    execution = stage.attempt.execution
    given = codec.decode(execution.input)
    event = Event(
        invocation_id=stage.invocation_id,
        author="user",
        content=stored.content_from_data(given["message"]),
        timestamp=execution.created_at / 1000,
    )
    event.actions.state_delta.update(given.get("state_delta") or {})
    return [event]


def _model_events(stage: Stage, one: _Done) -> list[Event]:
    made, place = [], 0
    for response in one.body["responses"]:
        event = _event(stage, one.record)
        event.content = plain.from_plain(LlmResponse, response).content or types.Content()
        for call in event.get_function_calls():
            segment = call_segment(one.position.ordinal, place)
            stage.segments[one.position.path, call.id or ""] = segment
            place += 1
        made.append(event)
    return made


def _event(stage: Stage, record: Record) -> Event:
    event = Event(
        invocation_id=stage.invocation_id,
        author=record.node_path.rpartition("/")[2].partition("@")[0] or "agent",
        timestamp=record.ended_at / 1000,
    )
    event.node_info.path = record.node_path
    return event


# ---------------------------------------------------------------- closing responses


class Ran:
    """The calls of the open step whose tool has run, with the state that it changed."""

    def __init__(self, stage: Stage, records: Iterable[Record]) -> None:
        left = {
            one.position.path: one.body.get("actions", {}).get("state_delta", {})
            for one in _completed(records)
            if one.position.kind is Kind.TOOL
        }
        calls = {**stage.call_segments, **stage.segments}
        self._left: dict[tuple[str, str], Mapping[str, Any]] = {
            (path, call_id): left[join(path, segment)]
            for (path, call_id), segment in calls.items()
            if join(path, segment) in left
        }

    def find(self, event: Event, call_id: str) -> Mapping[str, Any] | None:
        """The state that a call's tool changed; None if it has not run."""
        with contextlib.suppress(UnsupportedNode):
            exact = self._left.get((paths.from_adk(event.node_info.path), call_id))
            if exact is not None:
                return exact
        # An agent that is not run as a node has a path of its own below the event's.
        found = [left for (path, known), left in self._left.items() if known == call_id]
        return found[0] if len(found) == 1 else None


class _Asked(NamedTuple):
    call: types.FunctionCall
    event: Event


def responses(
    stage: Stage, events: Sequence[Event], *, since: int, note: str, ran: Ran
) -> list[Event]:
    """One closing response per function call of this execution that has none.

    A call that a wait held back until the open step, whose events begin at ``since``, was
    answered before by what says that it waits; when its tool has run, that is not left so.
    """
    unanswered: dict[tuple[str | None, str], list[_Asked]] = {}
    held_back: dict[tuple[str | None, str], _Asked] = {}
    for place, event in enumerate(events):
        if event.invocation_id != stage.invocation_id:
            continue
        for response in event.get_function_responses():
            asked = _take(unanswered, event.branch, response.id or "")
            if place >= since:
                held_back.pop((event.branch, response.id or ""), None)
            elif asked is not None:
                held_back[event.branch, response.id or ""] = asked
        for call in event.get_function_calls():
            key = (event.branch, call.id or "")
            unanswered.setdefault(key, []).append(_Asked(call, event))
            held_back.pop(key, None)  # the id is used again, for another call
    left = [asked for group in unanswered.values() for asked in group]
    left += [
        asked
        for asked in held_back.values()
        if ran.find(asked.event, asked.call.id or "") is not None
    ]
    return [_closing(stage, asked, note, ran) for asked in left]


def _take(
    unanswered: dict[tuple[str | None, str], list[_Asked]], branch: str | None, call_id: str
) -> _Asked | None:
    """The call that a response answers: of its branch, else of any."""
    place = (branch, call_id)
    if not unanswered.get(place):
        place = next((p for p, asked in unanswered.items() if p[1] == call_id and asked), place)
    asked = unanswered.get(place)
    return asked.pop(0) if asked else None


def _closing(stage: Stage, asked: _Asked, note: str, ran: Ran) -> Event:
    call, event = asked
    left = ran.find(event, call.id or "")
    said: dict[str, Any] = {"status": "closed", "reason": note}
    if left is not None:
        said["ran"] = True
    response = types.FunctionResponse(id=call.id, name=call.name, response=said)
    closing = Event(
        invocation_id=stage.invocation_id,
        author=event.author,
        branch=event.branch,
        isolation_scope=event.isolation_scope,
        timestamp=event.timestamp,
        content=types.Content(role="user", parts=[types.Part(function_response=response)]),
    )
    closing.actions.state_delta.update(left or {})
    closing.node_info.path = event.node_info.path
    return closing
