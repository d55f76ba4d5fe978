"""A session service that lives for one attempt.

It holds one live ``Session`` and appends in constant time; nothing it does reaches the
database. What was appended since the step began is what the step will commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from google.adk.sessions.state import State

from durable_adk.adk import events as stored
from durable_adk.adk.artifacts import Versions
from durable_adk.adk.stage import Stage
from durable_adk.errors import ConfigError

_SHARED = (State.USER_PREFIX, State.APP_PREFIX)
_TICK = 1e-6


class AttemptSessions(BaseSessionService):
    """The one session of an attempt."""

    def __init__(self, stage: Stage, session: Session, artifacts: Versions) -> None:
        self._stage = stage
        self.session = session
        self.artifacts = artifacts
        self.step_events: list[dict[str, Any]] = []
        self.shared_writes: dict[str, Any] = {}
        self._last_time = session.events[-1].timestamp if session.events else 0.0
        self._kept = session.model_copy(update={"events": [], "state": dict(session.state)})
        self._began = dict(session.state)

    def open_step(self) -> None:
        """Each run of ADK begins with what events have put into the state, and nothing else: what
        code changed in ``session.state`` past them is gone then, as with any session service."""
        self._began = dict(self._kept.state)
        self.session.state.clear()
        self.session.state.update(self._began)
        self.step_events = []
        self.shared_writes = {}

    async def append_event(self, session: Session, event: Event) -> Event:
        return event if event.partial else self.append(event)

    def append(self, event: Event) -> Event:
        """Give the event its id and time, apply it, and keep it for the step."""
        event.id = self._stage.event_ids.next(event)
        event.timestamp = self._last_time = max(event.timestamp, self._last_time + _TICK)
        self._apply_temp_state(self.session, event)
        event = self._commit_event_to_session(self.session, self._trim_temp_delta_state(event))
        self._update_session_state(self._kept, event)
        for key, value in event.actions.state_delta.items():
            if key.startswith(_SHARED):
                self.shared_writes[key] = value
        self.artifacts.note(event.actions.artifact_delta)
        self.step_events.append(stored.to_data(event))
        return event

    def restore(self, event: Event) -> None:
        """Append an event of the past as it was, its state included."""
        self._update_session_state(self.session, event)
        self._update_session_state(self._kept, event)
        self.artifacts.note(event.actions.artifact_delta)
        self.session.events.append(event)
        self._last_time = max(self._last_time, event.timestamp)

    def go_on_from(self, committed: Iterable[Event]) -> None:
        """Take the state that the events of the walked step left when they were committed: hooks
        that ran again, in another order perhaps, may have made another one."""
        self._kept.state = dict(self._began)
        for event in committed:
            self._update_session_state(self._kept, event)

    def events_of_step(self) -> list[Event]:
        """What was appended since the step began."""
        return self.session.events[len(self.session.events) - len(self.step_events) :]

    def state(self) -> dict[str, Any]:
        """The session's own state: what lives longer than the invocation and nowhere else."""
        return {
            key: value
            for key, value in self._kept.state.items()
            if not key.startswith((*_SHARED, State.TEMP_PREFIX))
        }

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        found = (app_name, user_id, session_id) == (
            self.session.app_name,
            self.session.user_id,
            self.session.id,
        )
        return self.session if found else None

    async def create_session(self, **_: Any) -> Session:
        raise self._refused("create_session")

    async def list_sessions(self, **_: Any) -> ListSessionsResponse:
        raise self._refused("list_sessions")

    async def delete_session(self, **_: Any) -> None:
        raise self._refused("delete_session")

    def _refused(self, what: str) -> ConfigError:
        return ConfigError(
            f"session_service.{what}",
            "a running execution has one session",
            "Use app.sessions outside of the execution.",
        )
