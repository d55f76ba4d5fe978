"""Breadth first over every world that moves can reach: the shortest way to each broken promise."""

from __future__ import annotations

import enum
import gc
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

W = TypeVar("W", bound=Hashable)
P = TypeVar("P", bound=enum.Enum)


@dataclass(frozen=True)
class Findings(Generic[P]):
    """What an exploration found.

    Attributes:
        worlds: How many there are.
        complete: All of them were visited.
        broken: Each broken promise with a shortest way there.
    """

    worlds: int
    complete: bool
    broken: dict[P, list[str]]


def search(
    first: W,
    moves: Callable[[W], Iterable[tuple[str, W]]],
    broken_by: Callable[[W, W], Iterable[P]],
    *,
    limit: int,
    until: P | None = None,
) -> Findings[P]:
    """Visit every reachable world, or stop at the first that breaks the promise ``until``."""
    came_from: dict[W, tuple[W, str] | None] = {first: None}
    queue = deque([first])
    broken: dict[P, list[str]] = {}

    def way_to(world: W) -> list[str]:
        way: list[str] = []
        step = came_from[world]
        while step is not None:
            way.append(step[1])
            step = came_from[step[0]]
        return way[::-1]

    collects = gc.isenabled()
    gc.disable()  # worlds hold no cycles, and each collection would look at all of them
    try:
        while queue and until not in broken and len(came_from) <= limit:
            world = queue.popleft()
            for label, after in moves(world):
                known = len(came_from)
                came_from.setdefault(after, (world, label))  # hashed once
                if len(came_from) == known:
                    continue
                queue.append(after)
                for promise in broken_by(world, after):
                    if promise not in broken:
                        broken[promise] = way_to(after)
    finally:
        if collects:
            gc.enable()
    return Findings(worlds=len(came_from), complete=not queue, broken=broken)
