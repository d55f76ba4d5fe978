"""ADK's wait events to waits, and answers to the events that resume them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.adk.events import Event
from google.genai import types

from durable_adk.adk import check, expiring, late_results, paths, tool_nodes
from durable_adk.adk._patches import (
    answers_of_branches,
    answers_that_look_like_json,
    waits_of_one_id,
)
from durable_adk.adk.parameters import Fit, misfit, unlike
from durable_adk.adk.stage import Shown, Stage
from durable_adk.adk.tools import describe
from durable_adk.errors import ReplayMismatch, UnsupportedNode
from durable_adk.model import codec
from durable_adk.model.activity import Kind
from durable_adk.model.position import Position, known_later
from durable_adk.model.redaction import redacted
from durable_adk.model.wait import AnsweredWait, WaitKind, WaitRequest


@dataclass(frozen=True, slots=True)
class _Asked:
    call: types.FunctionCall
    event: Event
    path: str
    entry: int


def open_waits(stage: Stage, events: Iterable[Event]) -> tuple[WaitRequest, ...]:
    """The waits of a step's events that none of them answers, in frontier order.

    What earlier steps asked is answered: a frontier is left only when all of it is.

    Raises:
        UnsupportedNode: two open waits have one ADK id (ADK would hang), a wait sits nowhere,
            or it asks for a credential and nothing is encrypted.
    """
    asked = _unanswered(stage, events)
    asked.sort(key=lambda a: (a.path, a.event.branch or ""))  # stable: arrival order within
    counts: dict[tuple[str, int], int] = {}
    waits = []
    for one in asked:
        place = (one.path, one.entry)
        counts[place] = counts.get(place, 0) + 1
        waits.append(_request(stage, one, counts[place]))
    return tuple(waits)


def _unanswered(stage: Stage, events: Iterable[Event]) -> list[_Asked]:
    still_open: dict[tuple[str | None, str], _Asked] = {}
    for event in events:
        if event.invocation_id != stage.invocation_id:
            continue
        for response in event.get_function_responses():
            still_open.pop((event.branch, response.id or ""), None)
        for call in event.get_function_calls():
            if not call.id or call.id not in (event.long_running_tool_ids or ()):
                continue
            key = (event.branch, call.id)
            path, entry = stage.asked_by.get(key) or (_path_of(event), 1)
            known = still_open.get(key)
            if known is not None and (known.path != path or key in stage.asked_two):
                raise waits_of_one_id.refusal(event.node_info.path or path, call)
            still_open[key] = _Asked(call, event, path, entry)
    _refuse_one_id(list(still_open.values()))
    return list(still_open.values())


def _refuse_one_id(asked: Sequence[_Asked]) -> None:
    ids: set[str] = set()
    for one in asked:
        call_id = one.call.id or ""
        if call_id in ids:
            raise waits_of_one_id.refusal(one.event.node_info.path or one.path, one.call)
        ids.add(call_id)


def _path_of(event: Event) -> str:
    if not event.node_info.path:
        raise UnsupportedNode(
            event.author or "(unknown author)",
            because="a wait has neither a node path nor an operation path",
            instead="ask from a node, a tool or an agent of the app",
        )
    return paths.from_adk(event.node_info.path)


def _request(stage: Stage, asked: _Asked, ordinal: int) -> WaitRequest:
    event = asked.event
    position = Position(stage.step, asked.path, asked.entry, Kind.WAIT, ordinal)
    kind, content = _content(stage, asked)
    wait = WaitRequest(
        digest=position.digest,
        position=position.text,
        kind=kind,
        call_name=asked.call.name or "",
        call_id=asked.call.id or "",
        node_path=event.node_info.path,
        operation_path=asked.path,
        branch=event.branch,
        isolation_scope=event.isolation_scope,
        author=event.author,
        content=codec.encode(content, where="wait"),
    )
    return expiring.with_expiry(stage, wait, asked.call.args or {})


def _content(stage: Stage, asked: _Asked) -> tuple[WaitKind, dict[str, Any]]:
    call = asked.call
    args = call.args or {}
    if call.name == WaitKind.CREDENTIAL.value:
        if not stage.keeps_secrets:
            raise check.credential(asked.event.node_info.path or asked.path)
        return WaitKind.CREDENTIAL, {
            "message": args.get("message") or "",
            "payload": args.get("authConfig") or args.get("auth_config"),
            "tool_call": None,
            "response_schema": None,
            "shown": "",
        }
    if call.name == WaitKind.CONFIRMATION.value:
        about = args.get("originalFunctionCall") or {}
        shows = args.get("toolConfirmation") or {}
        name, given, fit = stage.gated.get(
            (asked.path, about.get("id", "")),
            (about.get("name", ""), about.get("args") or {}, Fit(False)),
        )
        return WaitKind.CONFIRMATION, {
            "message": shows.get("hint") or "",
            "payload": redacted(shows.get("payload"), stage.redact),
            "tool_call": {
                "id": about.get("id", ""),
                "name": name,
                "args": redacted(given, stage.redact),
            },
            "response_schema": None,
            **_as_shown(name, given, fit),
            **_held(stage, asked.path, about.get("id", "")),
            "segment": _segment(stage, asked.path, about.get("id", "")),
        }
    if call.name == WaitKind.INPUT.value:
        return WaitKind.INPUT, {
            "message": args.get("message") or "",
            "payload": redacted(args.get("payload"), stage.redact),
            "tool_call": None,
            "response_schema": args.get("response_schema"),
            "shown": "",
            **_held(stage, asked.path, ""),
            **_confirms(stage, asked),
        }
    return WaitKind.INPUT, {
        "message": "",
        "payload": None,
        "tool_call": {
            "id": call.id,
            "name": call.name,
            "args": redacted(args, stage.redact),
        },
        "response_schema": None,
        "shown": "",
    }


def _confirms(stage: Stage, asked: _Asked) -> dict[str, Any]:
    """What the question whether a node may run is about: as in a confirmation."""
    found = stage.gated.get((asked.path, ""))
    if found is None or tool_nodes.confirmed_in(asked.call) is None:
        return {}
    return _as_shown(*found)


def _as_shown(name: str, args: Mapping[str, Any], fit: Fit) -> dict[str, Any]:
    return {
        "shown": codec.digest(codec.encode([name, args], where="arguments")),
        **fit.told(),
    }


def _call_in(content: Mapping[str, Any]) -> tuple[str, Any]:
    """Name and arguments of the call that a confirmation is about; they may be redacted."""
    call = content["tool_call"]
    if call is not None:
        return call["name"], call["args"]
    return content["payload"]["tool_name"], content["payload"]["args"]


def _segment(stage: Stage, path: str, call_id: str) -> str:
    """Where in the agent's responses the call stood: it keeps that place in later steps."""
    place = (path, call_id)
    return stage.segments.get(place) or stage.call_segments.get(place, "")


HELD = "held"
"""In a wait's content: the confirmation gate held the call back."""


def _held(stage: Stage, path: str, call_id: str) -> dict[str, bool]:
    return {HELD: True} if (path, call_id) in stage.held_back else {}


def check_shown(asked: Sequence[WaitRequest], recorded: Sequence[WaitRequest]) -> None:
    """Refuse a confirmation whose call would not run as it was shown (``tools``, where it runs).

    Raises:
        ReplayMismatch: at the first one.
    """
    for now, then in zip(asked, recorded, strict=True):
        if then.kind not in (WaitKind.CONFIRMATION, WaitKind.INPUT):
            continue
        shown, shows = codec.decode(then.content), codec.decode(now.content)
        if not (shown["shown"] and shows["shown"]):
            continue  # a question; or it was asked before that was noted
        same, fit = shown["shown"] == shows["shown"], Fit.from_told(shows)
        if same and not fit.is_worse_than(Fit.from_told(shown)):
            continue
        (name, args), text = _call_in(shows), describe(*_call_in(shown))
        if same:
            asks = misfit(name, Fit.from_told(shown), fit)
        else:
            asks = unlike(text, describe(name, args))
        raise ReplayMismatch(then.position, recorded=f"shown {text}", asked=asks)


def feed(stage: Stage, answered: Sequence[AnsweredWait]) -> list[Event]:
    """The user events that carry the answers: one per branch, in frontier order. The first one also
    carries the state that came with them."""
    for one in answered:
        _remember(stage, one)
    events = [
        Event(
            invocation_id=stage.invocation_id,
            author="user",
            branch=group[0].wait.branch,
            isolation_scope=group[0].wait.isolation_scope,
            timestamp=max(one.answer.at for one in group) / 1000,
            content=types.Content(role="user", parts=[_part(one) for one in group]),
        )
        for group in answers_of_branches.by_branch(answered)
    ]
    came: dict[str, Any] = {}
    for one in answered:
        if one.answer.state is not None:
            came.update(codec.decode(one.answer.state))
    late_results.put_beside(events, came)
    if came:
        events[0].actions.state_delta.update(came)
    return events


def _remember(stage: Stage, answered: AnsweredWait) -> None:
    wait = answered.wait
    content = codec.decode(wait.content)
    call = content["tool_call"]
    path = known_later(wait.operation_path, Position.parse(wait.position).step)
    if content.get(HELD):
        stage.held.add((path, call["id"] if call else ""))
    if wait.kind is WaitKind.INPUT and content["shown"]:
        name, args = _call_in(content)
        names = tuple(args) if _agrees(answered) and isinstance(args, Mapping) else None
        stage.shown[path, ""] = Shown(
            content["shown"], describe(name, args), Fit.from_told(content), names
        )
    if wait.kind is WaitKind.CONFIRMATION and call:
        text = describe(call["name"], call["args"])
        place = (path, call["id"])
        stage.shown[place] = Shown(content["shown"], text, Fit.from_told(content))
        if content.get("segment"):
            step = Position.parse(wait.position).step
            stage.call_segments[place] = known_later(content["segment"], step)


def _agrees(answered: AnsweredWait) -> bool:
    value = codec.decode(answered.answer.value)
    return isinstance(value, Mapping) and value.get("confirmed") is True


def _part(answered: AnsweredWait) -> types.Part:
    value = codec.decode(answered.answer.value)
    return types.Part(
        function_response=types.FunctionResponse(
            id=answered.wait.call_id,
            name=answered.wait.call_name,
            response=_response(answered.wait, value),
        )
    )


def _response(wait: WaitRequest, value: Any) -> dict[str, Any]:
    if wait.kind is WaitKind.CONFIRMATION:
        return {"confirmed": value["confirmed"], "payload": value.get("payload")}
    if wait.call_name == WaitKind.INPUT.value:
        return answers_that_look_like_json.as_response(value)
    if wait.kind is WaitKind.CREDENTIAL and isinstance(value, str):
        # ADK reads a text for a node only, and drops it for a tool, which then never gets the key.
        return {"authType": "apiKey", "apiKey": value}
    return value if isinstance(value, dict) else {"result": value}
