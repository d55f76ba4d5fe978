"""A branch that has finished waits only a while for one before it that goes on after an answer."""

from __future__ import annotations

from typing import Any

from durable_adk.adk._patches.patch import Patch
from durable_adk.adk.scope import current

PATCH = Patch(
    symptom="After an answer, what was approved in one branch of a Workflow takes more than 15 s: a"
    " branch that had finished behind it fails the run, `Replay divergence detected`.",
    target="`ReplaySequenceBarrier.wait`: it goes on while calls run or something begins",
    proof="test_a_finished_branch_fails_a_run_whose_approved_tool_takes_long",
    until="ADK waits for nodes that run, not for a time",
)


IDLE_ROUNDS = 2
"""Waits in a row in which nothing moved, after which nothing ever will: one alone may be a stall
of the machine."""


def wrap(adks_wait: Any) -> Any:
    """What has a divergence behind it ends, as in ADK: nothing moved in all that time."""

    async def wait(self: Any, key: str) -> None:
        scope = current()
        idle = 0
        while scope is not None:
            stage = scope.stage
            before = stage.moves
            try:
                await adks_wait(self, key)
            except Exception as error:
                if not isinstance(error.__cause__, TimeoutError):
                    raise
                moved = stage.moves != before or stage.still_in_flight()
                idle = 0 if moved else idle + 1
                if idle == IDLE_ROUNDS:
                    raise
                continue
            return
        await adks_wait(self, key)

    return wait
