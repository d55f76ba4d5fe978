"""ADK events as stored data, and back.

An event is stored as ADK's own JSON without what is empty, plus, apart from it and typed by
our codec, the places where user values live: ``output``, ``actions.state_delta`` and what tools
returned. A value of ADK whose JSON would not bring it back equal is stored as what it is. What
one recorded outcome holds already is not stored twice: the content becomes a reference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.adk.events import Event, EventActions
from google.genai import types

from durable_adk.adk import plain
from durable_adk.adk.scope import derived_uuid
from durable_adk.errors import CorruptHistory
from durable_adk.model import codec
from durable_adk.model.activity import Payload
from durable_adk.model.execution import Execution, StepDocument

_APART: dict[str, Any] = {
    "output": True,
    "actions": {"state_delta"},
    "content": {"parts": {"__all__": {"function_response": {"response"}}}},
}
_APART_FIELDS: frozenset[plain.Field] = frozenset(
    {(Event, "output"), (EventActions, "state_delta"), (types.FunctionResponse, "response")}
)
REFERENCE_ABOVE = 80
"""Characters of JSON: below this a reference would be as long as the text."""

_DEFAULTS: dict[str, dict[str, Any]] = Event(timestamp=0.0).model_dump(
    include={"actions", "node_info"}, exclude_none=True
)


def to_data(event: Event) -> dict[str, Any]:
    """An event as codec data, user values apart: ``{"e": ADK's JSON, "o": output,
    "s": state delta, "f": tool responses by their part's place}``, or all of it as itself:
    ``{"e": {}, "typed": event}``.

    Raises:
        NotStorable: it has no JSON form and holds what cannot be recorded; by the codec for the
            parts, when they are encoded.
    """
    where = event.node_info.path or event.author or "event"
    shown = plain.json_of(event, where, exclude=_APART)
    if shown is None:
        return {"e": {}, **plain.itself(event, where, instead=None)}
    data = _parted(event, shown)
    if plain.brings_back(event, lambda: from_data(data), apart=_APART_FIELDS):
        return _lean(data)
    found = plain.itself(event, where, instead=shown)
    return _lean(data) if found is shown else {"e": {}, **found}


def _parted(event: Event, shown: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"e": shown}
    if event.output is not None:
        data["o"] = event.output
    if event.actions.state_delta:
        data["s"] = dict(event.actions.state_delta)
    responses = {
        str(place): part.function_response.response
        for place, part in enumerate((event.content.parts if event.content else None) or ())
        if part.function_response and part.function_response.response is not None
    }
    if responses:
        data["f"] = responses
    return data


def _lean(data: dict[str, Any]) -> dict[str, Any]:
    """Without what nearly every event has: the defaults of what is nested in it."""
    shown = data["e"]
    for name in ("actions", "node_info"):
        default = _DEFAULTS[name]
        kept = {k: v for k, v in shown.pop(name, {}).items() if v != default.get(k)}
        if kept:
            shown[name] = kept
    return data


def from_data(data: Mapping[str, Any]) -> Event:
    """The event again; a fresh object each time."""
    event = plain.from_plain(Event, data if plain.TYPED in data else data["e"])
    if "o" in data:
        event.output = data["o"]
    if "s" in data:
        event.actions.state_delta = dict(data["s"])
    for place, response in data.get("f", {}).items():
        part = ((event.content and event.content.parts) or [])[int(place)]
        if part.function_response is not None:
            part.function_response.response = response
    return event


def check_storable(event: Event, where: str) -> dict[str, Any]:
    """The event's data after a round trip: what a replay will see.

    Raises:
        NotStorable: a value in its output or state cannot be recorded.
    """
    data = to_data(event)
    for key, name in (("o", "output"), ("s", "state"), ("f", "response"), (plain.TYPED, "event")):
        if key in data:
            data[key] = codec.decode(codec.encode(data[key], where=f"{where}.{name}"))
    return data


class References:
    """Which contents the step's records hold, and the way back.

    A model response's content and a tool's response are known by their JSON text; an event
    that carries the same refers to the record's slot instead, and if it carries everything
    else of a model response too (usage, finish reason, version), that is left out as well.
    """

    def __init__(self) -> None:
        self._contents: dict[str, tuple[str, int | str]] = {}
        self._responses: dict[tuple[str, int | str], Mapping[str, Any]] = {}
        self.used: dict[str, None] = {}

    def know_response(self, response: Mapping[str, Any], slot: str, place: int) -> None:
        """A record holds this model response (ADK's JSON of it)."""
        self._know(response["content"], slot, place)
        self._responses[slot, place] = response

    def know_result(self, result: object, slot: str) -> None:
        """A record holds this tool result."""
        self._know(tool_response(result), slot, "result")

    def _know(self, content: object, slot: str, place: int | str) -> None:
        text = _as_text(content)
        if text is not None and len(text) > REFERENCE_ABOVE:
            self._contents[text] = (slot, place)

    def shorten(self, data: dict[str, Any]) -> dict[str, Any]:
        """The event's data with what is known by reference replaced."""
        content = data["e"].get("content")
        if not content or not self._contents:
            return data
        if "f" not in data:
            whole = self._find(content)
            return data if whole is None else self._without(data, whole)
        found, kept = {}, {}
        for place, response in data["f"].items():
            ref = self._find(response)
            if ref is None:
                kept[place] = response
            else:
                found[place] = list(ref)
        return {**data, "f": kept, "p": found} if found else data

    def _without(self, data: dict[str, Any], ref: tuple[str, int | str]) -> dict[str, Any]:
        response, shown = self._responses.get(ref, {}), data["e"]
        if response and all(shown.get(key) == value for key, value in response.items()):
            kept = {key: value for key, value in shown.items() if key not in response}
            return {**data, "e": kept, "r": list(ref)}
        return {**data, "e": {k: v for k, v in shown.items() if k != "content"}, "c": list(ref)}

    def _find(self, content: object) -> tuple[str, int | str] | None:
        text = _as_text(content)
        ref = None if text is None else self._contents.get(text)
        if ref is not None:
            self.used[ref[0]] = None
        return ref


def _as_text(content: object) -> str | None:
    """JSON text to compare by; None for what has other types in it (it is stored as it is)."""
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        return None


def lengthen(data: Mapping[str, Any], bodies: Mapping[str, Payload]) -> dict[str, Any]:
    """Undo ``References.shorten`` with the bodies of the records it refers to.

    Raises:
        CorruptHistory: a record is not there.
    """
    if data.keys().isdisjoint("crp"):
        return dict(data)
    shown = dict(data["e"])
    if "r" in data:
        shown = {**_referred(data["r"], bodies), **shown}
    if "c" in data:
        shown["content"] = _referred(data["c"], bodies)["content"]
    whole = {k: v for k, v in data.items() if k not in "crp"}
    if "p" in data:
        found = {place: _referred(ref, bodies) for place, ref in data["p"].items()}
        whole["f"] = {**data.get("f", {}), **found}
    return {**whole, "e": shown}


def _referred(ref: list[Any], bodies: Mapping[str, Payload]) -> Any:
    slot, place = ref
    if slot not in bodies:
        raise CorruptHistory(f"record {slot}", "a committed step refers to it and it is gone")
    body = codec.decode(bodies[slot])
    if place == "result":
        return tool_response(body["result"])
    return body["responses"][place]


def tool_response(result: Any) -> Any:
    """What ADK makes of a tool's result before it becomes a function response."""
    return result if isinstance(result, dict) else {"result": result}


class EventIds:
    """The ids of a step's events: from where and by whom, and the count of that.

    They are given when an event is appended, so never drawn in an order that depends on which
    sibling is faster; and so they need not be stored.
    """

    def __init__(self, execution_id: str, step: int) -> None:
        self._place = (execution_id, str(step))
        self._counts: dict[tuple[str, str, str], int] = {}

    def next(self, event: Event) -> str:
        by = (event.node_info.path, event.branch or "", event.author)
        count = self._counts[by] = self._counts.get(by, 0) + 1
        return derived_uuid(*self._place, "event", *by, str(count))


def encode_step(events: list[dict[str, Any]], invocation_id: str) -> Payload:
    """A step's events as they are stored: without what every reader can derive."""
    for data in events:
        shown = data["e"]
        shown.pop("id", None)
        if shown.get("invocation_id") == invocation_id:
            del shown["invocation_id"]
    return codec.encode(events, where="events")


def decode_step(execution: Execution, step: StepDocument) -> list[Event]:
    """A committed step's events, fresh objects with all their ids.

    Raises:
        CorruptHistory: a record that they refer to is not among ``step.bodies``.
    """
    ids = EventIds(execution.id_of(step.step), step.step)
    events = []
    for data in codec.decode(step.events):
        event = from_data(lengthen(data, step.bodies))
        event.invocation_id = event.invocation_id or execution.invocation_id
        derived = ids.next(event)
        event.id = data["e"].get("id") or derived  # an imported one is stored
        events.append(event)
    return events


def content_to_data(content: types.Content) -> dict[str, Any]:
    return plain.to_plain(content, "message")


def content_from_data(data: Mapping[str, Any]) -> types.Content:
    return plain.from_plain(types.Content, data)


def text_of(content: types.Content | None) -> str:
    """The text parts of a content, thoughts left out."""
    parts = content.parts if content and content.parts else []
    return "".join(part.text for part in parts if part.text and not part.thought)
