"""What ends an attempt, and what it means for the execution."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from durable_adk.errors import LeaseLost, NotStorable, ReplayMismatch, Unavailable
from durable_adk.model import codec
from durable_adk.model.activity import Kind, RecordStatus
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import new_nonce
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


@dataclass
class FakeGuard:
    allowed: bool
    on_refused: Callable[[], None]
    on_cancel: Callable[[str], None]
    dropped: bool = False

    def may_start(self) -> bool:
        return self.allowed


class FakeKeeper:
    """A keeper whose renewals are the test's."""

    def __init__(self, *, allowed: bool = True) -> None:
        self.allowed = allowed
        self.guards: list[FakeGuard] = []

    def hold(self, lease: Any, **callbacks: Any) -> FakeGuard:
        guard = FakeGuard(self.allowed, callbacks["on_refused"], callbacks["on_cancel"])
        self.guards.append(guard)
        return guard

    def drop(self, guard: FakeGuard) -> None:
        guard.dropped = True


async def running(desk: Desk, program: Scripted, **more: Any) -> tuple[Any, FakeGuard]:
    """A run that is inside a body."""
    keeper = FakeKeeper()
    run = asyncio.ensure_future(desk.run(more.pop("execution"), program, keeper=keeper, **more))
    while not program.ledger.entered:
        await asyncio.sleep(0)
    return run, keeper.guards[0]


async def forever() -> object:
    return await asyncio.Event().wait()


def stubborn(name: str) -> Callable[[Calls, list[object]], Awaitable[object]]:
    """A program that swallows whatever leaves its tool and goes on."""

    async def script(calls: Calls, _: list[object]) -> object:
        with contextlib.suppress(BaseException):  # the worst that user code can do
            await calls.tool(name, forever)
        await calls.tool("next")
        return "went on"

    return script


async def test_where_the_deadline_has_passed_no_body_is_entered() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        try:
            return await calls.model("m")
        except Exception:
            return "swallowed"

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    with pytest.raises(LeaseLost):
        await desk.run(execution, program, keeper=FakeKeeper(allowed=False))
    assert program.ledger.entered == []
    assert (await desk.read(execution)).status is Status.QUEUED, "it was still ours: given back"


async def test_an_intent_without_a_deadline_left_enters_no_body() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return await calls.tool("pay", policy=FAIL)

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    with pytest.raises(LeaseLost):
        await desk.run(execution, program, keeper=FakeKeeper(allowed=False))
    assert program.ledger.entered == []


async def test_a_refused_renewal_cancels_what_runs_and_commits_nothing() -> None:
    desk, program = Desk(), Scripted(stubborn("t"))
    execution = await desk.begin()
    run, guard = await running(desk, program, execution=execution)
    desk.clock.advance(2 * TTL_MS)
    rival = await desk.claim(execution)
    guard.on_refused()
    with pytest.raises(LeaseLost):
        await run
    assert program.ledger.cancelled == ["t"]
    assert program.ledger.entered == ["t"], "nothing new is started"
    assert (await desk.read(execution)).token == rival.token
    assert (await desk.read(execution)).status is Status.RUNNING


async def test_a_stale_owner_that_finishes_commits_nothing() -> None:
    opened = asyncio.Event()

    async def script(calls: Calls, _: list[object]) -> object:
        await calls.tool("t", opened.wait)
        return "from the stale one"

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    run, _ = await running(desk, program, execution=execution)
    await desk.claim(execution)
    opened.set()
    with pytest.raises(LeaseLost):
        await run
    now = await desk.read(execution)
    assert (now.status, now.result) == (Status.RUNNING, None)


async def test_a_cancellation_ends_the_execution_after_cancelling_what_runs() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m")
        return await stubborn("t")(calls, _)

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    keeper = FakeKeeper()
    run = asyncio.ensure_future(desk.run(execution, program, keeper=keeper))
    while "t" not in program.ledger.entered:
        await asyncio.sleep(0)
    keeper.guards[0].on_cancel("no longer wanted")
    ended = await run
    assert ended.status is Status.CANCELLED
    assert program.notes == [("no longer wanted", ["m"])]
    assert program.ledger.cancelled == ["t"]
    stored = await desk.read(execution)
    assert stored.status is Status.CANCELLED
    assert stored.error is not None and stored.error.message == "no longer wanted"


async def test_a_cancellation_asked_of_a_dead_owner_is_done_by_the_next() -> None:
    desk, program = Desk(), Scripted(stubborn("t"))
    execution = await desk.begin()
    await desk.store.request_cancel(execution.key, "stop it")
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.CANCELLED
    assert program.ledger.entered == []


async def test_closing_a_suspended_execution_keeps_the_step_that_was_shown() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m")
        return [ask(1)]

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    await desk.run(execution, program)
    claimed = await desk.store.claim_to_close(
        execution.key, closing=Status.FAILED, reason="given up", nonce=new_nonce(), ttl_ms=TTL_MS
    )
    assert claimed is not None
    ended = await desk.run(claimed, program)
    assert ended.status is Status.FAILED
    stored = await desk.read(execution)
    assert (stored.status, stored.frontier) == (Status.FAILED, None)
    steps = await desk.store.load_steps(stored)
    assert [len(step.records) for step in steps] == [1, 0]
    assert [step.state is not None for step in steps] == [False, True]
    assert program.restored == [1]
    assert program.notes == [("given up", [])]


@pytest.mark.parametrize("point", ["after continue", "before step", "after step", "before end"])
async def test_an_end_that_was_interrupted_is_finished_by_whoever_claims_it(point: str) -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return [ask(1)]

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    await desk.run(execution, program)
    claimed = await desk.store.claim_to_close(
        execution.key, closing=Status.CANCELLED, reason="enough", nonce=new_nonce(), ttl_ms=TTL_MS
    )
    assert claimed is not None
    with pytest.raises(ProcessDied):
        await desk.run(claimed, program, faults=FaultPlan().fail(point, ProcessDied()))
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.CANCELLED
    assert (await desk.read(execution)).status is Status.CANCELLED


async def test_a_cancelled_caller_gives_the_lease_back() -> None:
    desk, program = Desk(), Scripted(stubborn("t"))
    execution = await desk.begin()
    run, _ = await running(desk, program, execution=execution)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert program.ledger.cancelled == ["t"]
    assert (await desk.read(execution)).status is Status.QUEUED


async def test_a_cancelled_body_leaves_no_outcome_and_runs_again() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        async def explode() -> object:
            raise ValueError("first time")

        first = calls.attempt.execution.attempt == 1
        async with asyncio.TaskGroup() as group:
            slow = group.create_task(calls.tool("slow", forever if first else None))
            group.create_task(calls.tool("bad", explode if first else None))
        return slow.result()

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    assert queued.status is Status.QUEUED
    assert [(r.name, r.status) for r in await desk.records(execution)] == [
        ("bad", RecordStatus.FAILED)
    ]
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered.count("slow") == 2


async def test_a_cancelled_body_that_must_not_run_twice_is_in_doubt_at_once() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        try:
            async with asyncio.timeout(0.01):
                await calls.tool("pay", forever, policy=FAIL)
        except TimeoutError:
            pass
        return await calls.tool("after")

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    ended = await desk.run(execution, program)
    assert ended.status is Status.FAILED, "whoever swallows it: nothing else starts"
    assert ended.error is not None and ended.error.type == "OutcomeUnknown"
    found = await desk.store.load_records(execution.run, from_step=1)
    assert {(r.name, r.is_intent, r.status) for r in found} == {
        ("pay", True, None),
        ("pay", False, RecordStatus.IN_DOUBT),
    }
    (step,) = await desk.store.load_steps(await desk.read(execution))
    assert step.abandoned == ("1|agent#1/:pay|1|tool|1",)
    assert step.records == ()


async def test_asking_again_for_a_call_that_is_in_doubt_fails_the_execution() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        try:
            async with asyncio.timeout(0.01):
                await calls.tool("pay", forever, policy=FAIL)
        except TimeoutError:
            return await calls.tool("pay", policy=FAIL)
        return None

    desk, program = Desk(), Scripted(script)
    ended = await desk.run(await desk.begin(), program)
    assert ended.status is Status.FAILED
    assert ended.error is not None and ended.error.type == "OutcomeUnknown"
    assert program.ledger.entered == ["pay"]


async def test_an_intent_of_another_owner_decides_by_what_is_in_the_slot() -> None:
    desk = Desk()
    execution = await desk.begin()

    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m", rival)
        return await calls.tool("pay", policy=FAIL)

    async def rival() -> object:
        """Another owner enters the body and dies in it, after this one has loaded."""
        other = await desk.claim(execution)
        with pytest.raises(ProcessDied):
            await desk.run(
                other, Scripted(_pay_only), faults=FaultPlan().fail("in tool:pay", ProcessDied())
            )
        return "m"

    program = Scripted(script)
    with pytest.raises(LeaseLost):
        await desk.run(execution, program)
    assert "pay" not in program.ledger.entered
    ended = await desk.run(await desk.claim(execution), Scripted(_pay_only))
    assert ended.status is Status.FAILED


async def _pay_only(calls: Calls, _: list[object]) -> object:
    return await calls.tool("pay", policy=FAIL)


async def test_an_outcome_that_beats_the_verdict_is_used() -> None:
    desk = Desk()
    execution = await desk.begin()
    opened = asyncio.Event()

    async def slow(calls: Calls, _: list[object]) -> object:
        return await calls.tool("pay", opened.wait, policy=FAIL)

    stale = Scripted(slow)
    run, _ = await running(desk, stale, execution=execution)
    second = await desk.claim(execution)
    opened.set()
    with pytest.raises(LeaseLost):
        await run
    program = Scripted(_pay_only)
    ended = await desk.run(second, program)
    assert ended.status is Status.COMPLETED
    assert (program.ledger.served, program.ledger.entered) == (["pay"], [])


MISMATCHES: dict[str, Callable[[Calls], Awaitable[object]]] = {
    "another tool": lambda calls: calls.tool("other", path=f"{AGENT}/:t"),
    "other arguments": lambda calls: calls.tool("t", request="b" * 32),
}


@pytest.mark.parametrize("change", MISMATCHES)
@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_code_that_asks_for_something_else_is_stuck_and_goes_on_after_a_rollback(
    change: str, mode: str
) -> None:
    async def old(calls: Calls, _: list[object]) -> object:
        return await calls.tool("t", request="a" * 32)

    async def new(calls: Calls, _: list[object]) -> object:
        try:
            return await MISMATCHES[change](calls)
        except Exception:
            return "swallowed"

    desk, program = Desk(mode=mode), Scripted(old)
    execution = await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail("before end", ProcessDied()))
    stuck = await desk.run(await desk.claim(execution), Scripted(new))
    assert stuck.status is Status.STUCK
    assert stuck.error is not None
    assert stuck.error.type == "ReplayMismatch"
    assert stuck.error.position == "1|agent#1/:t|1|tool|1"
    assert "recorded t" in stuck.error.message and "asked" in stuck.error.message

    await desk.store.retry(execution.key)
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.ran == ["t"]


async def test_another_prompt_is_a_warning_unless_settings_refuse_it(caplog: Any) -> None:
    def asks(prompt: str) -> Scripted:
        async def script(calls: Calls, _: list[object]) -> object:
            return await calls.model("m", request=prompt)

        return Scripted(script)

    statuses = {}
    for setting in ("warn", "error"):
        desk = Desk(model_mismatch=setting)
        execution = await desk.begin()
        with pytest.raises(ProcessDied):
            await desk.run(
                execution, asks("a" * 32), faults=FaultPlan().fail("before end", ProcessDied())
            )
        statuses[setting] = (await desk.run(await desk.claim(execution), asks("b" * 32))).status
    assert statuses == {"warn": Status.COMPLETED, "error": Status.STUCK}
    assert "recorded model outcome is used for another input" in caplog.text


async def two_steps(desk: Desk, first: Any, second: Any = None) -> Execution:
    """An execution whose first step is committed and whose second was begun by a dead owner."""
    execution = await desk.begin()
    program = Scripted(first, second or _nothing)
    await desk.run(execution, program)
    await desk.answer(execution, "yes")
    with pytest.raises(ProcessDied):
        await desk.run(
            await desk.claim(execution),
            program,
            faults=FaultPlan().fail("before end", ProcessDied()),
        )
    return execution


async def _nothing(calls: Calls, answers: list[object]) -> object:
    return answers[0]


async def _asks(calls: Calls, _: list[object]) -> object:
    await calls.model("m")
    await calls.tool("t")
    return [ask(1)]


CHANGES: dict[str, Any] = {
    "a call is gone": lambda calls: calls.model("m"),
    "a call is new": lambda calls: _all(calls.model("m"), calls.tool("t"), calls.tool("new")),
    "another wait": None,
    "no wait": None,
}


async def _all(*calls: Awaitable[object]) -> None:
    for call in calls:
        await call


@pytest.mark.parametrize("change", CHANGES)
async def test_a_walk_notices_every_difference_in_a_committed_step(change: str) -> None:
    async def changed(calls: Calls, _: list[object]) -> object:
        if CHANGES[change] is None:
            await calls.model("m")
            await calls.tool("t")
            return [ask(1, "someone else")] if change == "another wait" else "the end"
        await CHANGES[change](calls)
        return [ask(1)]

    desk = Desk(mode="walk")
    execution = await two_steps(desk, _asks)
    stuck = await desk.run(await desk.claim(execution), Scripted(changed, _nothing))
    assert stuck.status is Status.STUCK
    assert stuck.error is not None and stuck.error.type == "ReplayMismatch"
    await desk.store.retry(execution.key)
    ended = await desk.run(await desk.claim(execution), Scripted(_asks, _nothing))
    assert ended.status is Status.COMPLETED


async def test_a_walk_never_runs_what_was_abandoned_and_waits_for_its_cancellation() -> None:
    async def first(calls: Calls, _: list[object]) -> object:
        abandoned = asyncio.ensure_future(calls.tool("slow", forever))
        if calls.attempt.execution.attempt == 1:
            while "slow" not in calls.ledger.entered:
                await asyncio.sleep(0)
        await calls.tool("quick")
        await asyncio.sleep(0)
        abandoned.cancel()
        await asyncio.wait({abandoned})
        return [ask(1)]

    async def uncancelled(calls: Calls, _: list[object]) -> object:
        leaked = asyncio.ensure_future(calls.tool("slow", forever))
        await asyncio.sleep(0)
        await calls.tool("quick")
        assert not leaked.done()
        return [ask(1)]

    desk = Desk(mode="walk")
    execution = await two_steps(desk, first)
    (step,) = await desk.store.load_steps(await desk.read(execution))
    assert step.abandoned == ("1|agent#1/:slow|1|tool|1",)

    stuck = await desk.run(await desk.claim(execution), Scripted(uncancelled, _nothing))
    assert stuck.status is Status.STUCK
    assert stuck.error is not None and "was cancelled" in stuck.error.message

    await desk.store.retry(execution.key)
    program = Scripted(first, _nothing)
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered == []


async def test_a_body_that_a_wait_interrupted_is_entered_again_by_a_walk() -> None:
    async def first(calls: Calls, _: list[object]) -> object:
        async def orchestrate() -> object:
            await calls.node("child")
            raise _Interrupted

        try:
            await calls.node("parent", orchestrate)
        except _Interrupted:
            return [ask(1, "parent#1/child")]
        return None

    desk = Desk(mode="walk")
    execution = await two_steps(desk, first)
    (step,) = await desk.store.load_steps(await desk.read(execution))
    assert step.abandoned == ()
    program = Scripted(first, _nothing)
    assert (await desk.run(await desk.claim(execution), program)).status is Status.COMPLETED
    assert program.ledger.entered == ["parent"]
    assert program.ledger.served == ["child"]


class _Interrupted(BaseException):
    """A wait below a body, as ADK raises it."""


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_missing_record_of_a_committed_step_is_refused(mode: str) -> None:
    desk = Desk(mode=mode)
    execution = await two_steps(desk, _asks)
    lost = (await desk.records(execution))[1]
    collection = desk.client["d"]["durable_activities"]
    await collection.delete_one({"_id": f"{execution.run}:{lost.slot}"})
    program = Scripted(_asks, _nothing)
    stuck = await desk.run(await desk.claim(execution), program)
    assert stuck.status is Status.STUCK
    assert stuck.error is not None and stuck.error.type == "CorruptHistory"
    assert lost.slot in stuck.error.message
    assert program.ledger.entered == []


async def test_a_late_record_that_no_commit_names_changes_nothing() -> None:
    desk = Desk(mode="walk")
    execution = await two_steps(desk, _asks)
    await desk.store.insert_outcomes(execution.run, [foreign_tool_record(1, f"{AGENT}/:late")])
    ended = await desk.run(await desk.claim(execution), Scripted(_asks, _nothing))
    assert ended.status is Status.COMPLETED


async def test_what_cannot_be_stored_fails_the_execution_at_once_and_is_never_tried_again() -> None:
    async def unstorable() -> object:
        raise NotStorable("t result.x", "a socket")

    async def script(calls: Calls, _: list[object]) -> object:
        return await calls.tool("t", unstorable)

    desk, program = Desk(), Scripted(script)
    ended = await desk.run(await desk.begin(), program)
    assert ended.status is Status.FAILED
    assert ended.error is not None
    assert (ended.error.type, ended.voided) == ("NotStorable", ())


async def test_a_handled_failure_is_not_voided_and_a_later_one_is() -> None:
    async def bad() -> object:
        raise ValueError("bad")

    async def script(calls: Calls, _: list[object]) -> object:
        with contextlib.suppress(ValueError):
            await calls.tool("t", bad, path=f"{AGENT}/:m1.0")
        await calls.model("m", path=AGENT, ordinal=2)
        again = calls.attempt.execution.attempt > 1
        return await calls.tool("u", None if again else bad, path=f"{AGENT}/:m2.0")

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    failed = {r.name: r for r in await desk.records(execution) if r.status is RecordStatus.FAILED}
    assert queued.voided == (failed["u"].slot,)
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered == ["t", "m", "u", "u"]


async def test_a_sibling_that_ended_later_does_not_keep_a_failure_alive() -> None:
    for kind in (Kind.TOOL, Kind.NODE):
        desk = Desk()
        execution = await desk.begin()

        async def script(calls: Calls, _: list[object], kind: Kind = kind) -> object:
            async def bad() -> object:
                if calls.attempt.execution.attempt == 1:
                    raise ValueError("first time")
                return "good"

            def place(name: str, index: int) -> str:
                return f"{AGENT}/:m1.{index}" if kind is Kind.TOOL else f"{AGENT}/{name}#1"

            found = await asyncio.gather(
                calls.call(kind, "a", bad, path=place("a", 0)),
                calls.call(kind, "b", path=place("b", 1)),
                return_exceptions=True,
            )
            for one in found:
                if isinstance(one, Exception):
                    raise one
            return "done"

        program = Scripted(script)
        assert (await desk.run(execution, program)).status is Status.QUEUED
        ended = await desk.run(await desk.claim(execution), program)
        assert ended.status is Status.COMPLETED, kind
        assert sorted(program.ledger.entered) == ["a", "a", "b"]


async def test_a_node_that_fails_beside_a_busy_branch_of_a_workflow_is_tried_again() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        async def bad() -> object:
            if calls.attempt.execution.attempt == 1:
                raise ValueError("first time")
            return "good"

        async def busy() -> None:
            for ordinal in range(1, 5):
                await calls.model("m", path=f"{AGENT}/b#1", ordinal=ordinal)
                await calls.tool("t", path=f"{AGENT}/b#1/:m{ordinal}.0")

        found = await asyncio.gather(calls.node("a", bad), busy(), return_exceptions=True)
        for one in found:
            if isinstance(one, Exception):
                raise one
        return "done"

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    (failed,) = [r for r in await desk.records(execution) if r.status is RecordStatus.FAILED]
    assert queued.voided == (failed.slot,)
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered.count("a") == 2


@pytest.mark.parametrize("inner", ["in#1", "flow#1/in#1"])
async def test_a_failure_that_the_body_around_it_caught_stays(inner: str) -> None:
    """Also after the body itself failed, and whether a workflow stands between them or not."""

    async def script(calls: Calls, _: list[object]) -> object:
        async def bad() -> object:
            raise ValueError("caught")

        async def body() -> object:
            with contextlib.suppress(ValueError):
                await calls.call(Kind.NODE, "inner", bad, path=f"{AGENT}/n#1/{inner}")
            await calls.call(Kind.NODE, "instead", path=f"{AGENT}/n#1/instead#1")
            if calls.attempt.execution.attempt == 1:
                raise RuntimeError("transient")
            return "done"

        return await calls.node("n", body)

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    slots = {record.name: record.slot for record in await desk.records(execution)}
    assert queued.voided == (slots["n"],)
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered == ["n", "inner", "instead", "n"]


async def test_a_failure_inside_a_body_that_was_cancelled_stays_if_it_went_on() -> None:
    """The body has no outcome: it was entered in this attempt, and that is enough."""

    async def script(calls: Calls, _: list[object]) -> object:
        again = calls.attempt.execution.attempt > 1

        async def bad() -> object:
            raise ValueError("caught")

        async def body() -> object:
            with contextlib.suppress(ValueError):
                await calls.call(Kind.NODE, "inner", bad, path=f"{AGENT}/n#1/inner#1")
            await calls.call(Kind.NODE, "instead", path=f"{AGENT}/n#1/instead#1")
            return "done" if again else await forever()

        async def fail_later() -> object:
            while "instead" not in program.ledger.ran:
                await asyncio.sleep(0)
            raise RuntimeError("transient")

        async with asyncio.TaskGroup() as group:
            found = group.create_task(calls.node("n", body))
            group.create_task(calls.tool("late", None if again else fail_later))
        return found.result()

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    slots = {record.name: record.slot for record in await desk.records(execution)}
    assert queued.voided == (slots["late"],)
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered.count("inner") == 1


async def test_the_failure_of_a_body_that_must_not_run_twice_stays_for_good() -> None:
    async def bad() -> object:
        raise ValueError("declined")

    async def script(calls: Calls, _: list[object]) -> object:
        return await calls.tool("pay", bad, policy=FAIL)

    desk, program = Desk(max_attempts=3), Scripted(script)
    execution = await desk.begin()
    now = await desk.run(execution, program)
    while now.status is Status.QUEUED:
        now = await desk.run(await desk.claim(execution), program)
    assert (now.status, now.voided) == (Status.FAILED, ())
    assert program.ledger.entered == ["pay"]


async def test_a_database_that_is_away_ends_the_attempt_and_counts_as_no_failure() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        try:
            await calls.model("m")
        except Exception:
            return "a callback took it for the model's error"
        return "done"

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    plan = FaultPlan().fail("before outcomes", Unavailable("no primary"))
    queued = await desk.run(execution, program, faults=plan)
    assert (queued.status, queued.failures) == (Status.QUEUED, 0)
    assert queued.error is not None and queued.error.type == "Unavailable"
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert '"output":"done"' in (ended.result or "")


async def test_a_commit_that_fails_is_made_by_the_next_attempt() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return await calls.model("m")

    desk, program = Desk(max_attempts=1), Scripted(script)
    execution = await desk.begin()
    plan = FaultPlan().fail("before end", ValueError("a bug at the commit"))
    queued = await desk.run(execution, program, faults=plan)
    assert queued.status is Status.QUEUED
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered == ["m"]


async def test_a_task_that_outlives_its_attempt_gets_an_error_and_enters_nothing() -> None:
    late: list[asyncio.Task[object]] = []
    opened = asyncio.Event()

    async def script(calls: Calls, _: list[object]) -> object:
        async def leaked() -> object:
            await opened.wait()
            return await calls.tool("late")

        late.append(asyncio.ensure_future(leaked()))
        return "done"

    desk, program = Desk(), Scripted(script)
    assert (await desk.run(await desk.begin(), program)).status is Status.COMPLETED
    opened.set()
    with pytest.raises(LeaseLost):
        await late[0]
    assert program.ledger.entered == []


async def test_halt_cannot_be_swallowed() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        for _unused in range(3):
            with contextlib.suppress(BaseException):
                await calls.attempt.halt(ReplayMismatch("p", recorded="a", asked="b"))
            with contextlib.suppress(BaseException):
                await calls.tool("t")
        return "went on"

    desk, program = Desk(), Scripted(script)
    stuck = await desk.run(await desk.begin(), program)
    assert stuck.status is Status.STUCK
    assert program.ledger.entered == []


# ---------------------------------------------------------------- shared state


async def test_a_step_sees_shared_state_as_it_was_at_its_start_on_every_attempt() -> None:
    seen: list[dict[str, object]] = []

    async def script(calls: Calls, _: list[object]) -> object:
        seen.append(calls.shared)
        await calls.model("m")
        return "done"

    async def writer(calls: Calls, _: list[object]) -> object:
        return "wrote"

    desk = Desk()
    first = Scripted(writer)
    first.scopes = {"user:a": 1, "app:b": [2]}
    done = await desk.run(await desk.begin(session="one"), first)
    assert not done.scopes_due

    execution, program = await desk.begin(session="two"), Scripted(script)
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail("before end", ProcessDied()))
    log = await desk.records(execution)
    assert [(r.name, r.seq) for r in log] == [("shared", 1), ("m", 2)]

    first.scopes = {"user:a": 99}
    await desk.run(await desk.begin(session="three"), first)
    await desk.run(await desk.claim(execution), program)
    assert seen == [{"user:a": 1, "app:b": [2]}] * 2
    assert [r.name for r in await desk.records(execution)] == ["shared", "m"]


async def test_stamps_of_shared_state_grow_whatever_the_local_clock_says() -> None:
    async def writer(calls: Calls, _: list[object]) -> object:
        return "wrote"

    desk = Desk()
    values = {}
    for value in (1, 2, 3):
        program = Scripted(writer)
        program.scopes = {"app:n": value}
        execution = await desk.begin(session=f"s{value}")
        await desk.run(execution, program)
        scopes, stamp = await desk.store.load_scopes(desk.tenant, "u")
        values[stamp] = codec.decode(scopes["app:n"])
    assert list(values.values()) == [1, 2, 3]
    assert sorted(values) == list(values), "the manual clock stood still"


async def test_shared_state_that_could_not_be_applied_is_left_as_due() -> None:
    async def writer(calls: Calls, _: list[object]) -> object:
        return "wrote"

    desk, program = Desk(), Scripted(writer)
    program.scopes = {"app:n": 1}
    plan = FaultPlan().fail("before scopes", Unavailable("no primary"))
    ended = await desk.run(await desk.begin(), program, faults=plan)
    assert (ended.status, ended.scopes_due) == (Status.COMPLETED, True)
