"""What there is: executions and sessions of one tenant, read by id or listed."""

from __future__ import annotations

import uuid

from durable_adk.engine.answers import open_waits
from durable_adk.engine.cuts import ArtifactsAt
from durable_adk.engine.forking import Forking
from durable_adk.engine.ports import Store
from durable_adk.engine.reads import activities_of
from durable_adk.errors import ConfigError, NotFound
from durable_adk.model.activity import ActivityInfo, Payload
from durable_adk.model.execution import Execution, SessionRecord
from durable_adk.model.identity import Tenant, checked_id, execution_key, session_key
from durable_adk.model.store_results import Selection
from durable_adk.model.wait import WaitRequest


class Catalog:
    """Reads, and the sessions that need no execution. Nothing here runs an agent."""

    def __init__(self, store: Store, tenant: Tenant, artifacts_at: ArtifactsAt) -> None:
        self.store = store
        self.tenant = tenant
        self.forking = Forking(store, tenant, artifacts_at)
        self.is_open = False

    def _require_open(self) -> None:
        if not self.is_open:
            raise ConfigError("engine", "is not open", "Open it first.")

    async def get(self, execution_id: str) -> Execution:
        """Raises: ConfigError: the id cannot be one. NotFound."""
        self._require_open()
        checked = checked_id("execution_id", execution_id)
        execution = await self.store.get_execution(execution_key(self.tenant, checked))
        if execution is None:
            execution = await self.forking.first_of(checked)
        if execution is None:
            raise NotFound(
                f"execution {execution_id!r}",
                "there is no such execution",
                "Look it up: app.executions.list().",
            )
        return execution

    def waits_of(self, execution: Execution) -> tuple[WaitRequest, ...]:
        """The open waits, in frontier order."""
        return open_waits(execution)

    async def activities(self, execution_id: str) -> tuple[ActivityInfo, ...]:
        """Every activity, the open step included."""
        return await activities_of(self.store, await self.get(execution_id))

    async def list_executions(
        self, selection: Selection
    ) -> tuple[tuple[Execution, ...], str | None]:
        self._require_open()
        return await self.store.list_executions(selection)

    async def list_waiting(self, selection: Selection) -> tuple[tuple[Execution, ...], str | None]:
        self._require_open()
        return await self.store.list_waiting(selection)

    # ------------------------------------------------------------ sessions

    async def create_session(
        self, user_id: str, session_id: str | None = None, state: Payload | None = None
    ) -> SessionRecord:
        """Make a session.

        Raises: ConfigError: an id that cannot be one, or a session that is there already.
        """
        self._require_open()
        user = checked_id("user_id", user_id)
        session = str(uuid.uuid4()) if session_id is None else checked_id("session_id", session_id)
        made = await self.store.create_session(
            SessionRecord(
                key=session_key(self.tenant, user, session),
                tenant=self.tenant,
                user_id=user,
                session_id=session,
                state=state,
            )
        )
        if made is None:
            raise ConfigError("session_id", f"session {session!r} exists", "Use another id.")
        return made

    async def get_session(self, user_id: str, session_id: str) -> SessionRecord:
        """Raises: ConfigError: an id that cannot be one. NotFound."""
        self._require_open()
        user, session = checked_id("user_id", user_id), checked_id("session_id", session_id)
        found = await self.store.get_session(session_key(self.tenant, user, session))
        if found is None:
            raise NotFound(f"session {session!r}", f"user {user!r} has no such session")
        return found

    async def list_sessions(
        self, selection: Selection
    ) -> tuple[tuple[SessionRecord, ...], str | None]:
        self._require_open()
        return await self.store.list_sessions(selection)
