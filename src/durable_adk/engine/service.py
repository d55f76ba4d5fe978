"""The engine as the app uses it: begin, answer, go on, end, look.

Calls raise only when nothing ran: a bad argument, a busy session, an unknown id, an answer that
does not fit, a MongoDB that is not there. What ran returns the execution where it stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import partial

from durable_adk.engine.answering import Answering, Receipt
from durable_adk.engine.answers import stored_answer, stored_answers
from durable_adk.engine.beginning import Beginning
from durable_adk.engine.catalog import Catalog
from durable_adk.engine.expiring import Expiring
from durable_adk.engine.following import Following
from durable_adk.engine.keeper import Keeper
from durable_adk.engine.ports import Clock, Faults, NoFaults, Store
from durable_adk.engine.program import Program, Sink
from durable_adk.engine.recovery import AT_ONCE, Recovery
from durable_adk.engine.replaying import Replay, replay
from durable_adk.engine.requests import Request, busy, is_same
from durable_adk.engine.retention import Retention, policy_of
from durable_adk.engine.running import Attempts
from durable_adk.engine.settings import EngineSettings
from durable_adk.engine.settle import run_attempt
from durable_adk.engine.unread import outline_of
from durable_adk.engine.worker import Worker
from durable_adk.errors import ConfigError, CorruptHistory, NotFound, Unavailable
from durable_adk.model.activity import Payload
from durable_adk.model.execution import Execution, NewExecution, Status
from durable_adk.model.identity import Tenant, execution_key
from durable_adk.model.position import split_activity_id
from durable_adk.model.store_results import Begun, Busy, Forked, Taken


class Engine(Catalog):
    """Everything that can be asked of executions of one tenant. Bound to the loop that opens it."""

    def __init__(
        self,
        store: Store,
        program: Program,
        clock: Clock,
        tenant: Tenant,
        settings: EngineSettings,
        faults: Faults | None = None,
    ) -> None:
        super().__init__(store, tenant, lambda *given: program.artifacts_at(*given))
        self.settings = settings
        self._program = program
        self._clock = clock
        self._faults: Faults = faults or NoFaults()
        self._expiring = Expiring(store, clock)
        self._answering = Answering(store, self._expiring)
        self._beginning = Beginning(store, tenant, settings, self.forking)
        self._parts: _Parts | None = None

    # ------------------------------------------------------------ life

    async def open(self) -> None:
        """Open the store and start the keeper. Repeat: yes.

        Raises: ConfigError, Unavailable: as ``Store.open``.
        """
        if self._parts is not None:
            return
        await self.store.open()
        keeper = Keeper(self.store, clock=self._clock, settings=self.settings)
        try:
            await keeper.start()
        except BaseException:
            await self.store.close()
            raise
        attempts = Attempts(
            partial(self._run, keeper),
            store=self.store,
            clock=self._clock,
            settings=self.settings,
            expiring=self._expiring,
        )
        self._parts = _Parts(
            keeper=keeper,
            attempts=attempts,
            following=Following(
                attempts, store=self.store, settings=self.settings, expiring=self._expiring
            ),
            recovery=Recovery(
                attempts,
                store=self.store,
                tenant=self.tenant,
                version=self.settings.version,
                expiring=self._expiring,
            ),
        )
        self.is_open = True

    async def close(self) -> None:
        """Let attempts go on for ``grace_s``, release the rest, close the store. Repeat: yes.

        A call that waits for a released attempt returns its execution as ``queued``.
        """
        parts = self._parts
        if parts is None:
            return
        self.is_open = False
        self._parts = None
        await parts.attempts.close(self.settings.grace_s)
        await parts.keeper.stop()
        await self.store.close()

    async def _run(
        self, keeper: Keeper, execution: Execution, claimed_at: float, sink: Sink | None
    ) -> Execution:
        return await run_attempt(
            execution,
            store=self.store,
            program=self._program,
            keeper=keeper,
            clock=self._clock,
            settings=self.settings,
            faults=self._faults,
            sink=sink,
            claimed_at=claimed_at,
        )

    def _opened(self) -> _Parts:
        self._require_open()
        assert self._parts is not None
        return self._parts

    # ------------------------------------------------------------ begin

    async def invoke(
        self, request: Request, *, timeout: float | None = None, sink: Sink | None = None
    ) -> Execution:
        """Begin an execution and bring it to its next stop; or, when there is one with this id
        and input, wait for its outcome or go on with it.

        A session whose last execution is due, or backs off, is finished first. Cancelling the
        call, or its ``timeout`` in seconds, only stops waiting.

        Raises:
            ConfigError: an id that cannot be one. Nothing was stored.
            InputConflict: the id belongs to another session or another input.
            SessionBusy: the session's last execution is running, suspended, stuck or failing.
            Unavailable: MongoDB does not answer, or ``timeout`` has passed.
        """
        parts = self._opened()
        new = self._beginning.new(request, run_now=True)
        await self._beginning.check_id(new)
        going = self._invoke(parts, request, new, sink)
        return await self._within(timeout, new.execution_id, going)

    async def _invoke(
        self, parts: _Parts, request: Request, new: NewExecution, sink: Sink | None
    ) -> Execution:
        while True:
            match await parts.attempts.begin(new, sink):
                case Forked(session):
                    new = await self._beginning.as_next(request, new, session)
                case Taken(execution) if is_same(execution, new, request):
                    return await parts.following.follow(execution, early=True, sink=sink)
                case Taken(execution) | Busy(execution):
                    in_the_way = await parts.following.clear(execution)
                    if not in_the_way.status.is_final:
                        raise busy(in_the_way)
                    if execution.key == new.key:  # a rival's message was the first of the fork
                        new = self._beginning.new(request, run_now=True)
                case live:
                    ended = await parts.following.outcome(live)
                    if ended is not None:
                        return ended
                    return await parts.following.follow(await parts.following.read(new.key))

    async def submit(self, request: Request) -> Execution:
        """Queue an execution for a worker, without running anything.

        Returns: the execution; the one that is there when id and input are the same.
        Raises: as ``invoke``; SessionBusy also when the last execution is due.
        """
        self._opened()
        new = self._beginning.new(request, run_now=False)
        await self._beginning.check_id(new)
        while True:
            match await self.store.begin(new):
                case Forked(session):
                    new = await self._beginning.as_next(request, new, session)
                case Begun(execution):
                    return execution
                case Taken(execution) if is_same(execution, new, request):
                    return execution
                case Taken(execution) | Busy(execution) if not execution.status.is_final:
                    raise busy(execution)
                case _:
                    new = self._beginning.new(request, run_now=False)

    # ------------------------------------------------------------ answer

    async def resume(
        self,
        execution_id: str,
        answers: Mapping[str, object] | None = None,
        *,
        by: str | None = None,
        state: Payload | None = None,
        timeout: float | None = None,
        sink: Sink | None = None,
    ) -> Execution:
        """Complete the open frontier with one map, and bring the execution to its next stop.

        The map holds every unanswered wait; answered ones may be repeated. The same map again
        gives the same outcome, also after the end; with everything answered, an empty one will do.
        ``state`` is a payload of state to set with the answers.

        Raises:
            ConfigError, NotFound: no such id. InvalidAnswer: each missing, unknown or invalid
                entry; nothing was stored. AnswerConflict: answered otherwise before.
            WaitClosed: it was cancelled or given up, or a wait has expired.
            SessionBusy: it is stuck; or it is queued and the map is empty.
            Unavailable: as ``invoke``.
        """
        parts = self._opened()
        given = stored_answers(
            execution_id,
            {} if answers is None else answers,
            by=by,
            at=self._clock.estimate(),
            state=state,
            most=self.settings.payload_max,
        )
        execution = await self._answering.put_map(await self.get(execution_id), given)
        is_repeat = bool(given)
        if execution.status is Status.STUCK or (
            execution.status is Status.QUEUED and not is_repeat
        ):
            raise busy(execution)
        return await self._within(
            timeout, execution_id, parts.following.follow(execution, early=True, sink=sink)
        )

    async def answer(self, wait_id: str, value: object, *, by: str | None = None) -> Receipt:
        """Store one answer. Nothing runs: the last one makes the execution due.

        Raises:
            NotFound: no such wait. InvalidAnswer, AnswerConflict, WaitClosed: as ``resume``.
        """
        self._opened()
        if not isinstance(wait_id, str):
            raise ConfigError("wait_id", f"expected text, got {type(wait_id).__name__}")
        parts = split_activity_id(wait_id)
        if parts is None:
            raise NotFound(f"wait {wait_id!r}", "there is no such wait")
        execution_id, _ = parts
        stored = stored_answer(
            wait_id, value, by=by, at=self._clock.estimate(), most=self.settings.payload_max
        )
        execution = await self.get(execution_id)
        return await self._answering.put_one(execution, wait_id, stored)

    # ------------------------------------------------------------ decide

    async def cancel(self, execution_id: str, reason: str = "") -> Execution:
        """End an execution as ``cancelled``; one that has ended stays as it is.

        Returns: the ended execution. Still ``running`` if another process runs it and has not
            noticed within two leases; it will.
        """
        return await self._end(execution_id, Status.CANCELLED, reason or "cancelled")

    async def give_up(self, execution_id: str, reason: str = "") -> Execution:
        """End an execution as ``failed``; one that has ended stays as it is.

        One that another process runs is asked to end, and is ``cancelled`` then. One of which
        something is gone is ended without it, also by ``cancel``: see ``engine.unread``.
        """
        return await self._end(execution_id, Status.FAILED, reason or "given up")

    async def _end(self, execution_id: str, closing: Status, reason: str) -> Execution:
        following = self._opened().following
        try:
            execution = await self.get(execution_id)
        except CorruptHistory as error:
            key = execution_key(self.tenant, execution_id)
            execution = await outline_of(self.store, key, error)
        return await following.end(execution, closing, reason)

    async def retry(self, execution_id: str, reason: str = "") -> Execution:
        """Make a stuck or queued execution due now, with all its attempts again. Runs nothing.

        Any other one is returned as it is. ``reason`` is for the caller's log.
        """
        self._opened()
        execution = await self.get(execution_id)
        return await self.store.retry(execution.key) or await self.get(execution_id)

    async def recover(self, limit: int = 100) -> tuple[Execution, ...]:
        """Go on with up to ``limit`` executions that are due, each to its next stop: one pass."""
        return await self._opened().recovery.once(_at_least_one("limit", limit))

    async def replay(self, execution_id: str) -> Replay:
        """Walk an execution over its records with this program; see ``engine.replaying``.

        Raises: ConfigError, NotFound: no such id.
        """
        self._opened()
        return await replay(
            await self.get(execution_id),
            store=self.store,
            program=self._program,
            clock=self._clock,
            settings=self.settings,
        )

    def worker(self, *, concurrency: int = AT_ONCE) -> Worker:
        """What keeps doing it: ``await worker.run()`` until ``worker.stop()``."""
        parts, at_once = self._opened(), _at_least_one("concurrency", concurrency)
        policy = policy_of(self.settings)
        return Worker(
            parts.attempts,
            parts.recovery,
            self.settings,
            concurrency=at_once,
            retention=Retention(self.store, self.tenant, policy) if policy.is_set else None,
        )

    # ------------------------------------------------------------ waiting

    @staticmethod
    async def _within(
        timeout: float | None, execution_id: str, outcome: Awaitable[Execution]
    ) -> Execution:
        deadline = asyncio.timeout(timeout)
        try:
            async with deadline:
                return await outcome
        except TimeoutError:
            if not deadline.expired():
                raise
            raise Unavailable(
                f"execution {execution_id!r}",
                "has no outcome within the timeout",
                "What was begun goes on; the same call again waits for its outcome.",
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What exists while the engine is open."""

    keeper: Keeper
    attempts: Attempts
    following: Following
    recovery: Recovery


def _at_least_one(what: str, number: object) -> int:
    if isinstance(number, int) and not isinstance(number, bool) and number >= 1:
        return number
    # MongoDB takes a limit of 0 for none at all.
    raise ConfigError(what, f"expected a whole number from 1, got {number!r}", "Give 1 or more.")
