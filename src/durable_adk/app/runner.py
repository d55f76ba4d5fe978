"""``DurableRunner``: what programs written for ADK's runner use instead of it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from durable_adk.adk.runner_base import RunnerBase
from durable_adk.app import checks, rewinding
from durable_adk.app.lifecycle import Lifecycle, Opened, Root
from durable_adk.app.outcome import SessionFork
from durable_adk.app.runner_call import RunnerCall
from durable_adk.app.session_source import DurableSessionService, place_of, settings_of
from durable_adk.app.tools import ToolRegistry
from durable_adk.config import Settings
from durable_adk.engine.ports import Clock, Faults
from durable_adk.errors import ConfigError, NotFound
from durable_adk.model.identity import checked_id

logger = logging.getLogger("durable_adk.app")

_closes_after = ContextVar("durable_adk_closes_after", default=False)


class DurableRunner(RunnerBase):
    """ADK's ``Runner``, durable: the same parameters, the same events.

    Using it is the opt-in; no ``agent.yaml`` is read. A failure ends the execution
    (``retry.runner_attempts``) and the agent's own exception is raised.

    Args:
        app, app_name, agent, node, plugins, artifact_service, memory_service,
            credential_service, plugin_close_timeout: As for ADK's ``Runner``.
        session_service: Leave it out, or a ``DurableSessionService``, whose MongoDB and settings
            are used: sessions are kept with their executions.
        auto_create_session: Whether an unknown session is made; True here.
        mongodb, database, config: As for ``durable_adk.App``.
        clock, faults: For tests: see ``durable_adk.testing``.

    Raises:
        ConfigError: a session service of another kind, or what ``App`` refuses.
    """

    def __init__(
        self,
        *,
        app: Any = None,
        app_name: str | None = None,
        agent: Any = None,
        node: Any = None,
        plugins: list[Any] | None = None,
        artifact_service: Any = None,
        session_service: Any = None,
        memory_service: Any = None,
        credential_service: Any = None,
        plugin_close_timeout: float = 5.0,
        auto_create_session: bool = True,
        mongodb: object = None,
        database: str | None = None,
        config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        faults: Faults | None = None,
    ) -> None:
        """See the class: where it says something else than ADK's ``Runner``, that holds here."""
        mongodb, settings = _place(session_service, mongodb, database, config)
        root = Root()
        services = {
            "artifact_service": artifact_service,
            "memory_service": memory_service,
            "credential_service": credential_service,
        }
        name = app_name or getattr(app, "name", None) or getattr(node, "name", None)
        lifecycle = Lifecycle(
            checked_id("app_name", name),
            settings=settings,
            root=root,
            registry=ToolRegistry(),
            mongodb=mongodb,
            parts=services,
            clock=clock,
            faults=faults,
            max_attempts=settings.runner_attempts,
        )
        super().__init__(
            session_service=_kept(session_service) or DurableSessionService.of(lifecycle),
            app=app,
            app_name=app_name,
            agent=agent,
            node=node,
            plugins=plugins,
            plugin_close_timeout=plugin_close_timeout,
            auto_create_session=auto_create_session,
            **{**services, "artifact_service": lifecycle.artifact_service},
        )
        root.agent, root.adk_app = self.agent, self.app
        self._lifecycle = lifecycle
        self._has_root = True

    @classmethod
    def of(cls, lifecycle: Lifecycle) -> DurableRunner:
        """The runner of an App: its root (when an entrypoint has built it), services, database."""
        runner = cls.__new__(cls)
        runner._lifecycle = lifecycle
        runner.app_name = lifecycle.name
        runner.auto_create_session = True
        runner.session_service = DurableSessionService.of(lifecycle)
        runner.artifact_service = lifecycle.artifact_service
        runner._has_root = False
        if lifecycle.root.agent is not None:
            runner._take_root()
        return runner

    @property
    def has_run(self) -> bool:
        """Whether it was opened and is not closed."""
        return self._lifecycle.has_run

    def _take_root(self) -> None:
        self.take_root(
            self._lifecycle.root.agent,
            session_service=self.session_service,
            app_name=self.app_name,
            auto_create_session=self.auto_create_session,
            **self._lifecycle.parts,
        )
        self._has_root = True

    async def run_async(
        self,
        *,
        user_id: str,
        session_id: str,
        invocation_id: str | None = None,
        new_message: Any = None,
        state_delta: dict[str, Any] | None = None,
        run_config: Any = None,
        yield_user_message: bool = False,
        abort_signal: asyncio.Event | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Run the agent on a message, or go on with answers; yields ADK's events.

        Args:
            user_id: Whose conversation.
            session_id: Which one; made if ``auto_create_session``.
            invocation_id: The execution id: the same id and message, the same events.
            new_message: A message; or the answers to all open waits, as function responses by
                the call's id or by our wait id.
            state_delta: Session state to set with a message.
            run_config: ADK's ``RunConfig``; an answered execution keeps the one it began with.
            yield_user_message: Yield the message itself first.
            abort_signal: When it is set, the execution is cancelled.

        Raises:
            SessionNotFoundError: ADK's, without ``auto_create_session``.
            ExecutionFailed: the execution failed elsewhere, or is stuck.
            OutcomeUnknown: it waits for somebody who says whether a call happened.
            DurableError: what ``App.invoke`` and ``App.resume`` raise.
            Exception: what the agent raised, the very object.
        """
        if abort_signal is not None and abort_signal.is_set():
            return
        call = RunnerCall(
            tenant=self._lifecycle.tenant,
            makes_sessions=self.auto_create_session,
            user_id=checked_id("user_id", user_id),
            session_id=checked_id("session_id", session_id),
            invocation_id=checks.checked_optional_id("invocation_id", invocation_id),
            message=new_message,
            state_delta=state_delta,
            run_config=run_config,
        )
        try:
            opened = await self._lifecycle.opened_to_run()
            if not self._has_root:
                self._take_root()
            await call.prepare(opened)
            if yield_user_message and new_message is not None:
                yield call.user_event()
            async with (
                _aborting(opened, call, abort_signal),
                aclosing(call.events(opened)) as events,
            ):
                async for event in events:
                    yield event
        finally:
            if _closes_after.get():
                await self._lifecycle.close(keeps_toolsets=True)

    def run(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: Any,
        state_delta: dict[str, Any] | None = None,
        run_config: Any = None,
    ) -> Generator[Any, None, None]:
        """Run on a thread and a loop of its own, opened and closed for this one call."""
        events = super().run(
            user_id=user_id,
            session_id=session_id,
            new_message=new_message,
            state_delta=state_delta,
            run_config=run_config,
        )
        token = _closes_after.set(True)  # ADK copies the context at the first step
        try:
            first = next(events, None)
        finally:
            _closes_after.reset(token)
        if first is not None:
            yield first
            yield from events

    async def rewind_async(  # type: ignore[override]  # ADK's gives nothing back
        self,
        *,
        user_id: str,
        session_id: str,
        rewind_before_invocation_id: str,
        run_config: Any = None,
    ) -> SessionFork:
        """Fork the session before one of its turns, from within the turn that runs in it.

        ADK's marks the turns after the cut as undone; here the session does not change, and the
        new one goes on from before the cut with its next message.

        Args:
            user_id: Of the active invocation that calls this.
            session_id: Of it, too.
            rewind_before_invocation_id: The execution id of the first turn to leave out.
            run_config: Taken for ADK's sake.

        Raises:
            ConfigError, NotFound: what ``durable_adk.app.rewinding.rewind`` raises.
        """
        return await rewinding.rewind(
            self._lifecycle,
            user_id=user_id,
            session_id=session_id,
            rewind_before_invocation_id=rewind_before_invocation_id,
            run_config=run_config,
        )

    async def close(self, *, keeps_plugins: bool = False) -> None:
        """Close plugins as ADK does, then the connection and, once nothing runs, the toolsets.

        ``keeps_plugins``: leave them to the caller, an App whose runner this is.
        """
        try:
            if self._has_root:
                self.plugin_manager.set_skip_closing_plugins(keeps_plugins)
                await super().close()
        finally:
            await self._lifecycle.close()


def _place(
    session_service: object,
    mongodb: object,
    database: str | None,
    config: Mapping[str, Any] | str | os.PathLike[str] | None,
) -> tuple[object, Settings]:
    """The MongoDB to use, and the settings; a durable session service brings its own.

    Raises:
        ConfigError: a session service of another kind, or one that looks elsewhere.
    """
    if session_service is None:
        return mongodb, settings_of(config, database)
    if not isinstance(session_service, DurableSessionService):
        raise ConfigError(
            "session_service=",
            f"{type(session_service).__name__} would keep sessions apart from their executions",
            "Write DurableRunner(agent=..., app_name=..., mongodb=...), without session_service=."
            " App(...).sessions.import_from(service, app_name=...) brings its conversations along.",
        )
    found = session_service.mongodb if mongodb is None else mongodb
    settings = replace(session_service.settings, durable_workflow=True)
    if config is not None:
        settings = settings_of(config, database)
    elif database is not None:
        settings = replace(settings, database=checks.checked_database(database))
    here = (found, place_of(settings, found))
    if here != (session_service.mongodb, place_of(session_service.settings, found)):
        raise ConfigError(
            "session_service=",
            "has another MongoDB, database, collection prefix or namespace than the runner",
            "Leave mongodb=, database= and config= to the session service.",
        )
    return found, settings


def _kept(session_service: object) -> DurableSessionService | None:
    """A session service that was made by itself; that of another runner closes with that one."""
    if isinstance(session_service, DurableSessionService) and not session_service.is_of_a_runner:
        return session_service
    return None


@asynccontextmanager
async def _aborting(
    opened: Opened, call: RunnerCall, signal: asyncio.Event | None
) -> AsyncGenerator[None, None]:
    """Cancel the execution when the signal is set while the block runs."""
    if signal is None:
        yield
        return

    async def cancel_when_set() -> None:
        await signal.wait()
        try:
            await opened.engine.cancel(call.execution_id, "abort_signal was set")
        except NotFound:
            logger.info("aborted before it began", extra={"execution_id": call.execution_id})

    watcher = asyncio.create_task(cancel_when_set())
    try:
        yield
    finally:
        if not signal.is_set():
            watcher.cancel()
        await asyncio.wait({watcher})
        if not watcher.cancelled():
            watcher.result()
