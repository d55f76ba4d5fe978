"""The sessions of an App as ADK's session service shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from durable_adk.adk.runner_base import StoredSession
from durable_adk.app.checks import MAX_PAGE
from durable_adk.app.lifecycle import Lifecycle
from durable_adk.app.outcome import SessionInfo
from durable_adk.app.sessions import Sessions
from durable_adk.errors import NotFound


class Source:
    """Implements ``adk.runner_base.SessionSource``."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.app_name = lifecycle.name
        self.mongodb = lifecycle.mongodb
        self._sessions = Sessions(lifecycle)

    async def create(
        self, user_id: str, session_id: str | None, state: Mapping[str, Any] | None
    ) -> StoredSession:
        return _shown(await self._sessions.create(user_id, session_id, state))

    async def find(self, user_id: str, session_id: str) -> StoredSession | None:
        try:
            past = await self._sessions.past(user_id, session_id)
        except NotFound:
            return None
        return _shown(past.info(), past.events)

    async def all_of(self, user_id: str | None) -> Sequence[StoredSession]:
        found: list[StoredSession] = []
        cursor: str | None = None
        while True:
            page = await self._sessions.list(user_id=user_id, limit=MAX_PAGE, cursor=cursor)
            found.extend(_shown(info) for info in page.items)
            cursor = page.cursor
            if cursor is None:
                return found


def _shown(info: SessionInfo, events: tuple[Any, ...] = ()) -> StoredSession:
    changed = info.updated_at or info.created_at
    return StoredSession(
        user_id=info.user_id,
        session_id=info.id,
        state=info.state or {},
        events=events,
        updated_at=changed.timestamp() if changed else 0.0,
    )
