"""Numbers of entries say in which entry of what is around it something was."""

from __future__ import annotations

import pytest

from durable_adk.model import entries

NODE = "agent#1/lead#1"
CALL = "agent#1/ag#1/:m1.0"


def test_what_is_in_an_entry_is_told_from_what_is_in_another() -> None:
    second = entries.number(2, 1)
    assert entries.at(NODE, f"{NODE}/child#1", second) == 2
    assert entries.at(NODE, f"{NODE}/child#1/deep~1", entries.number(second, 3)) == 2
    assert entries.at(CALL, f"{CALL}/inner#1/:m2.0", second) == 2
    assert entries.at(CALL, CALL, 2) == 2
    assert entries.has([(f"{CALL}/inner#1", second)], CALL, 2)
    assert not entries.has([(f"{CALL}/inner#1", second)], CALL, 1)
    assert not entries.has([], CALL, 1)


@pytest.mark.parametrize(
    ("children", "entry", "ran"),
    [
        ({}, 1, False),
        ({"child#1": 1}, 1, True),
        ({"child#1": 2}, 2, True),
        ({"child#1": 2}, 1, False),  # counted from 1: the first entry ran none
        ({"child#2": 2}, 1, True),  # and here it did, though nothing is left of it
        ({"child#1": 1, "child#2": 3}, 2, False),
        ({"child#1": 1, "child#3": 3}, 2, True),
        ({"child#1": 2, "other#2": 2}, 1, True),
        ({"child#1/deep#2": 2}, 1, False),
        ({"child#named": 2}, 1, False),
        ({":m1.0": 2}, 1, False),
    ],
)
def test_later_entries_tell_that_an_earlier_one_ran_others(
    children: dict[str, int], entry: int, ran: bool
) -> None:
    places = [(NODE, 2)]
    for name, around in children.items():
        number = around
        for segment in name.split("/"):
            number = number if segment.startswith(":") else entries.number(number, 1)
        places.append((f"{NODE}/{name}", number))
    assert entries.ran_others(places, NODE, entry) is ran
