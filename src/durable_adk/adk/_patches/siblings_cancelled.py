"""A tool that waits cancels the tools that run beside it."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from durable_adk.adk import _seam
from durable_adk.adk._patches.patch import Patch
from durable_adk.adk.scope import Scope, current

PATCH = Patch(
    symptom="Of two parallel tools one asks: the other is cancelled in the middle, and runs again"
    " after the answer.",
    target="`adk/tools.py`: a tool body that is interrupted waits until those beside it have ended",
    proof="test_a_tool_beside_one_that_asks_is_cancelled_and_runs_again",
    until="ADK lets parallel tools end before it suspends",
)


LOOKS = 50
"""How many turns of the event loop must pass without a body: what one leaves needs a few to become
an event, or to lead to the next one."""


class Body:
    """A body of a tool or a model that runs, its record included. An interrupt is held back until
    none runs that it would end.

    ADK cancels what runs beside a tool that is interrupted, in every agent up to the node run or
    the tool around them; their bodies would run again later.
    """

    def __init__(self, agent: Scope) -> None:
        self._around = [agent]
        while self._around[-1].kind == "agent" and self._around[-1].parent is not None:
            self._around.append(self._around[-1].parent)
        self._runs = False

    def __enter__(self) -> Body:
        self._runs = True
        for scope in self._around:
            scope.bodies += 1
        return self

    def __exit__(self, *_: object) -> None:
        if self._runs:
            self._runs = False
            for scope in self._around:
                scope.bodies -= 1
                scope.body_ended.set()

    async def hold(self, interrupts: set[str]) -> None:
        for scope in self._around:
            scope.interrupts |= interrupts
        self.__exit__()  # one that waits holds up no other that waits
        scope = current() or self._around[0]
        with scope.stage.sleepers.resting(scope):
            await self._hold()

    async def _hold(self) -> None:
        outermost, quiet = self._around[-1], 0
        while quiet < LOOKS:
            quiet = 0 if outermost.bodies else quiet + 1
            if outermost.bodies:
                outermost.body_ended.clear()
                await outermost.body_ended.wait()
            else:
                await asyncio.sleep(0)


def raise_one(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Raise what a group from parallel branches stands for: what failed, or else one interrupt.

    Held back, interrupts of several branches come at once, and ADK takes only a single one for a
    wait. One stands for all: what is asked is noted where it was asked.
    """
    interrupts, failed = group.split(_seam.NodeInterruptedError)
    if interrupts is None:
        raise group
    if failed is not None:
        raise (failed.exceptions[0] if len(failed.exceptions) == 1 else failed) from None
    first: BaseException = interrupts
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    raise first from None
