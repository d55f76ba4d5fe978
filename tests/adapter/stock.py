"""Plain ADK, driven the way our attempts drive it: for contract tests and comparisons."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from durable_adk.adk.scripted_model import ScriptedModel


def user(text: str) -> types.Content:
    return types.Content(role="user", parts=[types.Part(text=text)])


def agent(name: str, *script: Any, **fields: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(model=name, script=script), **fields)


def confirmed(fn: Callable[..., Any]) -> FunctionTool:
    return FunctionTool(fn, require_confirmation=True)


class Stock:
    """One session of a root (or of an ADK ``App``) under ADK's own runner and in-memory sessions;
    ``named`` are more arguments of the runner."""

    def __init__(self, root: Any, **named: Any) -> None:
        self.service = InMemorySessionService()
        kind = "agent" if isinstance(root, BaseAgent) else "node"
        kind = "app" if isinstance(root, App) else kind
        self.runner = Runner(app_name="t", session_service=self.service, **{kind: root}, **named)
        self.events: list[Event] = []
        self.run_config: Any = None

    async def session(self) -> Session:
        named = {"app_name": "t", "user_id": "u", "session_id": "s"}
        found = await self.service.get_session(**named)
        return found or await self.service.create_session(**named)

    async def run(self, message: types.Content | None, invocation_id: str | None = None) -> None:
        await self.session()
        async for event in self.runner.run_async(
            user_id="u",
            session_id="s",
            new_message=message,
            invocation_id=invocation_id,
            run_config=self.run_config,
        ):
            self.events.append(event)

    def open_calls(self) -> list[tuple[types.FunctionCall, Event]]:
        """Long-running calls that no event answers, with the event that asked."""
        asked: dict[str, tuple[types.FunctionCall, Event]] = {}
        for event in self.events:
            for call in event.get_function_calls():
                if call.id in (event.long_running_tool_ids or ()):
                    asked[str(call.id)] = (call, event)
        return list(asked.values())

    @staticmethod
    def reply(call: types.FunctionCall) -> types.Part:
        confirms = "confirmation" in str(call.name)
        response = {"confirmed": True} if confirms else {"result": json.dumps("blue")}
        return types.Part(
            function_response=types.FunctionResponse(id=call.id, name=call.name, response=response)
        )
