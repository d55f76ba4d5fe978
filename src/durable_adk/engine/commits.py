"""What is committed of an attempt: a frontier, an end, or that it failed.

Each commit is one update of the execution document; what it names is written before. An error
that left the program ends the attempt, and the execution only where trying again cannot help.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

from durable_adk.engine import ends, timing
from durable_adk.engine.attempt import Attempt
from durable_adk.engine.causes import Causes
from durable_adk.engine.closing import Closing
from durable_adk.engine.doubts import with_doubts
from durable_adk.engine.loading import Past
from durable_adk.engine.mismatch import warn_of, with_versions
from durable_adk.engine.ports import Clock, Store
from durable_adk.engine.program import Quiet
from durable_adk.engine.settings import EngineSettings
from durable_adk.engine.timing import Asleep
from durable_adk.errors import (
    ConfigError,
    CorruptHistory,
    DurableError,
    KeyMissing,
    LeaseLost,
    NotStorable,
    OutcomeUnknown,
    ReplayMismatch,
    Unavailable,
    WriteUnknown,
)
from durable_adk.model.activity import Kind, Payload
from durable_adk.model.execution import (
    FAR,
    Execution,
    Lease,
    Status,
    StepDocument,
    StoredError,
)
from durable_adk.model.store_results import OVERDUE
from durable_adk.model.wait import WaitRequest

_log = logging.getLogger("durable_adk.engine")


class CancelRequested(Exception):
    """Somebody asked the owner to end the execution. The text is the reason."""


class Settlement:
    """The commits of one attempt, under its lease.

    Attributes:
        newest_stamp: Of the shared state that the open step's start saw; None if this attempt
            did not read it.
        causes: Errors of what was asked before the program ran: ``reconcile`` callbacks.
    """

    def __init__(
        self,
        past: Past,
        *,
        lease: Lease,
        store: Store,
        clock: Clock,
        settings: EngineSettings,
        closing: Closing,
        before_commit: Callable[[], None],
        on_error: Callable[[BaseException], None] | None,
    ) -> None:
        self.newest_stamp: str | None = None
        self.causes = Causes()
        self._past = past
        self._lease = lease
        self._store = store
        self._clock = clock
        self._settings = settings
        self._closing = closing
        self._before_commit = before_commit
        self._on_error = on_error
        self._has_put_step = False

    # ---------------------------------------------------------------- quiet

    async def commit(self, quiet: Quiet, attempt: Attempt) -> Execution:
        """Suspend on the waits that are open; without any, complete."""
        await attempt.flush()
        unused = attempt.records.unused()
        warn_of(unused, self._past.execution)
        abandoned = attempt.abandoned(wait.operation_path for wait in quiet.waits)
        step = ends.step_document(
            self._past.execution,
            quiet,
            records=attempt.records.outcomes(),
            abandoned=(*abandoned, *(record.position for record in unused)),
            stamp=await self._stamp(quiet),
            is_last=not quiet.waits,
        )
        if not quiet.waits:
            return await self._end(step, Status.COMPLETED, quiet.result, None)
        suspended = await self._suspend(quiet.waits, step, attempt.records.next_frontier)
        return await self._apply_scopes(suspended, step)

    async def sleep(self, asleep: Asleep) -> Execution:
        """Suspend inside the step: its document only shows what there is so far."""
        step = ends.step_document(
            self._past.execution,
            dataclasses.replace(asleep.quiet, scopes=None),
            records=asleep.records,
            abandoned=(),
            stamp="",
            is_last=False,
        )
        return await self._suspend(asleep.quiet.waits, step)

    async def _suspend(
        self, waits: tuple[WaitRequest, ...], step: StepDocument, ordinal: int = 1
    ) -> Execution:
        execution = self._past.execution
        frontier = timing.carried(ends.frontier_of(execution, waits, ordinal), execution)
        await self._put(step)
        await self._store.commit_frontier(self._lease, step=step, frontier=frontier)
        if any(wait.expires_after is not None for wait in waits):  # the server has counted it
            stored = await self._store.get_execution(execution.key)
            if stored and stored.frontier and stored.frontier.id == frontier.id:
                frontier = stored.frontier
        expiries = [w.expires_at for i, w in enumerate(frontier.waits) if i not in frontier.answers]
        times = [at for at in (*expiries, frontier.deadline, FAR) if at is not None]
        return dataclasses.replace(
            execution,
            status=Status.SUSPENDED,
            claim=None,
            frontier=frontier,
            failures=0,
            error=None,
            wake_at=min(times) if frontier.open else 0,
            waiting_since=self._clock.estimate(),
            scopes_due=bool(step.stamp),
        )

    async def _end(
        self, step: StepDocument, status: Status, result: Payload | None, error: StoredError | None
    ) -> Execution:
        await self._put(step)
        await self._store.commit_end(
            self._lease, step=step, status=status, result=result, error=error
        )
        ended = dataclasses.replace(
            self._past.execution,
            status=status,
            claim=None,
            frontier=None,
            last_step=step.ref,
            wake_at=FAR,
            result=result,
            error=error,
            ended_at=self._clock.estimate(),
            waiting_since=None,
            scopes_due=bool(step.stamp),
        )
        return await self._apply_scopes(ended, step)

    async def _put(self, step: StepDocument) -> None:
        self._has_put_step = True
        await self._store.put_step(step)
        self._before_commit()  # a renewal must not race the commit

    async def _stamp(self, quiet: Quiet) -> str:
        if quiet.scopes is None:
            return ""
        execution, newest = self._past.execution, self.newest_stamp
        if newest is None:  # this attempt took the state from the record
            _, newest = await self._store.load_scopes(execution.tenant, execution.user_id)
        return ends.stamp_after(
            newest, now=self._clock.estimate(), execution_id=execution.execution_id
        )

    async def _apply_scopes(self, execution: Execution, step: StepDocument) -> Execution:
        if not step.stamp:
            return execution
        try:
            await self._store.apply_scopes(execution, step)
        except DurableError as error:
            # Committed and marked as due: the next turn, or a recovery, finishes it.
            _log.warning("shared state is not applied yet: %s", error)
            return execution
        return dataclasses.replace(execution, scopes_due=False)

    # ---------------------------------------------------------------- other ends

    async def close(
        self, status: Status, error: StoredError, ran: Attempt | None = None
    ) -> Execution:
        """End without a program that ran to its end. ``ran`` is the attempt whose program ran
        before, if it did."""
        closed = await self._closing.close(error.message or status.value, ran)
        step = ends.step_document(
            self._past.execution,
            closed.quiet,
            records=closed.records,
            abandoned=closed.abandoned,
            stamp=await self._stamp(closed.quiet),
            is_last=True,
        )
        error = with_doubts(error, closed.doubts)
        return await self._end(step, status, closed.quiet.result, error)

    def before_commit(self) -> None:
        """Let no renewal race a commit that gives the lease up."""
        self._before_commit()

    async def release(self) -> None:
        """Let somebody go on at once instead of waiting for the lease to run out."""
        self._before_commit()
        try:
            await self._store.release(self._lease)
        except DurableError as error:
            _log.warning("a lease could not be given back: %s", error)

    # ---------------------------------------------------------------- errors

    async def settle(self, error: Exception, ran: Attempt | None) -> Execution:
        """Commit what an error means for the execution.

        Raises:
            LeaseLost: it is that, or the lease turned out to be lost.
        """
        match error:
            case LeaseLost():
                raise error
            case CancelRequested():
                cancelled = StoredError(type="Cancelled", message=str(error))
                return await self._try_to_end(Status.CANCELLED, cancelled, error, ran)
            case timing.DeadlinePassed():
                return await self._try_to_end(Status.FAILED, OVERDUE, error, ran)
            case ReplayMismatch():
                error = with_versions(error, self._past.execution, self._settings)
        if self._on_error is not None:
            self._on_error(error)
        failures = self._past.execution.failures
        match error:
            case ReplayMismatch() | CorruptHistory() | KeyMissing():
                return await self._give_up(Status.STUCK, error, failures, ran)
            case NotStorable() | OutcomeUnknown() | ConfigError():
                return await self._try_to_end(Status.FAILED, self._stored(error, ran), error, ran)
            case Unavailable() | WriteUnknown():  # says nothing about the program: not counted
                return await self._give_up(Status.QUEUED, error, failures, ran, _voided(ran, error))
        voided = _voided(ran, error)
        failures = 1 if _has_recorded(ran, voided) else failures + 1
        if failures >= self._settings.max_attempts:
            return await self._try_to_end(Status.FAILED, self._stored(error, ran), error, ran)
        return await self._give_up(Status.QUEUED, error, failures, ran, voided)

    def _stored(self, error: Exception, ran: Attempt | None) -> StoredError:
        at = self.causes.position_of(error)
        if ran is not None:
            at = at or ran.causes.position_of(error)
        return ends.stored_error(error, at)

    async def _try_to_end(
        self, status: Status, stored: StoredError, cause: Exception, ran: Attempt | None
    ) -> Execution:
        """End it; if that fails, leave it to a later attempt."""
        failures = self._past.execution.failures
        if self._has_put_step:  # under this token the step document is taken
            return await self._give_up(Status.QUEUED, cause, failures, ran)
        try:
            return await self.close(status, stored, ran)
        except LeaseLost:
            raise
        except Exception as error:
            is_last = failures + 1 >= self._settings.max_attempts
            status = Status.STUCK if is_last else Status.QUEUED
            return await self._give_up(status, error, failures + 1, ran)

    async def _give_up(
        self,
        status: Status,
        error: Exception,
        failures: int,
        ran: Attempt | None,
        voided: Sequence[str] = (),
    ) -> Execution:
        execution = self._past.execution
        _log.warning(
            "execution %s: attempt %d ended with %s",
            execution.execution_id,
            execution.attempt,
            type(error).__name__,
            extra={"execution_id": execution.execution_id},
            exc_info=error,  # the caller gets its text only
        )
        if ran is not None:
            await ran.settle()
        self._before_commit()
        stored, backoff = self._stored(error, ran), self._settings.backoff_after(failures)
        last = FAR if execution.deadline is None else execution.deadline
        await self._store.attempt_failed(
            self._lease,
            status=status,
            error=stored,
            failures=failures,
            voided=voided,
            backoff_ms=backoff,
        )
        return dataclasses.replace(
            execution,
            status=status,
            claim=None,
            error=stored,
            failures=failures,
            voided=(*execution.voided, *voided),
            wake_at=last if status is Status.STUCK else min(last, self._clock.estimate() + backoff),
        )


def _voided(ran: Attempt | None, error: Exception) -> list[str]:
    """Slots of failures that are open again in the next attempt: those that left the root."""
    return [] if ran is None else ran.records.voidable(ran.causes.of(error))


def _has_recorded(ran: Attempt | None, voided: Sequence[str]) -> bool:
    """Whether an attempt recorded something that stays."""
    return ran is not None and any(
        record.attempt == ran.execution.attempt
        and record.slot not in voided
        and record.name != Kind.SHARED.value
        for record in ran.records.outcomes()
    )
