"""Sessions of ADK, and events, in the form that is moved between stores.

What ADK would show of a conversation it shows of the imported one: rewinds and compactions are
actions of events, and stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from google.adk.events import Event
from google.adk.sessions import Session
from google.adk.sessions.state import State
from google.genai import types
from pydantic import ValidationError

from durable_adk.adk import events as stored
from durable_adk.errors import ConfigError
from durable_adk.model import codec
from durable_adk.model.activity import Payload
from durable_adk.model.exchange import PortableSession, PortableTurn
from durable_adk.model.execution import Execution, Status, StepDocument
from durable_adk.model.identity import checked_id

_SHARED = (State.USER_PREFIX, State.APP_PREFIX)
_ELSEWHERE = (*_SHARED, State.TEMP_PREFIX)
_NOTE = "the session was imported; this call was never answered"
_TICK = 1e-6


def portable_events(execution: Execution, steps: Iterable[StepDocument]) -> Payload:
    """The events of an execution by themselves: with their ids, without references."""
    return _payload(event for step in steps for event in stored.decode_step(execution, step))


def _payload(events: Iterable[Event]) -> Payload:
    kept = []
    for event in events:
        data = stored.to_data(event)
        data["e"]["id"] = event.id  # what it was elsewhere; ours could be derived
        kept.append(data)
    return codec.encode(kept, where="events")


def is_session(source: object) -> bool:
    return isinstance(source, Session)


def session_of(text: str) -> Session:
    """ADK's session of its JSON.

    Raises:
        ConfigError: the text is none.
    """
    try:
        return Session.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "source"
        raise ConfigError(
            "source",
            f"is neither an export nor the JSON of an ADK session ({place}: {first['msg']})",
            "Pass the lines of sessions.export(), or Session.model_dump_json().",
        ) from error


def portable_session(session: Any) -> PortableSession:
    """A session of ADK as turns: runs of events of one invocation, with the state after each.

    State that no event set was there from the beginning; ``temp:`` state is left out. A call that
    nobody answered gets a closing response at the end of its turn.

    Raises:
        NotStorable: a value in it cannot be recorded.
    """
    groups = _turns(session.events)
    closed = _close(groups)
    final = {k: v for k, v in session.state.items() if not k.startswith(_ELSEWHERE)}
    shared = {k: v for k, v in session.state.items() if k.startswith(_SHARED)}
    touched = {key for group in groups for event in group for key in event.actions.state_delta}
    state = {key: value for key, value in final.items() if key not in touched}
    changed = max(0, int(session.last_update_time * 1000))
    return PortableSession(
        user_id=session.user_id,
        session_id=session.id,
        state=codec.encode(state, where="state") if state else None,
        turns=tuple(_portable(groups, state, final)),
        created_at=_milliseconds(groups[0][0]) if groups else changed,
        shared=codec.encode(shared, where="state") if shared else None,
        shared_at=changed,
        closed=closed,
    )


def _milliseconds(event: Event) -> int:
    return max(0, int(event.timestamp * 1000))


def _turns(events: Iterable[Event]) -> list[list[Event]]:
    """The events by turn. The summary of a compaction, which has an invocation id of its own,
    belongs to the turn that it came after."""
    groups: list[list[Event]] = []
    invocation_id: str | None = None
    for given in events:
        event = given.model_copy(deep=True)
        delta = event.actions.state_delta
        for key in [key for key in delta if key.startswith(State.TEMP_PREFIX)]:
            del delta[key]
        if groups and (event.actions.compaction or event.invocation_id == invocation_id):
            groups[-1].append(event)
        else:
            groups.append([event])
            invocation_id = event.invocation_id
    return groups


def _portable(
    groups: Sequence[list[Event]], state: dict[str, Any], final: dict[str, Any]
) -> Iterator[PortableTurn]:
    state, artifacts = dict(state), dict[str, int]()
    used: set[str] = set()
    for number, group in enumerate(groups, 1):
        for event in group:
            delta = event.actions.state_delta
            state.update({k: v for k, v in delta.items() if not k.startswith(_ELSEWHERE)})
            versions = event.actions.artifact_delta
            artifacts.update(
                {k: v for k, v in versions.items() if not k.startswith(State.USER_PREFIX)}
            )
        if number == len(groups):
            state = final  # what the service holds, also where it was changed past the events
        invocation_id = group[0].invocation_id
        execution_id = "" if invocation_id in used else _as_id(invocation_id)
        used.add(invocation_id)
        yield PortableTurn(
            execution_id=execution_id,
            invocation_id=invocation_id,
            status=Status.COMPLETED,
            input=codec.encode(_input(group), where="input"),
            events=_payload(group),
            state=codec.encode(state, where="state"),
            artifacts=codec.encode(artifacts) if artifacts else None,
            result=codec.encode({"response": _response(group), "output": None}),
            created_at=_milliseconds(group[0]),
            ended_at=max(map(_milliseconds, group)),
        )


def _as_id(text: str) -> str:
    try:
        return checked_id("execution_id", text)
    except ConfigError:
        return ""


def _input(group: Sequence[Event]) -> dict[str, Any]:
    said = (event.content for event in group if event.author == "user" and event.content)
    content = next(said, None) or types.Content(role="user", parts=[])
    return {"message": stored.content_to_data(content), "state_delta": {}, "run_config": None}


def _response(group: Sequence[Event]) -> str | None:
    for event in reversed(group):
        is_said = event.author != "user" and not event.actions.compaction
        if is_said and event.is_final_response() and (text := stored.text_of(event.content)):
            return text
    return None


def _close(groups: Sequence[list[Event]]) -> tuple[str, ...]:
    """Append a closing response for each call that has no response anywhere: their names."""
    unanswered: dict[str, list[tuple[types.FunctionCall, Event, list[Event]]]] = {}
    for group in groups:
        for event in group:
            for response in event.get_function_responses():
                asked = unanswered.get(response.id or "", [])
                # Of its branch, else of any: models repeat their ids.
                branches = [one.branch for _call, one, _group in asked]
                if asked:
                    asked.pop(branches.index(event.branch) if event.branch in branches else 0)
            for call in event.get_function_calls():
                unanswered.setdefault(call.id or "", []).append((call, event, group))
    left = [one for asked in unanswered.values() for one in asked]
    for call, event, group in left:
        group.append(_closing(call, event, group[-1].timestamp + _TICK))
    return tuple(call.name or "" for call, _event, _group in left)


def _closing(call: types.FunctionCall, event: Event, at: float) -> Event:
    said = {"status": "closed", "reason": _NOTE}
    response = types.FunctionResponse(id=call.id, name=call.name, response=said)
    closing = Event(
        id=f"{event.id}-closed-{call.id or call.name}",  # the same in every import
        invocation_id=event.invocation_id,
        author=event.author,
        branch=event.branch,
        isolation_scope=event.isolation_scope,
        timestamp=at,
        content=types.Content(role="user", parts=[types.Part(function_response=response)]),
    )
    closing.node_info.path = event.node_info.path
    return closing
