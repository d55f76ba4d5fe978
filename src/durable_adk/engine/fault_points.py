"""Fault points: where a test makes the world go wrong, named by what is true of it there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from durable_adk.model.store_results import Write


class Faults(Protocol):
    """Where a test can make the world go wrong. Passed in, never global.

    ``before``: nothing is stored yet. ``after``: it is stored, the caller has not been told.
    ``body``: inside a model, tool, node or step body, or (``ran=True``) when it has run and
    nothing is recorded yet. An implementation may end the process, raise, return something to
    await (the point is held while everything else goes on), or for ``after`` return True, at
    once or awaited: the reply is lost, and the write must be settled by writing it again.
    """

    def before(self, write: Write) -> Awaitable[None] | None: ...

    def after(self, write: Write) -> Awaitable[bool] | bool: ...

    def body(self, kind: str, name: str, *, ran: bool) -> Awaitable[None] | None: ...


class NoFaults:
    """What production runs with."""

    def before(self, write: Write) -> None:
        pass

    def after(self, write: Write) -> bool:
        return False

    def body(self, kind: str, name: str, *, ran: bool) -> None:
        pass


async def reach_body(
    faults: Faults,
    kind: str,
    name: str,
    *,
    ran: bool,
    on_death: Callable[[BaseException], None],
) -> None:
    """The fault point in a body or after it.

    Raises:
        BaseException: what the faults raise; ``on_death`` is told first of what no program is
            meant to catch. A cancellation of a held point is a cancellation.
    """
    try:
        pause = faults.body(kind, name, ran=ran)
        if pause is not None:
            await pause
    except (Exception, asyncio.CancelledError):
        raise
    except BaseException as death:
        on_death(death)
        raise
