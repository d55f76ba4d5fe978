"""What happens when nobody answers in time: the answer that a wait carries for that is stored.

No lease is needed: it is an answer like any other, given by ``expiry``, and the server's clock
decides in the same update whether it may be given. Rivals store the same, so one of them wins and
the others find it done. A timer is a wait that only expiry answers.
"""

from __future__ import annotations

from durable_adk.engine.ports import Clock, Store
from durable_adk.model.codec import digest
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import ExecutionKey
from durable_adk.model.wait import BY_EXPIRY, Frontier, StoredAnswer, WaitRequest


def is_due(execution: Execution, now: int) -> bool:
    """Whether something of a suspended execution seems to have expired: the server decides."""
    return execution.status is Status.SUSPENDED and execution.wake_at <= now


class Expiring:
    """Stores expiry answers."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def apply_if_due(self, execution: Execution) -> Execution:
        """``apply``, where the local clock says that it is worth a look."""
        return await self.apply(execution) if self.seems_due(execution) else execution

    def seems_due(self, execution: Execution) -> bool:
        """Whether it is worth a look."""
        return is_due(execution, self._clock.estimate())

    async def apply_to(self, key: ExecutionKey) -> bool:
        """``apply``, for what could not be claimed. Returns: whether it may be claimed now."""
        execution = await self._store.get_execution(key)
        if execution is None or not _open_expiries(execution):
            return False
        applied = await self.apply(execution)
        frontier = applied.frontier
        return applied.status is Status.SUSPENDED and frontier is not None and frontier.open == 0

    async def apply(self, execution: Execution) -> Execution:
        """Give every open wait that has expired its expiry answer.

        Returns: the execution as it stands then; the same if nothing has expired.
        """
        while times := _open_expiries(execution):
            assert execution.frontier is not None
            first = min(times.values())
            seen = max(first, self._clock.estimate())
            put = await self._put(execution, [i for i, at in times.items() if at <= seen])
            if not put and seen > first:  # the local clock may be fast
                put = await self._put(execution, [i for i, at in times.items() if at <= first])
            found = await self._store.get_execution(execution.key)
            if found is None:
                return execution
            if not put and _place_in_time(found) == _place_in_time(execution):
                return found  # not expired
            execution = found
        return execution

    async def _put(self, execution: Execution, places: list[int]) -> bool:
        frontier = execution.frontier
        assert frontier is not None
        answers = {place: expiry_answer(frontier.waits[place]) for place in places}
        return await self._store.put_answers(execution.key, frontier, answers)


def expiry_answer(wait: WaitRequest) -> StoredAnswer:
    """The answer that counts when a wait has expired; the same from everybody."""
    assert wait.on_expiry is not None
    assert wait.expires_at is not None
    return StoredAnswer(
        value=wait.on_expiry, digest=digest(wait.on_expiry), by=BY_EXPIRY, at=wait.expires_at
    )


def _open_expiries(execution: Execution) -> dict[int, int]:
    """When each open wait expires, by place, of those that do."""
    frontier = execution.frontier
    if execution.status is not Status.SUSPENDED or frontier is None:
        return {}
    return {
        place: wait.expires_at
        for place, wait in enumerate(frontier.waits)
        if place not in frontier.answers and _can_expire(wait) and wait.expires_at is not None
    }


def _can_expire(wait: WaitRequest) -> bool:
    return wait.on_expiry is not None


def _place_in_time(execution: Execution) -> tuple[object, ...]:
    frontier: Frontier | None = execution.frontier
    where = (frontier.id, frontier.rev) if frontier is not None else None
    return execution.status, execution.token, where
