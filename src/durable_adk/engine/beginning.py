"""New executions: what a request asks to insert, and under which id."""

from __future__ import annotations

import uuid
from dataclasses import replace

from durable_adk.engine.forking import FORKS, Forking
from durable_adk.engine.ports import Store
from durable_adk.engine.requests import Request, session_of
from durable_adk.engine.settings import EngineSettings
from durable_adk.errors import InputConflict
from durable_adk.model.codec import digest
from durable_adk.model.execution import NewExecution, SessionRecord
from durable_adk.model.identity import (
    Tenant,
    checked_id,
    execution_key,
    new_nonce,
    new_run_id,
    session_key,
)


class Beginning:
    """Makes ``NewExecution``s of one tenant."""

    def __init__(
        self, store: Store, tenant: Tenant, settings: EngineSettings, forking: Forking
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._settings = settings
        self._forking = forking

    def new(self, request: Request, *, run_now: bool) -> NewExecution:
        """Raises: ConfigError: an id that cannot be one."""
        execution_id = (
            str(uuid.uuid4())
            if request.execution_id is None
            else checked_id("execution_id", request.execution_id)
        )
        user_id = checked_id("user_id", request.user_id)
        session_id = (
            session_of(execution_id)
            if request.session_id is None
            else checked_id("session_id", request.session_id)
        )
        return NewExecution(
            key=execution_key(self._tenant, execution_id),
            execution_id=execution_id,
            tenant=self._tenant,
            user_id=user_id,
            session_id=session_id,
            session_key=session_key(self._tenant, user_id, session_id),
            run=new_run_id(),
            invocation_id=execution_id,
            input=request.input,
            input_digest=digest(request.input),
            nonce=new_nonce(),
            run_now=run_now,
            ttl_ms=self._settings.lease_ttl_ms,
            version=self._settings.version,
            code=self._settings.code,
            initial_state=request.initial_state,
            deadline=request.deadline,
        )

    async def check_id(self, new: NewExecution) -> None:
        """Raises: InputConflict: the id is that of a fork's first execution, and this is another
        session."""
        if not new.execution_id.startswith(FORKS):
            return
        fork = await self._store.session_awaiting(new.key)
        if fork is not None and fork.key != new.session_key:
            raise InputConflict(
                f"execution {new.execution_id!r}",
                f"belongs to session {fork.session_id!r}",
                "Use another execution id.",
            )

    async def as_next(
        self, request: Request, new: NewExecution, session: SessionRecord
    ) -> NewExecution:
        """The first execution of a fork has an id already; one made inside another execution is
        made first, and the message follows it.

        Raises:
            InputConflict: the caller asked for another id.
        """
        following = session.next
        assert following is not None  # ``Forked`` says so
        if following.made is not None:
            await self._forking.first_execution(session)
            return new
        if request.execution_id is not None:
            raise InputConflict(
                f"execution {request.execution_id!r}",
                f"the next one of session {session.session_id!r}, which is a fork, is"
                f" {following.execution_id!r}",
                "Use that id, or leave execution_id out.",
            )
        execution_id = following.execution_id
        return replace(
            new, key=following.key, execution_id=execution_id, invocation_id=execution_id
        )
