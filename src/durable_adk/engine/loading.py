"""What an attempt stands on: the session's past, the committed steps, the records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from durable_adk.engine.activities import Recorded, gaps
from durable_adk.engine.doubts import decide_all
from durable_adk.engine.ends import answered_waits
from durable_adk.engine.ports import Store
from durable_adk.engine.recent import history_for
from durable_adk.engine.settings import EngineSettings
from durable_adk.engine.settled import asked_waits, entered_before, with_results
from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Record
from durable_adk.model.execution import Execution, History, Lease, StepDocument, StepRef
from durable_adk.model.wait import AnsweredWait, Frontier, WaitKind


class Past:
    """What is loaded for one attempt, in the causal session of its claim.

    Attributes:
        execution: As the writes of this attempt left it.
        steps: Its committed steps, in order.
    """

    def __init__(
        self, execution: Execution, *, lease: Lease, store: Store, settings: EngineSettings
    ) -> None:
        self.execution = execution
        self.steps: tuple[StepDocument, ...] = ()
        self._lease = lease
        self._store = store
        self._settings = settings
        self._just_answered: tuple[AnsweredWait, ...] | None = None

    async def history(self) -> History:
        """The session's finished turns; the newest one's shared state is applied by now.

        Its owner may have died between the commit and that. What this attempt sees of shared
        state must not depend on it.
        """
        history = await self._history()
        while mark := history.session.retained.cutting:
            # Retention looks for active executions after setting it, and missed this one: every
            # attempt has to stand on the same turns.
            await self._store.stop_cut(history.session.key, mark)
            history = await self._history()
        for turn in history.turns[-1:]:
            if turn.execution.scopes_due:
                await self._store.apply_scopes(turn.execution, turn.steps[-1])
        return history

    async def _history(self) -> History:
        return await history_for(self._store, self.execution, max_turns=self._settings.max_turns)

    def _to_leave(self) -> Frontier | None:
        """The frontier, unless it is one of timers: that stays until its step has another."""
        frontier = self.execution.frontier
        if frontier is None or (frontier.sleeps and not frontier.is_in_doubt):
            return None
        return frontier

    async def continue_answered(self) -> None:
        """Close the answered frontier, if there is one: its step is committed, the next open; but
        that of doubts stays open."""
        frontier = self._to_leave()
        if frontier is not None:
            answered = answered_waits(frontier)
            if frontier.ends_step:
                self._just_answered = answered
            else:
                answered = tuple(one for one in answered if one.wait.kind is WaitKind.IN_DOUBT)
            await self.leave_frontier(answered)

    async def leave_frontier(self, answered: Sequence[AnsweredWait] = ()) -> None:
        """Close the frontier, if there is one, whatever is answered of it."""
        execution, frontier = self.execution, self._to_leave()
        if frontier is None:
            return
        await self._store.commit_continue(self._lease, execution, answered)
        if not frontier.ends_step:
            self.execution = dataclasses.replace(execution, frontier=frontier.without_doubts())
            return
        self.execution = dataclasses.replace(
            execution,
            step=frontier.step + 1,
            last_step=StepRef(frontier.step, frontier.step_token),
            frontier=None,
        )

    async def leave_to_close(self) -> tuple[AnsweredWait, ...]:
        """Close the frontier, if there is one. Returns: the answers that the open step began with.

        A frontier that is not answered whole leaves none, nor do answers that are gone: nothing
        goes on from them.
        """
        frontier, step = self._to_leave(), self.execution.step
        if frontier is not None and len(frontier.answers) < len(frontier.waits):
            await self.leave_frontier()
            if frontier.ends_step:
                return ()
        await self.continue_answered()
        if self._just_answered is not None:
            return self._just_answered
        try:
            run, _execution_id = self.execution.answers_of(step - 1)
            return asked_waits(await self._store.load_waits(run, step=step - 1))
        except CorruptHistory:
            return ()

    async def load(self, *, to_close: bool = False, again: bool = False) -> Recorded:
        """Everything that is recorded, checked against what the commits name.

        The records of committed steps are read in both modes: nothing else notices that some
        of them are gone. ``to_close``: what is missing does not matter, and what was entered and
        left nothing gets its verdict: nobody looks at it again. With it, or ``again``, this
        attempt may have recorded something itself.

        Raises:
            CorruptHistory: something that a commit names is missing.
        """
        execution = self.execution
        is_new = execution.attempt == 1 and execution.step == 1 and not execution.parents
        if is_new and not to_close and not again:
            return Recorded(open_step=1)  # nobody can have recorded anything
        self.steps = await self._store.load_steps(execution)
        if self.steps and not to_close:
            await self._store.check_waits(execution)
        if execution.scopes_due and self.steps:  # as in ``history``, for its own last step
            await self._store.apply_scopes(execution, self.steps[-1])
            self.execution = dataclasses.replace(execution, scopes_due=False)
        records = await with_results(await self._records(), self.execution, self._store)
        if not to_close:
            records = [*records, *await entered_before(execution, execution.step, self._store)]
        recorded = Recorded(
            open_step=execution.step,
            records=records,
            steps=self.steps,
            voided=execution.voided,
            to_close=to_close,
        )
        if to_close:
            await decide_all(recorded, self.execution, self._store)
        return recorded

    async def _records(self) -> Sequence[Record]:
        """All records; again if there is a gap in the log.

        A stale owner may be writing while they are read: a read can meet a late record and miss
        an earlier one. What it met was written after all before it, so a second read has those;
        what comes after a gap that only the second read shows is such a late record again.
        """
        run, parents = self.execution.run, self.execution.parents
        records = await self._store.load_records(run, from_step=1, parents=parents)
        if not gaps(records):
            return records
        last = max(record.seq for record in records)
        again = await self._store.load_records(run, from_step=1, parents=parents)
        gap = next(iter(gaps(again)), last)
        return again if gap <= last else [record for record in again if record.seq < gap]

    async def waits_of(self, step: int) -> tuple[AnsweredWait, ...]:
        """The answered waits that ended a committed step.

        Raises:
            CorruptHistory: there are none.
        """
        if self._just_answered is not None and step == self.execution.step - 1:
            return self._just_answered
        run, _execution_id = self.execution.answers_of(step)
        waits = asked_waits(await self._store.load_waits(run, step=step))
        if not waits:
            raise CorruptHistory(
                f"step {step}", "its answers are missing", "Restore them, or give it up."
            )
        return waits
