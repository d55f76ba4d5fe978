"""How a turn is closed that did not run to its end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable_adk.engine import closing
from durable_adk.errors import Unavailable
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import new_nonce
from durable_adk.testing.faults import FaultPlan
from tests.support.attempts import FAIL, TTL_MS, Calls, Desk, ProcessDied, Scripted, ask
from tests.unit.engine.test_attempt_ends import FakeKeeper


async def to_close(desk: Desk, execution: Execution, reason: str = "enough") -> Execution:
    desk.clock.advance(2 * TTL_MS)
    claimed = await desk.store.claim_to_close(
        execution.key, closing=Status.CANCELLED, reason=reason, nonce=new_nonce(), ttl_ms=TTL_MS
    )
    assert claimed is not None
    return claimed


async def died(desk: Desk, program: Scripted, point: str, at: int = 1) -> Execution:
    """An execution whose process ended at a point."""
    execution = await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail(point, ProcessDied(), at=at))
    return execution


async def test_a_run_over_the_records_starts_nothing() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m")
        await calls.tool("t")
        return await calls.tool("next")

    desk, program = Desk(), Scripted(script)
    execution = await died(desk, program, "in tool:next")
    assert program.ledger.entered == ["m", "t"]
    ended = await desk.run(await to_close(desk, execution), program)
    assert ended.status is Status.CANCELLED
    assert program.ledger.entered == ["m", "t"]
    assert program.ledger.served == ["m", "t"]
    assert program.notes == [("enough", ["m", "t"])]
    assert [r.name for r in await desk.records(execution)] == ["m", "t"], "and records nothing"
    assert len(program.attempts) == 2, "the play that ran is the one that is closed"


async def test_siblings_get_what_is_recorded_for_them_before_the_run_over_the_records_ends() -> (
    None
):
    async def script(calls: Calls, _: list[object]) -> object:
        async def long() -> object:
            for name in ("a", "b", "c"):
                await calls.tool(name)
            return await calls.tool("last")

        return await asyncio.gather(
            calls.tool("doubtful", asyncio.Event().wait, policy=FAIL), long()
        )

    desk, program = Desk(), Scripted(script)
    execution = await died(desk, program, "in tool:last")
    ended = await desk.run(await to_close(desk, execution), program)
    assert ended.status is Status.CANCELLED
    assert program.ledger.served == ["a", "b", "c"]
    assert program.ledger.entered.count("doubtful") == 1


async def test_other_code_than_the_one_that_recorded_is_closed_without_running() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m")
        await calls.tool("t")
        return await calls.tool("next")

    async def other(calls: Calls, _: list[object]) -> object:
        return await calls.model("other")

    desk, program = Desk(), Scripted(script)
    execution = await died(desk, program, "in tool:next")
    changed = Scripted(other)
    ended = await desk.run(await to_close(desk, execution), changed)
    assert ended.status is Status.CANCELLED
    assert changed.ledger.entered == []
    assert changed.notes == [("enough", ["m", "t"])]
    assert len(changed.attempts) == 2, "a fresh play shows the records"


async def test_a_run_over_the_records_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "LONGEST_S", 0.05)

    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m")
        if calls.attempt.execution.attempt > 1:
            await asyncio.Event().wait()
        return await calls.tool("next")

    desk, program = Desk(), Scripted(script)
    execution = await died(desk, program, "in tool:next")
    ended = await desk.run(await to_close(desk, execution), program)
    assert ended.status is Status.CANCELLED
    assert program.notes == [("enough", ["m"])]


async def test_nothing_is_closed_on_outcomes_that_could_not_be_stored() -> None:
    keeper: Any = FakeKeeper()

    async def script(calls: Calls, _: list[object]) -> object:
        await calls.tool("t")
        keeper.guards[0].on_cancel("no longer wanted")
        return await asyncio.Event().wait()

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    plan = FaultPlan().fail("before outcomes", Unavailable("the database", "is away"))
    queued = await desk.run(execution, program, keeper=keeper, faults=plan)
    plan.assert_all_struck()
    assert (queued.status, program.notes) == (Status.QUEUED, [])
    assert await desk.records(execution) == []


async def test_answers_that_were_complete_are_recorded_when_it_is_closed() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return [ask(1)]

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    await desk.run(execution, program)
    await desk.answer(execution, "blue")
    ended = await desk.run(await to_close(desk, execution), program)
    assert ended.status is Status.CANCELLED
    (answered,) = await desk.store.load_waits(execution.run, step=1)
    assert answered.answer.value == '"blue"'
