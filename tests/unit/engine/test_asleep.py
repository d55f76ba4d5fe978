"""What sleeps is known by its step and entry as well as by its path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from durable_adk.engine.timing import Sleeping, timer
from durable_adk.model.activity import Kind
from durable_adk.model.due import Due
from durable_adk.model.identity import FencingToken
from durable_adk.model.position import Position
from durable_adk.model.wait import Frontier

PATH = "agent#1/:m1.0"


@pytest.mark.parametrize(
    ("step", "path", "entry", "found"),
    [
        (2, PATH, 2, "nap"),
        (1, PATH, 2, ""),
        (2, PATH, 1, ""),
        (2, "agent#1/:m1.1", 2, ""),
    ],
)
def test_a_timer_belongs_to_one_entry_in_one_step(
    step: int, path: str, entry: int, found: str
) -> None:
    position = Position(2, PATH, 2, Kind.TIMER, 1)
    wait = timer(position, Due(after=1), node_path="", author="nap")
    frontier = Frontier(id="f", step=2, step_token=FencingToken(0), waits=(wait,), open=1, rev=0)
    attempt: Any = Sleeping()
    attempt.execution, attempt.step = SimpleNamespace(frontier=frontier), step
    assert attempt.asleep_at(path, entry) == found
