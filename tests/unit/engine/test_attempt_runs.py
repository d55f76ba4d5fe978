"""An attempt from claim to commit, and what a second one makes of a first that died."""

from __future__ import annotations

import asyncio

import pytest

from durable_adk.model.activity import RecordStatus
from durable_adk.model.execution import Status
from durable_adk.model.store_results import Write
from durable_adk.testing.faults import FaultPlan
from tests.support.attempts import FAIL, Calls, Desk, ProcessDied, Scripted, ask


async def one_of_each(calls: Calls, _: list[object]) -> object:
    await calls.model("m1")
    await calls.tool("look")
    await calls.tool("pay", policy=FAIL)
    return await calls.model("m2")


async def test_a_run_without_waits_completes_and_names_its_records() -> None:
    desk = Desk()
    execution = await desk.begin()
    ended = await desk.run(execution, Scripted(one_of_each))
    assert ended.status is Status.COMPLETED
    stored = await desk.read(execution)
    assert (stored.status, stored.result) == (Status.COMPLETED, ended.result)
    (step,) = await desk.store.load_steps(stored)
    assert [r.name for r in await desk.records(execution)] == ["m1", "look", "pay", "m2"]
    assert set(step.records) == {r.slot for r in await desk.records(execution)}


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_answers_lead_on_and_no_recorded_body_runs_again(mode: str) -> None:
    async def first(calls: Calls, _: list[object]) -> object:
        await calls.model("m1")
        return [ask(1)]

    async def second(calls: Calls, answers: list[object]) -> object:
        await calls.tool("t2")
        return answers[0]

    desk, program = Desk(mode=mode), Scripted(first, second)
    execution = await desk.begin()
    suspended = await desk.run(execution, program)
    assert suspended.status is Status.SUSPENDED
    assert suspended.frontier == (await desk.read(execution)).frontier
    await desk.answer(execution, "yes")
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert '"output":"yes"' in (ended.result or "")
    assert program.ledger.ran == ["m1", "t2"]
    assert program.restored == ([1] if mode == "restore" else [])
    assert program.ledger.served == (["m1"] if mode == "walk" else [])


# How often a body may have run when the process died at a point of its call, and how the
# execution ends: the table of promises.
DEATHS = [
    ("in model:m1", "m1", 1, Status.COMPLETED),
    ("ran model:m1", "m1", 2, Status.COMPLETED),
    ("in tool:look", "look", 1, Status.COMPLETED),
    ("ran tool:look", "look", 2, Status.COMPLETED),
    ("in tool:pay", "pay", 0, Status.FAILED),
    ("ran tool:pay", "pay", 1, Status.FAILED),
    ("before intent", "pay", 1, Status.COMPLETED),
    ("after intent", "pay", 0, Status.FAILED),
    ("before step", "pay", 1, Status.COMPLETED),
    ("after step", "pay", 1, Status.COMPLETED),
    ("before end", "pay", 1, Status.COMPLETED),
]


@pytest.mark.parametrize(("point", "name", "times", "status"), DEATHS)
@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_after_a_death_each_body_has_run_the_promised_number_of_times(
    point: str, name: str, times: int, status: Status, mode: str
) -> None:
    desk, program = Desk(mode=mode), Scripted(one_of_each)
    execution = await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail(point, ProcessDied()))
    assert (await desk.read(execution)).status is Status.RUNNING
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is status
    assert program.ledger.ran.count(name) == times
    assert (ended.error.type if ended.error else None) == (
        "OutcomeUnknown" if status is Status.FAILED else None
    )


async def test_a_death_around_any_write_of_outcomes_repeats_at_most_what_was_not_written() -> None:
    for place in range(1, 4):
        for moment in ("before", "after"):
            desk, program = Desk(), Scripted(one_of_each)
            execution = await desk.begin()
            plan = FaultPlan().fail(f"{moment} outcomes", ProcessDied(), at=place)
            with pytest.raises(ProcessDied):
                await desk.run(execution, program, faults=plan)
            stored = {r.name for r in await desk.records(execution)}
            await desk.run(await desk.claim(execution), program)
            for name in stored:
                assert program.ledger.ran.count(name) == 1, (place, moment, name)
            assert all(program.ledger.ran.count(name) <= 2 for name in program.ledger.ran)


async def test_a_dead_process_writes_nothing_more() -> None:
    async def parallel(calls: Calls, _: list[object]) -> object:
        async def slow() -> None:
            await asyncio.sleep(60)

        async with asyncio.TaskGroup() as group:
            group.create_task(calls.tool("pay", slow, policy=FAIL))
            group.create_task(calls.tool("look"))
        return None

    desk, program = Desk(), Scripted(parallel)
    execution = await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail("ran tool:look", ProcessDied()))
    found = await desk.store.load_records(execution.run, from_step=1)
    assert [(r.name, r.is_intent) for r in found] == [("pay", True)], "no verdict, no outcome"


async def test_sequence_numbers_go_on_after_the_loaded_ones() -> None:
    desk, program = Desk(), Scripted(one_of_each)
    execution = await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail("before end", ProcessDied()))

    async def longer(calls: Calls, answers: list[object]) -> object:
        await one_of_each(calls, answers)
        return await calls.tool("more")

    await desk.run(await desk.claim(execution), Scripted(longer, ledger=program.ledger))
    numbers = [(r.name, r.seq) for r in await desk.records(execution)]
    assert numbers == [("m1", 1), ("look", 2), ("pay", 3), ("m2", 4), ("more", 5)]


async def test_lost_replies_are_settled_by_writing_again() -> None:
    desk, program = Desk(), Scripted(one_of_each)
    execution = await desk.begin()
    plan = FaultPlan()
    for write in (Write.OUTCOMES, Write.INTENT, Write.STEP, Write.END):
        plan.lose_reply(write)
    ended = await desk.run(execution, program, faults=plan)
    assert ended.status is Status.COMPLETED
    assert program.ledger.ran == ["m1", "look", "pay", "m2"]


async def test_a_run_that_an_exception_leaves_is_queued_and_tried_again() -> None:
    fails = iter([True, False])

    async def flaky() -> object:
        if next(fails):
            raise ValueError("not now")
        return "done"

    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m1")
        return await calls.tool("flaky", flaky)

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    assert (queued.status, queued.failures) == (Status.QUEUED, 1)
    assert queued.error is not None and queued.error.type == "ValueError"
    stored = await desk.read(execution)
    assert (stored.status, stored.voided) == (Status.QUEUED, queued.voided)
    (failed,) = [r for r in await desk.records(execution) if r.status is RecordStatus.FAILED]
    assert queued.voided == (failed.slot,)

    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    tries = [(r.name, r.attempt_try, r.status) for r in await desk.records(execution)]
    assert tries == [
        ("m1", 1, RecordStatus.COMPLETED),
        ("flaky", 1, RecordStatus.FAILED),
        ("flaky", 2, RecordStatus.COMPLETED),
    ]
    (step,) = await desk.store.load_steps(await desk.read(execution))
    assert failed.slot not in step.records


async def test_attempts_without_a_new_record_end_the_execution() -> None:
    async def fail() -> object:
        raise ValueError("never")

    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m1")
        return await calls.tool("broken", fail)

    desk, program = Desk(max_attempts=3), Scripted(script)
    execution = await desk.begin()
    seen = [await desk.run(execution, program)]
    while seen[-1].status is Status.QUEUED:
        seen.append(await desk.run(await desk.claim(execution), program))
    assert [e.failures for e in seen[:-1]] == [1, 2], "the first one recorded m1"
    assert seen[-1].status is Status.FAILED
    assert program.notes == [("never", ["m1", "broken"])]


async def test_one_attempt_is_enough_when_settings_say_so() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m1")
        raise ValueError("once")

    desk = Desk(max_attempts=1)
    ended = await desk.run(await desk.begin(), Scripted(script))
    assert (ended.status, ended.error and ended.error.message) == (Status.FAILED, "once")
