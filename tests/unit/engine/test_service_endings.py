"""Cancel, give up, retry, and closing the engine: who may end what, and what is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from durable_adk.engine.service import Engine
from durable_adk.errors import ConfigError, NotFound, Unavailable
from durable_adk.model.execution import Execution, Status
from tests.support.engines import ScriptedProgram, World, ask, eventually, ids, make_stuck, world


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def in_state(here: World, engine: Engine, state: str) -> None:
    """Bring execution ``x`` into a state in which nobody runs it."""
    program = engine._program
    assert isinstance(program, ScriptedProgram)
    match state:
        case "queued":
            await engine.submit(here.message(execution_id="x"))
        case "backing off":
            program.raises(1, RuntimeError("no"))
            await engine.invoke(here.message(execution_id="x"))
        case "suspended" | "half answered" | "answered":
            program.asks(1, ask(1, 0), ask(1, 1))
            waits = ids(await engine.invoke(here.message(execution_id="x")))
            answered = {"suspended": 0, "half answered": 1, "answered": 2}[state]
            for wait in waits[:answered]:
                await engine.answer(wait, "yes")
        case "stuck":
            await make_stuck(here, "x")
        case "owner dead":
            new = engine._beginning.new(here.message(execution_id="x"), run_now=True)
            await here.store.begin(new)
            here.pass_lease()


IDLE = ["queued", "backing off", "suspended", "half answered", "answered", "stuck", "owner dead"]


# ---------------------------------------------------------------- what nobody runs


@pytest.mark.parametrize("state", IDLE)
@pytest.mark.parametrize("ending", [Status.CANCELLED, Status.FAILED])
async def test_what_nobody_runs_is_ended_at_once_without_going_on(
    here: World, state: str, ending: Status
) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    await in_state(here, engine, state)
    entered = len(program.runs)
    end = engine.cancel if ending is Status.CANCELLED else engine.give_up
    ended = await end("x", "enough")
    assert ended.status is ending
    assert ended.error is not None
    assert ended.error.message == "enough"
    assert not (await engine.get("x")).is_active
    assert len(program.runs) == entered
    program.steps.clear()
    assert (await engine.invoke(here.message("another"))).status is Status.COMPLETED


@pytest.mark.parametrize("ending", [Status.COMPLETED, Status.CANCELLED, Status.FAILED])
async def test_what_has_ended_stays_as_it_is(here: World, ending: Status) -> None:
    engine = await here.engine(ScriptedProgram())
    if ending is Status.COMPLETED:
        await engine.invoke(here.message(execution_id="x"))
    else:
        await engine.submit(here.message(execution_id="x"))
        await (engine.cancel if ending is Status.CANCELLED else engine.give_up)("x")
    before = await engine.get("x")
    assert before.status is ending
    for again in (engine.cancel, engine.give_up, engine.retry):
        assert await again("x", "again") == before
    assert await engine.get("x") == before


async def test_an_end_that_a_crash_left_unfinished_is_finished_by_recovery(here: World) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    await in_state(here, engine, "suspended")
    execution = await engine.get("x")
    closing = await here.store.claim_to_close(
        execution.key, closing=Status.CANCELLED, reason="left", nonce="n" * 16, ttl_ms=30_000
    )
    assert closing is not None  # and its owner dies here
    here.pass_lease()
    (ended,) = await engine.recover()
    assert ended.status is Status.CANCELLED
    assert program.entries(2) == 0


# ---------------------------------------------------------------- what runs


@pytest.mark.parametrize("ending", [Status.CANCELLED, Status.FAILED])
async def test_what_this_process_runs_is_stopped_and_ended(here: World, ending: Status) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    end = engine.cancel if ending is Status.CANCELLED else engine.give_up
    ended = await end("x", "enough")
    assert ended.status is ending
    assert gate.cancelled == 1
    assert await caller == ended
    assert program.entries(1) == 1


async def test_what_another_process_runs_is_asked_to_end(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    # The keeper's renewals are what carries the question: the shortest lease, really passing.
    owner = await here.engine(program, lease_ttl_ms=3000)
    other = await here.engine(ScriptedProgram(), lease_ttl_ms=3000)
    caller = asyncio.create_task(owner.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    ended = await other.cancel("x", "enough")
    assert ended.status is Status.CANCELLED
    assert gate.cancelled == 1
    assert (await caller).status is Status.CANCELLED


async def test_a_cancel_that_finds_a_dead_owner_ends_it_when_the_lease_has_run_out(
    here: World,
) -> None:
    engine = await here.engine(ScriptedProgram())
    new = engine._beginning.new(here.message(execution_id="x"), run_now=True)
    await here.store.begin(new)
    cancelling = asyncio.create_task(engine.cancel("x"))

    async def asked() -> bool:
        return (await engine.get("x")).cancel is not None

    await eventually(asked)
    assert not cancelling.done()
    here.pass_lease()
    assert (await cancelling).status is Status.CANCELLED


async def test_an_owner_that_does_not_notice_leaves_the_execution_running_and_asked(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_adk.engine.following.ENDING_LEASES", 0)
    engine = await here.engine(ScriptedProgram())
    new = engine._beginning.new(here.message(execution_id="x"), run_now=True)
    await here.store.begin(new)
    asked = await engine.cancel("x", "enough")
    assert asked.status is Status.RUNNING
    assert (await engine.get("x")).cancel == "enough"


async def test_cancelling_twice_at_once_ends_once(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine, other = await here.engine(program), await here.engine(program)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    outcomes = await asyncio.gather(
        *(e.cancel("x") for e in (engine, other) for _ in range(5)), caller
    )
    assert {o.status for o in outcomes} == {Status.CANCELLED}
    assert program.entries(1) == 1


async def test_cancel_racing_the_last_answer_ends_or_completes_but_never_both(
    here: World,
) -> None:
    program = ScriptedProgram().asks(1, ask(1))
    engine, other = await here.engine(program), await here.engine(program)
    (only,) = ids(await engine.invoke(here.message(execution_id="x")))
    await asyncio.gather(engine.resume("x", {only: 1}), other.cancel("x"), return_exceptions=True)
    ended = await engine.get("x")
    assert ended.status in (Status.CANCELLED, Status.COMPLETED)
    assert program.entries(2) <= 1


async def test_who_takes_over_in_the_moment_of_cancelling_ends_it_as_cancelled(
    here: World,
) -> None:
    store = here.new_store()
    program, late = ScriptedProgram(), ScriptedProgram()
    gate = program.gate(1)
    engine, other = await here.engine(program, store=store), await here.engine(late)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    claim, cancelling = store.claim_to_close, []

    async def others_first(*args: object, **more: object) -> object:
        task = asyncio.current_task()
        assert task is not None
        cancelling.append(task.cancelling())
        await other.recover()
        return await claim(*args, **more)

    store.claim_to_close = others_first
    ended = await engine.cancel("x", "enough")
    assert (ended.status, await caller) == (Status.CANCELLED, ended)
    assert late.runs == []
    assert cancelling == [0]  # the attempt's task ends it as one that nobody cancelled


# ---------------------------------------------------------------- retry


async def test_retry_makes_what_backs_off_due_now_and_runs_nothing(here: World) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program, max_attempts=3)
    await in_state(here, engine, "backing off")
    assert await engine.recover() == ()
    queued = await engine.retry("x")
    assert (queued.status, queued.failures) == (Status.QUEUED, 0)
    assert program.entries(1) == 1
    (done,) = await engine.recover()
    assert done.status is Status.COMPLETED


async def test_retry_brings_back_what_is_stuck(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    await make_stuck(here, "x")
    assert await engine.recover() == ()
    assert (await engine.retry("x")).status is Status.QUEUED
    assert (await engine.invoke(here.message(execution_id="x"))).status is Status.COMPLETED


async def test_retry_leaves_what_runs_or_waits_alone(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    await in_state(here, engine, "suspended")
    before = await engine.get("x")
    assert await engine.retry("x") == before


# ---------------------------------------------------------------- close


async def test_closing_waits_for_attempts_within_the_grace(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program, grace_s=5)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    with pytest.raises(ConfigError, match="not open"):
        await engine.invoke(here.message("another", session="other"))
    gate.opened.set()
    await closing
    assert (await caller).status is Status.COMPLETED
    assert gate.cancelled == 0


async def test_closing_releases_what_outlasts_the_grace_and_it_is_due_at_once(
    here: World,
) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine, other = await here.engine(program, grace_s=0.01), await here.engine(program)
    callers = [asyncio.create_task(engine.invoke(here.message(execution_id="x")))]
    await gate.entered.wait()
    callers.append(asyncio.create_task(engine.invoke(here.message(execution_id="x"))))
    await asyncio.sleep(0.02)  # it has joined the attempt
    await engine.close()
    released: list[Execution] = await asyncio.gather(*callers)
    assert [e.status for e in released] == [Status.QUEUED] * 2
    assert gate.cancelled == 1
    program.steps.clear()
    (done,) = await other.recover()  # no lease has to run out
    assert done.status is Status.COMPLETED


async def test_what_begins_while_the_engine_closes_is_released_without_running(
    here: World,
) -> None:
    store = here.new_store()
    program = ScriptedProgram()
    engine, other = await here.engine(program, store=store), await here.engine(program)
    begin, inserted, go_on = store.begin, asyncio.Event(), asyncio.Event()

    async def slowly(new: object) -> object:
        begun = await begin(new)
        inserted.set()
        await go_on.wait()
        return begun

    store.begin = slowly
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await inserted.wait()
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)
    go_on.set()
    await closing
    assert (await caller).status is Status.QUEUED
    assert program.runs == []
    assert [e.status for e in await other.recover()] == [Status.COMPLETED]


async def test_what_has_not_begun_when_the_engine_closes_is_not_begun(here: World) -> None:
    store = here.new_store()
    engine = await here.engine(ScriptedProgram(), store=store)
    other = await here.engine(ScriptedProgram())
    attempts = engine._opened().attempts
    await engine.close()
    new = engine._beginning.new(here.message(execution_id="x"), run_now=True)
    with pytest.raises(Unavailable, match="has not begun, and the engine was closed"):
        await attempts.begin(new, None)
    with pytest.raises(NotFound):
        await other.get("x")


async def test_an_attempt_that_goes_on_is_released_though_its_next_claim_was_under_way(
    here: World,
) -> None:
    """All that it asked was answered by the time that it was suspended: it is claimed again."""
    store, program = here.new_store(), ScriptedProgram().asks(1, ask(1))
    engine = await here.engine(program, store=store, grace_s=0)
    other = await here.engine(program)
    attempts = engine._opened().attempts
    run, claim = attempts._run, store.claim
    claimed, told = asyncio.Event(), asyncio.Event()

    async def answered(*given: Any) -> Execution:
        suspended = await run(*given)
        await other.answer(ids(suspended)[0], "yes")
        return await other.get("x")

    async def held(*given: object, **named: object) -> object:
        taken = await claim(*given, **named)
        claimed.set()
        await told.wait()
        return taken

    attempts._run, store.claim = answered, held
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await claimed.wait()
    live = attempts.live((await other.get("x")).key)
    assert live is not None
    closing = asyncio.create_task(engine.close())
    while not live.stopping:
        await asyncio.sleep(0)
    told.set()
    await closing
    assert (await caller).status is Status.QUEUED
    assert (await other.get("x")).status is Status.QUEUED


async def test_closing_looks_again_for_what_began_while_it_gave_up_the_rest(here: World) -> None:
    store, program = here.new_store(), ScriptedProgram()
    engine = await here.engine(program, store=store, grace_s=0)
    other = await here.engine(program)
    attempts, begin, release = engine._opened().attempts, store.begin, store.release
    settled, inserted, go_on = attempts._settled, asyncio.Event(), asyncio.Event()
    gate = program.gate(1)

    async def slowly(new: Any) -> object:
        begun = await begin(new)
        if new.execution_id == "late":
            inserted.set()
            await go_on.wait()
        return begun

    async def released(lease: Any) -> bool:
        if not go_on.is_set():  # of the first one
            done = await release(lease)
            go_on.set()
            return done
        for _ in range(200):  # of the one that has begun meanwhile: its lease is not held for long
            await asyncio.sleep(0)
        return await release(lease)

    async def timed_out(_: object) -> None:
        attempts._settled = settled

    first = asyncio.create_task(engine.invoke(here.message(session="a", execution_id="first")))
    await gate.entered.wait()
    store.begin, store.release = slowly, released
    second = asyncio.create_task(engine.invoke(here.message(session="b", execution_id="late")))
    await inserted.wait()
    attempts._settled = timed_out
    await engine.close()
    assert (await first).status is (await second).status is Status.QUEUED
    assert (await other.get("late")).status is Status.QUEUED


async def test_closing_twice_and_opening_again_work(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    await engine.close()
    await engine.close()
    await engine.open()
    await engine.open()
    assert (await engine.invoke(here.message())).status is Status.COMPLETED


async def test_closing_leaves_no_task_behind(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    before = asyncio.all_tasks()
    engine = await here.engine(program, grace_s=0.01)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    await engine.close()
    await caller
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_caller_that_waits_for_another_process_is_let_go_when_the_engine_closes(
    here: World,
) -> None:
    engine = await here.engine(ScriptedProgram())
    new = engine._beginning.new(here.message(execution_id="x"), run_now=True)
    await here.store.begin(new)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await asyncio.sleep(0.02)
    await engine.close()
    with pytest.raises(Unavailable, match="was closed"):
        await caller


# ---------------------------------------------------------------- attempts that break off


async def test_an_attempt_that_breaks_off_raises_and_is_counted(here: World) -> None:
    engine = await here.engine(ScriptedProgram(), max_attempts=2)

    async def broken(*_: object, **__: object) -> Execution:
        raise RuntimeError("a bug of ours")

    engine._opened().attempts._run = broken
    for expected in (Status.QUEUED, Status.STUCK):
        with pytest.raises(RuntimeError, match="a bug of ours"):
            await engine.invoke(here.message(execution_id="x"))
        assert (await engine.get("x")).status is expected


async def test_an_attempt_that_lost_mongodb_gives_its_lease_back(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    attempts = engine._opened().attempts
    run = attempts._run

    async def cut_off(*_: object, **__: object) -> Execution:
        attempts._run = run
        raise Unavailable("MongoDB", "does not answer")

    attempts._run = cut_off
    with pytest.raises(Unavailable):
        await engine.invoke(here.message(execution_id="x"))
    done = await engine.invoke(here.message(execution_id="x"))
    assert (done.status, done.failures) == (Status.COMPLETED, 0)
