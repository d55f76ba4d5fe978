"""What an execution shows of itself: its activities, their statuses, its committed steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from durable_adk.engine.attempt import Call, Dispatched
from durable_adk.engine.reads import committed_steps, moment
from durable_adk.engine.service import Engine
from durable_adk.model import failure
from durable_adk.model.activity import (
    ActivityInfo,
    Kind,
    Record,
    RecordStatus,
    UnknownOutcome,
)
from durable_adk.model.execution import Status
from durable_adk.model.position import Position
from durable_adk.model.wait import WaitKind, WaitRequest
from tests.support.engines import ScriptedProgram, World, ask, ids, world


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        yield made


class Calls:
    """Makes recorded calls in the steps of a program."""

    def __init__(self, program: ScriptedProgram) -> None:
        self._program = program

    async def enter(
        self, name: str, step: int = 1, kind: Kind = Kind.TOOL, **more: UnknownOutcome
    ) -> Dispatched:
        position = Position(step, f"agent#1/{name}", 1, kind, 1)
        call = Call(position=position, name=name, node_path=f"agent@1/{name}", **more)
        entered = await self._program.attempt.admit(call)
        assert isinstance(entered, Dispatched)
        return entered

    async def make(
        self,
        name: str,
        status: RecordStatus = RecordStatus.COMPLETED,
        step: int = 1,
        kind: Kind = Kind.TOOL,
    ) -> Record:
        entered = await self.enter(name, step, kind)
        failed = status is RecordStatus.FAILED
        body = failure.encode_failure(RuntimeError(name)) if failed else '"x"'
        return await self._program.attempt.record(entered, status, body)


async def shown(engine: Engine, execution_id: str = "x") -> list[tuple[str, str, str]]:
    return [(a.kind, a.name, a.status) for a in await engine.activities(execution_id)]


async def test_finished_calls_stand_in_log_order_step_by_step_before_their_waits(
    here: World,
) -> None:
    program = ScriptedProgram()
    calls = Calls(program)

    async def first(_: list[object]) -> list[WaitRequest]:
        await calls.make("zeta", kind=Kind.MODEL)
        await calls.make("alpha")
        await calls.make("mid", RecordStatus.FAILED, kind=Kind.NODE)
        return [ask(1, 0), ask(1, 1, WaitKind.CONFIRMATION), ask(1, 2, WaitKind.CONFIRMATION)]

    async def second(_: list[object]) -> None:
        await calls.make("last", step=2)

    program.steps |= {1: first, 2: second}
    engine = await here.engine(program)
    one, two, three = ids(await engine.invoke(here.message(execution_id="x")))
    before = [
        ("model", "zeta", "completed"),
        ("tool", "alpha", "completed"),
        ("node", "mid", "failed"),
    ]
    asked = ("wait", "adk_request_input"), ("wait", "adk_request_confirmation")
    assert await shown(engine) == [
        *before,
        (*asked[0], "waiting"),
        (*asked[1], "waiting"),
        (*asked[1], "waiting"),
    ]
    await engine.answer(one, "yes")
    assert (await shown(engine))[3] == (*asked[0], "completed")
    await engine.resume("x", {two: {"confirmed": True}, three: {"confirmed": False}})
    assert await shown(engine) == [
        *before,
        (*asked[0], "completed"),
        (*asked[1], "completed"),
        (*asked[1], "denied"),
        ("tool", "last", "completed"),
    ]


async def test_an_activity_says_where_and_when_it_was(here: World) -> None:
    program = ScriptedProgram()

    async def first(_: list[object]) -> None:
        entered = await Calls(program).enter("alpha")
        here.clock.advance(70)
        await program.attempt.record(entered, RecordStatus.COMPLETED, '"x"')

    program.steps[1] = first
    engine = await here.engine(program)
    started = here.clock.estimate()
    await engine.invoke(here.message(execution_id="x"))
    position = Position(1, "agent#1/alpha", 1, Kind.TOOL, 1)
    assert await engine.activities("x") == (
        ActivityInfo(
            id=f"x~{position.digest}",
            kind="tool",
            name="alpha",
            operation_path="agent#1/alpha",
            node_path="agent@1/alpha",
            step=1,
            entry=1,
            ordinal=1,
            status="completed",
            attempt=1,
            started_at=moment(started),
            ended_at=moment(started + 70),
        ),
    )


async def test_a_wait_has_the_id_that_answers_it(here: World) -> None:
    engine = await here.engine(ScriptedProgram().asks(1, ask(1)))
    asked = await engine.invoke(here.message(execution_id="x"))
    (info,) = await engine.activities("x")
    assert [info.id] == ids(asked)
    assert info.details == {"wait_kind": "adk_request_input"}


async def test_a_wait_says_since_when_it_is_open_and_when_and_by_whom_it_was_answered(
    here: World,
) -> None:
    engine = await here.engine(ScriptedProgram().asks(1, ask(1, 0), ask(1, 1)))
    asked = await engine.invoke(here.message(execution_id="x"))
    since = moment(here.clock.estimate())
    here.clock.advance(70)
    await engine.answer(ids(asked)[0], "yes", by="ada")
    first, second = await engine.activities("x")
    assert (first.started_at, first.ended_at) == (since, moment(here.clock.estimate()))
    assert (second.started_at, second.ended_at) == (since, None)
    assert first.details == {"wait_kind": "adk_request_input", "by": "ada"}
    assert "by" not in second.details
    await engine.resume("x", {ids(asked)[1]: "no"})
    first, second = await engine.activities("x")
    assert first.details["by"] == "ada"
    assert second.details == {"wait_kind": "adk_request_input", "by": None}
    assert first.started_at is None  # not kept


async def test_an_intent_is_running_under_its_own_lease_and_in_doubt_afterwards(
    here: World,
) -> None:
    program = ScriptedProgram()
    entered = asyncio.Event()

    async def first(_: list[object]) -> None:
        await Calls(program).enter("pay", policy=UnknownOutcome.FAIL)
        entered.set()
        await asyncio.Event().wait()

    program.steps[1] = first
    owner = await here.engine(program)
    caller = asyncio.create_task(owner.invoke(here.message(execution_id="x")))
    await entered.wait()
    assert await shown(owner) == [("tool", "pay", "running")]
    assert [a.ended_at for a in await owner.activities("x")] == [None]
    here.pass_lease()  # as if the owner were dead
    (ended,) = await (await here.engine(ScriptedProgram())).recover()
    assert ended.status is Status.FAILED
    assert await shown(owner) == [("tool", "pay", "in_doubt")]
    caller.cancel()


async def test_a_body_left_in_a_committed_step_is_abandoned(here: World) -> None:
    program = ScriptedProgram()
    calls = Calls(program)

    async def first(_: list[object]) -> list[WaitRequest]:
        await calls.enter("slow")
        await calls.make("quick")
        return [ask(1)]

    program.steps[1] = first
    engine = await here.engine(program)
    await engine.invoke(here.message(execution_id="x"))
    assert await shown(engine) == [
        ("tool", "quick", "completed"),
        ("tool", "", "abandoned"),
        ("wait", "adk_request_input", "waiting"),
    ]


async def test_a_failure_that_no_longer_counts_is_not_shown(here: World) -> None:
    program = ScriptedProgram()

    async def fails(_: list[object]) -> None:
        record = await Calls(program).make("flaky", RecordStatus.FAILED)
        raise program.attempt.causes.failure_of(record)

    async def works(_: list[object]) -> None:
        await Calls(program).make("flaky")

    program.steps[1] = fails
    engine = await here.engine(program)
    failed = await engine.invoke(here.message(execution_id="x"))
    assert failed.status is Status.QUEUED
    assert await shown(engine) == []
    program.steps[1] = works
    await engine.invoke(here.message(execution_id="x"))
    assert await shown(engine) == [("tool", "flaky", "completed")]


async def test_a_late_record_of_a_stale_owner_is_not_shown_in_a_committed_step(
    here: World,
) -> None:
    program = ScriptedProgram()

    async def first(_: list[object]) -> list[WaitRequest]:
        await Calls(program).make("mine")
        return [ask(1)]

    program.steps[1] = first
    engine = await here.engine(program)
    done = await engine.invoke(here.message(execution_id="x"))
    (record,) = await here.store.load_records(done.run, from_step=1)
    position = Position(1, "agent#1/late", 1, Kind.TOOL, 1)
    late = replace(record, position=position.text, digest=position.digest, seq=9, nonce="late")
    assert await here.store.insert_outcomes(done.run, [late]) is None
    assert [name for _, name, _ in await shown(engine)] == ["mine", "adk_request_input"]


async def test_committed_steps_include_the_one_that_the_open_frontier_ends(here: World) -> None:
    program = ScriptedProgram().asks(1, ask(1)).asks(2, ask(2))
    engine = await here.engine(program)
    first = await engine.invoke(here.message(execution_id="x"))
    assert [s.step for s in await committed_steps(here.store, first)] == [1]
    second = await engine.resume("x", {ids(first)[0]: 1})
    assert [s.step for s in await committed_steps(here.store, second)] == [1, 2]
    done = await engine.resume("x", {ids(second)[0]: 1})
    assert [s.step for s in await committed_steps(here.store, done)] == [1, 2, 3]
    queued = await engine.submit(here.message(execution_id="y"))
    assert await committed_steps(here.store, queued) == ()
