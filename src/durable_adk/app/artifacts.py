"""``MongoArtifactService``, and the artifact service of an App: any, read through the lineage."""

from __future__ import annotations

import asyncio
import copy
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from durable_adk import config as configuration
from durable_adk.adk.artifact_lineage import through_lineage
from durable_adk.adk.mongo_artifacts import StoredArtifacts
from durable_adk.app import checks
from durable_adk.app.stores import make_store
from durable_adk.engine.ports import Clock, Faults
from durable_adk.errors import ConfigError
from durable_adk.model.execution import SessionRecord
from durable_adk.model.identity import Tenant, session_key
from durable_adk.store.mongo import MongoStore

OpenStore = Callable[[], Awaitable[MongoStore]]


class MongoArtifactService(StoredArtifacts):
    """An ADK artifact service on your own MongoDB.

    Without arguments it is for ``App(artifact_service=MongoArtifactService())`` (or a
    ``DurableRunner``) and keeps artifacts in that App's database, under its namespace; given to
    several, each App uses its own, and calls on the object itself reach the first one's. With
    ``mongodb`` or ``config`` it stands alone: the first call opens it on the running loop;
    ``close()`` or ``async with`` closes it.

    Args:
        mongodb, database: As for ``durable_adk.App``.
        config: A mapping shaped like ``agent.yaml`` or the path of a file; only what concerns
            the database, and ``namespace``, is used.
        clock, faults: For tests: see ``durable_adk.testing``.

    Raises:
        ConfigError: naming file, key and rule.
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
        self._open: OpenStore | None = None
        self._own: _OwnStore | None = None
        self._namespace = ""
        if mongodb is None and config is None:
            if database is not None:
                raise ConfigError(
                    "MongoArtifactService(database=)",
                    "is given without a MongoDB",
                    "Pass mongodb= too; without both, the App's own database is used.",
                )
            return
        settings = configuration.load(config, default_file=None)
        if database is not None:
            settings = replace(settings, database=checks.checked_database(database))
        client = checks.checked_client(mongodb) if mongodb is not None else settings.uri
        self._own = _OwnStore(lambda: make_store(settings, client, clock=clock, faults=faults))
        self._open, self._namespace = self._own.opened, settings.namespace

    def of_app(self, opened: OpenStore, namespace: str) -> MongoArtifactService:
        """This service for an App: over its store, unless it stands alone."""
        if self._own is not None:
            return self
        if self._open is None:
            self._open, self._namespace = opened, namespace
        bound = copy.copy(self)
        bound._open, bound._namespace = opened, namespace
        return bound

    async def _store(self) -> tuple[MongoStore, str]:
        if self._open is None:
            raise ConfigError(
                "MongoArtifactService()",
                "belongs to no App and names no MongoDB",
                "Give it to App(artifact_service=...) or DurableRunner(...), or pass mongodb=.",
            )
        return await self._open(), self._namespace

    async def close(self) -> None:
        """Close its own connection; one that an App lends is closed by the App. Repeat: yes."""
        if self._own is not None:
            await self._own.close()

    async def __aenter__(self) -> Self:
        await self._store()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _OwnStore:
    """A store that is opened once, on the loop of the first call."""

    def __init__(self, make: Callable[[], MongoStore]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store: MongoStore | None = None

    async def opened(self) -> MongoStore:
        self._check_loop()
        if self._store is not None:
            return self._store
        async with self._lock:
            self._check_loop()
            if self._store is None:
                self._loop = asyncio.get_running_loop()
                try:
                    store = self._make()
                    await store.open()
                    self._store = store
                finally:
                    if self._store is None:
                        self._loop = None
            return self._store

    async def close(self) -> None:
        self._check_loop()
        async with self._lock:
            store, self._store = self._store, None
            try:
                if store is not None:
                    await store.close()
            finally:
                self._loop = None
        self._lock = asyncio.Lock()  # a lock belongs to the loop that it was waited for on

    def _check_loop(self) -> None:
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise ConfigError(
                "MongoArtifactService",
                "is open on another event loop",
                "Close it on the loop that opened it, or make one for each loop.",
            )


def artifacts_of_app(service: Any, opened: OpenStore, tenant: Tenant) -> Any:
    """The artifact service that an App's attempts and its runner use; None stays None.

    Args:
        service: What the user gave.
        opened: Gives the App's open store.
        tenant: Whose sessions are looked up; those of another app name are no forks.
    """
    if isinstance(service, MongoArtifactService):
        service = service.of_app(opened, tenant.namespace)

    async def lookup(app_name: str, user_id: str, session_id: str) -> SessionRecord | None:
        if app_name != tenant.app:
            return None
        return await (await opened()).get_session(session_key(tenant, user_id, session_id))

    return through_lineage(service, lookup)
