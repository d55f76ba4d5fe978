"""Recorded outcomes come back in the order of the log."""

from __future__ import annotations

import asyncio
import time

import pytest

from durable_adk.engine import handout
from durable_adk.engine.activities import Entry
from durable_adk.engine.handout import PATIENCE_S, HandOut
from durable_adk.model.activity import Kind, Record
from durable_adk.model.identity import FencingToken, Nonce
from durable_adk.model.position import Position


def entries(count: int) -> list[Entry]:
    made = []
    for seq in range(1, count + 1):
        position = Position(1, f"agent#1/n{seq}#1", 1, Kind.NODE, 1)
        record = Record(
            step=1,
            digest=position.digest,
            position=position.text,
            token=FencingToken(1),
            seq=seq,
            nonce=Nonce("n"),
        )
        made.append(Entry(record, position))
    return made


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Askers:
    def __init__(self, hand_out: HandOut) -> None:
        self.hand_out = hand_out
        self.told: list[int] = []

    def ask(self, entry: Entry) -> asyncio.Task[None]:
        return asyncio.ensure_future(self._ask(entry))

    async def _ask(self, entry: Entry) -> None:
        await self.hand_out.turn_of(entry)
        self.told.append(entry.record.seq)


async def test_askers_are_served_in_log_order_whoever_comes_first() -> None:
    order = entries(4)
    askers = Askers(HandOut(order))
    for place in (3, 1, 2):
        askers.ask(order[place])
    await settle()
    assert askers.told == []
    askers.ask(order[0])
    await settle()
    assert askers.told == [1, 2, 3, 4]
    assert not askers.hand_out.unserved


async def test_when_nothing_moves_the_first_who_waits_is_served() -> None:
    order = entries(4)
    askers = Askers(HandOut(order))
    late, early = askers.ask(order[3]), askers.ask(order[2])
    await early
    assert askers.told[0] == 3, "the smaller number of those who wait"
    await late
    askers.ask(order[0])
    askers.ask(order[1])
    await settle()
    assert askers.told == [3, 4, 1, 2], "what was given up is not waited for again"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds without a move: long enough for a machine that is busy with something else."""
    monkeypatch.setattr(handout, "PATIENCE_S", 10 * PATIENCE_S)
    return 10 * PATIENCE_S


async def test_while_something_moves_nobody_is_served_out_of_order(patient: float) -> None:
    order = entries(2)
    askers = Askers(HandOut(order))
    asked = askers.ask(order[1])
    for _ in range(4):
        await asyncio.sleep(patient / 2)
        askers.hand_out.moves += 1
    assert not asked.done()
    askers.ask(order[0])
    await asked
    assert askers.told == [1, 2]


async def test_a_loop_that_was_blocked_is_not_one_in_which_nothing_moves(patient: float) -> None:
    order = entries(2)
    askers = Askers(HandOut(order))
    asked = askers.ask(order[1])
    await settle()
    time.sleep(patient * 2)  # noqa: ASYNC251 - a synchronous tool holds the loop
    await settle()
    assert not asked.done()
    askers.ask(order[0])
    await settle()
    assert askers.told == [1, 2]


async def test_an_asker_that_was_cancelled_holds_nobody_up() -> None:
    order = entries(3)
    askers = Askers(HandOut(order))
    gone, last = askers.ask(order[1]), askers.ask(order[2])
    await settle()
    gone.cancel()
    await settle()
    askers.ask(order[0])
    await settle()
    assert askers.told == [1, 3]
    assert last.done() and not askers.hand_out.unserved
    askers.ask(order[1])
    await settle()
    assert askers.told == [1, 3, 2], "asked again, it is there"


async def test_an_asker_cancelled_on_its_turn_holds_nobody_up() -> None:
    order = entries(3)
    askers = Askers(HandOut(order))
    second, third = askers.ask(order[1]), askers.ask(order[2])
    await settle()
    await askers.hand_out.turn_of(order[0])  # wakes the second ...
    second.cancel()  # ... which is cancelled before it runs
    await third
    assert askers.told == [3]
