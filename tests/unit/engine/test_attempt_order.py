"""The barrier, the order of the log, and what is served on a replay."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from durable_adk.errors import LeaseLost
from durable_adk.model import codec
from durable_adk.model.activity import Kind, Record
from durable_adk.model.execution import Status
from durable_adk.model.identity import RunId
from durable_adk.store.mongo import MongoStore
from durable_adk.testing.faults import FaultPlan
from tests.support.attempts import (
    AGENT,
    FAIL,
    Body,
    Calls,
    Desk,
    ProcessDied,
    Scripted,
    ask,
    foreign_tool_record,
)


class GatedStore(MongoStore):
    """Outcomes are stored when the test opens the gate."""

    gate: asyncio.Event | None = None
    sizes: list[int]
    in_a_hurry: list[bool]

    async def insert_outcomes(
        self, run: RunId, records: Sequence[Record], *, at_once: bool = False
    ) -> Record | None:
        self.in_a_hurry = [*getattr(self, "in_a_hurry", []), at_once]
        if self.gate is not None:
            await self.gate.wait()
        self.sizes = [*getattr(self, "sizes", []), len(records)]
        return await super().insert_outcomes(run, records, at_once=at_once)


async def turn_over() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_tool_starts_when_all_before_it_is_durable_and_a_model_may_start_earlier() -> None:
    desk = Desk()
    store = GatedStore(desk.client, database="d", clock=desk.clock)
    store.gate = asyncio.Event()

    async def script(calls: Calls, _: list[object]) -> object:
        await calls.tool("t1")
        async with asyncio.TaskGroup() as group:
            group.create_task(calls.tool("t2"))
            group.create_task(calls.model("m1"))
        return None

    program = Scripted(script)
    run = asyncio.ensure_future(desk.run(await desk.begin(), program, store=store))
    while "m1" not in program.ledger.entered:
        await asyncio.sleep(0)
    await turn_over()
    assert program.ledger.entered == ["t1", "m1"], "t2 waits for the record of t1"
    store.gate.set()
    assert (await run).status is Status.COMPLETED
    assert program.ledger.entered == ["t1", "m1", "t2"]


async def test_tool_outcomes_ride_along_with_the_next_model_outcome() -> None:
    desk = Desk()
    store = GatedStore(desk.client, database="d", clock=desk.clock)

    async def script(calls: Calls, _: list[object]) -> object:
        for turn in range(5):
            await calls.model("m", ordinal=turn + 1)
            await calls.tool(f"t{turn}")
        return None

    await desk.run(await desk.begin(), Scripted(script), store=store)
    assert store.sizes == [1, 2, 2, 2, 2, 1], "a tool costs no write of its own"


async def test_an_outcome_is_durable_before_the_caller_goes_on_where_that_is_promised() -> None:
    desk = Desk()
    execution = await desk.begin()
    seen: list[tuple[str, int]] = []

    async def script(calls: Calls, _: list[object]) -> object:
        for name, call in (
            ("model", calls.model("m")),
            ("fail", calls.tool("f", policy=FAIL)),
            ("durable", calls.tool("d", durable=True)),
        ):
            await call
            seen.append((name, len(await desk.records(execution))))
        return None

    await desk.run(execution, Scripted(script))
    assert seen == [("model", 1), ("fail", 2), ("durable", 3)]


async def test_the_outcome_of_a_body_that_must_not_run_twice_waits_for_no_other_attempt() -> None:
    desk = Desk()
    store = GatedStore(desk.client, database="d", clock=desk.clock)

    async def script(calls: Calls, _: list[object]) -> object:
        await calls.model("m")
        await calls.tool("f", policy=FAIL)
        await calls.tool("d", durable=True)
        return None

    await desk.run(await desk.begin(), Scripted(script), store=store)
    assert store.in_a_hurry == [False, True, False]


async def parallel(calls: Calls, _: list[object]) -> object:
    """Six branches of three calls each; where they meet depends on how fast each is."""

    async def branch(name: str) -> list[object]:
        return [
            await calls.model(f"m{name}", jitter(), path=f"{AGENT}/{name}#1"),
            await calls.tool(f"t{name}", jitter(), path=f"{AGENT}/{name}#1/:m1.0"),
            await calls.model(f"n{name}", jitter(), path=f"{AGENT}/{name}#1", ordinal=2),
        ]

    def jitter() -> Body:
        ticks = random.randrange(5)

        async def body() -> object:
            for _ in range(ticks):
                await asyncio.sleep(0)
            return ticks

        return body

    return str(await asyncio.gather(*(branch(name) for name in "abcdef")))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_outcomes_of_racing_branches_are_served_at_their_own_calls_in_log_order(
    seed: int, mode: str
) -> None:
    random.seed(seed)
    desk, program = Desk(mode=mode), Scripted(parallel)
    execution = await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail("before end", ProcessDied()))
    log = await desk.records(execution)
    assert [r.seq for r in log] == list(range(1, 19))

    random.seed(seed + 1000)
    ended = await desk.run(await desk.claim(execution), program)
    assert program.ledger.served == [r.name for r in log]
    assert len(program.ledger.ran) == 18, "nothing ran twice"
    value = {record.name: codec.decode(record.body or "") for record in log}
    expected = [[value[kind + name] for kind in "mtn"] for name in "abcdef"]
    assert codec.decode(ended.result or "")["output"] == str(expected)


async def test_walk_and_restore_hand_out_the_same_in_the_same_order() -> None:
    async def first(calls: Calls, _: list[object]) -> object:
        await parallel(calls, [])
        return [ask(1), ask(1, "other")]

    async def second(calls: Calls, answers: list[object]) -> object:
        random.seed(9)  # the walk draws for the first step too
        return f"{answers} {await parallel(calls, [])}"

    results, served = [], []
    for mode in ("restore", "walk"):
        random.seed(7)
        desk, program = Desk(mode=mode), Scripted(first, second)
        execution = await desk.begin()
        await desk.run(execution, program)
        await desk.answer(execution, 1, 2)
        with pytest.raises(ProcessDied):
            await desk.run(
                await desk.claim(execution),
                program,
                faults=FaultPlan().fail("before end", ProcessDied()),
            )
        program.ledger.served.clear()
        ended = await desk.run(await desk.claim(execution), program)
        results.append(ended.result)
        served.append(program.ledger.served[-18:])
        assert len(program.ledger.ran) == 36
    assert results[0] == results[1]
    assert served[0] == served[1]


async def test_what_a_recorded_body_recorded_inside_is_not_waited_for() -> None:
    async def script(calls: Calls, _: list[object]) -> object:
        async def body() -> object:
            await calls.call(Kind.STEP, "s", path=f"{AGENT}/n#1", label="s")
            return await calls.model("inner", path=f"{AGENT}/n#1/sub#1")

        await calls.node("n", body)
        result = await calls.model("after")
        assert not calls.attempt.unserved()
        return result

    desk, program = Desk(), Scripted(script)
    execution = await desk.begin()
    with pytest.raises(ProcessDied):
        await desk.run(execution, program, faults=FaultPlan().fail("before end", ProcessDied()))
    loop = asyncio.get_running_loop()
    started = loop.time()
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.served == ["n", "after"]
    assert loop.time() - started < 0.05, "no time is spent on waiting for the inner ones"


async def test_a_slot_that_another_owner_holds_ends_the_attempt() -> None:
    desk = Desk()
    execution = await desk.begin()

    async def script(calls: Calls, _: list[object]) -> object:
        async def steal() -> object:
            position = calls.attempt.step, f"{AGENT}/:t"
            await desk.store.insert_outcomes(execution.run, [foreign_tool_record(*position)])
            return "mine"

        try:
            await calls.tool("t", steal)
            await calls.tool("t2")
        except Exception:
            pass
        return "went on"

    program = Scripted(script)
    with pytest.raises(LeaseLost):
        await desk.run(execution, program)
    assert "t2" not in program.ledger.entered
    assert [r.body for r in await desk.records(execution)] == ['"theirs"']
    assert (await desk.read(execution)).status is Status.QUEUED, "given back at once"
    ended = await desk.run(await desk.claim(execution), program)
    assert ended.status is Status.COMPLETED
    assert program.ledger.served == ["t"]


async def test_events_of_the_stream_come_after_what_they_rest_on() -> None:
    desk = Desk()
    execution = await desk.begin()
    store = GatedStore(desk.client, database="d", clock=desk.clock)
    store.gate = asyncio.Event()
    seen: list[object] = []

    async def script(calls: Calls, _: list[object]) -> object:
        calls.attempt.emit("token", "partial")
        await calls.tool("t")
        calls.attempt.emit("event", "of t")
        calls.attempt.emit("token", "more")
        return None

    run = asyncio.ensure_future(
        desk.run(
            execution, Scripted(script), store=store, sink=lambda kind, data: seen.append(data)
        )
    )
    while "more" not in seen:
        await asyncio.sleep(0)
    await turn_over()
    assert seen == ["partial", "more"]
    store.gate.set()
    await run
    assert seen == ["partial", "more", "of t"]
