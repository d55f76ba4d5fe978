"""One owner's try at an execution, as the program that runs sees it.

Every recorded call goes through ``admit`` and ``record``. ``admit`` hands out what is recorded,
or clears the way for the body: everything handed over before is durable, the intent is there,
the lease still allows it. ``record`` puts the outcome into the ordered log.

What ends an attempt is never left to user code: ``halt`` remembers the reason, cancels the run
and does not return, so no callback can swallow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Literal, NoReturn, Protocol, TypeVar

from durable_adk.engine import mismatch
from durable_adk.engine.activities import Entry, Recorded, StepRecords
from durable_adk.engine.calls import Call, Dispatched, Replayed
from durable_adk.engine.causes import Causes
from durable_adk.engine.doubts import Doubts, Undecided
from durable_adk.engine.ending import Ending, too_late
from durable_adk.engine.fault_points import enter_body, leave_body
from durable_adk.engine.handout import HandOut
from durable_adk.engine.left_open import left_open
from durable_adk.engine.log import OutcomeLog
from durable_adk.engine.places import Places
from durable_adk.engine.ports import Clock, Faults, Store
from durable_adk.engine.program import Sink
from durable_adk.engine.settings import EngineSettings
from durable_adk.engine.timing import Sleeping
from durable_adk.errors import ReplayMismatch
from durable_adk.model.activity import Kind, Payload, Record, RecordStatus, UnknownOutcome
from durable_adk.model.execution import Execution
from durable_adk.model.identity import new_nonce
from durable_adk.model.position import Position, activity_id, is_under

__all__ = ["Attempt", "Call", "Dispatched", "Replayed"]

T = TypeVar("T")


class Permit(Protocol):
    """The lease as a body sees it."""

    def may_start(self) -> bool: ...


class Attempt(Sleeping):
    """What ``adk/`` runs against.

    Attributes:
        execution: As it was claimed (or continued).
        mode: How committed steps come back.
        step, recorded: The step being run (the engine sets it), and what counts in every one.
        ending: Whether and why the attempt is over.
        doubts: The bodies of it that must not run twice.
        places: What the code still has.
    """

    def __init__(
        self,
        execution: Execution,
        recorded: Recorded,
        *,
        store: Store,
        permit: Permit,
        clock: Clock,
        settings: EngineSettings,
        faults: Faults,
        sink: Sink | None = None,
    ) -> None:
        self.execution = execution
        self.mode: Literal["restore", "walk"] = settings.mode
        self.faults = faults
        self.causes = Causes()
        self.ending = Ending(execution.execution_id)
        self.recorded = recorded
        self.places = Places()
        self.doubts = Doubts(execution, store=store, clock=clock, on_death=self.stop)
        self._permit = permit
        self._clock = clock
        self._settings = settings
        self._sink = sink
        self._seq = recorded.last_seq
        self._log = OutcomeLog(store, execution.run, on_broken=self.stop, sink=sink)
        self.open_step(recorded.open_step)

    # ---------------------------------------------------------------- what the program reads

    @property
    def fatal(self) -> BaseException | None:
        """Why the attempt is over, or None."""
        return self.ending.fatal

    def activity_id(self, position: Position) -> str:
        """The public id of a call: idempotency key, wait id, link."""
        return activity_id(self.execution.execution_id, position.digest)

    def has_record(self, step: int, path: str, entry: int, kind: Kind | None = None) -> bool:
        """Whether something is recorded at a place (of one kind, or of any)."""
        return self.recorded.step(step).has(path, entry, kind)

    def was_held_back(self, path: str, around: str) -> bool:
        """Whether a committed step began nothing at a path, and something near it asks."""
        return self.records.was_held_back(path, around, self._asked)

    def unserved(self) -> bool:
        """Whether records of the step being run are still to be handed out."""
        return self._hand_out.unserved

    # ---------------------------------------------------------------- calls

    async def admit(self, call: Call) -> Replayed | Dispatched:
        """Hand out what is recorded at a position, or clear the way for its body.

        Returns only when the caller may go on: ends of the attempt do not come back here.
        """
        if self.ending.fatal is not None:
            await self.ending.park()
        if self.doubts.left is not None:
            await self.halt(Undecided(self.doubts.left))
        position = call.position
        if position.step != self.step:
            raise ValueError(f"position {position.text} is not of step {self.step}, which runs")
        digest = position.digest
        self.doubts.know(call, digest)
        entry = self.records.find(digest)
        if entry is not None:
            return await self._replay(call, entry)
        if self.records.committed and position.text in self.records.abandoned:
            await self._abandoned(call)
        if self.records.committed and not self.asks_below(position):
            await self.halt(
                ReplayMismatch(position.text, recorded="nothing", asked=call.asked or call.name)
            )
        return await self._dispatch(call, digest)

    async def leave(self, ticket: Dispatched) -> None:
        """The last line of every body: a test may make it fail there, after its effect."""
        await leave_body(self.faults, ticket, self.stop, has_failed=False)

    async def record(
        self, ticket: Dispatched, status: RecordStatus, body: Payload, *, durable: bool = False
    ) -> Record:
        """Hand an outcome over.

        Model outcomes, those of bodies that must not run twice, and ``durable`` ones are stored
        when this returns; the others ride along with what is written next.
        """
        failed = body if status is RecordStatus.FAILED else None
        await leave_body(self.faults, ticket, self.stop, has_failed=failed is not None)
        if self.records.committed:
            await self.halt(mismatch.at_a_wait(ticket.call, failed, self.execution, self._settings))
        if self.doubts.is_inside(ticket):
            await self.halt(Undecided(self.doubts.left))
        record = self._hand_over(ticket, status, body)
        if self.ending.fatal is not None:  # the effect is worth its record; nothing else goes on
            await self.ending.park()
        call = ticket.call
        if durable or call.position.kind is Kind.MODEL or call.policy is not UnknownOutcome.RERUN:
            await self._durable()
        return record

    def _hand_over(self, ticket: Dispatched, status: RecordStatus, body: Payload) -> Record:
        call, position = ticket.call, ticket.call.position
        ticket.settled = True
        self._entered.pop(ticket.digest, None)
        self._seq += 1
        record = Record(
            step=position.step,
            digest=ticket.digest,
            attempt_try=ticket.attempt_try,
            position=position.text,
            token=self.execution.token,
            seq=self._seq,
            nonce=new_nonce(),
            request=call.request,
            status=status,
            name=call.name,
            node_path=call.node_path,
            body=body,
            started_at=ticket.started_at,
            ended_at=self._clock.estimate(),
            attempt=self.execution.attempt,
        )
        self._log.append(record, at_once=call.policy is not UnknownOutcome.RERUN)
        self._hand_out.moves += 1
        self.records.add(record, position, entered_at=ticket.entered_at, at=self._hand_out.moves)
        return record

    async def cancelled(self, ticket: Dispatched) -> None:
        """Note that a body was cancelled. That is never an outcome.

        A body that must not run twice is in doubt from now on, and nothing new starts.
        """
        if not ticket.settled and not self.ending.is_death:
            ticket.settled = True
            await self.doubts.cancelled(ticket, self.records)

    async def drain(self) -> None:
        """Wait until everything handed over is durable."""
        if self._log.is_behind:
            await self._durable()

    async def halt(self, error: BaseException) -> NoReturn:
        """End the attempt for this reason: cancel the run, and wait for the cancellation."""
        self.stop(error)
        await self.ending.park()

    def emit(self, kind: Literal["token", "partial", "event"], data: object) -> None:
        """Pass on an event when all that was handed over so far is durable, the rest at once.

        A committed step that is walked again was passed on when it was run.
        """
        if self.records.committed:
            return
        if kind == "event":
            self._log.emit(data)
        elif self._sink is not None and self.ending.fatal is None:
            self._sink(kind, data)

    # ---------------------------------------------------------------- replay

    async def _replay(self, call: Call, entry: Entry) -> Replayed:
        record = entry.record
        if record.position == call.position.text and record.status is RecordStatus.IN_DOUBT:
            await self.halt(Undecided(record))
        found = mismatch.between(call, record)
        if found is not None:
            if mismatch.is_refused(call.position.kind, self._settings):
                await self.halt(found)
            self.tolerate(found)
        await self._hand_out.turn_of(entry)
        if self.ending.fatal is not None:
            await self.ending.park()
        return Replayed(record)

    def tolerate(self, found: ReplayMismatch) -> None:
        """Note that a recorded model response is used for another prompt."""
        mismatch.warn(found, self.execution)

    async def _abandoned(self, call: Call) -> NoReturn:
        """Wait for the cancellation that ended this call when the history was made."""
        self._stalled[call.position.text] = call
        try:
            await self.ending.until_cancelled()
        finally:
            self._stalled.pop(call.position.text, None)

    # ---------------------------------------------------------------- live

    async def _dispatch(self, call: Call, digest: str) -> Replayed | Dispatched:
        if not self.records.committed:  # of a committed step ``check_walked`` knows
            await self.places.check(call, self._hand_out, self.halt)
        running = self._entered.get(digest)
        if running is not None and not running.settled:
            await self.halt(
                ReplayMismatch(
                    call.position.text, recorded="a call that still runs", asked="the same again"
                )
            )
        self._hand_out.moves += 1
        ticket = Dispatched(
            call,
            digest,
            self.records.try_of(digest),
            self._clock.estimate(),
            self._hand_out.moves,
        )
        self._entered[digest] = ticket
        if call.position.kind is not Kind.MODEL:
            try:
                found = await self._clear(ticket)
            except asyncio.CancelledError:
                ticket.settled = True
                raise
            if found is not None:
                return found
        if not self._permit.may_start():
            await self.halt(too_late(self.execution.execution_id))
        try:
            await enter_body(self.faults, ticket, self.stop)
        except asyncio.CancelledError:  # a body that was cancelled as it began
            await self.cancelled(ticket)
            raise
        return ticket

    async def _clear(self, ticket: Dispatched) -> Replayed | None:
        """Do what comes before every body but a model's: barrier, then intent."""
        await self._check_entered(ticket.call, ticket.digest)
        if self._log.is_behind:
            await self._durable()
        if ticket.call.policy is UnknownOutcome.RERUN:
            return None
        intent = await self._stored(self.doubts.intend(ticket))
        if intent is not None:
            self.records.intend(intent)
            return None
        found = await self._stored(self.doubts.decide(ticket))
        self.records.add(found, ticket.call.position)
        self._seq = max(self._seq, found.seq)
        if found.status is RecordStatus.IN_DOUBT:
            await self.halt(Undecided(found))
        self._entered.pop(ticket.digest, None)
        return Replayed(found)

    async def _check_entered(self, call: Call, digest: str) -> None:
        """Refuse to try a call again, which did not happen, with other arguments: it is the same
        call, under the same idempotency key."""
        before = self.records.entered(digest)
        found = None if before is None else mismatch.since_entered(call, before)
        if found is not None:
            await self.halt(found)

    def asks_below(self, position: Position) -> bool:
        """Whether a body that asked, or something it ran, was interrupted by a wait: it left no
        outcome, and is entered again over what is recorded inside it."""
        return position.kind in (Kind.TOOL, Kind.NODE) and any(
            is_under(path, position.path) for path in self._asked
        )

    # ---------------------------------------------------------------- the engine's side

    def check_walked(self) -> None:
        """Refuse a committed step that the code ran through in another way.

        Raises:
            ReplayMismatch: a recorded call was not made, or a cancelled one was not cancelled.
        """
        for call in self._stalled.values():
            raise ReplayMismatch(
                call.position.text,
                recorded="a call that was cancelled",
                asked="one that nobody cancels",
            )
        entry = self._hand_out.never_asked()
        if entry is not None:
            raise ReplayMismatch(entry.position.text, recorded=entry.record.name, asked="nothing")

    def open_step(self, step: int, asked: Iterable[str] = ()) -> None:
        """Start a step; ``asked`` are the operation paths of the waits that ended it."""
        self.step = step
        self.records: StepRecords = self.recorded.step(step)
        self._asked = tuple(asked)
        self._hand_out = HandOut(self.records.to_hand_out())
        self._entered: dict[str, Dispatched] = {}
        self._stalled: dict[str, Call] = {}

    def note(self, position: Position, body: Payload) -> None:
        """Record something of the engine's own; it rides along with what is written next."""
        now = self._clock.estimate()
        ticket = Dispatched(
            Call(position, position.kind.value), position.digest, 1, now, self._hand_out.moves
        )
        self._hand_over(ticket, RecordStatus.COMPLETED, body)

    def abandoned(self, waits: Iterable[str]) -> tuple[str, ...]:
        """Positions entered in this step that have no outcome and no wait below them."""
        self._asked = tuple(waits)
        return left_open(self._entered.values(), self.records, self.asks_below)

    def stop(self, error: BaseException) -> None:
        """End the attempt for this reason, unless it has one; cancel the run."""
        self.ending.stop(error)
        if self.ending.is_death:
            self._log.stop(error)

    async def flush(self) -> None:
        """As ``drain``, but raises what the store raised; for after the run."""
        await self._log.durable()

    async def settle(self) -> None:
        """Wait for the writes that are under way, whatever becomes of them."""
        await self.doubts.settled()
        await self._log.settled()

    def close(self) -> None:
        """Nothing more comes of this attempt: whoever still waits in it is cancelled."""
        self.ending.close()
        self._hand_out.stop()
        if self.ending.fatal is not None:
            self._log.stop(self.ending.fatal)

    async def _durable(self) -> None:
        await self._stored(self._log.durable())

    async def _stored(self, operation: Awaitable[T]) -> T:
        """Await a write. What it raises ends the attempt: no callback may take it for a tool's."""
        try:
            return await operation
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            await self.halt(error)
