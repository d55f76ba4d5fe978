"""Does the code still have what the open step has on record? Asked before its first new body.

A committed step keeps what it ran on, the open one has only its records. After a crash and a deploy
that renamed a node, what that node did would be done again under its new name: nobody asks for the
record, and another body starts. So before the first body that is not on record, every record that
is still to be handed out has to have a place in the code. One whose place is gone may yet be asked
for (a node that is made at run time is in no topology): it is waited for until nothing moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from durable_adk.engine.activities import Entry
from durable_adk.engine.calls import Call
from durable_adk.engine.handout import PATIENCE_S, HandOut
from durable_adk.errors import ReplayMismatch


class Places:
    """The places of the program that an attempt runs.

    Attributes:
        has: Whether the program has what runs at an operation path, or cannot know. The program
            sets it.
    """

    def __init__(self) -> None:
        self.has: Callable[[str], bool] = lambda _path: True
        self._fits: HandOut | None = None

    async def check(
        self, call: Call, hand_out: HandOut, halt: Callable[[BaseException], Awaitable[NoReturn]]
    ) -> None:
        """Halt where a step is about to start a body in place of what it has on record."""
        loop = asyncio.get_running_loop()
        while self._fits is not hand_out:
            entry = next((one for one in hand_out.left() if not self._has(one)), None)
            if entry is None:
                self._fits = hand_out
                return
            moves, due = hand_out.moves, loop.time() + 2 * PATIENCE_S
            await asyncio.sleep(2 * PATIENCE_S)
            # A loop that was blocked had no chance to move: that is no sign of being done.
            if hand_out.moves == moves and loop.time() - due < PATIENCE_S:
                await halt(gone(entry, call))

    def _has(self, entry: Entry) -> bool:
        return self.has(entry.position.path)


def gone(entry: Entry, instead: Call) -> ReplayMismatch:
    """What is recorded has no place in the code any more, and a body starts ``instead``."""
    asked = f"no such node, and {instead.asked or instead.name} in its place"
    return ReplayMismatch(entry.position.text, recorded=entry.record.name, asked=asked)
