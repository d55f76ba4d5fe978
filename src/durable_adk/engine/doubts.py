"""Bodies that must not run twice: intents before them, verdicts where they left nothing.

An intent is inserted by one owner only, who then enters the body at most once; no clock is
involved. Whoever finds an intent without an outcome puts a verdict into the outcome slot: an
outcome that got there first is used, one that comes later has lost.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import Any

from durable_adk.engine.activities import Recorded, StepRecords
from durable_adk.engine.calls import Call, Dispatched
from durable_adk.engine.ports import Clock, Store
from durable_adk.errors import OutcomeUnknown
from durable_adk.model.activity import Kind, Record, RecordStatus, UnknownOutcome
from durable_adk.model.doubt import Doubt
from durable_adk.model.execution import Execution, StoredError
from durable_adk.model.identity import new_nonce
from durable_adk.model.position import Position, is_under

_log = logging.getLogger("durable_adk.engine")


class Undecided(Exception):
    """A body that must not run twice was cancelled, or another owner entered it: before anything
    else runs, it has to be decided whether it happened."""

    def __init__(self, record: Record | None = None) -> None:
        what = "a call" if record is None else f"{record.name} at position {record.position}"
        super().__init__(f"{what} was entered and left no result")


class Doubts:
    """The intents and verdicts of one attempt.

    Attributes:
        left: The verdict of a body that was cancelled here: nothing new may start.
        callbacks: ``reconcile`` of the calls that were made here, by digest of their position.
    """

    def __init__(
        self,
        execution: Execution,
        *,
        store: Store,
        clock: Clock,
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._execution = execution
        self._store = store
        self._clock = clock
        self._on_death = on_death
        self.left: Record | None = None
        self.callbacks: dict[str, Callable[[Doubt], Any]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    def know(self, call: Call, digest: str) -> None:
        """Keep the callback of a call, if it has one."""
        if call.reconcile is not None:
            self.callbacks[digest] = call.reconcile

    async def intend(self, ticket: Dispatched) -> Record | None:
        """Claim the body of a call. Returns: the intent; None if another owner entered it."""
        intent = self._record(ticket, is_intent=True)
        is_ours = await self._store.insert_intent(self._execution.run, intent)
        return intent if is_ours else None

    async def decide(self, ticket: Dispatched) -> Record:
        """Take the slot of a call that is in doubt. Returns: what stands in it now."""
        verdict = self._record(ticket, status=RecordStatus.IN_DOUBT)
        return await self._store.insert_verdict(self._execution.run, verdict)

    async def cancelled(self, ticket: Dispatched, records: StepRecords) -> None:
        """Put the verdict on a body that was cancelled, whatever happens to the caller; unless it
        may run again."""
        if ticket.call.policy is UnknownOutcome.RERUN:
            return
        self.left = self.left or self._record(ticket)
        task = asyncio.get_running_loop().create_task(self._give_up(ticket, records))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.shield(task)

    def check(self) -> None:
        """Refuse to go on from a body that is in doubt. Raises: Undecided."""
        if self.left is not None:
            raise Undecided(self.left)

    def is_inside(self, ticket: Dispatched) -> bool:
        """Whether what is in doubt ran inside a body, so that its outcome rests on what nobody
        knows. That of one that must not run twice counts all the same."""
        call = ticket.call
        return (
            self.left is not None
            and call.policy is UnknownOutcome.RERUN
            and not call.is_part
            and call.position.kind in (Kind.NODE, Kind.TOOL)
            and is_under(Position.parse(self.left.position).path, call.position.path)
        )

    async def settled(self) -> None:
        """Wait for the verdicts that are under way."""
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def _give_up(self, ticket: Dispatched, records: StepRecords) -> None:
        try:
            records.add(await self.decide(ticket), ticket.call.position)
        except Exception:  # the intent stays without an outcome: the next attempt decides the same
            _log.warning(
                "a cancelled body could not be marked as in doubt",
                extra={"execution_id": self._execution.execution_id},
                exc_info=True,
            )
        except BaseException as death:
            self._on_death(death)

    def _record(
        self, ticket: Dispatched, *, is_intent: bool = False, status: RecordStatus | None = None
    ) -> Record:
        """An intent or a verdict: no place in the log."""
        call = ticket.call
        return Record(
            step=call.position.step,
            digest=ticket.digest,
            attempt_try=ticket.attempt_try,
            is_intent=is_intent,
            position=call.position.text,
            token=self._execution.token,
            nonce=new_nonce(),
            request=call.request,
            status=status,
            name=call.name,
            node_path=call.node_path,
            started_at=ticket.started_at,
            ended_at=self._clock.estimate(),
            attempt=self._execution.attempt,
            body=ticket.call.intent if is_intent else None,
        )


async def decide_all(recorded: Recorded, execution: Execution, store: Store) -> list[Record]:
    """Give every body of the open step that was entered and left nothing its verdict.

    Returns: the verdicts that nothing has settled.
    """
    records = recorded.step(recorded.open_step)
    for intent in records.doubts():
        verdict = dataclasses.replace(
            intent,
            is_intent=False,
            body=None,
            status=RecordStatus.IN_DOUBT,
            token=execution.token,
            nonce=new_nonce(),
            attempt=execution.attempt,
        )
        found = await store.insert_verdict(execution.run, verdict)
        records.add(found, Position.parse(found.position))
        recorded.last_seq = max(recorded.last_seq, found.seq)
    return records.verdicts()


def unknown(record: Record) -> OutcomeUnknown:
    """The error that a verdict stands for."""
    return OutcomeUnknown(
        f"{record.name or 'a call'} at position {record.position}",
        "it was entered and left no result, and it must not run twice",
        "Find out whether it happened. If it did, say so in the session's next message; if it did"
        " not, send the message again, as a new execution.",
        position=record.position,
    )


LOOK = "Find out whether it happened, and if it did, say so in the session's next message."


def with_doubts(error: StoredError, doubts: Iterable[Record]) -> StoredError:
    """The error that an execution ends with, saying which bodies it leaves in doubt as well: those
    that must not run twice and that something cut off. Nobody is asked about them any more."""
    left = sorted((d for d in doubts if d.position != error.position), key=lambda d: d.position)
    if not left:
        return error
    told = ", ".join(f"{d.name or 'a call'} at position {d.position}" for d in left)
    ran, whose = ("was", "its effect") if len(left) == 1 else ("were", "their effects")
    return dataclasses.replace(
        error,
        message=f"{error.message}; {told} {ran} entered and left no result: {whose} may have"
        " happened",
        position=error.position or left[0].position,
        remedy=f"{LOOK} If it did not: {error.remedy}" if error.remedy else LOOK,
    )
