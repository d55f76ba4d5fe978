"""``DurableSessionService``: the sessions of Apps as ADK's session service shows them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from durable_adk import config as configuration
from durable_adk.adk.runner_base import SessionView, StoredSession, scoped_state
from durable_adk.app import checks
from durable_adk.app.lifecycle import Lifecycle, Opened, Root
from durable_adk.app.outcome import SessionInfo
from durable_adk.app.sessions import Sessions
from durable_adk.app.tools import ToolRegistry
from durable_adk.config import DEFAULT_DATABASE, Settings
from durable_adk.engine.ends import stamp_after
from durable_adk.engine.ports import Clock, Faults
from durable_adk.engine.service import Engine
from durable_adk.engine.settings import EngineSettings
from durable_adk.errors import InputConflict, NotFound
from durable_adk.model.codec import decode, encode
from durable_adk.model.identity import checked_id, session_key
from durable_adk.store.drivers import database_in

_AT_ONCE = 16
_USER = "user:"


class Source:
    """Implements ``adk.runner_base.SessionSource`` for one app."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self.app_name = lifecycle.name
        self._lifecycle = lifecycle
        self._sessions = Sessions(lifecycle)

    async def create(
        self, user_id: str, session_id: str | None, state: Mapping[str, Any] | None
    ) -> StoredSession:
        user = checked_id("user_id", user_id)
        scoped = scoped_state(checks.checked_state("state", state))
        if scoped.shared:
            encode(scoped.session, where="state")  # refused before any of it is set
            await self._share(user, session_id, scoped.shared)
        made = await self._sessions.create(user, session_id, scoped.session)
        opened = await self._lifecycle.opened()
        shared, _stamp = await opened.store.load_scopes(self._lifecycle.tenant, user)
        values = {name: decode(value) for name, value in shared.items()}
        return _shown(replace(made, state={**(made.state or {}), **values}))

    async def _share(self, user_id: str, session_id: str | None, shared: dict[str, Any]) -> None:
        """Set shared state before the session is there, so that a crash leaves no session
        without it; the same call again sets the same."""
        scopes = encode(shared, where="state")
        opened = await self._lifecycle.opened()
        store, tenant = opened.store, self._lifecycle.tenant
        if session_id is not None:
            session = checked_id("session_id", session_id)
            if await store.get_session(session_key(tenant, user_id, session)) is not None:
                raise InputConflict(
                    f"session {session!r} of user {user_id!r}", "there is one already"
                )
        _values, newest = await store.load_scopes(tenant, user_id)
        stamp = stamp_after(newest, now=store.clock.estimate(), execution_id=session_id or "-")
        await store.put_scopes(tenant, user_id, scopes, stamp=stamp)

    async def find(
        self,
        user_id: str,
        session_id: str,
        *,
        num_recent_events: int | None = None,
        after_timestamp: float | None = None,
    ) -> StoredSession | None:
        try:
            past = await self._sessions.past(
                user_id,
                session_id,
                num_recent_events=num_recent_events,
                after_timestamp=after_timestamp,
            )
        except NotFound:
            return None
        return _shown(past.info(), past.events)

    async def all_of(self, user_id: str | None) -> Sequence[StoredSession]:
        found: list[StoredSession] = []
        cursor: str | None = None
        while True:
            page = await self._sessions.list(user_id=user_id, limit=_AT_ONCE, cursor=cursor)
            whole = await asyncio.gather(
                *(self.find(info.user_id, info.id, num_recent_events=0) for info in page.items)
            )
            found.extend(session for session in whole if session is not None)
            cursor = page.cursor
            if cursor is None:
                return found

    async def delete(self, user_id: str, session_id: str) -> None:
        try:
            await self._sessions.delete(user_id, session_id)
        except NotFound:
            return

    async def user_state(self, user_id: str) -> dict[str, Any]:
        user = checked_id("user_id", user_id)
        opened = await self._lifecycle.opened()
        shared, _stamp = await opened.store.load_scopes(self._lifecycle.tenant, user)
        return {
            name.removeprefix(_USER): decode(value)
            for name, value in shared.items()
            if name.startswith(_USER)
        }


class _OneApp(Lifecycle):
    """The sessions of one app over what is open for others: a name, and nothing to close."""

    def __init__(self, name: str, base: Lifecycle) -> None:
        super().__init__(
            checked_id("app_name", name),
            settings=base.settings,
            root=Root(),
            registry=ToolRegistry(),
            mongodb=base.mongodb,
            parts={},
        )
        self._base = base

    async def opened(self) -> Opened:
        shared = await self._base.opened()
        engine = Engine(
            shared.store, shared.failures, shared.store.clock, self.tenant, EngineSettings()
        )
        return replace(shared, engine=engine, has_root=False)


class DurableSessionService(SessionView):
    """ADK's session service over the sessions of durable executions, for every app name.

    History is made by executions alone: sessions can be created, read, listed and deleted,
    ``append_event`` is refused. Every runner has one as ``runner.session_service``. One made by
    itself opens on the running loop at its first call and has a client of its own, which
    ``close()`` closes; ``DurableRunner(session_service=...)`` then uses its MongoDB and settings.

    Args:
        mongodb, database, config: As for ``DurableRunner``; no file is read.
        clock, faults: For tests: see ``durable_adk.testing``.

    Raises:
        ConfigError: naming argument or key and rule.
    """

    def __init__(
        self,
        *,
        mongodb: object = None,
        database: str | None = None,
        config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._is_of_a_runner = False
        self._lifecycle = Lifecycle(
            type(self).__name__,
            settings=settings_of(config, database),
            root=Root(),
            registry=ToolRegistry(),
            mongodb=mongodb,
            parts={},
            clock=clock,
            faults=faults,
        )

    @classmethod
    def of(cls, lifecycle: Lifecycle) -> DurableSessionService:
        """The service of a runner: it opens and closes with it."""
        service = cls.__new__(cls)
        service._is_of_a_runner = True
        service._lifecycle = lifecycle
        return service

    @property
    def is_of_a_runner(self) -> bool:
        """Whether it opens and closes with a runner."""
        return self._is_of_a_runner

    @property
    def mongodb(self) -> object:
        """The connection string or client it was made with."""
        return self._lifecycle.mongodb

    @property
    def settings(self) -> Settings:
        """Where in that MongoDB the sessions are, and how they are kept."""
        return self._lifecycle.settings

    def source_of(self, app_name: str) -> Source:
        """The sessions of an app.

        Raises:
            ConfigError: no name that an app can have.
        """
        if self._is_of_a_runner and app_name == self._lifecycle.name:
            return Source(self._lifecycle)
        return Source(_OneApp(app_name, self._lifecycle))

    async def close(self) -> None:
        """Close its client; it may be opened again. One of a runner closes with the runner."""
        if not self._is_of_a_runner:
            await self._lifecycle.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def settings_of(
    config: Mapping[str, Any] | str | os.PathLike[str] | None, database: str | None
) -> Settings:
    """Settings without a file: using what asks for them is the opt-in."""
    settings = replace(configuration.load(config, default_file=None), durable_workflow=True)
    if database is not None:
        settings = replace(settings, database=checks.checked_database(database))
    return settings


def place_of(settings: Settings, mongodb: object) -> tuple[str, str, str]:
    """Namespace, database and collection prefix: what two users of one MongoDB must share."""
    database = settings.database or database_in(mongodb) or DEFAULT_DATABASE
    return settings.namespace, database, settings.collection_prefix


def _shown(info: SessionInfo, events: tuple[Any, ...] = ()) -> StoredSession:
    changed = info.updated_at or info.created_at
    return StoredSession(
        user_id=info.user_id,
        session_id=info.id,
        state=info.state or {},
        events=events,
        updated_at=changed.timestamp() if changed else 0.0,
    )
