"""Answers through the engine: whole maps, single ones, repeats, rivals, and what comes after."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from durable_adk.engine.service import Engine
from durable_adk.errors import (
    AnswerConflict,
    ConfigError,
    InvalidAnswer,
    NotFound,
    SessionBusy,
    Unavailable,
    WaitClosed,
)
from durable_adk.model.execution import Execution, Status
from durable_adk.model.wait import WaitKind
from tests.support.engines import ScriptedProgram, World, ask, ids, make_stuck, world

YES, NO = {"confirmed": True}, {"confirmed": False}


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        yield made


def two_waits() -> ScriptedProgram:
    return ScriptedProgram().asks(1, ask(1, 0, WaitKind.CONFIRMATION), ask(1, 1))


async def asked(engine: Engine, here: World) -> Execution:
    suspended = await engine.invoke(here.message(execution_id="x"))
    assert suspended.status is Status.SUSPENDED
    return suspended


# ---------------------------------------------------------------- a map


async def test_a_whole_map_continues_with_the_answers_in_frontier_order(here: World) -> None:
    program = two_waits()
    engine = await here.engine(program)
    first, second = ids(await asked(engine, here))
    done = await engine.resume("x", {second: "42", first: YES}, by="reviewer")
    assert done.status is Status.COMPLETED
    assert program.runs == [("x", 1, []), ("x", 2, [YES, "42"])]
    waits = await here.store.load_waits(done.run, step=1)
    assert [each.answer.by for each in waits] == ["reviewer", "reviewer"]
    assert {each.answer.at for each in waits} == {here.clock.estimate()}


@pytest.mark.parametrize("value", [False, 0, "", [], {}, "42", "null", '"x"'])
async def test_a_value_arrives_typed_as_it_was_sent(here: World, value: object) -> None:
    program = ScriptedProgram().asks(1, ask(1))
    engine = await here.engine(program)
    (only,) = ids(await asked(engine, here))
    await engine.resume("x", {only: value})
    [_, (_, _, [got])] = program.runs
    assert got == value
    assert type(got) is type(value)


async def test_half_a_map_is_refused_with_the_missing_waits_and_stores_nothing(
    here: World,
) -> None:
    program = two_waits()
    engine = await here.engine(program)
    before = await asked(engine, here)
    first, second = ids(before)
    for half, missing in (({first: YES}, {second}), ({}, {first, second})):
        with pytest.raises(InvalidAnswer) as refused:
            await engine.resume("x", half)
        assert refused.value.problems == dict.fromkeys(missing, "is missing")
    assert await engine.get("x") == before
    assert program.entries(2) == 0


async def test_one_bad_entry_keeps_the_whole_map_out(here: World) -> None:
    engine = await here.engine(
        ScriptedProgram().asks(1, ask(1, 0), ask(1, 1, schema={"type": "integer"}))
    )
    before = await asked(engine, here)
    first, second = ids(before)
    for bad in (
        {first: "ok", second: "3"},
        {first: None, second: 3},
        {first: b"x", second: 3},
        {first: "ok", second: 3, "unknown": 1},
    ):
        with pytest.raises(InvalidAnswer):
            await engine.resume("x", bad)
    assert await engine.get("x") == before


async def test_a_resume_map_that_is_no_mapping_is_refused(here: World) -> None:
    engine = await here.engine(two_waits())
    await asked(engine, here)
    with pytest.raises(ConfigError, match="expected a mapping"):
        await engine.resume("x", ["x"])
    with pytest.raises(ConfigError, match="by"):
        await engine.resume("x", {}, by=7)


async def test_a_map_may_leave_out_or_repeat_what_is_answered_but_not_change_it(
    here: World,
) -> None:
    program = two_waits()
    engine = await here.engine(program)
    first, second = ids(await asked(engine, here))
    await engine.answer(first, YES)
    with pytest.raises(AnswerConflict, match="An answer is final") as conflict:
        await engine.resume("x", {first: NO, second: "x"})
    assert "fork" not in str(conflict.value)
    assert (await engine.get("x")).status is Status.SUSPENDED
    done = await engine.resume("x", {first: YES, second: "x"})
    assert done.status is Status.COMPLETED


# ---------------------------------------------------------------- one answer


async def test_single_answers_run_nothing_and_the_last_one_makes_it_runnable(here: World) -> None:
    program = two_waits()
    engine = await here.engine(program)
    first, second = ids(await asked(engine, here))
    receipt = await engine.answer(second, "x", by="a")
    assert (receipt.open, receipt.runnable) == (1, False)
    assert (await engine.answer(second, "x"))[1:] == (1, False)
    receipt = await engine.answer(first, NO)
    assert (receipt.open, receipt.runnable) == (0, True)
    assert (await engine.answer(first, NO))[1:] == (0, True)
    assert program.entries(2) == 0
    assert (await engine.resume("x")).status is Status.COMPLETED
    assert program.runs[-1] == ("x", 2, [NO, "x"])


async def test_a_single_answer_that_does_not_fit_is_refused(here: World) -> None:
    engine = await here.engine(two_waits())
    before = await asked(engine, here)
    first, second = ids(before)
    for wait, bad in ((first, True), (first, None), (second, None), (second, (1,))):
        with pytest.raises(InvalidAnswer) as refused:
            await engine.answer(wait, bad)
        assert list(refused.value.problems) == [wait]
    assert await engine.get("x") == before


async def test_a_wait_that_does_not_exist_is_not_found(here: World) -> None:
    engine = await here.engine(two_waits())
    await asked(engine, here)
    for unknown in ("x", "", "x~", "x~" + "0" * 20, "none~" + "0" * 20, "x~zz", "~" + "0" * 20):
        with pytest.raises(NotFound):
            await engine.answer(unknown, "y")
    for no_text in (7, None, {"$ne": 1}, b"x"):
        with pytest.raises(ConfigError, match="expected text"):
            await engine.answer(no_text, "y")


# ---------------------------------------------------------------- rivals


@pytest.mark.parametrize("processes", [1, 2])
async def test_the_same_map_twenty_times_at_once_is_one_run_with_one_outcome(
    here: World, processes: int
) -> None:
    program = two_waits()
    engines = [await here.engine(program) for _ in range(processes)]
    first, second = ids(await asked(engines[0], here))
    outcomes = await asyncio.gather(
        *(engines[i % processes].resume("x", {first: YES, second: 1}) for i in range(20))
    )
    assert {o.status for o in outcomes} == {Status.COMPLETED}
    assert all(o == outcomes[0] for o in outcomes)
    assert program.entries(2) == 1


@pytest.mark.parametrize("processes", [1, 2])
async def test_of_approve_against_deny_one_is_stored_and_the_other_is_a_conflict(
    here: World, processes: int
) -> None:
    program = two_waits()
    engines = [await here.engine(program) for _ in range(processes)]
    first, second = ids(await asked(engines[0], here))
    outcomes = await asyncio.gather(
        *(
            engines[i % processes].resume("x", {first: value, second: 1})
            for i, value in enumerate([YES, NO] * 10)
        ),
        return_exceptions=True,
    )
    won = [i for i, o in enumerate(outcomes) if isinstance(o, Execution)]
    assert len({i % 2 for i in won}) == 1
    assert len(won) == 10
    assert all(isinstance(o, Execution | AnswerConflict) for o in outcomes)
    assert program.entries(2) == 1
    assert program.runs[-1][2][0] == (YES if won[0] % 2 == 0 else NO)


async def test_single_answers_to_different_waits_at_once_are_all_kept(here: World) -> None:
    program = ScriptedProgram().asks(1, *(ask(1, place) for place in range(8)))
    engines = [await here.engine(program) for _ in range(2)]
    waits = ids(await asked(engines[0], here))
    receipts = await asyncio.gather(
        *(engines[i % 2].answer(wait, i) for i, wait in enumerate(waits))
    )
    assert sorted(r.open for r in receipts) == list(range(8))
    assert [r.runnable for r in receipts].count(True) == 1
    assert (await engines[0].resume("x")).status is Status.COMPLETED
    assert program.runs[-1][2] == list(range(8))


async def test_single_answers_to_one_wait_at_once_keep_one(here: World) -> None:
    program = two_waits()
    engines = [await here.engine(program) for _ in range(2)]
    first, _ = ids(await asked(engines[0], here))
    outcomes = await asyncio.gather(
        *(engines[i % 2].answer(first, v) for i, v in enumerate([YES, NO] * 10)),
        return_exceptions=True,
    )
    refused = [isinstance(o, AnswerConflict) for o in outcomes]
    assert refused in ([False, True] * 10, [True, False] * 10)
    frontier = (await engines[0].get("x")).frontier
    assert frontier is not None
    assert frontier.rev == 1


async def test_a_map_racing_a_single_answer_never_mixes_values(here: World) -> None:
    program = two_waits()
    engine = await here.engine(program)
    first, second = ids(await asked(engine, here))
    outcomes = await asyncio.gather(
        engine.resume("x", {first: YES, second: 1}),
        engine.answer(second, 2),
        return_exceptions=True,
    )
    conflicts = [o for o in outcomes if isinstance(o, AnswerConflict)]
    assert len(conflicts) == 1
    if conflicts[0] is outcomes[0]:
        await engine.answer(first, YES)
        await engine.resume("x")
        assert program.runs[-1][2] == [YES, 2]
    else:
        assert program.runs[-1][2] == [YES, 1]


# ---------------------------------------------------------------- afterwards


async def test_after_the_end_the_same_answers_give_the_recorded_outcome(here: World) -> None:
    program = two_waits()
    engine = await here.engine(program)
    first, second = ids(await asked(engine, here))
    answers = {first: YES, second: 1}
    done = await engine.resume("x", answers)
    assert await engine.resume("x", answers) == done
    assert await engine.resume("x", {second: 1}) == done
    assert await engine.resume("x") == done
    assert (await engine.answer(first, YES)).execution == done
    assert program.entries(2) == 1


async def test_after_the_end_other_answers_are_a_conflict_and_unknown_ones_refused(
    here: World,
) -> None:
    engine = await here.engine(two_waits())
    first, second = ids(await asked(engine, here))
    await engine.resume("x", {first: YES, second: 1})
    with pytest.raises(AnswerConflict):
        await engine.resume("x", {first: NO, second: 1})
    with pytest.raises(AnswerConflict):
        await engine.answer(second, 2)
    with pytest.raises(InvalidAnswer):
        await engine.resume("x", {"x~" + "0" * 20: 1})
    with pytest.raises(NotFound):
        await engine.answer("x~" + "0" * 20, 1)


async def test_answers_of_an_earlier_frontier_are_compared_with_what_is_recorded(
    here: World,
) -> None:
    program = ScriptedProgram().asks(1, ask(1, 0), ask(1, 1)).asks(2, ask(2)).asks(3, ask(3))
    engine = await here.engine(program)
    first, second = ids(await asked(engine, here))
    early = {first: "a", second: "b"}
    (later,) = ids(await engine.resume("x", early))
    third = await engine.resume("x", {later: "c"})
    assert third.step == 3
    assert await engine.resume("x", early) == third
    assert await engine.resume("x", {later: "c"}) == third
    assert (await engine.answer(first, "a"))[1:] == (0, False)
    with pytest.raises(AnswerConflict):
        await engine.resume("x", {**early, second: "other"})
    with pytest.raises(AnswerConflict):
        await engine.answer(first, "b")
    with pytest.raises(InvalidAnswer) as mixed:
        await engine.resume("x", {first: "a", ids(third)[0]: "d"})
    assert mixed.value.problems == {first: "is not a wait of this frontier"}
    assert program.entries(4) == 0


async def test_a_cancelled_execution_takes_no_answers_and_says_why(here: World) -> None:
    engine = await here.engine(two_waits())
    first, second = ids(await asked(engine, here))
    await engine.cancel("x", "the customer left")
    for call in (
        engine.resume("x", {first: YES, second: 1}),
        engine.resume("x"),
        engine.answer(first, YES),
    ):
        with pytest.raises(WaitClosed, match="cancelled: the customer left"):
            await call


async def test_an_execution_that_was_given_up_takes_no_answers(here: World) -> None:
    engine = await here.engine(two_waits())
    first, second = ids(await asked(engine, here))
    await engine.give_up("x", "no budget")
    with pytest.raises(WaitClosed, match="failed: no budget"):
        await engine.resume("x", {first: YES, second: 1})
    with pytest.raises(WaitClosed):
        await engine.answer(second, 1)


async def test_an_answer_to_an_expired_wait_is_refused(here: World) -> None:
    at = here.clock.estimate() + 100
    program = ScriptedProgram().asks(1, ask(1, 0, expires_at=at), ask(1, 1))
    engine = await here.engine(program)
    first, second = ids(await asked(engine, here))
    here.clock.advance(101)
    for call in (engine.resume("x", {first: 1, second: 2}), engine.answer(first, 1)):
        with pytest.raises(WaitClosed, match="expired"):
            await call
    assert (await engine.answer(second, 2)).open == 1


async def test_the_answer_is_kept_when_the_next_step_fails_and_the_same_call_goes_on(
    here: World,
) -> None:
    program = two_waits().raises(2, RuntimeError("model down"), RuntimeError("still"))
    engine = await here.engine(program)
    first, second = ids(await asked(engine, here))
    answers = {first: YES, second: 1}
    failed = await engine.resume("x", answers)
    assert failed.status is Status.QUEUED
    assert failed.error is not None
    assert failed.error.message == "model down"
    with pytest.raises(AnswerConflict):
        await engine.resume("x", {first: NO, second: 1})
    assert (await engine.resume("x", answers)).status is Status.QUEUED
    here.clock.advance(10_000)
    (done,) = await engine.recover()
    assert done.status is Status.COMPLETED
    assert [run[2] for run in program.runs if run[1] == 2] == [[YES, 1]] * 3


async def test_resume_without_answers_does_not_run_what_is_queued_or_stuck(here: World) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    await engine.submit(here.message(session="q", execution_id="queued"))
    await make_stuck(here, "stuck")
    for execution_id in ("queued", "stuck"):
        with pytest.raises(SessionBusy) as busy:
            await engine.resume(execution_id)
        assert busy.value.status == execution_id
        assert "retry" in busy.value.remedy
        assert "recover" in busy.value.remedy
    assert program.runs == []


async def test_resume_of_what_runs_waits_for_its_outcome(here: World) -> None:
    program = ScriptedProgram().asks(1, ask(1))
    engine, other = await here.engine(program), await here.engine(program)
    (only,) = ids(await asked(engine, here))
    gate = program.gate(2)
    running = asyncio.create_task(engine.resume("x", {only: 1}))
    await gate.entered.wait()
    waiting = [
        asyncio.create_task(each)
        for each in (
            engine.resume("x"),
            other.resume("x"),
            other.resume("x", {only: 1}),
        )
    ]
    with pytest.raises(AnswerConflict):
        await other.resume("x", {only: 2})
    with pytest.raises(Unavailable):
        await other.resume("x", timeout=0.02)
    assert not any(task.done() for task in waiting)
    gate.opened.set()
    outcomes = await asyncio.gather(running, *waiting)
    assert {o.status for o in outcomes} == {Status.COMPLETED}
    assert program.entries(2) == 1
