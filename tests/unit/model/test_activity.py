from __future__ import annotations

from durable_adk.model.activity import Record, slot_of
from durable_adk.model.identity import FencingToken, Nonce


def test_an_intent_and_an_outcome_of_one_try_have_two_slots() -> None:
    record = Record(step=2, digest="d", position="", token=FencingToken(1), nonce=Nonce("n"))
    assert record.slot == "000002:d.1o"
    assert slot_of(2, "d", 1, is_intent=True) == "000002:d.1i"
    assert slot_of(2, "d", 2) == "000002:d.2o"


def test_slots_sort_by_step() -> None:
    slots = [slot_of(step, "d", 1) for step in (1, 2, 9, 10, 11, 100)]
    assert sorted(slots) == slots
