"""Later results of long-running calls that come in one message with answers.

A long-running tool that returned a value at once waits for nothing: its later result is news. Alone
it is a message of its own. Beside answers it is stored with them, as their state is, and stands in
the message that the answers become, as in plain ADK.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.adk.events import Event
from google.genai import types

from durable_adk.adk.runner_base import Response, returned_early

KEY = "durable_adk:late"
"""Among the state that comes with answers; taken out before that is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult:
    """One result, and where its call was made."""

    id: str
    name: str
    branch: str | None
    isolation_scope: str | None
    response: dict[str, Any]


def among(events: Sequence[Event], responses: Iterable[Response]) -> dict[str, LateResult]:
    """Those of the responses whose calls these events show to have returned early, by call id."""
    early, made = returned_early(events), {}
    for event in events:
        for call in event.get_function_calls():
            if call.id in early:
                made[call.id] = (call.name or "", event.branch, event.isolation_scope)
    return {
        one.id: LateResult(
            id=one.id,
            name=made[one.id][0],
            branch=made[one.id][1],
            isolation_scope=made[one.id][2],
            response=dict(one.response),
        )
        for one in responses
        if one.id in made
    }


def are_in(events: Iterable[Event], responses: Iterable[Response]) -> bool:
    """Whether a user's message among the events holds all of them."""
    given = {
        response.id
        for event in events
        if event.author == "user"
        for response in event.get_function_responses()
    }
    return {one.id for one in responses} <= given


def with_state(state: Mapping[str, Any], late: Iterable[LateResult]) -> dict[str, Any]:
    """What is stored with each answer of one message."""
    kept = [[one.id, one.name, one.branch, one.isolation_scope, one.response] for one in late]
    return {**state, KEY: kept} if kept else dict(state)


def put_beside(events: list[Event], state: dict[str, Any]) -> None:
    """Take the late results out of what came with answers, and put each into the message of its
    branch; one of another branch becomes a message before the answers, which ADK wants last."""
    made: list[Event] = []
    for call_id, name, branch, scope, response in state.pop(KEY, ()):
        part = types.Part(
            function_response=types.FunctionResponse(id=call_id, name=name, response=response)
        )
        for event in (*events, *made):
            if (event.branch, event.isolation_scope) == (branch, scope):
                assert event.content is not None
                assert event.content.parts is not None
                event.content.parts.append(part)
                break
        else:
            made.append(
                Event(
                    invocation_id=events[0].invocation_id,
                    author="user",
                    branch=branch,
                    isolation_scope=scope,
                    timestamp=events[0].timestamp,
                    content=types.Content(role="user", parts=[part]),
                )
            )
    events[:0] = made
