"""The worker: it finds what is due, limits what it runs, and lets go when it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from durable_adk.engine import worker as workers
from durable_adk.engine.service import Engine
from durable_adk.engine.worker import Worker
from durable_adk.errors import ConfigError, CorruptHistory, Unavailable, WriteUnknown
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import ExecutionKey
from tests.support.engines import ScriptedProgram, World, ask, eventually, ids, world


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        yield made


class Running:
    """A worker that runs beside the test."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.task = asyncio.create_task(worker.run())

    async def stop(self) -> None:
        self.worker.stop()
        await self.task


async def has_status(engine: Engine, execution_id: str, status: Status) -> None:
    async def holds() -> bool:
        return (await engine.get(execution_id)).status is status

    await eventually(holds)


async def test_a_worker_goes_on_with_what_becomes_due(here: World) -> None:
    program = ScriptedProgram().asks(1, ask(1))
    engine = await here.engine(program)
    working = Running(engine.worker())
    await engine.submit(here.message(execution_id="x"))
    await has_status(engine, "x", Status.SUSPENDED)
    await engine.answer(ids(await engine.get("x"))[0], "yes")
    await has_status(engine, "x", Status.COMPLETED)
    program.raises(1, RuntimeError("no"))
    await engine.submit(here.message(execution_id="y"))

    async def failed_once() -> bool:
        return (await engine.get("y")).failures == 1

    await eventually(failed_once)
    here.clock.advance(1000)
    await has_status(engine, "y", Status.COMPLETED)
    await here.store.begin(engine._beginning.new(here.message(execution_id="z"), run_now=True))
    here.pass_lease()
    await has_status(engine, "z", Status.COMPLETED)
    await working.stop()


async def test_two_workers_run_each_execution_once(here: World) -> None:
    program = ScriptedProgram()
    engines = [await here.engine(program) for _ in range(2)]
    for number in range(12):
        await engines[0].submit(here.message(session=f"{number}", execution_id=f"x{number}"))
    working = [Running(engine.worker()) for engine in engines]
    for number in range(12):
        await has_status(engines[0], f"x{number}", Status.COMPLETED)
    for each in working:
        await each.stop()
    assert len(program.runs) == 12


async def test_a_worker_runs_at_most_its_concurrency_at_once(here: World) -> None:
    running = most = ended = 0

    async def count(_: list[object]) -> None:
        nonlocal running, most, ended
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        ended += 1

    engine = await here.engine(ScriptedProgram(steps={1: count}))
    for number in range(9):
        await engine.submit(here.message(session=f"{number}"))
    working = Running(engine.worker(concurrency=3))

    async def all_ended() -> bool:
        return ended == 9

    await eventually(all_ended)
    await working.stop()
    assert most == 3


async def test_stopping_lets_attempts_end_within_the_grace_and_starts_nothing(
    here: World,
) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program, grace_s=5)
    working = Running(engine.worker())
    await engine.submit(here.message(execution_id="x"))
    await gate.entered.wait()
    working.worker.stop()
    working.worker.stop()
    await engine.submit(here.message(session="other", execution_id="y"))
    await asyncio.sleep(0.02)
    assert not working.task.done()
    gate.opened.set()
    await working.task
    assert (await engine.get("x")).status is Status.COMPLETED
    assert (await engine.get("y")).status is Status.QUEUED


async def test_stopping_waits_for_no_look_longer_than_the_grace(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = here.new_store()
    engine = await here.engine(ScriptedProgram(), store=store, grace_s=0.01)
    looking = asyncio.Event()

    async def never(*_: object, **__: object) -> tuple[ExecutionKey, ...]:
        looking.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(store, "list_due", never)
    working = Running(engine.worker())
    await looking.wait()
    await working.stop()  # MongoDB still has not answered


async def test_closing_gives_no_second_grace_to_what_a_worker_gave_up(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, program = here.new_store(), ScriptedProgram()
    engine = await here.engine(program, store=store, grace_s=3600)
    claiming, goes_on, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    claim = store.claim

    async def late(*given: object, **named: object) -> Execution | None:
        claiming.set()
        await goes_on.wait()
        try:
            return await claim(*given, **named)  # type: ignore[arg-type]
        finally:
            ended.set()

    monkeypatch.setattr(store, "claim", late)
    monkeypatch.setattr("durable_adk.engine.running.UNWIND_S", 0.01)
    await engine.submit(here.message(execution_id="x"))
    working = Running(engine.worker())
    await claiming.wait()
    working.task.cancel()
    await asyncio.wait({working.task})
    await engine.close()  # the claim still is not acknowledged: this would wait for an hour
    goes_on.set()
    await ended.wait()
    assert program.runs == []


async def test_stopping_releases_what_outlasts_the_grace(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program, grace_s=0.01)
    working = Running(engine.worker())
    await engine.submit(here.message(execution_id="x"))
    await gate.entered.wait()
    await working.stop()
    assert gate.cancelled == 1
    released = await engine.get("x")
    assert (released.status, released.wake_at) == (Status.QUEUED, here.clock.estimate())
    program.steps.clear()
    assert [e.status for e in await engine.recover()] == [Status.COMPLETED]


async def test_cancelling_a_worker_releases_at_once(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program, grace_s=60)
    working = Running(engine.worker())
    await engine.submit(here.message(execution_id="x"))
    await gate.entered.wait()
    working.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working.task
    assert (await engine.get("x")).status is Status.QUEUED


async def test_stopping_a_worker_leaves_what_callers_run_alone(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program)
    working = Running(engine.worker())
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    await working.stop()
    assert gate.cancelled == 0
    gate.opened.set()
    assert (await caller).status is Status.COMPLETED


async def test_a_worker_ends_when_its_engine_closes(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine, other = await here.engine(program, grace_s=0.01), await here.engine(program)
    working = Running(engine.worker())
    await engine.submit(here.message(execution_id="x"))
    await gate.entered.wait()
    await engine.close()
    async with asyncio.timeout(5):
        await working.task
    assert (await other.get("x")).status is Status.QUEUED


async def test_a_worker_waits_for_a_mongodb_that_does_not_answer(here: World) -> None:
    store = here.new_store()
    engine = await here.engine(ScriptedProgram(), store=store)
    look, looks = store.list_due, 0

    async def down(*_: object, **__: object) -> tuple[()]:
        nonlocal looks
        looks += 1
        if looks == 3:
            store.list_due = look
        raise Unavailable("MongoDB", "does not answer")

    store.list_due = down
    working = Running(engine.worker())
    await engine.submit(here.message(execution_id="x"))
    await has_status(engine, "x", Status.COMPLETED)
    assert looks == 3
    await working.stop()


async def test_a_worker_goes_on_when_nobody_knows_whether_a_write_of_its_was_done(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An election that takes longer than a write is repeated, while shared state is due."""
    monkeypatch.setattr(workers, "SCOPES_EVERY_S", 0.01)
    program, store = ScriptedProgram(), here.new_store()
    program.writes_shared(1, {"user:name": "Ada"})
    apply, tries = store.apply_scopes, 0

    async def unacknowledged(*given: object) -> None:
        nonlocal tries
        tries += 1
        if tries <= 3:
            raise WriteUnknown("write (scopes)", "was not acknowledged")
        await apply(*given)

    store.apply_scopes = unacknowledged
    engine = await here.engine(program, store=store)
    left = await engine.invoke(here.message(execution_id="x"))
    assert left.scopes_due
    working = Running(engine.worker())

    async def is_applied() -> bool:
        return working.task.done() or not (await engine.get("x")).scopes_due

    await eventually(is_applied)
    await working.stop()
    assert tries == 4


async def test_something_due_that_cannot_be_read_keeps_a_worker_from_no_other(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its expiry answer is due, so it is the longest due of all, and nobody can give it."""
    monkeypatch.setattr(workers, "UNREAD_PAUSE_S", 3_600.0)
    late = replace(ask(1), expires_after=1_000, on_expiry='"late"')
    program, store = ScriptedProgram().asks(1, late), here.new_store()
    engine = await here.engine(program, store=store)
    torn = await engine.invoke(here.message(session="a", execution_id="torn"))
    program.steps.clear()
    read, tries = store.get_execution, 0

    async def unread(key: ExecutionKey) -> Execution | None:
        nonlocal tries
        if key != torn.key:
            return await read(key)
        tries += 1
        raise CorruptHistory("payload p", "chunk p:0 is missing")

    store.get_execution = unread
    here.clock.advance(2_000)
    await engine.submit(here.message(session="b", execution_id="next"))
    working = Running(engine.worker(concurrency=1))
    await has_status(engine, "next", Status.COMPLETED)
    assert tries == 1
    store.get_execution = read
    working.worker._unread.clear()  # as after the pause
    await has_status(engine, "torn", Status.COMPLETED)
    await working.stop()


@pytest.mark.parametrize("look", ["sessions_after", "list_scopes_due", "list_expired_elsewhere"])
async def test_a_document_that_nobody_can_read_ends_no_worker(here: World, look: str) -> None:
    store, met = here.new_store(), asyncio.Event()

    async def torn(*_: object, **__: object) -> tuple[()]:
        met.set()
        raise CorruptHistory("document d", "cannot be read")

    setattr(store, look, torn)
    settings = {"retention_turns": 1, "version": "v1"}
    engine = await here.engine(ScriptedProgram(), store=store, **settings)
    working = Running(engine.worker())
    await met.wait()
    await engine.submit(here.message(execution_id="x"))
    await has_status(engine, "x", Status.COMPLETED)
    await working.stop()


@pytest.mark.parametrize("look", ["list_due", "list_scopes_due"])
async def test_a_worker_ends_when_it_cannot_look_any_more(here: World, look: str) -> None:
    store = here.new_store()
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program, store=store)
    await engine.submit(here.message(execution_id="x"))

    async def refused(*_: object, **__: object) -> tuple[()]:
        await gate.entered.wait()
        raise ConfigError("MongoDB", "refuses these credentials")

    find_due = store.list_due

    async def first_found_then_refused(*args: object, **more: object) -> object:
        return await (refused() if gate.entered.is_set() else find_due(*args, **more))

    setattr(store, look, first_found_then_refused if look == "list_due" else refused)
    with pytest.raises(ConfigError, match="credentials"):
        await engine.worker().run()
    # What it ran is given back, not left behind.
    assert gate.cancelled == 1
    assert (await engine.get("x")).status is Status.QUEUED


async def test_a_worker_that_is_stopped_while_it_looks_claims_nothing(here: World) -> None:
    store = here.new_store()
    program = ScriptedProgram()
    engine = await here.engine(program, store=store)
    await engine.submit(here.message(execution_id="x"))
    worker, look = engine.worker(), store.list_due

    async def stopped_meanwhile(*args: object, **more: object) -> object:
        worker.stop()
        return await look(*args, **more)

    store.list_due = stopped_meanwhile
    await worker.run()
    assert (await engine.get("x")).attempt == 0


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "3", None])
async def test_a_number_that_cannot_limit_anything_is_refused(here: World, bad: object) -> None:
    engine = await here.engine(ScriptedProgram())
    await engine.submit(here.message(execution_id="x"))
    with pytest.raises(ConfigError, match="concurrency"):
        engine.worker(concurrency=bad)
    with pytest.raises(ConfigError, match="limit"):
        await engine.recover(limit=bad)
    assert (await engine.get("x")).attempt == 0
