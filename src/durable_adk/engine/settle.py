"""One attempt, from the acknowledged claim to its commit.

Load, decide what is in doubt, bring the program to where the record ends, run it until it is
quiet, and settle what came of it. A claim that is to close an execution starts nothing new.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from durable_adk.engine import ends, mismatch
from durable_adk.engine.activities import Recorded
from durable_adk.engine.attempt import Attempt
from durable_adk.engine.closing import Closing, ClosingAttempt
from durable_adk.engine.commits import CancelRequested, Settlement
from durable_adk.engine.exits import result_of
from durable_adk.engine.indoubt import Deciding, Undecided
from durable_adk.engine.keeper import Guard, Keeper
from durable_adk.engine.loading import Past
from durable_adk.engine.ports import Clock, Faults, Store
from durable_adk.engine.program import Play, Program, Quiet, Sink
from durable_adk.engine.settings import EngineSettings
from durable_adk.engine.timing import Asleep, DeadlinePassed
from durable_adk.engine.unread import end_unread, is_asked_for
from durable_adk.errors import CorruptHistory, LeaseLost
from durable_adk.model.activity import Kind, Payload, Record
from durable_adk.model.doubt import Doubt
from durable_adk.model.execution import (
    Execution,
    History,
    Lease,
    Status,
    StepDocument,
    StoredError,
)
from durable_adk.model.position import ROOT, Position, node_segment
from durable_adk.model.wait import AnsweredWait

T = TypeVar("T")


async def run_attempt(
    execution: Execution,
    *,
    store: Store,
    program: Program,
    keeper: Keeper,
    clock: Clock,
    settings: EngineSettings,
    faults: Faults,
    sink: Sink | None = None,
    claimed_at: float | None = None,
    on_error: Callable[[BaseException], None] | None = None,
) -> Execution:
    """Run a claimed execution to its next stop.

    ``claimed_at`` is ``clock.elapsed()`` before the claim was sent: the lease is counted from
    there (None: from now). ``on_error`` is told the error that ended the attempt before it is
    recorded.

    Returns:
        The execution as the commit left it: suspended, queued, stuck, or ended.

    Raises:
        LeaseLost: another owner goes on with it; or it was given back, and is due.
        Unavailable: not even the failure of the attempt could be recorded.
        WriteUnknown: the same, of a write that may yet be applied.
    """
    if execution.claim is None:
        raise ValueError(f"execution {execution.execution_id!r} is not claimed")
    lease = Lease(execution.key, execution.token, execution.claim)
    past = Past(execution, lease=lease, store=store, settings=settings)
    run = _Run(past, program=program, store=store, clock=clock, settings=settings, faults=faults)
    guard = keeper.hold(
        lease,
        on_refused=run.on_refused,
        on_cancel=run.on_cancel,
        on_overdue=run.on_overdue,
        since=claimed_at,
    )
    run.permit, run.lease, run.sink = guard, lease, sink
    run.settlement = Settlement(
        past,
        lease=lease,
        store=store,
        clock=clock,
        settings=settings,
        closing=Closing(past, begin=run.begin_closing, live=lambda: run.live, run=run.run_closing),
        before_commit=lambda: keeper.drop(guard),
        on_error=on_error,
    )
    try:
        return await run.go()
    finally:
        keeper.drop(guard)


class _Run:
    """The state of one ``run_attempt`` while its program runs."""

    permit: Guard
    lease: Lease
    settlement: Settlement
    sink: Sink | None = None
    live: Play | None = None
    """The play whose open step was run."""

    def __init__(
        self,
        past: Past,
        *,
        program: Program,
        store: Store,
        clock: Clock,
        settings: EngineSettings,
        faults: Faults,
    ) -> None:
        self._past = past
        self._program = program
        self._store = store
        self._clock = clock
        self._settings = settings
        self._faults = faults
        self._attempt: Attempt | None = None
        self._decider: Deciding | None = None
        self._closing: Attempt | None = None
        self._stopped: Exception | None = None
        self._is_refused = False

    async def go(self) -> Execution:
        try:
            try:
                return await self._work()
            except Exception as error:
                return await self.settlement.settle(ends.principal(error), self._attempt)
        except (LeaseLost, asyncio.CancelledError):
            if not self._is_refused and not (self._attempt and self._attempt.ending.is_death):
                await self.settlement.release()
            raise
        finally:
            if self._attempt is not None:
                self._attempt.close()

    # ---------------------------------------------------------------- what the keeper reports

    def on_refused(self) -> None:
        self._is_refused = True
        lost = LeaseLost(
            f"execution {self._past.execution.execution_id!r}",
            "another owner holds it",
            "Nothing more is committed here; its owner goes on.",
        )
        self._stop(lost)
        if self._closing is not None:
            self._closing.stop(lost)

    def on_cancel(self, reason: str) -> None:
        self._stop(CancelRequested(reason))

    def on_overdue(self) -> None:
        self._stop(DeadlinePassed())

    def _stop(self, error: Exception) -> None:
        self._stopped = self._stopped or error
        if self._decider is not None:
            self._decider.stop()
        if self._attempt is not None:
            self._attempt.stop(error)

    # ---------------------------------------------------------------- the way to quiet

    async def _work(self) -> Execution:
        past, execution = self._past, self._past.execution
        if execution.closing is not None:
            return await self._close(execution, execution.closing)
        if execution.cancel is not None:
            raise CancelRequested(execution.cancel)
        if execution.deadline is not None and execution.deadline <= execution.created_at:
            raise DeadlinePassed
        history = await past.history()
        await past.continue_answered()
        deciding = self._decider = self._deciding()
        decided = await deciding.decide(await past.load())
        if isinstance(decided, Execution):
            return decided
        attempt = self._attempt = self._begin(decided)
        try:
            left = await self._left_by(attempt, history)
        except Undecided:
            if not isinstance(attempt.fatal, Asleep):  # that one came after what was recorded
                await attempt.flush()
            decided = await deciding.decide(await past.load(again=True))
            if isinstance(decided, Execution):
                return decided
            raise  # all is settled: the next attempt goes on
        if isinstance(left, Asleep):
            return await self.settlement.sleep(left)
        return await self.settlement.commit(left, attempt)

    async def _close(self, execution: Execution, closing: Status) -> Execution:
        error = execution.error or StoredError(type="Closed", message="")
        try:
            return await self.settlement.close(closing, error)
        except CorruptHistory as gone:
            if not gone.is_gone or not is_asked_for(error):
                raise
            self.settlement.before_commit()
            return await end_unread(
                self._store, self.lease, self._past.execution, gone, closing, error.message
            )

    async def _left_by(self, attempt: Attempt, history: History) -> Quiet | Asleep:
        """What the run leaves. Raises: Undecided: first of all, whether a body of it happened."""
        left: Quiet | Asleep
        try:
            left = await self._run(attempt, history)
        except Asleep as asleep:
            left = asleep
        attempt.doubts.check()
        return left

    def _deciding(self) -> Deciding:
        return Deciding(
            self._past,
            lease=self.lease,
            store=self._store,
            clock=self._clock,
            faults=self._faults,
            reconciler=self._reconciler,
            check=self._check,
            may_start=lambda: self.permit.may_start(),
            before_commit=self.settlement.before_commit,
            is_last=self._past.execution.failures + 1 >= self._settings.max_attempts,
            redact=self._settings.redact,
            payload_max=self._settings.payload_max,
            causes=self.settlement.causes,
        )

    def _reconciler(self, intent: Record) -> Callable[[Doubt], Any] | None:
        """That of the very function, if this attempt called it."""
        made_here = self._attempt.doubts.callbacks if self._attempt is not None else {}
        return made_here.get(intent.digest) or self._program.reconciler(intent)

    def _check(self) -> None:
        if self._stopped is not None:
            raise self._stopped

    def _begin(self, recorded: Recorded) -> Attempt:
        return Attempt(
            self._past.execution,
            recorded,
            store=self._store,
            permit=self.permit,
            clock=self._clock,
            settings=self._settings,
            faults=self._faults,
            sink=self.sink,
        )

    def begin_closing(self, recorded: Recorded, history: History) -> tuple[ClosingAttempt, Play]:
        """A play that starts nothing and emits nothing: for an end without one that ran to quiet.

        Committed steps come back as they were shown, whatever the mode.
        """
        attempt = self._closing = ClosingAttempt(
            self._past.execution,
            recorded,
            store=self._store,
            permit=self.permit,
            clock=self._clock,
            settings=dataclasses.replace(self._settings, mode="restore"),
            faults=self._faults,
        )
        return attempt, self._program.begin(attempt, history)

    async def run_closing(
        self, attempt: Attempt, running: Coroutine[Any, Any, Quiet], longest_s: float
    ) -> Quiet:
        """Run a step over its records, for at most a time."""
        loop = asyncio.get_running_loop()
        late = TimeoutError(f"the run over the records took more than {longest_s} s")
        timer = loop.call_later(longest_s, attempt.stop, late)
        try:
            return await until_ended(attempt, running)
        finally:
            timer.cancel()

    async def _run(self, attempt: Attempt, history: History) -> Quiet:
        if self._stopped is not None:
            attempt.stop(self._stopped)
            raise self._stopped
        return await until_ended(attempt, self._play(attempt, history))

    async def _play(self, attempt: Attempt, history: History) -> Quiet:
        play = self._program.begin(attempt, history)
        try:
            if attempt.mode == "walk":
                answered = await self._walk(attempt, play)
            else:
                answered = await self._restore(attempt, play)
            step = self._past.execution.step
            attempt.open_step(step)
            shared = await self._shared(attempt)
            self.live = play
            return await play.run_step(step, answered, shared)
        finally:
            await play.aclose()

    async def _restore(self, attempt: Attempt, play: Play) -> tuple[AnsweredWait, ...]:
        steps = self._past.steps
        for document in steps:
            attempt.step = document.step
            play.restore(document)
        return await self._past.waits_of(steps[-1].step) if steps else ()

    async def _walk(self, attempt: Attempt, play: Play) -> tuple[AnsweredWait, ...]:
        """Run the committed steps over their records; every difference shows at its position."""
        answered: tuple[AnsweredWait, ...] = ()
        for document in self._past.steps:
            recorded = await self._past.waits_of(document.step)
            attempt.open_step(document.step, [one.wait.operation_path for one in recorded])
            shared = await self._shared(attempt)
            quiet = await self._walked(play, document, answered, shared)
            attempt.check_walked()
            play.check(document)
            mismatch.check_frontier(quiet.waits, (one.wait for one in recorded))
            answered = recorded
        return answered

    async def _walked(
        self,
        play: Play,
        document: StepDocument,
        answered: Sequence[AnsweredWait],
        shared: Mapping[str, Payload],
    ) -> Quiet:
        try:
            return await play.run_step(document.step, answered, shared)
        except Exception:
            play.check(document)  # if the code is another one, that says more
            raise

    async def _shared(self, attempt: Attempt) -> dict[str, Payload]:
        """What this step sees of ``user:`` and ``app:`` state: read once, then recorded."""
        records = attempt.records
        if records.shared is not None:
            return ends.shared_from(records.shared.body)
        if records.committed or not records.is_empty:
            return {}  # there was none when the step began
        execution = self._past.execution
        seen, newest = await self._store.load_scopes(execution.tenant, execution.user_id)
        self.settlement.newest_stamp = newest
        if seen:
            path = node_segment(ROOT, "1")
            position = Position(attempt.step, path, 1, Kind.SHARED, 1)
            attempt.note(position, ends.shared_payload(seen))
        return seen


async def until_ended(attempt: Attempt, running: Coroutine[Any, Any, T]) -> T:
    """Run in a task that the attempt can cancel. Raises: what ended it."""
    task = asyncio.get_running_loop().create_task(running)
    attempt.ending.bind(task)
    try:
        await _ended(task, attempt)
    finally:
        if not attempt.ending.is_death:
            await attempt.settle()
    if attempt.fatal is not None:
        if not task.cancelled():
            task.exception()  # asyncio would complain that nobody asked
        raise attempt.fatal
    result: T = result_of(task, "the run")
    return result


async def _ended(task: asyncio.Task[Any], attempt: Attempt) -> None:
    """Wait for the end of the run; when this process lets go, end it first."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        attempt.stop(
            LeaseLost(
                f"execution {attempt.execution.execution_id!r}",
                "this process gives it up",
                "Another owner goes on with it.",
            )
        )
        await asyncio.wait({task})
        raise
