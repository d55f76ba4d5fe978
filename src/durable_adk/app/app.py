"""``App``: a durable agent, from a message to its outcome."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from durable_adk import config as configuration
from durable_adk.app import checks, late, show
from durable_adk.app.lifecycle import Lifecycle, Opened
from durable_adk.app.limits import AGAIN, Limit
from durable_adk.app.operating import Operating
from durable_adk.app.outcome import ExecutionRecord, Outcome, StreamEvent
from durable_adk.app.requests import checked_request
from durable_adk.app.runner import DurableRunner
from durable_adk.app.streams import stream
from durable_adk.engine.ports import Clock, Faults
from durable_adk.engine.program import Sink
from durable_adk.model.execution import Execution
from durable_adk.model.identity import checked_id


class App(Operating):
    """An ADK agent or workflow that survives crashes and waits, on your own MongoDB.

    Making one reads its configuration file and does no other I/O. The first call opens it on
    the running event loop; ``async with app`` does so early and closes it.

    Args:
        name: Part of every key: two Apps with one name (and namespace) share their executions.
        root_agent: Any supported ADK node. Or decorate a function with ``@app.entrypoint``.
            Only what runs the agent needs one: an App without it reads, answers and submits.
        config: A mapping shaped like ``agent.yaml`` or the path of a file; it replaces
            ``./agent.yaml``, nothing is merged.
        mongodb: A connection string, an ``AsyncMongoClient`` or a Motor client; a client is
            left open. Default: ``mongodb.uri``, then the environment variable ``MONGODB_URI``.
        database: Default: ``mongodb.database``, then the path of the connection string (not
            that of a client), then ``durable_adk``.
        plugins, artifact_service, memory_service, credential_service: As for ADK's ``Runner``.
        clock, faults: For tests: see ``durable_adk.testing``.

    Raises:
        ConfigError: naming file, key and rule.
    """

    def __init__(
        self,
        name: str,
        *,
        root_agent: object = None,
        config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        mongodb: object = None,
        database: str | None = None,
        plugins: Sequence[Any] = (),
        artifact_service: Any = None,
        memory_service: Any = None,
        credential_service: Any = None,
        clock: Clock | None = None,
        faults: Faults | None = None,
    ) -> None:
        settings = configuration.load(config)
        if database is not None:
            settings = replace(settings, database=checks.checked_database(database))
        super().__init__(name, root_agent)
        self._lifecycle = Lifecycle(
            self.name,
            settings=settings,
            root=self._root,
            registry=self._registry,
            mongodb=mongodb,
            parts={
                "plugins": tuple(plugins),
                "artifact_service": artifact_service,
                "memory_service": memory_service,
                "credential_service": credential_service,
            },
            clock=clock,
            faults=faults,
        )
        self._runner: DurableRunner | None = None

    def __repr__(self) -> str:
        """Name it; never its connection string."""
        state = "open" if self._lifecycle.is_open else "closed"
        return f"<App {self.name!r} namespace={self._lifecycle.tenant.namespace!r} {state}>"

    @property
    def runner(self) -> DurableRunner:
        """This App as an ADK runner, for front ends that want one.

        It fails an execution after ``retry.runner_attempts`` and raises the agent's exception.
        """
        if self._runner is None:
            attempts = self._lifecycle.settings.runner_attempts
            self._runner = DurableRunner.of(self._lifecycle.with_attempts(attempts))
        return self._runner

    # ---------------------------------------------------------------- lifecycle

    async def open(self) -> Self:
        """Open on the running loop: check the agent and the server, make the indexes.

        With durability switched off there is nothing to open; the first call says so.
        """
        if self._lifecycle.settings.durable_workflow:
            await self._lifecycle.opened()
        return self

    async def close(self) -> None:
        """Let attempts run for ``shutdown.grace``, give the rest back, close an own client.

        Once it has begun nothing is claimed or begun. A call under way that meets the closed store
        raises ``Unavailable``, or ``WriteUnknown`` where its write may have been done: made again
        on the open App it is settled.

        The agents' toolsets are closed as ADK's runner closes them, each once, unless another App
        of this process has one open; what a toolset raises is logged. So are the plugins, by
        ADK's plugin manager, after all else.

        Raises:
            RuntimeError: plugins failed to close. All else is closed.
        """
        runner, lifecycle = self._runner, self._lifecycle
        has_run = lifecycle.has_run or (runner is not None and runner.has_run)
        try:
            if runner is not None:
                await runner.close(keeps_plugins=True)
        finally:
            try:
                await lifecycle.close()
            finally:
                if has_run:
                    await late.plugins_closed(lifecycle.plugins())

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # ---------------------------------------------------------------- running

    async def invoke(
        self,
        *,
        user_id: str,
        session_id: str | None = None,
        message: Any,
        execution_id: str | None = None,
        state_delta: Mapping[str, Any] | None = None,
        run_config: Any = None,
        timeout: float | None = None,
        deadline: object = None,
    ) -> Outcome:
        """Run the agent on a message, until it ends or waits for somebody.

        When the attempt fails while attempts are left (``retry.max_attempts``), the outcome is
        ``queued`` at once, with its ``error``. A worker, ``recover()``, the session's next
        message or the same call with the same ``execution_id`` goes on where the record ends.

        Args:
            user_id: Whose conversation.
            session_id: Which one; a new session by default.
            message: Text, or ``types.Content`` (images and files too).
            execution_id: Makes the call idempotent: same id and input, same outcome. Without
                one, the same message again is a new turn.
            state_delta: Session state to set with the message.
            run_config: ADK's ``RunConfig``.
            timeout: Seconds to wait for an outcome; the execution goes on without the caller.
            deadline: When the execution has to be done: seconds, a ``timedelta`` or text with a
                unit (``24h``) from its beginning, or an aware ``datetime``; by the server's clock.
                Whoever comes by it after that ends it as ``failed`` with ``DeadlineExceeded``, also
                while it waits for somebody. Not part of what repeats are compared by.

        Raises:
            ConfigError: an argument, a setting or the agent; ``DurabilityDisabled``.
            SessionBusy: the session has an unfinished execution.
            InputConflict: the execution id belongs to another input.
            NotStorable: a value of the message or the state cannot be recorded.
            Unavailable: MongoDB, or no outcome within ``timeout``; the same call again goes on.
            WriteUnknown: MongoDB did not acknowledge; the same call again settles it.
        """
        return await self._invoke(
            None,
            timeout=timeout,
            deadline=deadline,
            user_id=user_id,
            session_id=session_id,
            message=message,
            execution_id=execution_id,
            state_delta=state_delta,
            run_config=run_config,
        )

    async def stream(
        self,
        *,
        user_id: str,
        session_id: str | None = None,
        message: Any,
        execution_id: str | None = None,
        state_delta: Mapping[str, Any] | None = None,
        run_config: Any = None,
        timeout: float | None = None,
        deadline: object = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """``invoke``, with tokens and events as they come; the last item holds the outcome.

        Tokens come only when ADK streams the model, which is asked for with
        ``run_config=RunConfig(streaming_mode=StreamingMode.SSE)``
        (``from google.adk.agents.run_config import RunConfig, StreamingMode``).
        Closing the generator only detaches. Refusals are raised before the first item.
        """

        async def start(sink: Sink) -> Outcome:
            return await self._invoke(
                sink,
                timeout=timeout,
                deadline=deadline,
                user_id=user_id,
                session_id=session_id,
                message=message,
                execution_id=execution_id,
                state_delta=state_delta,
                run_config=run_config,
            )

        async for item in stream(start):
            yield item

    async def _invoke(
        self, sink: Sink | None, *, timeout: object, deadline: object, **arguments: Any
    ) -> Outcome:
        self._lifecycle.check_enabled()
        limit = Limit(timeout)
        message = checked_request(**arguments, deadline=deadline)
        opened = await limit.keep(self._lifecycle.opened_to_run(), of="the message")
        request = await limit.keep(message.request(opened), of="the message")
        execution = await opened.engine.invoke(request, timeout=limit.left, sink=sink)
        return await self._shown_within(limit, opened, execution)

    async def _shown_within(self, limit: Limit, opened: Opened, execution: Execution) -> Outcome:
        return await limit.keep(
            self._outcome(opened, execution),
            of=f"execution {execution.execution_id!r}",
            remedy="executions.outcome() shows how it stands.",
        )

    async def submit(
        self,
        *,
        user_id: str,
        session_id: str | None = None,
        message: Any,
        execution_id: str | None = None,
        state_delta: Mapping[str, Any] | None = None,
        run_config: Any = None,
        timeout: float | None = None,
        deadline: object = None,
    ) -> ExecutionRecord:
        """Queue a message without running it: a worker or ``recover()`` does.

        Needs no root agent here.

        Arguments and errors are those of ``invoke``.
        """
        self._lifecycle.check_enabled()
        limit = Limit(timeout)
        message = checked_request(
            user_id=user_id,
            session_id=session_id,
            message=message,
            execution_id=execution_id,
            state_delta=state_delta,
            run_config=run_config,
            deadline=deadline,
        )
        opened = await limit.keep(self._lifecycle.opened(), of="the message")
        request = await limit.keep(message.request(opened), of="the message")
        queued = opened.engine.submit(request)
        return show.record_of(await limit.keep(queued, of="the message", remedy=AGAIN))

    async def resume(
        self,
        execution_id: str,
        answers: Mapping[str, Any] = {},
        *,
        by: str | None = None,
        timeout: float | None = None,
    ) -> Outcome:
        """Answer all open waits of an execution at once, and run on to its next stop.

        Args:
            execution_id: Which one.
            answers: ``{wait id: value}`` for every open wait. A confirmation takes
                ``{"confirmed": bool, "payload": ...}``, an input any JSON value but null.
            by: Who answers, for the record: up to 1,000 characters.
            timeout: As for ``invoke``.

        Raises:
            NotFound: there is no such execution.
            InvalidAnswer: an answer is missing, unknown or does not fit; nothing was stored.
            AnswerConflict: a wait is answered with something else; nothing was stored.
            WaitClosed: the execution ended without these answers.
            SessionBusy: the execution is ``stuck``: see ``retry`` and ``cancel``.
            ConfigError, Unavailable, WriteUnknown: as for ``invoke``.
        """
        return await self._resume(None, execution_id, answers, by=by, timeout=timeout)

    async def resume_stream(
        self,
        execution_id: str,
        answers: Mapping[str, Any] = {},
        *,
        by: str | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[StreamEvent, None]:
        """``resume``, with tokens and events as they come; the last item holds the outcome.

        Tokens come when the message that began the execution asked for them: see ``stream``.
        """

        async def start(sink: Sink) -> Outcome:
            return await self._resume(sink, execution_id, answers, by=by, timeout=timeout)

        async for item in stream(start):
            yield item

    async def _resume(
        self,
        sink: Sink | None,
        execution_id: object,
        answers: object,
        *,
        by: object,
        timeout: object,
    ) -> Outcome:
        self._lifecycle.check_enabled()
        checked = checked_id("execution_id", execution_id)
        limit = Limit(timeout)
        given = checks.checked_answers(answers)
        who = checks.checked_by(by)
        of = f"execution {checked!r}"
        opened = await limit.keep(self._lifecycle.opened_to_run(), of=of)
        resumed = opened.engine.resume(checked, given, by=who, sink=sink)
        execution = await limit.keep(resumed, of=of, remedy=AGAIN)
        return await self._shown_within(limit, opened, execution)
