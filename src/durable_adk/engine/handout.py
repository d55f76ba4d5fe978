"""Recorded outcomes are handed out in the order of the log.

Siblings that raced in the attempt that made the log meet again in the order in which they
finished then. That order is a courtesy, not a lock: when nothing has moved for a while, the
first of those who wait is served, and what nobody asked for so far is waited for no longer.
"""

from __future__ import annotations

import asyncio
import heapq

from durable_adk.engine.activities import Entry

PATIENCE_S = 0.05
"""How long nothing must move before somebody is served out of order."""


class HandOut:
    """The queue of one step. Its owner counts each move in ``moves``."""

    def __init__(self, order: list[Entry]) -> None:
        self.moves = 0
        self._order = order
        self._place = {id(entry): place for place, entry in enumerate(order)}
        self._next = 0
        self._left = len(order)
        self._withdrawn: set[int] = set()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._seen = 0
        self._due = 0.0

    @property
    def unserved(self) -> bool:
        return self._left > 0

    def never_asked(self) -> Entry | None:
        """The first entry that nobody asked for, or None."""
        return next((entry for entry in self._order if not entry.asked_at), None)

    def left(self) -> list[Entry]:
        """Entries that nobody asked for, in order."""
        return [entry for entry in self._order if not entry.asked_at]

    async def turn_of(self, entry: Entry) -> None:
        """Wait until an entry may be handed out; when this returns, it is.

        An entry that is not in the queue (made in this attempt, or inside a recorded body) and
        one that was handed out before are free.
        """
        self.moves += 1
        entry.asked_at = entry.asked_at or self.moves
        place = self._place.get(id(entry))
        if place is None or entry.told_at:
            entry.told_at = entry.told_at or self.moves
            return
        if place > self._next:
            future = asyncio.get_running_loop().create_future()
            heapq.heappush(self._waiting, (place, future))
            self._watch()
            try:
                await future
            except asyncio.CancelledError:
                self._withdraw(place, entry)
                raise
        self._hand(place, entry)

    def _hand(self, place: int, entry: Entry) -> None:
        self.moves += 1
        if not entry.told_at:
            entry.told_at = self.moves
            self._left -= place not in self._withdrawn
        self._release()

    def _withdraw(self, place: int, entry: Entry) -> None:
        """Its asker was cancelled: nobody waits for it to be handed out."""
        if not entry.told_at and place not in self._withdrawn:
            self._withdrawn.add(place)
            self._left -= 1
            self._release()

    def _release(self) -> None:
        """Go on to the first entry that is not handed out and wake who waits for it."""
        order = self._order
        while self._next < len(order) and (
            order[self._next].told_at or self._next in self._withdrawn
        ):
            self._next += 1
        while self._waiting and self._waiting[0][0] <= self._next:
            _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)
        if not self._waiting:
            self.stop()

    def _watch(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._seen, self._due = self.moves, loop.time() + PATIENCE_S
            self._timer = loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._timer = None
        while self._waiting and self._waiting[0][1].done():
            heapq.heappop(self._waiting)  # its asker was cancelled
        if not self._waiting:
            return
        late = asyncio.get_running_loop().time() - self._due
        # A loop that was blocked had no chance to move: that is no sign of being stuck.
        if self.moves == self._seen and late < PATIENCE_S:
            self._next = self._waiting[0][0]
            self._release()
        if self._waiting:
            self._watch()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
