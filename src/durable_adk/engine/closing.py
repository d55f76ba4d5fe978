"""The end of a turn whose program does not run to its end: cancelled, given up, failed for good.

What the program appended in the open step is known to its session only: what callbacks made of a
tool's result is in no record. So the play that ran here is closed where it stands; where none
ran, the program runs once more over the records and starts nothing. Only if that does not reach
the end of the records are they shown without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from durable_adk.engine import ends
from durable_adk.engine.activities import Entry, Recorded
from durable_adk.engine.attempt import Attempt
from durable_adk.engine.calls import Call, Dispatched, Replayed
from durable_adk.engine.handout import PATIENCE_S
from durable_adk.engine.loading import Past
from durable_adk.engine.program import Play, Quiet
from durable_adk.errors import LeaseLost
from durable_adk.model.activity import Kind, Record, RecordStatus
from durable_adk.model.execution import History
from durable_adk.model.wait import AnsweredWait

_log = logging.getLogger("durable_adk.engine")

LONGEST_S = 30.0
"""How long a run over the records may take: callbacks run in it, and a callback may hang."""


class NothingNew(Exception):
    """The run came to where the record ends."""


class ClosingAttempt(Attempt):
    """An attempt that hands out what is recorded and starts nothing.

    Where nothing is recorded, it waits until the siblings have what is recorded for them, and
    ends the run: no body, no record, no retry.
    """

    async def _replay(self, call: Call, entry: Entry) -> Replayed:
        if entry.record.status is RecordStatus.IN_DOUBT:
            await self._nothing_new()
        return await super()._replay(call, entry)

    async def _dispatch(self, call: Call, digest: str) -> Replayed | Dispatched:
        await self._nothing_new()

    async def _nothing_new(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            moves, due = self._hand_out.moves, loop.time() + 2 * PATIENCE_S
            await asyncio.sleep(2 * PATIENCE_S)
            # A loop that was blocked had no chance to move: that is no sign of being done.
            if self._hand_out.moves == moves and loop.time() - due < PATIENCE_S:
                await self.halt(NothingNew())


@dataclass(frozen=True, slots=True)
class Closed:
    """What is committed as the last step.

    Attributes:
        records: Those of the open step.
        abandoned: As of any step.
        doubts: Of the bodies in it that must not run twice, those that left no outcome.
    """

    quiet: Quiet
    records: Sequence[Record]
    abandoned: tuple[str, ...] = ()
    doubts: Sequence[Record] = ()


class Closing:
    """Closes the open step of one execution.

    Args:
        begin: A play that starts nothing, over what is recorded.
        live: The play whose open step was run here, if one was.
        run: Runs a step of a play that ``begin`` made to its end, or for at most a time.
    """

    def __init__(
        self,
        past: Past,
        *,
        begin: Callable[[Recorded, History], tuple[ClosingAttempt, Play]],
        live: Callable[[], Play | None],
        run: Callable[[Attempt, Coroutine[Any, Any, Quiet], float], Awaitable[Quiet]],
    ) -> None:
        self._past = past
        self._begin = begin
        self._live = live
        self._run = run

    async def close(self, note: str, ran: Attempt | None) -> Closed:
        """End the open step with what is recorded, and a closing response per open call.

        An open frontier is left behind first: its step stays as it was shown. ``ran`` is the
        attempt whose program ran before, if it did.

        Raises:
            LeaseLost: another owner recorded something, or goes on.
            DurableError: not all that the run rests on could be stored, or read.
        """
        past = self._past
        abandoned: tuple[str, ...] = ()
        if ran is not None:
            await ran.settle()
            await ran.flush()  # nothing is committed that rests on what is not durable
            if ran.step == past.execution.step and not ran.records.committed:
                abandoned = ran.abandoned(())
                closed = self._close_live(note, ran, abandoned)
                if closed is not None:
                    return closed
        history = await past.history()
        answered = await past.leave_to_close()
        recorded = await past.load(to_close=True)
        there = recorded.step(past.execution.step)
        quiet = await self._replayed(note, recorded, history, answered)
        if quiet is None:
            quiet = await self._from_records(note, recorded, history, answered)
        return Closed(quiet, there.outcomes(), abandoned, there.in_doubt())

    def _close_live(self, note: str, ran: Attempt, abandoned: tuple[str, ...]) -> Closed | None:
        play, records = self._live(), ran.records.outcomes()
        if play is None:
            return None
        try:
            quiet = play.close_turn(note, records)
            return Closed(quiet, records, abandoned, ran.records.in_doubt())
        except Exception as error:  # such as a value in its state that cannot be stored
            self._explain(error)
            return None

    async def _replayed(
        self,
        note: str,
        recorded: Recorded,
        history: History,
        answered: Sequence[AnsweredWait],
    ) -> Quiet | None:
        """The end of a run over the records; None if it did not come to their end."""
        step = self._past.execution.step
        there = recorded.step(step)
        records = [one for one in there.outcomes() if one.name != Kind.SHARED.value]
        if not records or (step > 1 and not answered):
            return None
        attempt, play = self._begin(recorded, history)
        try:
            self._restore(attempt, play)
            shared = ends.shared_from(there.shared.body) if there.shared is not None else {}
            await self._run_over(attempt, play.run_step(step, answered, shared))
            if attempt.unserved():
                return None
            return play.close_turn(note, there.outcomes(), answered)
        except LeaseLost:
            raise
        except Exception as error:
            self._explain(error)
            return None
        finally:
            await play.aclose()
            attempt.close()

    async def _run_over(self, attempt: Attempt, running: Coroutine[Any, Any, Quiet]) -> None:
        """Run to the end of the records. An exception that leaves the root is such an end too,
        unless it says that the code is another one."""
        try:
            await self._run(attempt, running, LONGEST_S)
        except Exception as error:
            if attempt.fatal is not None and not isinstance(attempt.fatal, NothingNew):
                raise
            if not isinstance(error, NothingNew):
                self._explain(error)

    async def _from_records(
        self,
        note: str,
        recorded: Recorded,
        history: History,
        answered: Sequence[AnsweredWait],
    ) -> Quiet:
        attempt, play = self._begin(recorded, history)
        try:
            self._restore(attempt, play)
            return play.close_turn(note, attempt.records.outcomes(), answered)
        finally:
            await play.aclose()
            attempt.close()

    def _restore(self, attempt: Attempt, play: Play) -> None:
        for document in self._past.steps:
            attempt.step = document.step
            play.restore(document)
        attempt.open_step(self._past.execution.step)

    def _explain(self, error: Exception) -> None:
        _log.info(
            "a turn is closed after %s",
            type(error).__name__,
            extra={"execution_id": self._past.execution.execution_id},
            exc_info=error,
        )
