"""Sessions of ADK's own making, for tests that move them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event, EventActions
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, Session
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from durable_adk.testing import ScriptedModel, calls, says

START = 1_700_000_000.0


def said(
    text: str,
    *,
    turn: int,
    at: float,
    author: str = "user",
    state: dict[str, Any] | None = None,
    **fields: Any,
) -> Event:
    """An event as ADK stores it."""
    role = "user" if author == "user" else "model"
    return Event(
        id=f"event-{at}",
        invocation_id=f"e-{turn}",
        author=author,
        timestamp=at,
        content=types.Content(role=role, parts=[types.Part(text=text)]),
        actions=EventActions(state_delta=state or {}),
        **fields,
    )


def long_session(turns: int, *, events_per_turn: int = 5, session_id: str = "long") -> Session:
    """A conversation of many turns; the state counts them."""
    events: list[Event] = []
    for turn in range(1, turns + 1):
        for number in range(events_per_turn):
            events.append(
                said(
                    f"turn {turn}, event {number}",
                    turn=turn,
                    at=START + turn * 10 + number,
                    author="user" if number == 0 else "talker",
                    state={"turns": turn} if number == 0 else None,
                )
            )
    state = {"turns": turns, "from": "the beginning"}
    last = events[-1].timestamp if events else START
    return Session(
        id=session_id,
        app_name="old",
        user_id="u",
        state=state,
        events=events,
        last_update_time=last,
    )


class Prompts:
    """The contents of every request to a model, as lists of texts."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []

    def agent(self, *tools: Any, script: Sequence[LlmResponse] = ()) -> LlmAgent:
        """Answers ``answer <n>``, or what the script says to the n-th call."""

        def reply(request: LlmRequest, _batch: int) -> LlmResponse:
            self.seen.append([_shown(part) for c in request.contents for part in c.parts or ()])
            count = len(self.seen)
            return script[count - 1] if count <= len(script) else says(f"answer {count}")

        return LlmAgent(name="talker", model=ScriptedModel(script=reply), tools=list(tools))


def _shown(part: types.Part) -> str:
    if part.function_call:
        return f"call {part.function_call.name}"
    if part.function_response:
        return f"response {part.function_response.name}: {part.function_response.response}"
    return part.text or ""


def note(text: str, tool_context: ToolContext) -> dict[str, Any]:
    """Keep a note."""
    tool_context.state["note"] = text
    tool_context.state["user:lines"] = [text]
    tool_context.state["temp:draft"] = "gone"
    return {"kept": text}


def ticket(title: str) -> None:
    """Open a ticket; somebody answers later."""


def with_tools(prompts: Prompts) -> LlmAgent:
    """Keeps a note in its first turn; opens a ticket in its second one, which nobody answers."""
    return prompts.agent(
        note,
        LongRunningFunctionTool(ticket),
        script=(
            calls(("note", {"text": "milk"})),
            says("noted"),
            calls(("ticket", {"title": "leak"})),
        ),
    )


async def talk_with_adk(
    service: BaseSessionService, *, user_id: str = "u", session_id: str = "s", app_name: str = "old"
) -> Session:
    """Two turns with plain ADK. Returns: the session as the service shows it."""
    await service.create_session(
        app_name=app_name,
        user_id=user_id,
        session_id=session_id,
        state={"first": "there", "app:motto": "slow", "user:name": "Kim"},
    )
    runner = Runner(
        app_name=app_name, agent=with_tools(Prompts()), session_service=service, plugins=[]
    )
    for text in ("keep milk", "it leaks"):
        content = types.Content(role="user", parts=[types.Part(text=text)])
        async for _ in runner.run_async(
            user_id=user_id, session_id=session_id, new_message=content
        ):
            pass
    session = await service.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
    assert session is not None
    return session
