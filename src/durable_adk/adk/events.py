"""ADK events as stored data, and back.

An event is stored as ADK's own JSON without what is empty, plus, apart from it and typed by
our codec, the places where user values live: ``output``, ``actions.state_delta`` and what tools
returned. A value of ADK whose JSON would not bring it back equal is stored as what it is. What
one recorded outcome holds already is not stored twice: the content becomes a reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from google.adk.events import Event
from google.genai import types
from pydantic import BaseModel, ValidationError

from durable_adk.adk.scope import derived_uuid
from durable_adk.errors import CorruptHistory, NotStorable
from durable_adk.model import codec
from durable_adk.model.activity import Payload
from durable_adk.model.execution import Execution, StepDocument

_APART: dict[str, Any] = {
    "output": True,
    "actions": {"state_delta"},
    "content": {"parts": {"__all__": {"function_response": {"response"}}}},
}
REFERENCE_ABOVE = 80
"""Characters of JSON: below this a reference would be as long as the text."""
_TYPED = "typed"
"""The only key of a value that is stored as what it is: no field of ADK has this name."""

M = TypeVar("M", bound=BaseModel)


def dumped(model: BaseModel, where: str, **options: Any) -> dict[str, Any]:
    """ADK's JSON of one of its values.

    Raises:
        NotStorable: it has no JSON form.
    """
    try:
        text = model.model_dump_json(exclude_none=True, by_alias=False, **options)
    except ValueError as error:  # of pydantic; of a codec for bytes and lone surrogates
        raise NotStorable(where, str(error)) from error
    data: dict[str, Any] = json.loads(text)
    return data


def to_plain(model: BaseModel, where: str) -> dict[str, Any]:
    """One of ADK's values as codec data: its JSON, if that brings it back equal, else itself.

    Raises:
        NotStorable: it has no JSON form and holds what cannot be recorded.
    """
    data = _json_of(model, where)
    if data is not None and _brings_back(model, data, lambda: _validated(type(model), data)):
        return data
    return _itself(model, where, instead=data)


def _json_of(model: BaseModel, where: str, **options: Any) -> dict[str, Any] | None:
    try:
        return dumped(model, where, **options)
    except NotStorable:
        return None


def _brings_back(
    model: BaseModel, data: dict[str, Any], back: Callable[[], BaseModel], **options: Any
) -> bool:
    """Whether the JSON loses nothing; read back only where there is something unusual in it."""
    if type(model) is not _known_class(model):
        return False
    if model.model_dump(exclude_none=True, by_alias=False, **options) == data:
        return True
    try:
        return back() == model
    except ValidationError:
        return False


def _itself(model: BaseModel, where: str, instead: dict[str, Any] | None) -> dict[str, Any]:
    """The value as the codec stores it; the JSON ``instead`` where only the class is unknown."""
    typed = model.model_copy(deep=True)
    try:
        codec.encode(typed, where=where)
    except NotStorable:
        if instead is None or type(model) is _known_class(model):
            raise
        return instead  # ADK's own sessions, too, know no class but ADK's
    return {_TYPED: typed}


def _known_class(model: BaseModel) -> type[BaseModel]:
    """ADK's own class of a value, which may be of a class derived from it."""
    return next(cls for cls in type(model).__mro__ if cls.__module__.startswith("google."))


def from_plain(cls: type[M], data: Mapping[str, Any]) -> M:
    """The value again; a fresh object each time.

    What a newer ADK recorded and this one does not know stays in the record and is left out.

    Raises:
        CorruptHistory: it is none of that class.
    """
    if _TYPED in data:
        typed: M = data[_TYPED].model_copy(deep=True)
        return typed
    try:
        return _validated(cls, data)
    except ValidationError as error:
        unknown = [one["loc"] for one in error.errors() if one["type"] == "extra_forbidden"]
        if len(unknown) != error.error_count():
            raise CorruptHistory(f"recorded {cls.__name__}", str(error)) from error
    known = json.loads(json.dumps(data))
    for place in unknown:
        _remove(known, place)
    return _validated(cls, known)


def _validated(cls: type[M], data: Mapping[str, Any]) -> M:
    return cls.model_validate_json(json.dumps(data))


def _remove(data: Any, place: tuple[int | str, ...]) -> None:
    for key in place[:-1]:
        data = data[key]
    del data[place[-1]]


def to_data(event: Event) -> dict[str, Any]:
    """An event as codec data, user values apart: ``{"e": ADK's JSON, "o": output,
    "s": state delta, "f": tool responses by their part's place}``, or all of it as itself:
    ``{"e": {}, "typed": event}``.

    Raises:
        NotStorable: it has no JSON form and holds what cannot be recorded; by the codec for the
            parts, when they are encoded.
    """
    where = event.node_info.path or event.author or "event"
    shown = _json_of(event, where, exclude=_APART)
    if shown is None:
        return {"e": {}, **_itself(event, where, instead=None)}
    data = _parted(event, shown)
    if _brings_back(event, shown, lambda: from_data(data), exclude=_APART):
        return _lean(data)
    found = _itself(event, where, instead=shown)
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
    """Without what is empty in nearly every event."""
    shown = data["e"]
    actions = {k: v for k, v in shown.pop("actions", {}).items() if v not in ({}, [])}
    if actions:
        shown["actions"] = actions
    if not any(shown.get("node_info", {}).values()):
        shown.pop("node_info", None)
    return data


def from_data(data: Mapping[str, Any]) -> Event:
    """The event again; a fresh object each time."""
    event = from_plain(Event, data if _TYPED in data else data["e"])
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
    for key, name in (("o", "output"), ("s", "state"), ("f", "response"), (_TYPED, "event")):
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
    ids = EventIds(execution.execution_id, step.step)
    events = []
    for data in codec.decode(step.events):
        event = from_data(lengthen(data, step.bodies))
        event.invocation_id = event.invocation_id or execution.invocation_id
        event.id = ids.next(event)
        events.append(event)
    return events


def content_to_data(content: types.Content) -> dict[str, Any]:
    return to_plain(content, "message")


def content_from_data(data: Mapping[str, Any]) -> types.Content:
    return from_plain(types.Content, data)


def text_of(content: types.Content | None) -> str:
    """The text parts of a content, thoughts left out."""
    parts = content.parts if content and content.parts else []
    return "".join(part.text for part in parts if part.text and not part.thought)
