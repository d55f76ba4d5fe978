"""Calls in doubt: decided before the program starts, asked in the open step, settled by answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from durable_adk.engine.answers import problem_with
from durable_adk.engine.reads import activities_of
from durable_adk.errors import LeaseLost
from durable_adk.model import codec
from durable_adk.model.activity import Kind, Record, RecordStatus, UnknownOutcome
from durable_adk.model.doubt import Doubt, doubted, intent_body, wait_position
from durable_adk.model.execution import Execution, Status
from durable_adk.model.position import Position
from durable_adk.model.wait import Frontier, WaitKind
from durable_adk.testing.faults import FaultPlan
from tests.support.attempts import AGENT, Calls, Desk, ProcessDied, Scripted, ask

ASK, FAIL = UnknownOutcome.ASK, UnknownOutcome.FAIL
ARGS = {"amount": 1}
DONE = {"outcome": "done", "result": "told"}
NOT_DONE = {"outcome": "not_done"}
TOLD = {"result": "told"}
"""As a tool's record has it; these scripts hand out the record."""


async def pay(calls: Calls, name: str = "pay", policy: UnknownOutcome = ASK, **more: Any) -> Any:
    more.setdefault("intent", intent_body(policy, ARGS, ""))
    return await calls.tool(name, policy=policy, **more)


async def pays(calls: Calls, _: list[object]) -> object:
    await calls.model("m")
    paid = await pay(calls)
    return {"paid": paid, "then": await calls.model("after")}


async def forever() -> object:
    return await asyncio.Event().wait()


def soon(calls: Calls) -> asyncio.Timeout:
    """A time limit that passes in the first attempt only."""
    return asyncio.timeout(0.01 if calls.attempt.execution.attempt == 1 else None)


class Told(Scripted):
    """With a ``reconcile`` callback."""

    def __init__(self, *steps: Any, answer: Callable[[Doubt], Any]) -> None:
        super().__init__(*steps)
        self.asked: list[Doubt] = []
        self._answer = answer

    def reconciler(self, intent: Record) -> Any:
        def reconcile(doubt: Doubt) -> Any:
            self.asked.append(doubt)
            return self._answer(doubt)

        return reconcile


async def killed(
    desk: Desk,
    program: Scripted,
    point: str = "ran tool:pay",
    *,
    execution: Execution | None = None,
) -> Execution:
    """An execution whose owner died there."""
    execution = execution or await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail(point, ProcessDied()))
    return execution


async def again(desk: Desk, execution: Execution, program: Scripted, **more: Any) -> Execution:
    return await desk.run(await desk.claim(execution), program, **more)


def frontier_of(execution: Execution) -> Frontier:
    assert execution.status is Status.SUSPENDED
    assert execution.frontier is not None
    return execution.frontier


# ---------------------------------------------------------------------- ask


async def test_a_doubt_is_asked_about_in_the_open_step_and_nothing_runs() -> None:
    desk, program = Desk(), Scripted(pays)
    execution = await killed(desk, program)
    asked = await again(desk, execution, program)
    frontier = frontier_of(asked)
    assert await desk.read(execution) == asked, "what is returned is what is stored"
    assert (frontier.step, asked.step, asked.last_step) == (1, 1, None)
    assert await desk.store.load_steps(asked) == ()
    (wait,) = frontier.waits
    assert (wait.kind, wait.operation_path) == (WaitKind.IN_DOUBT, f"{AGENT}/:pay")
    content = codec.decode(wait.content)
    assert content["tool_call"] == {"id": "", "name": "pay", "args": ARGS}
    assert content["payload"]["attempt"] == 1
    assert content["payload"]["activity_id"].startswith("e1~")
    assert content["payload"]["lease_ended_at"] is not None
    for part in ('pay({"amount": 1})', "Attempt 1", "may still be running", "e1~"):
        assert part in content["message"]
    assert len(program.attempts) == 1, "decided before the program starts"


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_done_is_the_outcome_in_this_step_and_in_later_ones(mode: str) -> None:
    async def first(calls: Calls, given: list[object]) -> object:
        assert (await pays(calls, given)) == {"paid": TOLD, "then": "after"}
        return [ask(1)]

    async def second(calls: Calls, given: list[object]) -> object:
        assert given == ["yes"]
        return await calls.tool("last")

    desk, program = Desk(mode=mode), Scripted(first, second)
    execution = await killed(desk, program)
    await again(desk, execution, program)
    await desk.answer(execution, DONE)
    suspended = await again(desk, execution, program)
    frontier = frontier_of(suspended)
    assert [wait.kind for wait in frontier.waits] == [WaitKind.INPUT]
    await desk.answer(execution, "yes")
    await killed(desk, program, "in tool:last", execution=await desk.claim(execution))
    ended = await again(desk, execution, program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered.count("pay") == 1
    first_step, _ = await desk.store.load_steps(ended)
    (outcome,) = [r for r in await desk.records(execution) if r.name == "pay"]
    assert outcome.slot in first_step.records
    assert (outcome.attempt_try, outcome.status) == (2, RecordStatus.COMPLETED)
    doubt, plain = await desk.store.load_waits(ended.run, step=1)
    assert (doubt.wait.kind, plain.wait.kind) == (WaitKind.IN_DOUBT, WaitKind.INPUT)


async def test_not_done_opens_the_next_try_under_the_same_activity() -> None:
    keys: list[str] = []

    async def script(calls: Calls, _: list[object]) -> object:
        position = Position(1, f"{AGENT}/:pay", 1, Kind.TOOL, 1)

        async def body() -> object:
            keys.append(calls.attempt.activity_id(position))
            return "paid"

        return await pay(calls, body=body)

    desk, program = Desk(), Scripted(script)
    execution = await killed(desk, program)
    seen = set()
    for round_of_it in (1, 2):
        frontier = frontier_of(await again(desk, execution, program))
        seen |= {frontier.id, frontier.waits[0].digest}
        about = doubted(Position.parse(frontier.waits[0].position))
        assert about == (Position(1, f"{AGENT}/:pay", 1, Kind.TOOL, 1), round_of_it)
        await desk.answer(execution, NOT_DONE)
        shown = [
            info.status for info in await activities_of(desk.store, await desk.read(execution))
        ]
        assert shown == ["in_doubt"] + ["completed"] * round_of_it
        if round_of_it == 1:
            await killed(desk, program, execution=await desk.claim(execution))
            infos = await activities_of(desk.store, await desk.read(execution))
            assert [info.kind for info in infos] == ["tool", "wait"]
    assert len(seen) == 4, "each doubt and each frontier has an id of its own"
    ended = await again(desk, execution, program)
    assert ended.status is Status.COMPLETED
    assert keys == [keys[0]] * 3
    (outcome,) = await desk.records(execution)
    assert outcome.attempt_try == 3


async def test_doubts_at_once_are_one_frontier() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return {"paid": await asyncio.gather(*(pay(calls, f"pay{n}") for n in (1, 2, 3)))}

    desk, program = Desk(), Scripted(script)
    execution = await killed(desk, program, "ran tool:pay3")
    left = len(await desk.records(execution))
    frontier = frontier_of(await again(desk, execution, program))
    assert len(frontier.waits) == 3 - left
    told = [{"outcome": "done", "result": n} for n in range(3 - left)]
    await desk.answer(execution, *told)
    ended = await again(desk, execution, program)
    assert ended.status is Status.COMPLETED
    assert len(program.ledger.entered) == 3


async def test_a_fail_doubt_beside_an_ask_doubt_ends_it() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return await asyncio.gather(pay(calls), pay(calls, "charge", FAIL, intent=None))

    desk, program = Desk(), Scripted(script)

    async def both(calls: Calls, _: list[object]) -> object:
        async with asyncio.TaskGroup() as group:
            group.create_task(pay(calls, body=forever))
            await asyncio.sleep(0)
            group.create_task(pay(calls, "charge", FAIL, intent=None, body=forever))
        return None

    dying = Scripted(both, ledger=program.ledger)
    execution = await killed(desk, dying, "in tool:charge")
    ended = await again(desk, execution, program)
    assert ended.status is Status.FAILED
    assert ended.error is not None and ended.error.type == "OutcomeUnknown"
    assert "charge" in ended.error.message


async def test_an_outcome_that_beats_the_verdict_is_used_and_nobody_is_asked() -> None:
    desk, program = Desk(), Scripted(pays)
    execution = await killed(desk, program, "in tool:pay")
    (intent,) = [r for r in await desk.store.load_records(execution.run, from_step=1) if not r.seq]
    late = Record(
        step=1,
        digest=intent.digest,
        position=intent.position,
        token=execution.token,
        seq=2,
        nonce=intent.nonce,
        status=RecordStatus.COMPLETED,
        name="pay",
        body='"late"',
    )
    assert await desk.store.insert_outcomes(execution.run, [late]) is None
    ended = await again(desk, execution, program)
    assert ended.status is Status.COMPLETED
    assert (program.ledger.entered, program.ledger.served) == (["m", "after"], ["m", "pay"])


async def test_a_crash_between_the_answer_and_its_outcome_changes_nothing() -> None:
    for point, nth in (("after waits", 1), ("after continue", 1), ("before outcomes", 1)):
        desk, program = Desk(), Scripted(pays)
        execution = await killed(desk, program)
        await again(desk, execution, program)
        await desk.answer(execution, DONE)
        with pytest.raises(ProcessDied):
            await again(
                desk,
                execution,
                program,
                faults=FaultPlan().fail(point, ProcessDied(), at=nth),
            )
        ended = await again(desk, execution, program)
        assert ended.status is Status.COMPLETED, point
        assert codec.decode(ended.result or "")["output"] == {"paid": TOLD, "then": "after"}
        assert program.ledger.entered.count("pay") == 1


@pytest.mark.parametrize("point", ["after verdict", "before doubts", "after doubts"])
async def test_a_crash_while_it_asks_changes_nothing(point: str) -> None:
    desk, program = Desk(), Scripted(pays)
    execution = await killed(desk, program)
    with pytest.raises(ProcessDied):
        await again(desk, execution, program, faults=FaultPlan().fail(point, ProcessDied()))
    if point == "after doubts":
        assert frontier_of(await desk.read(execution)).open == 1
    else:
        assert frontier_of(await again(desk, execution, program)).open == 1
    await desk.answer(execution, DONE)
    assert (await again(desk, execution, program)).status is Status.COMPLETED
    assert program.ledger.entered.count("pay") == 1


async def test_a_stale_owner_asks_nobody() -> None:
    desk, program = Desk(), Scripted(pays)
    execution = await killed(desk, program)
    stale = await desk.claim(execution)
    living = await desk.claim(execution)
    asked = await desk.run(living, program)
    with pytest.raises(LeaseLost):
        await desk.run(stale, program)
    assert await desk.read(execution) == asked


# ---------------------------------------------------------------------- cancelled bodies


async def test_a_body_that_runs_out_of_time_is_asked_about_although_the_program_goes_on() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        try:
            async with soon(calls):
                return await pay(calls, body=forever)
        except TimeoutError:
            return await calls.tool("instead")

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    asked = await desk.run(execution, program)
    (wait,) = frontier_of(asked).waits
    assert codec.decode(wait.content)["payload"]["lease_ended_at"] is None
    assert program.ledger.entered == ["pay"]
    await desk.answer(execution, DONE)
    ended = await again(desk, execution, program)
    assert (ended.status, program.ledger.entered) == (Status.COMPLETED, ["pay"])


async def test_a_run_that_ends_over_a_cancelled_body_does_not_commit() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        try:
            async with soon(calls):
                return await pay(calls, body=forever)
        except TimeoutError:
            return "never mind"

    desk = Desk()
    asked = await desk.run(await desk.begin(), Scripted(script))
    assert frontier_of(asked).open == 1


async def test_a_sibling_that_raises_ends_the_attempt_and_the_next_one_asks() -> None:
    async def explode() -> object:
        raise ValueError("first time")

    async def script(calls: Calls, _: list[object]) -> object:
        first = calls.attempt.execution.attempt == 1
        async with asyncio.TaskGroup() as group:
            paid = group.create_task(pay(calls, body=forever))
            group.create_task(calls.tool("bad", explode if first else None))
        return paid.result()

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    assert (queued.status, queued.failures) == (Status.QUEUED, 1)
    assert frontier_of(await again(desk, execution, program)).open == 1
    await desk.answer(execution, DONE)
    ended = await again(desk, execution, program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered == ["pay", "bad", "bad"]


# ---------------------------------------------------------------------- reconcile


@pytest.mark.parametrize("policy", [ASK, FAIL])
async def test_a_callback_that_knows_is_asked_once_and_nobody_else(policy: UnknownOutcome) -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return await pay(calls, policy=policy)

    desk, program = Desk(), Told(script, answer=lambda doubt: DONE)
    execution = await killed(desk, program)
    lease_end = (await desk.read(execution)).wake_at
    with pytest.raises(ProcessDied):
        await again(
            desk, execution, program, faults=FaultPlan().fail("before continue", ProcessDied())
        )
    ended = await again(desk, execution, program)
    assert ended.status is Status.COMPLETED
    (doubt,) = program.asked
    assert (doubt.name, doubt.kind, doubt.args, doubt.attempt) == ("pay", "tool", ARGS, 1)
    assert doubt.lease_ended_at is not None
    assert doubt.lease_ended_at.timestamp() == lease_end / 1000
    (one,) = await desk.store.load_waits(ended.run, step=1)
    assert (one.answer.by, codec.decode(one.answer.value)) == ("reconcile", DONE)
    assert program.ledger.entered == ["pay"]


async def test_a_callback_that_says_not_done_lets_it_run_again() -> None:
    async def look(_doubt: Doubt) -> object:
        return NOT_DONE

    desk, program = Desk(), Told(pays, answer=look)
    execution = await killed(desk, program)
    ended = await again(desk, execution, program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.entered.count("pay") == 2


@pytest.mark.parametrize(("policy", "status"), [(ASK, Status.SUSPENDED), (FAIL, Status.FAILED)])
async def test_where_the_callback_does_not_know_the_policy_applies(
    policy: UnknownOutcome, status: Status
) -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return await pay(calls, policy=policy)

    desk, program = Desk(), Told(script, answer=lambda doubt: None)
    execution = await killed(desk, program)
    assert (await again(desk, execution, program)).status is status


async def test_what_the_callback_knows_is_part_of_the_frontier_of_what_it_does_not() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        return {"paid": await asyncio.gather(pay(calls), pay(calls, "charge"))}

    async def dies(calls: Calls, _: list[object]) -> object:
        return await asyncio.gather(pay(calls, body=forever), pay(calls, "charge", body=forever))

    desk = Desk()
    program = Told(script, answer=lambda doubt: DONE if doubt.name == "pay" else None)
    execution = await killed(desk, Scripted(dies, ledger=program.ledger), "in tool:charge")
    frontier = frontier_of(await again(desk, execution, program))
    assert frontier.open == 1
    (place,) = (p for p in range(2) if p not in frontier.answers)
    assert "charge" in frontier.waits[place].position
    text = codec.encode(NOT_DONE)
    answer = next(iter(frontier.answers.values()))
    given = type(answer)(value=text, digest=codec.digest(text), by="p", at=1)
    assert await desk.store.put_answers(execution.key, frontier, {place: given})
    ended = await again(desk, execution, program)
    assert codec.decode(ended.result or "")["output"] == {"paid": [TOLD, "charge"]}


@pytest.mark.parametrize(
    "answer",
    [
        {"outcome": "perhaps"},
        {"outcome": "done"},
        {"outcome": "done", "result": object()},
        "done",
        ValueError("no network"),
    ],
    ids=str,
)
async def test_an_error_in_the_callback_is_counted_and_tried_again(answer: Any) -> None:
    left = [answer, answer]

    def look(_doubt: Doubt) -> object:
        found = left.pop() if left else DONE
        if isinstance(found, Exception):
            raise found
        return found

    desk, program = Desk(), Told(pays, answer=look)
    execution = await killed(desk, program)
    for failures in (1, 2):
        queued = await again(desk, execution, program)
        assert (queued.status, queued.failures) == (Status.QUEUED, failures)
    assert (await again(desk, execution, program)).status is Status.COMPLETED


class Panic(BaseException):
    """As an extension raises one."""


async def cut_off(_doubt: Doubt) -> object:
    inner = asyncio.ensure_future(forever())
    await asyncio.sleep(0)
    inner.cancel()
    return await inner


def leaves(error: type[BaseException], *args: object) -> Callable[[Doubt], Any]:
    def look(_doubt: Doubt) -> object:
        raise error(*args)

    return look


def leaves_later(error: type[BaseException], *args: object) -> Callable[[Doubt], Any]:
    async def look(_doubt: Doubt) -> object:
        await asyncio.sleep(0)
        raise error(*args)

    return look


NO_EXCEPTION: dict[str, tuple[Callable[[Doubt], Any], tuple[str, str]]] = {
    "exits": (leaves(SystemExit, 3), ("SystemExit", "3")),
    "exits later": (leaves_later(SystemExit, 3), ("SystemExit", "3")),
    "panics": (leaves(Panic, "oh"), ("Panic", "oh")),
    "panics later": (leaves_later(Panic, "oh"), ("Panic", "oh")),
    "cut off": (cut_off, ("RunCancelled", "reconcile of pay was cancelled from inside")),
    "cancelled": (
        leaves(asyncio.CancelledError),
        ("RunCancelled", "reconcile of pay was cancelled from inside"),
    ),
}


@pytest.mark.parametrize("what", NO_EXCEPTION)
async def test_what_leaves_a_callback_and_is_no_exception_is_a_failed_attempt(what: str) -> None:
    look, told = NO_EXCEPTION[what]
    desk, program = Desk(max_attempts=2), Told(pays, answer=look)
    execution = await killed(desk, program)
    queued = await again(desk, execution, program)
    assert (queued.status, queued.failures) == (Status.QUEUED, 1)
    assert queued.error is not None
    assert (queued.error.type, queued.error.message) == told
    assert queued.wake_at > desk.clock.estimate(), "backed off"
    ended = await again(desk, execution, program)
    assert frontier_of(ended).is_in_doubt, "in the last attempt: it does not know"


async def test_a_process_that_lets_go_cancels_the_callback_and_gives_the_lease_back() -> None:
    asking, ended = asyncio.Event(), asyncio.Event()

    async def look(_doubt: Doubt) -> object:
        asking.set()
        try:
            return await forever()
        finally:
            ended.set()

    desk, program = Desk(), Told(pays, answer=look)
    execution = await killed(desk, program)
    running = asyncio.ensure_future(again(desk, execution, program))
    await asking.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()
    given_back = await desk.read(execution)
    assert (given_back.claim, given_back.failures, given_back.error) == (None, 0, None)


async def test_a_callback_that_fails_in_the_last_attempt_does_not_know() -> None:
    def look(_doubt: Doubt) -> object:
        raise ValueError("no network")

    desk, program = Desk(max_attempts=2), Told(pays, answer=look)
    execution = await killed(desk, program)
    await again(desk, execution, program)
    ended = await again(desk, execution, program)
    assert ended.status is Status.SUSPENDED
    assert ended.frontier is not None and ended.frontier.is_in_doubt


async def test_a_callback_is_asked_about_a_cancelled_body_too_and_the_next_attempt_goes_on() -> (
    None
):
    async def script(calls: Calls, _: list[object]) -> object:
        first = calls.attempt.execution.attempt == 1
        try:
            async with soon(calls):
                return await pay(calls, body=forever if first else None)
        except TimeoutError:
            return None

    desk, program = Desk(), Told(script, answer=lambda doubt: NOT_DONE)
    execution = await desk.begin()
    queued = await desk.run(execution, program)
    assert (queued.status, queued.failures) == (Status.QUEUED, 1)
    assert queued.error is not None and "left no result" in queued.error.message
    assert [doubt.lease_ended_at for doubt in program.asked] == [None]
    ended = await again(desk, execution, program)
    assert codec.decode(ended.result or "")["output"] == "pay"
    assert len(program.asked) == 1


async def test_no_callback_is_asked_without_the_lease() -> None:
    desk, program = Desk(), Told(pays, answer=lambda doubt: DONE)
    execution = await killed(desk, program)
    late = await desk.claim(execution)
    with pytest.raises(LeaseLost):
        await desk.run(late, program, keeper=_Held(in_time=False))
    assert program.asked == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("why", ["cancel", "refused"])
async def test_a_callback_that_hangs_ends_with_its_attempt(why: str) -> None:
    keeper = _Held()

    async def look(_doubt: Doubt) -> object:
        if why == "cancel":
            keeper.callbacks["on_cancel"]("no more")
        else:
            keeper.callbacks["on_refused"]()
        return await forever()

    desk, program = Desk(), Told(pays, answer=look)
    execution = await killed(desk, program)
    going_on = desk.run(await desk.claim(execution), program, keeper=keeper)
    if why == "refused":
        with pytest.raises(LeaseLost):
            await going_on
    else:
        assert (await going_on).status is Status.CANCELLED


class _Held:
    """A keeper of one lease, and what it would report."""

    def __init__(self, *, in_time: bool = True) -> None:
        self.callbacks: dict[str, Any] = {}
        self._in_time = in_time

    def hold(self, lease: Any, **callbacks: Any) -> Any:
        self.callbacks = callbacks
        return self

    def drop(self, guard: Any) -> None:
        pass

    def may_start(self) -> bool:
        return self._in_time


# ---------------------------------------------------------------------- answers


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "got NoneType"),
        ("done", "got str"),
        ({}, "outcome is missing"),
        ({"outcome": "yes"}, "outcome is 'yes'"),
        ({"outcome": True}, "outcome is True"),
        ({"outcome": ["done"]}, "outcome is"),
        ({"outcome": "done"}, "result is missing"),
        ({"outcome": "not_done", "result": 1}, "has no result"),
        ({"outcome": "done", "result": 1, "by": "me"}, "unknown: by"),
        (DONE, None),
        ({"outcome": "done", "result": None}, None),
        (NOT_DONE, None),
    ],
    ids=str,
)
async def test_what_an_in_doubt_wait_accepts(value: object, problem: str | None) -> None:
    desk, program = Desk(), Scripted(pays)
    execution = await killed(desk, program)
    (wait,) = frontier_of(await again(desk, execution, program)).waits
    found = problem_with(wait, value)
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize("label", ["", "a", "a.b", "x|y#1", "in_doubt.tool.1."])
def test_the_wait_of_a_doubt_names_the_call(label: str) -> None:
    position = Position(3, f"{AGENT}/a#1", 2, Kind.STEP, 4, label)
    wait = Position.parse(wait_position(position, 5).text)
    assert doubted(wait) == (position, 5)
    assert doubted(Position(1, AGENT, 1, Kind.WAIT, 1)) is None
