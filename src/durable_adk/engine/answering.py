"""Storing answers: one, or a whole resume map, against rivals and repeats.

Every answer goes through one guarded update of the execution. When it stores nothing, somebody
else's did: the answers are read again and compared, so the same answer is always the same
answer, a different one always a conflict, and nothing runs twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from durable_adk.engine.answers import (
    conflict,
    has_expired,
    missing_answers,
    open_wait_ids,
    place_of,
    problem_with,
    refused_answer,
)
from durable_adk.engine.expiring import Expiring
from durable_adk.engine.ports import Store
from durable_adk.errors import InvalidAnswer, NotFound, WaitClosed
from durable_adk.model.codec import decode
from durable_adk.model.execution import Execution, Status
from durable_adk.model.position import split_activity_id
from durable_adk.model.wait import BY_EXPIRY, Frontier, StoredAnswer


class Receipt(NamedTuple):
    """What became of one answer.

    Attributes:
        execution: As it stands now.
        open: How many waits of its frontier are still unanswered.
        runnable: The frontier is complete and nobody has gone on with it yet.
    """

    execution: Execution
    open: int
    runnable: bool


def asks(execution: Execution) -> bool:
    """Whether it is suspended on at least one open wait."""
    return execution.status is Status.SUSPENDED and bool(open_wait_ids(execution))


class Answering:
    """Puts answers where they belong."""

    def __init__(self, store: Store, expiring: Expiring) -> None:
        self._store = store
        self._expiring = expiring

    async def put_map(self, execution: Execution, given: Mapping[str, StoredAnswer]) -> Execution:
        """Complete the frontier with a resume map, or find that it was answered so before.

        Returns: the execution as it stands then.
        Raises:
            InvalidAnswer: the map is not whole, or a value does not fit. Nothing was stored.
            AnswerConflict: a wait is answered otherwise. Nothing was stored.
            WaitClosed: the execution has ended without these waits, or one has expired.
        """
        execution = await self._expiring.apply_if_due(execution)
        while asks(execution) and (frontier := execution.frontier):
            if await self._repeats_earlier(execution, given):
                return execution
            added = missing_answers(execution, frontier, given)
            if not added:  # only timers are open
                return execution
            if await self._store.put_answers(execution.key, frontier, added):
                return await self._read(execution)
            execution = await self._read_again(execution, frontier, given)
        await self._compare(execution, given)
        return execution

    async def put_one(self, execution: Execution, wait: str, answer: StoredAnswer) -> Receipt:
        """Store one answer. Nothing runs.

        Raises:
            NotFound: the execution has no such wait.
            InvalidAnswer, AnswerConflict, WaitClosed: as ``put_map``.
        """
        execution = await self._expiring.apply_if_due(execution)
        while asks(execution) and (frontier := execution.frontier):
            place = place_of(execution, wait)
            if place is None or place in frontier.answers:
                break
            if problem := problem_with(frontier.waits[place], decode(answer.value)):
                raise refused_answer(wait, problem)
            if await self._store.put_answers(execution.key, frontier, {place: answer}):
                left = frontier.open - 1
                return Receipt(await self._read(execution), left, left == 0)
            execution = await self._read_again(execution, frontier, {wait: answer})
        try:
            await self._compare(execution, {wait: answer})
        except InvalidAnswer:
            raise NotFound(
                f"wait {wait!r}",
                "there is no such wait, or it is a timer that is over",
                "List the open ones with app.waits.list().",
            ) from None
        is_here = place_of(execution, wait) is not None
        left = len(open_wait_ids(execution)) if is_here else 0
        is_runnable = is_here and left == 0 and execution.status is Status.SUSPENDED
        return Receipt(execution, left, is_runnable)

    # ------------------------------------------------------------ repeats

    async def _repeats_earlier(
        self, execution: Execution, given: Mapping[str, StoredAnswer]
    ) -> bool:
        """Whether the map is, whole, the one that an earlier frontier was answered with."""
        if not given or any(place_of(execution, wait) is not None for wait in given):
            return False
        before = await self._recorded(execution, given)
        if before.keys() != given.keys():
            return False
        self._refuse_others(given, before)
        return True

    async def _compare(self, execution: Execution, given: Mapping[str, StoredAnswer]) -> None:
        """Compare repeats with what was stored, now that nothing can be added."""
        if execution.status is Status.CANCELLED:
            raise self._closed(execution)
        known = self._standing(execution, given)
        if unknown := given.keys() - known.keys():
            known |= await self._recorded(execution, unknown)
        if unknown := given.keys() - known.keys():
            was_open = any(place_of(execution, wait) is not None for wait in unknown)
            if was_open or execution.closing or execution.status is Status.FAILED:
                raise self._closed(execution)
            problems = {w: "is not a wait of this execution" for w in given if w in unknown}
            raise InvalidAnswer(f"answers to execution {execution.execution_id!r}", problems)
        self._refuse_others(given, known)

    @staticmethod
    def _standing(execution: Execution, waits: Iterable[str]) -> dict[str, StoredAnswer]:
        """The answers of the current frontier among these waits."""
        standing: dict[str, StoredAnswer] = {}
        for wait in waits:
            place = place_of(execution, wait)
            if execution.frontier and place is not None and place in execution.frontier.answers:
                standing[wait] = execution.frontier.answers[place]
        return standing

    async def _recorded(
        self, execution: Execution, waits: Iterable[str]
    ) -> dict[str, StoredAnswer]:
        """The answers that became records of their step, newest step first."""
        by_digest: dict[str, str] = {}
        for wait in waits:
            match split_activity_id(wait):
                case (execution_id, digest) if execution_id == execution.execution_id:
                    by_digest[digest] = wait
        found: dict[str, StoredAnswer] = {}
        for step in range(execution.step, 0, -1):
            run, owner = execution.answers_of(step)
            if len(found) == len(by_digest) or owner != execution.execution_id:
                break
            for answered in await self._store.load_waits(run, step=step):
                if known := by_digest.get(answered.wait.digest):
                    found.setdefault(known, answered.answer)
        return found

    @staticmethod
    def _refuse_others(
        given: Mapping[str, StoredAnswer], stored: Mapping[str, StoredAnswer]
    ) -> None:
        different = [w for w, answer in given.items() if stored[w].digest != answer.digest]
        if different:
            raise conflict({w: stored[w] for w in different})

    @staticmethod
    def _closed(execution: Execution) -> WaitClosed:
        ending = execution.closing or execution.status
        reason = f": {execution.error.message}" if execution.error else ""
        return WaitClosed(
            f"execution {execution.execution_id!r}",
            f"takes no more answers; it is {ending.value}{reason}",
            "Send a new message to the session.",
        )

    # ------------------------------------------------------------ reads

    async def _read(self, execution: Execution) -> Execution:
        found = await self._store.get_execution(execution.key)
        if found is None:
            raise NotFound(
                f"execution {execution.execution_id!r}",
                "there is no such execution",
                "Look it up: app.executions.list().",
            )
        return found

    async def _read_again(
        self, execution: Execution, tried: Frontier, given: Mapping[str, StoredAnswer]
    ) -> Execution:
        """Read after an update that stored nothing: somebody else moved it, or it has expired.

        Raises:
            WaitClosed: it has; its expiry answer is stored. Or its execution's deadline has passed.
        """
        now = await self._read(execution)
        frontier = now.frontier
        if not (asks(now) and frontier and (frontier.id, frontier.rev) == (tried.id, tried.rev)):
            return now
        applied = await self._expiring.apply(now)
        standing = self._standing(applied, given)
        expired = [wait for wait, answer in standing.items() if answer.by == BY_EXPIRY]
        if expired:
            raise has_expired(expired)
        left = applied.frontier
        if left is None or (left.id, left.rev) != (frontier.id, frontier.rev):
            return applied
        is_late = applied.deadline is not None
        raise WaitClosed(
            f"execution {execution.execution_id!r}",
            "its deadline has passed" if is_late else "an open wait has expired",
            "It takes no more answers. Send a new message to the session once it has ended.",
        )
