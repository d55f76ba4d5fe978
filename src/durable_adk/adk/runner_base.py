"""What front ends expect of an ADK runner: its class, its session service, its messages.

Only the shapes are ADK's; what happens behind them is in ``app/runner.py``. Nothing here loads
more of ADK than ``google.adk.runners`` does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from google.adk.agents import BaseAgent
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.plugins.plugin_manager import PluginManager
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from google.adk.workflow import BaseNode
from google.genai import types

from durable_adk.errors import ConfigError
from durable_adk.model.wait import WaitKind, WaitRequest


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as ADK's session service shows it. ``updated_at`` is in seconds."""

    user_id: str
    session_id: str
    state: Mapping[str, Any]
    events: tuple[Any, ...]
    updated_at: float


class SessionSource(Protocol):
    """Where the session service reads; one app's sessions."""

    app_name: str

    async def create(
        self, user_id: str, session_id: str | None, state: Mapping[str, Any] | None
    ) -> StoredSession: ...

    async def find(self, user_id: str, session_id: str) -> StoredSession | None: ...

    async def all_of(self, user_id: str | None) -> Sequence[StoredSession]: ...


class DurableSessionService(BaseSessionService):
    """The sessions of a ``DurableRunner``, read-only but for their creation.

    It comes with a runner, as ``runner.session_service``: history is made by executions.
    """

    def __init__(self, *args: object, source: SessionSource | None = None, **more: object) -> None:
        if source is None or args or more:
            raise ConfigError(
                "DurableSessionService(...)",
                "not yet: it cannot be made by itself",
                "Use DurableRunner(...) without session_service=, and its session_service.",
            )
        self.source = source

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        self._check_app(app_name)
        return self._session(await self.source.create(user_id, session_id, state))

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        self._check_app(app_name)
        found = await self.source.find(user_id, session_id)
        if found is None:
            return None
        session = self._session(found)
        if config is not None:
            session.events = _wanted(session.events, config)
        return session

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        self._check_app(app_name)
        found = await self.source.all_of(user_id)
        return ListSessionsResponse(sessions=[self._session(each) for each in found])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        raise ConfigError("session_service.delete_session", "not yet", "Leave the session.")

    async def append_event(self, session: Session, event: Event) -> Event:
        raise ConfigError(
            "session_service.append_event",
            "the history of a durable session is made by its executions only",
            "Send a message, with state_delta= for state.",
        )

    def _check_app(self, app_name: str) -> None:
        if app_name != self.source.app_name:
            raise ConfigError(
                f"app_name={app_name!r}",
                f"this service holds the sessions of {self.source.app_name!r}",
                "Use the runner's app_name.",
            )

    def _session(self, stored: StoredSession) -> Session:
        return Session(
            app_name=self.source.app_name,
            user_id=stored.user_id,
            id=stored.session_id,
            state=dict(stored.state),
            events=list(stored.events),
            last_update_time=stored.updated_at,
        )


def _wanted(events: list[Event], config: GetSessionConfig) -> list[Event]:
    """The events that a caller asked for, as ADK's in-memory service picks them."""
    if config.after_timestamp is not None:
        events = [event for event in events if event.timestamp >= config.after_timestamp]
    if config.num_recent_events is not None:
        events = events[-config.num_recent_events :] if config.num_recent_events else []
    return events


class RunnerBase(Runner):
    """An ADK runner whose sessions are durable; how it runs is up to the subclass."""

    session_service: DurableSessionService

    def __init__(self, *, source: SessionSource, **adk: Any) -> None:
        super().__init__(session_service=DurableSessionService(source=source), **adk)

    def take_root(self, root: object, *, plugins: Sequence[Any], **adk: Any) -> None:
        """Become the runner of an agent or node that was not known when this was made.

        Raises:
            ConfigError: the root is neither, and no ``App`` of ADK.
        """
        argument = root_argument(root)
        RunnerBase.__init__(self, **argument, **adk)
        if "app" in argument:
            plugins = [*argument["app"].plugins, *plugins]
        # ADK's own ``plugins=`` argument is deprecated.
        self.app.plugins = list(plugins)
        self.plugin_manager = PluginManager(plugins=list(plugins))

    async def rewind_async(self, **_where: Any) -> Any:
        """Reserved.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("runner.rewind_async", "not yet", "Start a new session.")

    def run_live(self, **_how: Any) -> Any:
        """Reserved.

        Raises:
            ConfigError: always.
        """
        raise ConfigError("runner.run_live", "not yet: live runs are not recorded", "run_async().")


def root_argument(root: object) -> dict[str, Any]:
    """The argument of ADK's ``Runner`` that a root is."""
    if isinstance(root, BaseAgent):
        return {"agent": root}
    if isinstance(root, BaseNode):
        return {"node": root}
    apps = sys.modules.get("google.adk.apps.app")  # whoever made one has loaded it
    if apps is not None and isinstance(root, apps.App):
        return {"app": root.model_copy()}
    raise ConfigError(
        "root_agent",
        f"expected an agent, a Workflow or another ADK node, got {type(root).__name__}",
    )


def session_not_found(session_id: str) -> Exception:
    """What ADK's runner raises for a session that is not there."""
    return SessionNotFoundError(f"Session not found: {session_id}")


# ---------------------------------------------------------------- messages


@dataclass(frozen=True, slots=True)
class Response:
    """One function response of a message: an answer, by ADK's call id or by a wait id."""

    id: str
    response: Mapping[str, Any]


def responses_of(message: types.Content | None) -> tuple[Response, ...]:
    """The answers that a message is made of; empty for a message that starts something.

    Raises:
        ConfigError: answers and text in one message, or an answer without an id.
    """
    parts = message.parts or [] if isinstance(message, types.Content) else []
    found = [part.function_response for part in parts if part.function_response]
    if not found:
        return ()
    if any(part.text for part in parts):
        raise ConfigError(
            "new_message",
            "holds both answers and text",
            "Answer first; text is a message of its own.",
        )
    if not all(response.id for response in found):
        raise ConfigError(
            "new_message",
            "has a function response without an id",
            "Copy the id of the function call that it answers.",
        )
    return tuple(Response(response.id or "", response.response or {}) for response in found)


def returned_early(events: Iterable[Event]) -> set[str]:
    """Ids of long-running calls whose tool gave a first result: they asked for no answer."""
    long_running: set[str] = set()
    returned: set[str] = set()
    for event in events:
        long_running |= event.long_running_tool_ids or set()
        if event.author != "user":
            returned |= {response.id or "" for response in event.get_function_responses()}
    return returned & long_running


def answer_of(wait: WaitRequest, response: Mapping[str, Any]) -> object:
    """The value that ADK would have read out of a function response.

    Source: ``ToolConfirmation.from_response_dict`` and the unwrapping of request-input
    responses in ADK's workflow rehydration.
    """
    if wait.kind is WaitKind.CONFIRMATION:
        given: Any = response
        if len(response) == 1 and isinstance(response.get("response"), str):
            given = _parsed(response["response"])
        if not isinstance(given, Mapping):
            return given
        answer = {key: value for key, value in given.items() if key != "hint"}
        return {"confirmed": False, **answer}
    if wait.call_name == WaitKind.INPUT.value and response.keys() == {"result"}:
        value = response["result"]
        return _parsed(value) if isinstance(value, str) else value
    return dict(response)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def user_event(message: types.Content, invocation_id: str) -> Event:
    """The user's own message as ADK yields it on request."""
    return Event(author="user", invocation_id=invocation_id, content=message)


def after_answer(events: Sequence[Event], ids: frozenset[str]) -> Sequence[Event]:
    """The events that came after an answer to one of these calls; all if there is none."""
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.author == "user" and any(r.id in ids for r in event.get_function_responses()):
            return events[index + 1 :]
    return events
