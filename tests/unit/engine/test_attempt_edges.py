"""Corners of an attempt: misuse, errors inside errors, and what is asked at the wrong moment."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from durable_adk.engine import ends
from durable_adk.engine.activities import Recorded, gaps
from durable_adk.engine.attempt import Call
from durable_adk.errors import (
    CorruptHistory,
    LeaseLost,
    NotStorable,
    ReplayMismatch,
    Unavailable,
)
from durable_adk.model.activity import Kind, Record, RecordStatus
from durable_adk.model.execution import Parent, Status, StepDocument
from durable_adk.model.identity import FencingToken, RunId, new_nonce
from durable_adk.model.position import Position
from durable_adk.store.mongo import MongoStore
from durable_adk.testing.faults import FaultPlan
from tests.support.attempts import (
    AGENT,
    FAIL,
    TTL_MS,
    Calls,
    Desk,
    ProcessDied,
    Scripted,
    ask,
    foreign_tool_record,
)


async def forever() -> object:
    return await asyncio.Event().wait()


async def dies_at_the_end(desk: Desk, program: Scripted) -> Any:
    execution = await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail("before end", ProcessDied()))
    return execution


async def test_the_program_can_ask_what_is_recorded_and_what_is_still_to_come() -> None:
    seen: list[tuple[bool, bool, bool, bool]] = []

    async def script(calls: Calls, _: list[object]) -> object:
        attempt = calls.attempt
        seen.append(
            (
                attempt.has_record(1, f"{AGENT}/:t", 1),
                attempt.has_record(1, f"{AGENT}/:t", 1, Kind.TOOL),
                attempt.has_record(1, f"{AGENT}/:t", 2) or attempt.has_record(2, "agent#1", 1),
                attempt.unserved(),
            )
        )
        await calls.tool("t")
        assert attempt.has_record(1, f"{AGENT}/:t", 1)
        assert not attempt.unserved()
        position = Position(1, f"{AGENT}/:t", 1, Kind.TOOL, 1)
        assert attempt.activity_id(position) == f"e1~{position.digest}"
        return None

    desk, program = Desk(), Scripted(script)
    execution = await dies_at_the_end(desk, program)
    await desk.run(await desk.claim(execution), program)
    assert seen == [(False, False, False, False), (True, True, False, True)]


async def test_a_position_of_another_step_is_refused() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        position = Position(2, AGENT, 1, Kind.MODEL, 1)
        return await calls.attempt.admit(Call(position=position, name="m"))

    queued = await (desk := Desk()).run(await desk.begin(), Scripted(script))
    assert queued.error is not None and "is not of step 1" in queued.error.message


async def test_one_position_cannot_be_entered_twice_at_once() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return await asyncio.gather(calls.tool("t", forever), calls.tool("t", forever))

    stuck = await (desk := Desk()).run(await desk.begin(), Scripted(script))
    assert stuck.status is Status.STUCK
    assert stuck.error is not None and "still runs" in stuck.error.message


async def test_a_call_recorded_in_this_attempt_is_served_when_it_is_made_again() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return [await calls.tool("t"), await calls.tool("t")][1]

    desk, program = Desk(), Scripted(script)
    ended = await desk.run(await desk.begin(), program)
    assert ended.status is Status.COMPLETED
    assert (program.ledger.entered, program.ledger.served) == (["t"], ["t"])


async def test_a_body_that_waited_and_now_gives_a_result_is_a_mismatch_of_a_walk() -> None:
    class Interrupted(BaseException):
        pass

    async def first(calls: Calls, _: list[object]) -> object:
        async def body() -> object:
            if calls.attempt.execution.attempt == 1:
                raise Interrupted
            return "a result"

        try:
            await calls.node("n", body)
        except Interrupted:
            return [ask(1, "n")]
        return "the end"

    async def second(calls: Calls, answers: list[object]) -> object:
        return None

    desk = Desk(mode="walk")
    execution = await desk.begin()
    program = Scripted(first, second)
    await desk.run(execution, program)
    await desk.answer(execution, "yes")
    stuck = await desk.run(await desk.claim(execution), program)
    assert stuck.status is Status.STUCK
    assert stuck.error is not None and "recorded a wait in it" in stuck.error.message


async def test_a_lease_refused_while_it_loads_starts_no_program() -> None:
    class Refusing:
        def hold(self, lease: Any, **callbacks: Any) -> Any:
            callbacks["on_refused"]()
            return self

        def drop(self, guard: Any) -> None:
            pass

        def may_start(self) -> bool:
            return True

    desk, program = Desk(), Scripted()
    with pytest.raises(LeaseLost):
        await desk.run(await desk.begin(), program, keeper=Refusing())
    assert program.attempts == []


async def test_a_program_that_cancels_itself_has_failed() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        raise asyncio.CancelledError

    queued = await (desk := Desk()).run(await desk.begin(), Scripted(script))
    assert queued.status is Status.QUEUED
    assert queued.error is not None and queued.error.type == "RunCancelled"


async def test_a_program_that_cannot_be_closed_is_left_to_a_later_attempt_and_then_stuck() -> None:
    class Broken(Scripted):
        def begin(self, attempt: Any, history: Any) -> Any:
            raise RuntimeError("a bug")

    desk = Desk(max_attempts=2)
    execution = await desk.begin()
    await desk.store.request_cancel(execution.key, "stop")
    first = await desk.run(await desk.claim(execution), Broken())
    second = await desk.run(await desk.claim(execution), Broken())
    assert [e.status for e in (first, second)] == [Status.QUEUED, Status.STUCK]


async def test_answers_that_are_gone_are_corruption() -> None:
    async def first(calls: Calls, _: list[object]) -> object:
        return [ask(1)]

    async def second(calls: Calls, answers: list[object]) -> object:
        return answers[0]

    desk, program = Desk(), Scripted(first, second)
    execution = await desk.begin()
    await desk.run(execution, program)
    await desk.answer(execution, "yes")
    with pytest.raises(ProcessDied):
        await desk.run(
            await desk.claim(execution),
            program,
            faults=FaultPlan().fail("before end", ProcessDied()),
        )
    await desk.client["d"]["durable_activities"].delete_many({"_id": {"$regex": execution.run}})
    stuck = await desk.run(await desk.claim(execution), program)
    assert stuck.status is Status.STUCK
    assert stuck.error is not None and stuck.error.type == "CorruptHistory"


async def test_a_verdict_that_cannot_be_written_is_left_to_the_next_attempt() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        try:
            async with asyncio.timeout(0.02):
                await calls.tool("pay", forever, policy=FAIL)
        except TimeoutError:
            raise ValueError("timed out") from None
        return None

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    plan = FaultPlan().fail("before verdict", Unavailable("no primary"))
    assert (await desk.run(execution, program, faults=plan)).status is Status.QUEUED
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.FAILED
    assert ended.error is not None and ended.error.type == "OutcomeUnknown"


async def test_a_death_while_a_verdict_is_written_is_a_death() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        try:
            async with asyncio.timeout(0.02):
                await calls.tool("pay", forever, policy=FAIL)
        except TimeoutError:
            pass
        return None

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail("before verdict", ProcessDied()))
    assert (await desk.read(execution)).status is Status.RUNNING


async def test_a_lease_that_cannot_be_given_back_runs_out() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return await calls.tool("t", forever)

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    plan = FaultPlan().fail("before release", Unavailable("no primary"))
    run = asyncio.ensure_future(desk.run(execution, program, faults=plan))
    while not program.ledger.entered:
        await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await desk.read(execution)).status is Status.RUNNING
    desk.clock.advance(TTL_MS)
    assert (await desk.claim(execution)).attempt == 2


# ---------------------------------------------------------------- values


def test_the_error_that_decides_is_found_inside_groups() -> None:
    lost, bad = LeaseLost("e"), ValueError("bad")
    storing = NotStorable("x", "a socket")
    assert ends.principal(bad) is bad
    assert ends.principal(ExceptionGroup("g", [bad])) is bad
    assert ends.principal(ExceptionGroup("g", [bad, ExceptionGroup("h", [storing])])) is storing
    assert ends.principal(ExceptionGroup("g", [storing, lost])) is lost
    both = ExceptionGroup("g", [bad, KeyError("k")])
    assert ends.principal(both) is both


def test_an_error_is_stored_with_what_a_reader_needs() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    mismatch = ends.stored_error(ReplayMismatch("p", recorded="a", asked="b"))
    assert (mismatch.type, mismatch.position) == ("ReplayMismatch", "p")
    assert mismatch.message == "position p: recorded a, asked b"
    assert mismatch.remedy
    assert ends.stored_error(Mute()).message == "<its text raised RuntimeError>"


def test_a_stamp_lies_after_everything_that_was_seen_and_sorts_as_text() -> None:
    first = ends.stamp_after("", now=5, execution_id="b")
    second = ends.stamp_after(first, now=5, execution_id="a")
    third = ends.stamp_after(second, now=10_000, execution_id="a")
    assert first < second < third


def document(step: int, records: tuple[str, ...] = ()) -> StepDocument:
    return StepDocument(
        run=RunId("r"),
        step=step,
        token=FencingToken(1),
        prev=None,
        events="[]",
        finished="{}",
        records=records,
        nonce=new_nonce(),
    )


def test_a_gap_between_steps_or_a_missing_record_is_corruption() -> None:
    with pytest.raises(CorruptHistory, match="steps before step 3"):
        Recorded(open_step=3, steps=[document(2)])
    slot = f"000001:{'a' * 20}.1o"
    with pytest.raises(CorruptHistory, match=slot):
        Recorded(open_step=2, steps=[document(1, (slot,))])


async def three_tools(calls: Calls, _: list[object]) -> object:
    for name in ("a", "b", "c"):
        await calls.tool(name)
    if calls.attempt.execution.attempt == 1:
        raise RuntimeError("transient")
    return "done"


class Forgetful(MongoStore):
    """A store whose reads miss the second record: for good, or ``misses`` times."""

    misses = 1

    async def load_records(
        self, run: RunId, *, from_step: int, parents: Sequence[Parent] = ()
    ) -> tuple[Record, ...]:
        found = await super().load_records(run, from_step=from_step, parents=parents)
        self.misses -= 1
        return tuple(r for r in found if r.seq != 2) if self.misses >= 0 else found


async def test_a_record_gone_from_the_open_step_makes_it_stuck_and_it_can_be_given_up() -> None:
    desk, program = Desk(), Scripted(three_tools)
    execution = await desk.begin()
    await desk.run(execution, program)
    store = Forgetful(desk.client, database="d", clock=desk.clock)
    store.misses = 100
    stuck = await desk.run(await desk.claim(execution), program, store=store)
    assert (stuck.status, stuck.error and stuck.error.type) == (Status.STUCK, "CorruptHistory")
    assert stuck.error is not None and "record 2 of 3 is missing" in stuck.error.message
    assert program.ledger.entered == ["a", "b", "c"], "the lost call is not made again"
    claimed = await desk.store.claim_to_close(
        execution.key, closing=Status.FAILED, reason="gone", nonce=new_nonce(), ttl_ms=TTL_MS
    )
    assert claimed is not None
    assert (await desk.run(claimed, program, store=store)).status is Status.FAILED


async def test_a_gap_that_is_gone_at_the_second_look_was_a_stale_owner_that_writes() -> None:
    desk, program = Desk(), Scripted(three_tools)
    execution = await desk.begin()
    await desk.run(execution, program)
    store = Forgetful(desk.client, database="d", clock=desk.clock)
    ended = await desk.run(await desk.claim(execution), program, store=store)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered == ["a", "b", "c"]


def test_two_owners_may_hold_one_place_of_the_log() -> None:
    first = foreign_tool_record(1, f"{AGENT}/:m1.0")
    numbers = [1, 2, 2, 3, 3, 4]
    assert gaps([dataclasses.replace(first, seq=seq) for seq in numbers]) == []
    assert gaps([dataclasses.replace(first, seq=seq) for seq in (0, 2, 5)]) == [1, 3, 4]
    assert gaps([]) == []


async def test_a_failed_step_inside_a_body_that_ended_well_is_handled() -> None:
    async def bad() -> object:
        raise ValueError("bad")

    async def script(calls: Calls, _: list[object]) -> object:
        async def body() -> object:
            try:
                await calls.call(Kind.STEP, "s", bad, path=f"{AGENT}/n#1", label="s")
            except ValueError:
                return "handled"
            return None

        await calls.node("n", body)
        raise ValueError("later")

    desk = Desk()
    execution = await desk.begin()
    queued = await desk.run(execution, Scripted(script))
    assert queued.voided == ()
    failed = [r for r in await desk.records(execution) if r.status is RecordStatus.FAILED]
    assert [r.name for r in failed] == ["s"]


async def test_a_node_that_was_tried_again_keeps_its_first_failure() -> None:
    async def bad() -> object:
        raise ValueError("bad")

    async def script(calls: Calls, _: list[object]) -> object:
        again = calls.attempt.execution.attempt > 1
        for entry in (1, 2):
            try:
                return await calls.call(
                    Kind.NODE, f"n{entry}", None if again else bad, path=f"{AGENT}/n#1", entry=entry
                )
            except ValueError as error:
                last = error
        raise last

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    failed = {r.name: r.slot for r in await desk.records(execution)}
    assert queued.voided == (failed["n2"],)
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered == ["n1", "n2", "n2"]
