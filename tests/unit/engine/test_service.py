"""Beginning executions: idempotent ids, busy sessions, callers that leave, owners that change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from durable_adk.errors import (
    ConfigError,
    InputConflict,
    NotFound,
    SessionBusy,
    Unavailable,
)
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import new_nonce
from durable_adk.model.store_results import Begun, Selection
from tests.support.engines import (
    TTL_MS,
    ScriptedProgram,
    World,
    ask,
    eventually,
    ids,
    make_stuck,
    world,
)


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def stored(here: World) -> list[Execution]:
    found, _ = await here.store.list_executions(Selection(here.tenant))
    return list(found)


async def abandoned(here: World, execution_id: str = "x", session: str = "s") -> None:
    """An execution whose owner died right after it began."""
    engine = await here.engine(ScriptedProgram())
    new = engine._beginning.new(
        here.message(session=session, execution_id=execution_id), run_now=True
    )
    assert isinstance(await here.store.begin(new), Begun)


# ---------------------------------------------------------------- one message


async def test_a_message_runs_to_the_end_and_returns_what_is_stored(here: World) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    done = await engine.invoke(here.message())
    assert done.status is Status.COMPLETED
    assert done == await engine.get(done.execution_id)
    assert done.invocation_id == done.execution_id
    assert program.runs == [(done.execution_id, 1, [])]


async def test_a_message_runs_to_its_frontier(here: World) -> None:
    engine = await here.engine(ScriptedProgram().asks(1, ask(1, 0), ask(1, 1)))
    asked = await engine.invoke(here.message())
    assert asked.status is Status.SUSPENDED
    assert [w.call_id for w in engine.waits_of(asked)] == ["c1.0", "c1.1"]


async def test_a_session_is_made_when_none_is_named_and_the_same_one_for_the_same_id(
    here: World,
) -> None:
    engine = await here.engine(ScriptedProgram())
    first = await engine.invoke(here.message(session=None))
    second = await engine.invoke(here.message(session=None))
    assert first.session_id != second.session_id
    named = await engine.invoke(here.message(session=None, execution_id="x"))
    assert await engine.invoke(here.message(session=None, execution_id="x")) == named


NO_IDS: list[object] = [7, {"$ne": 1}, ["x"], "", "a~b", "a\nb", "x" * 257, b"x"]


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("user_id", None),
        *((name, bad) for name in ("user_id", "session_id", "execution_id") for bad in NO_IDS),
    ],
)
async def test_an_id_that_cannot_be_one_is_refused_before_anything_is_stored(
    here: World, name: str, bad: object
) -> None:
    engine = await here.engine(ScriptedProgram())
    fields = {"user_id": "u", "session_id": "s", "execution_id": "e", name: bad}
    request = type(here.message())(input="{}", **fields)
    for call in (engine.invoke, engine.submit):
        with pytest.raises(ConfigError, match=name):
            await call(request)
    assert await stored(here) == []
    assert await here.store.list_sessions(Selection(here.tenant)) == ((), None)


@pytest.mark.parametrize("bad", [None, *NO_IDS])
async def test_every_call_refuses_an_execution_id_that_cannot_be_one(
    here: World, bad: object
) -> None:
    engine = await here.engine(ScriptedProgram())
    for call in (
        engine.get,
        engine.resume,
        engine.cancel,
        engine.retry,
        engine.give_up,
        engine.activities,
    ):
        with pytest.raises(ConfigError):
            await call(bad)


async def test_every_call_says_when_there_is_no_such_execution(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    for call in (
        engine.get,
        engine.resume,
        engine.cancel,
        engine.retry,
        engine.give_up,
        engine.activities,
    ):
        with pytest.raises(NotFound, match="'none'"):
            await call("none")


async def test_an_engine_that_is_not_open_says_so(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    await engine.close()
    with pytest.raises(ConfigError, match="not open"):
        await engine.invoke(here.message())
    with pytest.raises(ConfigError, match="not open"):
        await engine.get("x")
    assert await stored(here) == []


# ---------------------------------------------------------------- the same id again


async def test_the_same_id_and_input_twice_at_once_run_once_with_one_outcome(here: World) -> None:
    program = ScriptedProgram()
    here_engine, there = await here.engine(program), await here.engine(program)
    message = here.message(execution_id="x")
    outcomes = await asyncio.gather(
        *(engine.invoke(message) for engine in (here_engine, there) for _ in range(10))
    )
    assert len({o.execution_id for o in outcomes}) == 1
    assert {o.status for o in outcomes} == {Status.COMPLETED}
    assert all(o == outcomes[0] for o in outcomes)
    assert program.runs == [("x", 1, [])]


async def test_the_same_id_after_the_end_gives_the_recorded_outcome(here: World) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    first = await engine.invoke(here.message(execution_id="x"))
    assert await engine.invoke(here.message(execution_id="x")) == first
    assert program.entries(1) == 1


async def test_the_same_id_while_it_is_suspended_gives_the_frontier(here: World) -> None:
    engine = await here.engine(ScriptedProgram().asks(1, ask(1)))
    first = await engine.invoke(here.message(execution_id="x"))
    assert await engine.invoke(here.message(execution_id="x")) == first


async def test_the_same_id_with_another_input_or_session_is_a_conflict(here: World) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    await engine.invoke(here.message(execution_id="x"))
    with pytest.raises(InputConflict, match="another input"):
        await engine.invoke(here.message("other", execution_id="x"))
    with pytest.raises(InputConflict, match="session 's'"):
        await engine.invoke(here.message(session="other", execution_id="x"))
    with pytest.raises(InputConflict):
        await engine.submit(here.message("other", execution_id="x"))
    assert program.entries(1) == 1


async def test_the_same_id_twice_at_once_with_two_inputs_is_one_run_and_one_conflict(
    here: World,
) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    outcomes = await asyncio.gather(
        *(engine.invoke(here.message(text, execution_id="x")) for text in ("a", "b")),
        return_exceptions=True,
    )
    kinds = sorted(type(o).__name__ for o in outcomes)
    assert kinds == ["Execution", "InputConflict"]
    assert program.entries(1) == 1


async def test_the_same_id_goes_on_with_what_backs_off_and_counts_the_failures(
    here: World,
) -> None:
    program = ScriptedProgram().raises(1, *[RuntimeError("no")] * 3)
    engine = await here.engine(program, max_attempts=3)
    statuses = []
    for _ in range(4):
        outcome = await engine.invoke(here.message(execution_id="x"))
        statuses.append(outcome.status)
    assert statuses == [Status.QUEUED, Status.QUEUED, Status.FAILED, Status.FAILED]
    assert outcome.error is not None
    assert outcome.error.message == "no"
    assert program.entries(1) == 3


async def test_the_same_id_goes_on_with_what_was_submitted(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    queued = await engine.submit(here.message(execution_id="x"))
    assert queued.status is Status.QUEUED
    done = await engine.invoke(here.message(execution_id="x"))
    assert done.status is Status.COMPLETED


async def test_the_same_id_takes_over_when_the_lease_has_run_out(here: World) -> None:
    await abandoned(here)
    program = ScriptedProgram()
    engine = await here.engine(program)
    waiting = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    here.pass_lease()
    assert (await waiting).status is Status.COMPLETED
    assert program.attempts == [("x", 2)]


async def test_waiting_for_another_owner_ends_at_the_timeout_and_says_so(here: World) -> None:
    await abandoned(here)
    engine = await here.engine(ScriptedProgram())
    with pytest.raises(Unavailable, match=r"no outcome within"):
        await engine.invoke(here.message(execution_id="x"), timeout=0.02)
    assert (await engine.get("x")).status is Status.RUNNING


# ---------------------------------------------------------------- busy sessions


async def test_a_message_to_a_suspended_session_is_refused_with_its_open_waits(
    here: World,
) -> None:
    program = ScriptedProgram().asks(1, ask(1, 0), ask(1, 1))
    engine = await here.engine(program)
    asked = await engine.invoke(here.message())
    first, second = ids(asked)
    await engine.answer(first, "yes")
    with pytest.raises(SessionBusy) as busy:
        await engine.invoke(here.message("another"))
    assert busy.value.waits == (second,)
    assert busy.value.status == "suspended"
    assert busy.value.execution_id == asked.execution_id
    assert second in str(busy.value)
    assert len(await stored(here)) == 1
    assert program.entries(1) == 1


async def test_a_message_to_a_running_session_is_refused(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine, other = await here.engine(program), await here.engine(program)
    running = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    for refusing in (engine, other):
        with pytest.raises(SessionBusy, match="'x' is running"):
            await refusing.invoke(here.message("another"))
        with pytest.raises(SessionBusy, match="'x' is running"):
            await refusing.submit(here.message("another"))
    gate.opened.set()
    assert (await running).status is Status.COMPLETED


async def test_a_message_does_not_steal_the_session_from_an_attempt_of_this_process(
    here: World,
) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program)
    running = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    here.pass_lease()  # the loop was blocked: its next renewal gives the right back
    with pytest.raises(SessionBusy, match="'x' is running"):
        await engine.invoke(here.message("another"))
    assert (await engine.get("x")).token == 1
    gate.opened.set()
    assert (await running).status is Status.COMPLETED


async def test_of_many_messages_to_one_session_at_once_one_runs(here: World) -> None:
    program = ScriptedProgram().asks(1, ask(1))
    engines = [await here.engine(program) for _ in range(2)]
    outcomes = await asyncio.gather(
        *(e.invoke(here.message(f"{i}")) for i in range(10) for e in engines),
        return_exceptions=True,
    )
    begun = [o for o in outcomes if isinstance(o, Execution)]
    assert len(begun) == 1
    assert all(isinstance(o, Execution | SessionBusy) for o in outcomes)
    assert program.entries(1) == 1


@pytest.mark.parametrize("way", ["lease", "submitted", "answered", "backs off"])
async def test_what_is_due_in_a_session_is_finished_before_its_next_message(
    here: World, way: str
) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    if way == "lease":
        await abandoned(here)
        here.pass_lease()
    elif way == "submitted":
        await engine.submit(here.message(execution_id="x"))
    elif way == "answered":
        program.asks(1, ask(1))
        asked = await engine.invoke(here.message(execution_id="x"))
        await engine.answer(ids(asked)[0], "yes")
        program.steps.clear()
    else:
        program.raises(1, RuntimeError("once"))
        failed = await engine.invoke(here.message(execution_id="x"))
        assert failed.status is Status.QUEUED
    second = await engine.invoke(here.message("another", execution_id="y"))
    first = await engine.get("x")
    assert first.status is Status.COMPLETED
    assert second.status is Status.COMPLETED
    assert (first.turn, second.turn) == (1, 2)


async def test_a_message_is_refused_when_what_was_due_does_not_finish(here: World) -> None:
    program = ScriptedProgram().asks(1, ask(1))
    engine = await here.engine(program)
    await engine.submit(here.message(execution_id="x"))
    with pytest.raises(SessionBusy) as busy:
        await engine.invoke(here.message("another"))
    assert busy.value.waits == tuple(ids(await engine.get("x")))


async def test_a_message_to_a_stuck_session_is_refused(here: World) -> None:
    engine = await here.engine(ScriptedProgram())
    await make_stuck(here, "x")
    with pytest.raises(SessionBusy, match="'x' is stuck"):
        await engine.invoke(here.message("another"))
    assert (await engine.invoke(here.message(execution_id="x"))).status is Status.STUCK


async def test_submitting_queues_without_running(here: World) -> None:
    program = ScriptedProgram()
    engine = await here.engine(program)
    queued = await engine.submit(here.message(execution_id="x"))
    assert (queued.status, queued.attempt, queued.claim) == (Status.QUEUED, 0, None)
    assert await engine.submit(here.message(execution_id="x")) == queued
    with pytest.raises(SessionBusy, match=r"'x' is queued.*worker or recover.*execution_id='x'"):
        await engine.submit(here.message("another"))
    assert program.runs == []


# ---------------------------------------------------------------- callers that leave


async def test_cancelling_a_caller_only_detaches(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gate.opened.set()
    assert (await engine.invoke(here.message(execution_id="x"))).status is Status.COMPLETED
    assert (gate.cancelled, program.entries(1)) == (0, 1)


async def test_a_timeout_only_detaches(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program)
    with pytest.raises(Unavailable, match="no outcome"):
        await engine.invoke(here.message(execution_id="x"), timeout=0.02)
    gate.opened.set()
    assert (await engine.invoke(here.message(execution_id="x"))).status is Status.COMPLETED
    assert (gate.cancelled, program.entries(1)) == (0, 1)


async def test_a_caller_that_leaves_while_its_execution_is_inserted_leaves_an_owner(
    here: World,
) -> None:
    store = here.new_store()
    program = ScriptedProgram()
    engine = await here.engine(program, store=store)
    inserting, insert = asyncio.Event(), asyncio.Event()
    begin = store.begin

    async def slowly(new: object) -> object:
        begun = await begin(new)
        inserting.set()
        await insert.wait()
        return begun

    store.begin = slowly
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await inserting.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    insert.set()

    async def ended() -> bool:
        return (await engine.get("x")).status is Status.COMPLETED

    await eventually(ended)


# ---------------------------------------------------------------- owners that change


async def test_a_caller_whose_lease_is_lost_gets_the_new_owners_outcome(here: World) -> None:
    slow, quick = ScriptedProgram(), ScriptedProgram()
    gate = slow.gate(1)
    engine = await here.engine(slow)
    other = await here.engine(quick.asks(1, ask(1)))
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    here.pass_lease()
    taken_over = await other.recover()
    assert [e.status for e in taken_over] == [Status.SUSPENDED]
    gate.opened.set()  # the old owner wakes, and may commit nothing
    assert await caller == taken_over[0]
    assert (await engine.get("x")).token == 2


async def test_a_caller_whose_lease_is_lost_waits_until_the_new_owner_is_done(
    here: World,
) -> None:
    slow, other_program = ScriptedProgram(), ScriptedProgram()
    gate, other_gate = slow.gate(1), other_program.gate(1)
    engine, other = await here.engine(slow), await here.engine(other_program)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    here.pass_lease()
    taking_over = asyncio.create_task(other.recover())
    await other_gate.entered.wait()
    gate.opened.set()
    await asyncio.sleep(0.02)
    assert not caller.done()
    other_gate.opened.set()
    assert (await caller,) == await taking_over


async def test_a_caller_gets_the_failure_of_another_owners_attempt_and_does_not_repeat_it(
    here: World,
) -> None:
    program = ScriptedProgram()
    entered, fail = asyncio.Event(), asyncio.Event()

    async def fails(_: list[object]) -> None:
        entered.set()
        await fail.wait()
        raise RuntimeError("no")

    program.steps[1] = fails
    owner, other = await here.engine(program), await here.engine(program)
    message = here.message(execution_id="x")
    owning = asyncio.create_task(owner.invoke(message))
    await entered.wait()
    waiting = asyncio.create_task(other.invoke(message))
    await asyncio.sleep(0.02)
    fail.set()
    outcomes = await asyncio.gather(owning, waiting)
    assert [o.status for o in outcomes] == [Status.QUEUED] * 2
    assert [o.error.message for o in outcomes if o.error] == ["no"] * 2
    assert program.entries(1) == 1


async def test_a_timeout_of_something_else_is_not_taken_for_the_callers(here: World) -> None:
    engine = await here.engine(ScriptedProgram())

    async def times_out(*_: object) -> Execution:
        raise TimeoutError("something else")

    engine._opened().attempts._run = times_out
    with pytest.raises(TimeoutError, match="something else"):
        await engine.invoke(here.message(), timeout=60)


async def test_a_caller_outlives_two_dead_owners(here: World) -> None:
    program = ScriptedProgram()
    gate = program.gate(1)
    engine = await here.engine(program)
    caller = asyncio.create_task(engine.invoke(here.message(execution_id="x")))
    await gate.entered.wait()
    here.pass_lease()
    execution = await engine.get("x")
    taken = await here.store.claim(execution.key, nonce=new_nonce(), ttl_ms=TTL_MS)
    assert taken is not None  # by a process that dies at once
    program.steps.clear()
    gate.opened.set()
    await asyncio.sleep(0.02)
    assert not caller.done()
    here.pass_lease()
    assert (await caller).status is Status.COMPLETED
