"""What front ends expect of an ADK runner: its class, its session service, its messages.

Only the shapes are ADK's; what happens behind them is in ``app/runner.py``. Nothing here loads
more of ADK than ``google.adk.runners`` does.
"""

from __future__ import annotations

import abc
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from google.adk.agents import BaseAgent
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.plugins.plugin_manager import PluginManager
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from google.adk.sessions.state import State
from google.adk.workflow import BaseNode
from google.genai import types

from durable_adk.adk.events import EventIds
from durable_adk.errors import ConfigError, InputConflict
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

    async def find(
        self,
        user_id: str,
        session_id: str,
        *,
        num_recent_events: int | None = None,
        after_timestamp: float | None = None,
    ) -> StoredSession | None: ...

    async def all_of(self, user_id: str | None) -> Sequence[StoredSession]: ...

    async def delete(self, user_id: str, session_id: str) -> None: ...

    async def user_state(self, user_id: str) -> dict[str, Any]: ...


class SessionView(BaseSessionService):
    """Stored sessions in the shape of ADK's session service. Subclasses say where they are."""

    @abc.abstractmethod
    def source_of(self, app_name: str) -> SessionSource:
        """The sessions of an app."""

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Make a session; a random id without one.

        ``user:`` and ``app:`` keys of its state are set for all sessions that share them,
        ``temp:`` ones are dropped, as ADK's services do.

        Raises:
            AlreadyExistsError: ADK's; the user has a session with this id.
            ConfigError, NotStorable: an id or the state.
        """
        source = self.source_of(app_name)
        given = (session_id or "").strip() or None
        try:
            return _session(app_name, await source.create(user_id, given, state))
        except InputConflict as error:
            raise _already_exists(str(error)) from error

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """A session with its state and events, those that ``config`` asks for; else None."""
        wanted = config or GetSessionConfig()
        found = await self.source_of(app_name).find(
            user_id,
            session_id,
            num_recent_events=wanted.num_recent_events,
            after_timestamp=wanted.after_timestamp,
        )
        return None if found is None else _session(app_name, found)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """All sessions with their state, without events; the last changed one comes last."""
        found = await self.source_of(app_name).all_of(user_id)
        ordered = sorted(found, key=lambda one: (one.updated_at, one.user_id, one.session_id))
        return ListSessionsResponse(sessions=[_session(app_name, each) for each in ordered])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session with all its executions; nothing if there is none, as ADK's do.

        Raises:
            DurableError: what ``app.sessions.delete`` refuses.
        """
        await self.source_of(app_name).delete(user_id, session_id)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The ``user:`` state, keys without their prefix."""
        return await self.source_of(app_name).user_state(user_id)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Refuse: an event that no execution made would be on no record.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"session {session.id!r}: append_event",
            "the history of a durable session is made by its executions only; nothing was changed",
            "Send a message to a DurableRunner, with state_delta= for state.",
        )


def _already_exists(text: str) -> Exception:
    """What ADK's services raise for an id that is taken; ADK's runner has not loaded it."""
    errors: Any = import_module("google.adk.errors.already_exists_error")
    return errors.AlreadyExistsError(text)  # type: ignore[no-any-return]


def _session(app_name: str, stored: StoredSession) -> Session:
    return Session(
        app_name=app_name,
        user_id=stored.user_id,
        id=stored.session_id,
        state=dict(stored.state),
        events=list(stored.events),
        last_update_time=stored.updated_at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedState:
    """The state of a new session by where it belongs.

    Attributes:
        session: Of the session itself.
        shared: The ``user:`` and ``app:`` entries, keys with their prefix.
    """

    session: dict[str, Any]
    shared: dict[str, Any]


def scoped_state(state: Mapping[str, Any] | None) -> ScopedState:
    """Sort state as ADK's services do; ``temp:`` entries are dropped."""
    shared = (State.USER_PREFIX, State.APP_PREFIX)
    kept = {k: v for k, v in (state or {}).items() if not k.startswith(State.TEMP_PREFIX)}
    return ScopedState(
        session={key: value for key, value in kept.items() if not key.startswith(shared)},
        shared={key: value for key, value in kept.items() if key.startswith(shared)},
    )


class RunnerBase(Runner):
    """An ADK runner whose sessions are durable; how it runs is up to the subclass."""

    session_service: SessionView

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

    def _collect_toolset(self, root: Any, visited: Any = None) -> set[Any]:
        """Nothing for ADK to close: the App does, when nothing runs (``open_toolsets``)."""
        return set()

    def run_live(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        live_request_queue: Any,
        run_config: Any = None,
        session: Any = None,
    ) -> Any:
        """Reserved.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            "runner.run_live", "not yet: live runs are not recorded", "Use run_async()."
        )


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
        "Pass an instance, as LlmAgent(...) makes one.",
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


def user_event(
    message: types.Content,
    invocation_id: str,
    *,
    state_delta: Mapping[str, Any] | None = None,
    run_config: Any = None,
) -> Event:
    """The user's own message as ADK yields it on request; one that begins an execution under the id
    that it is stored with."""
    content = message if message.role == "user" else types.UserContent(parts=message.parts)
    event = Event(author="user", invocation_id=invocation_id, content=content)
    event.actions.state_delta.update(state_delta or {})
    if run_config is not None and run_config.custom_metadata:
        event.custom_metadata = dict(run_config.custom_metadata)
    if not event.get_function_responses():
        event.id = EventIds(invocation_id, 1).next(event)
    return event


def after_answer(events: Sequence[Event], ids: frozenset[str]) -> Sequence[Event]:
    """The events that came after an answer to one of these calls; all if there is none."""
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.author == "user" and any(r.id in ids for r in event.get_function_responses()):
            return events[index + 1 :]
    return events
