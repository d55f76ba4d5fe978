"""What a shape of an ADK app is here: a program, and what must have run when it is done."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.support.lives import Case, Life

Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Shape(Case):
    """One shape.

    Attributes:
        feature: The row of the support table it stands for; shapes may share one.
        waits: How many waits each frontier must have, in order.
        repeats: Ledger rows that rightly appear more than once, and how often.
        bumps: A body that is cut off and runs again saves another version of its artifact.
        checkpoints: Parallel branches end in any order, and a resumable app writes an event about
            its nodes after each: only the last one of a run says the same every time.
        stock: How plain ADK differs when it is resumed with the same answers; empty if it does
            not. ``tests/adk_bugs`` holds both against ADK.
    """

    feature: str
    waits: tuple[int, ...] = ()
    repeats: Mapping[Row, int] = field(default_factory=dict)
    bumps: bool = False
    checkpoints: bool = False
    stock: str = ""


def not_once(shape: Shape, ledger: collections.Counter[Row]) -> list[str]:
    """Which rows are there too often; and whether all of them are missing."""
    found = [] if ledger else ["nothing ran"]
    for row, count in ledger.items():
        if row[:2] not in shape.reentered and row[:1] not in shape.reentered:
            wanted = shape.repeats.get(row, 1)
            if count != wanted:
                found.append(f"{row} ran {count} times, not {wanted}")
    return found


def wrong(shape: Shape, life: Life) -> list[str]:
    """What is not as it must be after an undisturbed life in processes of their own."""
    found = []
    if set(life.status) != {"completed"}:
        found.append(f"status {life.status}: {life.error}")
    if tuple(len(waits) for waits in life.waits) != shape.waits:
        found.append(f"waits {life.waits}, not {shape.waits}")
    found += not_once(shape, life.ledger)
    ids = [event["id"] for event in life.events]
    if len(set(ids)) != len(ids):
        found.append("event ids repeat")
    return found
