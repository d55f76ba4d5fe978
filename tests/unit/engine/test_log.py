"""The ordered log: what becomes durable when, and what happens when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from durable_adk.engine.log import COMPANY_S, OutcomeLog
from durable_adk.engine.ports import Store
from durable_adk.errors import LeaseLost, Unavailable
from durable_adk.model.activity import Record, RecordStatus
from durable_adk.model.identity import FencingToken, RunId, new_nonce


class SlowStore:
    """Inserts that end when the test says so."""

    def __init__(self) -> None:
        self.inserts: list[list[int]] = []
        self.at_once: list[bool] = []
        self.stored: list[int] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self._gates: list[asyncio.Future[Record | None]] = []

    async def insert_outcomes(
        self, run: str, records: Sequence[Record], *, at_once: bool = False
    ) -> Record | None:
        self.at_once.append(at_once)
        self.inserts.append([record.seq for record in records])
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        gate: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        try:
            lost = await gate
        finally:
            self.in_flight -= 1
        if lost is None:
            self.stored += [record.seq for record in records]
        return lost

    async def finish(self, result: Record | BaseException | None = None) -> None:
        """End the insert that is in flight, and let everybody see it."""
        gate = self._gates.pop(0)
        if isinstance(result, BaseException):
            gate.set_exception(result)
        else:
            gate.set_result(result)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def outcome(seq: int) -> Record:
    return Record(
        step=1,
        digest=f"{seq:020x}",
        position=f"1|agent#1|1|tool|{seq}",
        token=FencingToken(1),
        seq=seq,
        nonce=new_nonce(),
        status=RecordStatus.COMPLETED,
        body="null",
    )


def new_log(store: SlowStore, broken: list[BaseException], sink: Any = None) -> OutcomeLog:
    return OutcomeLog(cast(Store, store), RunId("r"), on_broken=broken.append, sink=sink)


async def test_one_insert_is_in_flight_and_what_arrives_meanwhile_goes_with_the_next() -> None:
    store = SlowStore()
    log = new_log(store, [])
    log.append(outcome(1))
    first = asyncio.ensure_future(log.durable())
    await settle()
    for seq in (2, 3, 4):
        log.append(outcome(seq))
    rest = asyncio.ensure_future(log.durable())
    await settle()
    assert store.inserts == [[1]]
    await store.finish()
    assert first.done() and not rest.done()
    assert store.inserts == [[1], [2, 3, 4]]
    await store.finish()
    assert rest.done()
    assert store.most_in_flight == 1


async def test_an_outcome_that_nobody_waits_for_waits_for_company_but_not_long() -> None:
    store = SlowStore()
    log = new_log(store, [])
    log.append(outcome(1))
    await settle()
    assert store.inserts == []
    log.append(outcome(2))
    await asyncio.sleep(COMPANY_S * 3)  # the real loop clock is what is under test
    assert store.inserts == [[1, 2]]


async def test_whoever_waits_makes_everything_before_go_at_once() -> None:
    store = SlowStore()
    log = new_log(store, [])
    log.append(outcome(1))
    log.append(outcome(2))
    waiting = asyncio.ensure_future(log.durable())
    await settle()
    assert store.inserts == [[1, 2]]
    await store.finish()
    await waiting
    assert not log.is_behind
    await log.durable()


async def test_the_insert_of_an_outcome_that_is_in_a_hurry_waits_for_nobody() -> None:
    store = SlowStore()
    log = new_log(store, [])
    for seq, in_a_hurry in ((1, False), (2, True), (3, False)):
        log.append(outcome(seq), at_once=in_a_hurry)
        if seq > 1:
            waiting = asyncio.ensure_future(log.durable())
            await settle()
            await store.finish()
            await waiting
    assert store.inserts == [[1, 2], [3]]
    assert store.at_once == [True, False]


async def test_a_wait_is_for_what_was_handed_over_before_it_only() -> None:
    store = SlowStore()
    log = new_log(store, [])
    log.append(outcome(1))
    waiting = asyncio.ensure_future(log.durable())
    await settle()
    log.append(outcome(2))
    await store.finish()
    assert waiting.done()
    assert log.is_behind


async def test_an_event_is_let_go_when_all_it_rests_on_is_durable_and_in_order() -> None:
    store, seen = SlowStore(), list[tuple[str, object]]()
    log = new_log(store, [], lambda kind, data: seen.append((kind, data)))
    log.emit("a")
    log.append(outcome(1))
    log.emit("b")
    log.append(outcome(2))
    log.emit("c")
    await settle()
    assert seen == [("event", "a")]
    assert store.inserts == [[1, 2]], "somebody reads: nothing waits for company"
    await store.finish()
    assert [data for _, data in seen] == ["a", "b", "c"]


async def test_nothing_is_stored_after_a_slot_that_somebody_else_holds() -> None:
    store, broken, seen = SlowStore(), list[BaseException](), list[object]()
    log = new_log(store, broken, lambda kind, data: seen.append(data))
    log.append(outcome(1))
    first = asyncio.ensure_future(log.durable())
    await settle()
    log.append(outcome(2))
    log.emit("rests on 2")
    await store.finish(outcome(1))
    with pytest.raises(LeaseLost):
        await first
    assert [type(error) for error in broken] == [LeaseLost]
    log.append(outcome(3))
    with pytest.raises(LeaseLost):
        await log.durable()
    assert log.is_behind
    await log.settled()
    assert (store.inserts, seen) == ([[1]], [])


async def test_an_error_of_the_store_breaks_it_for_good() -> None:
    store, broken = SlowStore(), list[BaseException]()
    log = new_log(store, broken)
    log.append(outcome(1))
    waiting = asyncio.ensure_future(log.durable())
    await settle()
    await store.finish(Unavailable("no primary"))
    with pytest.raises(Unavailable):
        await waiting
    assert len(broken) == 1
    with pytest.raises(Unavailable):
        await log.durable()


async def test_a_cancelled_waiter_changes_nothing_for_the_others() -> None:
    store = SlowStore()
    log = new_log(store, [])
    log.append(outcome(1))
    gone = asyncio.ensure_future(log.durable())
    stays = asyncio.ensure_future(log.durable())
    await settle()
    gone.cancel()
    await store.finish()
    await stays
    assert store.stored == [1]


async def test_what_is_left_is_sent_when_the_attempt_settles() -> None:
    store = SlowStore()
    log = new_log(store, [])
    log.append(outcome(1))
    settled = asyncio.ensure_future(log.settled())
    await settle()
    assert store.inserts == [[1]]
    await store.finish()
    await settled


async def test_a_stopped_log_drops_what_is_not_on_its_way() -> None:
    store = SlowStore()
    log = new_log(store, [])
    log.append(outcome(1))
    log.stop(LeaseLost("gone"))
    await asyncio.sleep(COMPANY_S * 2)
    assert store.inserts == []
