"""``app.sessions``: conversations, their state and their events."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from durable_adk.app import checks
from durable_adk.app.lifecycle import Lifecycle, Opened
from durable_adk.app.outcome import Page, SessionInfo
from durable_adk.engine.reads import committed_steps, moment
from durable_adk.errors import ConfigError, InputConflict, NotFound
from durable_adk.model.codec import decode, encode
from durable_adk.model.execution import Execution, SessionRecord, Turn
from durable_adk.model.identity import checked_id, session_key
from durable_adk.model.store_results import Selection

_ELSEWHERE = ("user:", "app:", "temp:")


@dataclass(frozen=True, slots=True)
class Past:
    """A session with what its executions committed.

    Attributes:
        state: After its last finished turn, with the shared ``user:`` and ``app:`` entries.
        events: Of the committed steps that were loaded.
        updated_at: Server milliseconds of the last change.
    """

    record: SessionRecord
    state: dict[str, Any]
    events: tuple[Any, ...]
    updated_at: int

    def info(self) -> SessionInfo:
        return SessionInfo(
            id=self.record.session_id,
            user_id=self.record.user_id,
            state=self.state,
            created_at=moment(self.record.created_at),
            updated_at=moment(self.updated_at),
        )


class Sessions:
    """The sessions of this App and namespace."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    async def create(
        self,
        user_id: str,
        session_id: str | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> SessionInfo:
        """Make a session, with some state to begin with.

        ``invoke`` makes a missing session by itself; this is for an initial state.

        Raises:
            ConfigError: an id or the state is malformed.
            InputConflict: the user has a session with this id.
            NotStorable: a value of the state cannot be recorded.
        """
        user = checked_id("user_id", user_id)
        session = checks.checked_optional_id("session_id", session_id) or str(uuid.uuid4())
        given = checks.checked_state("state", state) or {}
        for key in given:
            if key.startswith(_ELSEWHERE):
                raise ConfigError(
                    f"state: {key!r}",
                    "does not belong to one session",
                    "Set user: and app: state with state_delta= of invoke, or in the agent.",
                )
        payload = encode(given, where="state") if given else None
        opened = await self._lifecycle.opened()
        record = await opened.store.create_session(
            SessionRecord(
                key=session_key(self._lifecycle.tenant, user, session),
                tenant=self._lifecycle.tenant,
                user_id=user,
                session_id=session,
                state=payload,
            )
        )
        if record is None:
            raise InputConflict(
                f"session {session!r} of user {user!r}",
                "there is one already",
                "Use another id, or get() it.",
            )
        return SessionInfo(
            id=session,
            user_id=user,
            state=decode(payload) if payload else {},
            created_at=moment(record.created_at),
            updated_at=moment(record.created_at),
        )

    async def get(self, user_id: str, session_id: str) -> SessionInfo:
        """A session with its state after the last finished turn.

        Raises:
            NotFound: the user has no such session.
        """
        return (await self.past(user_id, session_id, max_turns=1)).info()

    async def list(
        self, *, user_id: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[SessionInfo]:
        """Sessions, oldest first, without their state."""
        selection = Selection(
            tenant=self._lifecycle.tenant,
            user_id=checks.checked_optional_id("user_id", user_id),
            limit=checks.checked_limit(limit),
            cursor=None if cursor is None else checks.checked_text("cursor", cursor),
        )
        opened = await self._lifecycle.opened()
        found, following = await opened.store.list_sessions(selection)
        return Page(
            tuple(
                SessionInfo(
                    id=record.session_id,
                    user_id=record.user_id,
                    created_at=moment(record.created_at),
                )
                for record in found
            ),
            following,
        )

    async def events(self, user_id: str, session_id: str) -> tuple[Any, ...]:
        """All committed events of the session, as ADK's ``Event``, oldest first.

        Raises:
            NotFound: the user has no such session.
        """
        return (await self.past(user_id, session_id)).events

    async def delete(self, user_id: str, session_id: str) -> None:
        """Reserved."""
        raise checks.not_yet("app.sessions.delete", "Leave the session; nothing runs in it.")

    async def delete_user(self, user_id: str) -> None:
        """Reserved."""
        raise checks.not_yet("app.sessions.delete_user", "Leave the sessions.")

    async def fork(self, *_where: object, **_how: object) -> Any:
        """Reserved."""
        raise checks.not_yet("app.sessions.fork", "Start a new session.")

    async def tree(self, *_where: object, **_how: object) -> Any:
        """Reserved."""
        raise checks.not_yet("app.sessions.tree", "List the sessions.")

    async def past(self, user_id: str, session_id: str, *, max_turns: int | None = None) -> Past:
        """A session with its newest turns (all by default) and what its open one committed.

        Raises:
            NotFound: the user has no such session.
        """
        user, session = checked_id("user_id", user_id), checked_id("session_id", session_id)
        opened = await self._lifecycle.opened()
        key = session_key(self._lifecycle.tenant, user, session)
        record = await opened.store.get_session(key)
        if record is None:
            raise NotFound(
                f"session {session!r} of user {user!r}",
                "there is no such session",
                "invoke() makes it, or sessions.create().",
            )
        shared, _stamp = await opened.store.load_scopes(self._lifecycle.tenant, user)
        latest = await opened.store.latest_execution(key)
        turns = [] if latest is None else await _turns(opened, latest, max_turns)
        state = decode(record.state) if record.state else {}
        events: list[Any] = []
        for turn in turns:
            events.extend(opened.program.decode_events(turn.execution, turn.steps))
            for step in turn.steps:
                if step.state is not None:
                    state = decode(step.state)
        state |= {name: decode(value) for name, value in shared.items()}
        updated_at = record.created_at
        if latest is not None:
            moments = (latest.created_at, latest.ended_at or 0, latest.waiting_since or 0)
            updated_at = max(updated_at, *moments)
        return Past(record, state, tuple(events), updated_at)


async def _turns(opened: Opened, latest: Execution, max_turns: int | None) -> list[Turn]:
    """The turns of a session in order, with what its last one committed so far."""
    # History is what lies before a turn; for the last one, finished or not, ask for the next.
    before = replace(latest, turn=latest.turn if latest.is_active else latest.turn + 1)
    history = await opened.store.load_history(before, max_turns=max_turns)
    turns = list(history.turns)
    if latest.is_active:
        steps = await committed_steps(opened.store, latest)
        turns.append(Turn(execution=latest, steps=tuple(steps)))
    return turns
