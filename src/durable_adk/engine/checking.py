"""The attempt of a replay check: it hands out what is recorded, starts nothing, and says what
was not asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

from durable_adk.engine.activities import Entry
from durable_adk.engine.calls import Call, Dispatched, Replayed
from durable_adk.engine.closing import ClosingAttempt, NothingNew
from durable_adk.engine.handout import PATIENCE_S
from durable_adk.engine.places import gone
from durable_adk.errors import ReplayMismatch
from durable_adk.model.activity import Kind, Payload, Record, RecordStatus
from durable_adk.model.position import Position, is_under

IDLE_ROUNDS = 2
"""How often nothing must have moved, ``PATIENCE_S`` apart, before a run has come to the end of the
record; where records are left that nobody has asked for, ``IDLE_ROUNDS_AT_MOST``."""
IDLE_ROUNDS_AT_MOST = 40


class CheckingAttempt(ClosingAttempt):
    """An attempt that hands out what is recorded, starts nothing, and keeps what it sees.

    Attributes:
        matched: Step and digest of the records that were asked for.
        warnings: As in ``Replay``.
        look: Compares the program itself with what the step being walked ran on. Raises:
            ReplayMismatch.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.matched: set[tuple[int, str]] = set()
        self.warnings: list[ReplayMismatch] = []
        self._new: list[Call] = []
        self.look: Callable[[], None] | None = None

    def tolerate(self, found: ReplayMismatch) -> None:
        self.warnings.append(found)

    @property
    def redact(self) -> frozenset[str]:
        """Names of fields whose values people are not shown."""
        return self._settings.redact

    def passed_over(self) -> ReplayMismatch | None:
        """The first record of the step being run that nobody asked for, though somebody could."""
        for entry in self._hand_out.left():
            if self._is_out_of_reach(entry):
                continue
            if self._new and not self.places.has(entry.position.path):
                return gone(entry, self._new[0])
            return ReplayMismatch(entry.position.text, recorded=entry.record.name, asked="nothing")
        return None

    def in_its_words(self, found: ReplayMismatch) -> ReplayMismatch:
        """A difference as an attempt tells it, which compares the program before it runs."""
        try:
            if self.look is not None:
                self.look()
        except ReplayMismatch as told:
            is_same = (told.recorded, told.asked) == (found.recorded, found.asked)
            return found if is_same else told  # the walk knows more exactly where
        return found

    def unchecked(self) -> tuple[str, ...]:
        """What nobody asked for because nobody could."""
        return tuple(e.position.text for e in self._hand_out.left() if self._is_out_of_reach(e))

    def _is_out_of_reach(self, entry: Entry) -> bool:
        if any(is_under(entry.position.path, call.position.path) for call in self._new):
            return True  # inside a body that is not entered
        if self._new and not self.places.has(entry.position.path):
            return False
        if any(call.position.text in self.records.abandoned for call in self._new):
            return True  # what follows a call that was cut off, which the walk does not wait for
        # A later attempt came by without it, such as a fallback after a timeout.
        made = self._made_in(entry)
        return any(o.asked_at and self._made_in(o) > made for o in self.records.in_order())

    def _made_in(self, entry: Entry) -> tuple[int, int]:
        """Attempts in their order, those of the executions first that a fork goes on from."""
        parents = self.execution.parents
        owner = (place for place, one in enumerate(parents) if one.has(entry.record))
        return next(owner, len(parents)), entry.record.attempt

    async def _replay(self, call: Call, entry: Entry) -> Replayed:
        if entry.record.status is RecordStatus.IN_DOUBT:
            await self._check_entered(call, entry.record.digest)
        else:
            self.matched.add((self.step, entry.record.digest))
        return await super()._replay(call, entry)

    async def _dispatch(self, call: Call, digest: str) -> Replayed | Dispatched:
        await self._check_entered(call, digest)
        if not self._ran_others(call.position):
            await self._not_recorded(call)
        return Dispatched(call, digest, 1, self.now(), self._hand_out.moves)

    async def _not_recorded(self, call: Call) -> NoReturn:
        if self.records.committed:
            asked = call.asked or call.name
            await self.halt(ReplayMismatch(call.position.text, recorded="nothing", asked=asked))
        self._new.append(call)
        await self._nothing_new()

    def _ran_others(self, position: Position) -> bool:
        """Whether a body is an orchestrator: it was interrupted by a wait inside it, or is a node
        below which calls are recorded."""
        if self.records.committed:
            below = (path for path in self._asked if path != position.path)
            return any(is_under(path, position.path) for path in below)
        return position.kind is Kind.NODE and any(
            entry.position.path != position.path
            and is_under(entry.position.path, position.path)
            and entry.position.kind in (Kind.MODEL, Kind.TOOL, Kind.NODE)
            for entry in self.records.in_order()
        )

    async def record(
        self, ticket: Dispatched, status: RecordStatus, body: Payload, *, durable: bool = False
    ) -> Record:
        if not self.records.committed:
            await self._nothing_new()
        return await super().record(ticket, status, body, durable=durable)  # refuses it

    async def cancelled(self, ticket: Dispatched) -> None:
        ticket.settled = True

    def note(self, position: Position, body: Payload) -> None:
        pass

    async def _nothing_new(self) -> NoReturn:
        idle, moves = 0, self._hand_out.moves
        while idle < (IDLE_ROUNDS_AT_MOST if self.unserved() else IDLE_ROUNDS):
            await asyncio.sleep(PATIENCE_S)
            idle, moves = (idle + 1 if self._hand_out.moves == moves else 0), self._hand_out.moves
        await self.halt(NothingNew())
