"""Which conversations are had: drawn from a seed, the same for a soak and for its twins."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.soak.programs import POLICY_OF

ALONE = ("pay", "pay_confirmed", "wire")
LATER = ("later", "later", "urgent")
"""ADK calls the model again beside what is answered later: alone, so that it waits."""


@dataclass(frozen=True)
class Turn:
    """One message. ``x`` names it in keys and is its execution id, but in a fork's first turn."""

    x: str
    message: str


@dataclass(frozen=True)
class Fork:
    """A fork of whole turns: after which turn (from 0) of its source, and its own turns."""

    after: int
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Family:
    """A session and perhaps a fork of it."""

    app: str
    user: str
    session: str
    turns: tuple[Turn, ...]
    fork: Fork | None = None

    @property
    def executions(self) -> int:
        return len(self.turns) + (len(self.fork.turns) if self.fork else 0)


def families(seed: int) -> Iterator[Family]:
    """One after the other, without end."""
    number = 0
    while True:
        number += 1
        yield family(random.Random(f"{seed} {number}"), number)


def family(draw: random.Random, number: int) -> Family:
    app = draw.choice(("desk", "desk", "flow"))
    name = f"s{number}"
    turns = tuple(_turn(draw, app, f"{name}.t{k}") for k in range(draw.randint(1, 4)))
    fork = None
    if draw.random() < 0.35:
        own = tuple(_turn(draw, app, f"{name}.f{k}") for k in range(draw.randint(1, 2)))
        fork = Fork(draw.randrange(len(turns)), own)
    return Family(app, f"u{number % 7}", name, turns, fork)


def _turn(draw: random.Random, app: str, x: str) -> Turn:
    program: dict[str, Any] = {"x": x}
    if app == "desk":
        program["ops"] = [_op(draw) for _ in range(draw.randint(1, 4))]
    else:
        for branch in ("a", "b"):
            program[branch] = [_beside(draw) for _ in range(draw.randint(1, 2))]
        program["ask"] = draw.random() < 0.4
        program["tail"] = [_op(draw) for _ in range(draw.randint(0, 2))]
    return Turn(x, json.dumps(program))


def _op(draw: random.Random) -> Sequence[str]:
    alone = [tool for tool in ALONE if tool in POLICY_OF]
    return [draw.choice(alone)] if draw.random() < 0.5 else _beside(draw)


def _beside(draw: random.Random) -> Sequence[str]:
    if draw.random() < 0.15:
        return [draw.choice(LATER)]
    return draw.choices(
        ("look", "note", "look_confirmed", "nap"), (8, 4, 2, 1), k=draw.choice((1, 1, 2, 3))
    )
