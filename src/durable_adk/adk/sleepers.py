"""Who sleeps in an attempt, and when nothing else runs any more.

Everything that runs has a scope. The attempt is quiet when each scope that has none below it
sleeps, or waits for one that does. Then the run is ended, and its timers become waits of a
frontier. What a body does beside its own sleep is not waited for.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from durable_adk.engine.timing import timer
from durable_adk.model.due import Due
from durable_adk.model.position import Position
from durable_adk.model.wait import WaitRequest

if TYPE_CHECKING:
    from durable_adk.adk.scope import Scope
    from durable_adk.engine.attempt import Attempt
    from durable_adk.engine.program import Quiet

LOOK_S = 0.01
"""Between two looks while something else runs."""

LOOKS = 50
"""How many turns of the event loop in a row must find nothing else running, twice: what a body
leaves needs some to become an event, or to lead to the next one."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Sleeper:
    scope: Scope
    position: Position
    due: Due
    since: float
    over: asyncio.Future[None]

    def left(self, elapsed: float) -> Due:
        """What is left of it, for a timer that begins now."""
        if self.due.after is None:
            return self.due
        return Due(after=max(0, self.due.after - round((elapsed - self.since) * 1000)))


class Sleepers:
    """Those of one attempt."""

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._running: Counter[Scope] = Counter()
        self._resting: Counter[Scope] = Counter()
        self._asleep: dict[str, _Sleeper] = {}
        self._busy_until = 0.0
        self._moves = 0
        self._watch: asyncio.Task[None] | None = None
        self.leave: Callable[[Sequence[WaitRequest]], Quiet] | None = None
        """What the step leaves now, with these timers; set by the play."""

    # ---------------------------------------------------------------- what runs

    def enter(self, scope: Scope) -> None:
        self._running[scope] += 1
        self._moves += 1

    def left(self, scope: Scope) -> None:
        self._running[scope] -= 1
        if not self._running[scope]:
            del self._running[scope]
        self._moves += 1

    @contextmanager
    def running(self, scope: Scope) -> Iterator[None]:
        self.enter(scope)
        try:
            yield
        finally:
            self.left(scope)

    @contextmanager
    def resting(self, scope: Scope) -> Iterator[None]:
        """It waits for others, and holds nobody up who sleeps."""
        self._resting[scope] += 1
        try:
            yield
        finally:
            self._resting[scope] -= 1

    def busy_for(self, seconds: float) -> None:
        """ADK waits, with nothing running, before it goes on."""
        now = asyncio.get_running_loop().time()
        self._busy_until = max(self._busy_until, now + seconds)

    # ---------------------------------------------------------------- sleeping

    async def sleep(self, scope: Scope, position: Position, due: Due) -> None:
        """Return when it is over: at once in a later attempt, here only if something else runs for
        so long."""
        loop = asyncio.get_running_loop()
        sleeper = _Sleeper(
            scope=scope,
            position=position,
            due=due,
            since=self._attempt.elapsed(),
            over=loop.create_future(),
        )
        self._asleep[position.digest] = sleeper
        if self._watch is None:
            self._watch = loop.create_task(self._look())
        try:
            with self.resting(scope):
                await sleeper.over
        finally:
            del self._asleep[position.digest]
            if not self._asleep:
                self.close()

    def close(self) -> None:
        """Nobody sleeps any more."""
        watch, self._watch = self._watch, None
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()

    async def _look(self) -> None:
        with suppress(asyncio.CancelledError):
            while self._asleep and self._attempt.fatal is None:
                self._wake()
                if await self._is_quiet() and await self._is_quiet():
                    self._end()
                    return
                await asyncio.sleep(LOOK_S)

    def _wake(self) -> None:
        """Let go on what has slept enough here. By the time that passed, not by a wall clock."""
        elapsed = self._attempt.elapsed()
        for sleeper in self._asleep.values():
            if sleeper.left(elapsed).after == 0 and not sleeper.over.done():
                sleeper.over.set_result(None)

    async def _is_quiet(self) -> bool:
        """Whether nothing moves for some turns of the loop, and what was recorded is durable."""
        moves = self._moves
        for _ in range(LOOKS):
            if not self._all_rest():
                return False
            await asyncio.sleep(0)
        await self._attempt.drain()
        return self._moves == moves and self._all_rest()

    def _all_rest(self) -> bool:
        if self._busy_until > asyncio.get_running_loop().time():
            return False
        around: set[Scope] = set()
        for scope in self._running:
            outer = scope.parent
            while outer is not None and outer not in around:
                around.add(outer)
                outer = outer.parent
        innermost = [scope for scope in self._running if scope not in around]
        return all(self._resting[scope] for scope in innermost)

    def _end(self) -> None:
        assert self.leave is not None  # a play is there before anything sleeps
        elapsed = self._attempt.elapsed()
        timers = [
            timer(
                one.position,
                one.left(elapsed),
                node_path=one.scope.node_path,
                author=one.scope.name,
            )
            for one in self._asleep.values()
            if not one.over.done()
        ]
        try:
            quiet = self.leave(timers)
        except Exception as error:  # such as a value in its state that cannot be stored
            self._attempt.stop(error)
            return
        self._attempt.fall_asleep(quiet)
