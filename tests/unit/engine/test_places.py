"""What the open step has on record has to have a place in the code before a new body starts."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import pytest

from durable_adk.engine.calls import Call
from durable_adk.engine.handout import PATIENCE_S, HandOut
from durable_adk.engine.places import Places
from durable_adk.errors import ReplayMismatch
from durable_adk.model.activity import Kind
from durable_adk.model.position import Position
from tests.unit.engine.test_attempt_handout import entries

NEW = Call(Position(1, "agent#1/new#1", 1, Kind.NODE, 1), "new", asked="node new")


async def halt(error: BaseException) -> NoReturn:
    raise error


def places(*gone: str) -> Places:
    found = Places()
    found.has = lambda path: path not in gone
    return found


async def test_a_record_without_a_place_that_nobody_asks_for_halts() -> None:
    order = entries(3)
    order[1].asked_at = 1
    with pytest.raises(ReplayMismatch) as caught:
        await places("agent#1/n2#1", "agent#1/n3#1").check(NEW, HandOut(order), halt)
    assert caught.value.position == order[2].position.text, "the second one was asked for"
    assert caught.value.asked == "no such node, and node new in its place"


async def test_a_place_that_is_made_at_run_time_is_waited_for_as_long_as_something_moves() -> None:
    order = entries(2)
    hand_out = HandOut(order)
    checking = asyncio.ensure_future(places("agent#1/n2#1").check(NEW, hand_out, halt))
    for _ in range(6):
        await asyncio.sleep(PATIENCE_S)
        hand_out.moves += 1
        assert not checking.done()
    order[1].asked_at = 1
    await checking


async def test_what_is_looked_at_once_is_looked_at_again_in_the_next_step_only() -> None:
    found, order = places(), entries(1)
    hand_out = HandOut(order)
    await found.check(NEW, hand_out, halt)
    found.has = lambda _path: False
    await found.check(NEW, hand_out, halt)
    with pytest.raises(ReplayMismatch):
        await found.check(NEW, HandOut(order), halt)
