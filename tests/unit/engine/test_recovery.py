"""One recovery pass: what is due is brought to its next stop, the rest is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from durable_adk.engine.recovery import AT_ONCE
from durable_adk.errors import Unavailable
from durable_adk.model.execution import Execution, Status
from tests.support.engines import ScriptedProgram, World, ask, ids, make_stuck, world


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def test_everything_that_is_due_is_brought_to_its_next_stop_once(here: World) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    program.raises(1, RuntimeError("no"))
    await engine.invoke(here.message(session="a", execution_id="backs-off"))
    program.asks(1, ask(1))
    answered = await engine.invoke(here.message(session="b", execution_id="answered"))
    await engine.answer(ids(answered)[0], "yes")
    await engine.invoke(here.message(session="c", execution_id="suspended"))
    new = engine._beginning.new(here.message(session="d", execution_id="owner-dead"), run_now=True)
    await here.store.begin(new)
    await engine.submit(here.message(session="e", execution_id="submitted"))
    await make_stuck(here, "stuck", session="f")
    program.steps.clear()
    program.runs.clear()
    here.pass_lease()

    done = await engine.recover()

    assert {e.execution_id for e in done} == {"backs-off", "answered", "owner-dead", "submitted"}
    assert {e.status for e in done} == {Status.COMPLETED}
    assert await engine.recover() == ()
    assert len(program.runs) == 4
    assert (await engine.get("suspended")).status is Status.SUSPENDED
    assert (await engine.get("stuck")).status is Status.STUCK


async def test_what_is_not_due_yet_is_left_alone(here: World) -> None:
    program = ScriptedProgram().raises(1, RuntimeError("no"))
    engine = await here.engine(program)
    await engine.invoke(here.message(session="a"))
    await here.store.begin(engine._beginning.new(here.message(session="b"), run_now=True))
    assert await engine.recover() == ()


async def test_a_pass_takes_no_more_than_its_limit(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    for number in range(5):
        await engine.submit(here.message(session=f"{number}"))
    assert len(await engine.recover(limit=3)) == 3
    assert len(await engine.recover(limit=3)) == 2


async def test_two_recoveries_at_once_share_the_work(here: World) -> None:
    program = ScriptedProgram()
    engines = [await here.engine(program) for _ in range(2)]
    for number in range(8):
        await engines[0].submit(here.message(session=f"{number}", execution_id=f"x{number}"))
    parts = await asyncio.gather(*(engine.recover() for engine in engines))
    done = [execution.execution_id for part in parts for execution in part]
    assert sorted(done) == [f"x{number}" for number in range(8)]
    assert len(program.runs) == 8


async def test_a_pass_runs_a_limited_number_at_once(here: World) -> None:
    running = most = 0

    async def count(_: list[object]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    engine = await here.engine(ScriptedProgram(steps={1: count}))
    for number in range(AT_ONCE + 5):
        await engine.submit(here.message(session=f"{number}"))
    assert len(await engine.recover()) == AT_ONCE + 5
    assert most == AT_ONCE


async def test_what_this_process_runs_is_left_alone_when_its_lease_has_run_out(
    here: World,
) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    here.pass_lease()
    assert await engine.recover() == ()
    assert (await engine.get("x")).token == 1
    gate.opened.set()
    assert (await caller).status is Status.COMPLETED


async def test_one_attempt_that_breaks_off_does_not_stop_the_others(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    attempts = engine._opened().attempts
    run = attempts._run

    async def one_is_broken(execution: Execution, *more: object) -> Execution:
        if execution.execution_id == "x1":
            raise Unavailable("MongoDB", "does not answer")
        return await run(execution, *more)

    attempts._run = one_is_broken
    for number in range(3):
        await engine.submit(here.message(session=f"{number}", execution_id=f"x{number}"))
    done = await engine.recover()
    assert {e.execution_id for e in done} == {"x0", "x2"}
    attempts._run = run
    await asyncio.sleep(0.01)
    assert [e.execution_id for e in await engine.recover()] == ["x1"]


async def unapplied(here: World, program: ScriptedProgram) -> Execution:
    """An execution ``x`` whose owner died between its commit and applying shared state."""
    store = here.new_store()
    engine = await here.engine(program, store=store)
    program.writes_shared(1, {"user:name": "Ada"})

    async def dies(*_: object) -> None:
        raise Unavailable("MongoDB", "does not answer")

    store.apply_scopes = dies
    left = await engine.invoke(here.message(execution_id="x"))
    assert left.scopes_due
    assert await store.load_scopes(here.tenant, "u") == ({}, "")
    return left


@pytest.mark.parametrize("ends", [True, False])
async def test_shared_state_that_a_crash_left_unapplied_is_applied(here: World, ends: bool) -> None:
    program = ScriptedProgram() if ends else ScriptedProgram().asks(1, ask(1))
    left = await unapplied(here, program)
    engine = await here.engine(ScriptedProgram())
    await engine.recover()
    seen, _ = await here.store.load_scopes(here.tenant, "u")
    assert seen == {"user:name": '"Ada"'}
    assert await engine.get("x") == replace(left, scopes_due=False)


async def test_what_is_removed_while_its_shared_state_is_due_stops_no_others(here: World) -> None:
    await unapplied(here, ScriptedProgram())
    store = here.new_store()
    listed = store.list_scopes_due

    async def removed_then(*given: object, **more: object) -> object:
        found = await listed(*given, **more)
        for one in found:
            await store.remove_session(one.session_key, [one.run])
        return found

    store.list_scopes_due = removed_then
    engine = await here.engine(ScriptedProgram(), store=store)
    await engine.submit(here.message(session="t", execution_id="y"))
    assert [e.execution_id for e in await engine.recover()] == ["y"]


async def test_the_next_turn_sees_shared_state_that_a_crash_left_unapplied(here: World) -> None:
    await unapplied(here, ScriptedProgram())
    program = ScriptedProgram()
    engine = await here.engine(program)
    await engine.invoke(here.message("another"))
    assert program.seen == [{"user:name": '"Ada"'}]
    assert not (await engine.get("x")).scopes_due


async def test_the_next_step_sees_shared_state_that_a_crash_left_unapplied(here: World) -> None:
    program = ScriptedProgram().asks(1, ask(1))
    (only,) = ids(await unapplied(here, program))
    engine = await here.engine(program)
    done = await engine.resume("x", {only: "yes"})
    assert program.seen == [{}, {"user:name": '"Ada"'}]
    assert not done.scopes_due
    assert not (await engine.get("x")).scopes_due
