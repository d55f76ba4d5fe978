"""Fault points: where a test makes the world go wrong, named by what is true of it there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from typing import Protocol

from durable_adk.engine.calls import Dispatched
from durable_adk.model.store_results import Write


class Faults(Protocol):
    """Where a test can make the world go wrong. Passed in, never global.

    ``before``: nothing is stored yet. ``after``: it is stored, the caller has not been told.
    ``body``: inside a model, tool, node or step body, or (``ran=True``) when it has run and
    nothing is recorded yet. An implementation may end the process; raise (in a body: the body's
    failure); return something to await: the point is held while everything else goes on; or for
    ``after`` return True, at once or awaited: the reply is lost, and the write must be settled by
    writing it again.
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


async def enter_body(
    faults: Faults, ticket: Dispatched, on_death: Callable[[BaseException], None]
) -> None:
    """The fault point in a body. An error is kept: the body raises it when it is entered."""
    try:
        await reach_body(faults, *_named(ticket), ran=False, on_death=on_death)
    except Exception as error:  # a test's: the failure of this body
        ticket.fault = error


async def leave_body(
    faults: Faults,
    ticket: Dispatched,
    on_death: Callable[[BaseException], None],
    *,
    has_failed: bool,
) -> None:
    """The fault point when a body has run and nothing is recorded; reached once.

    Raises:
        Exception: a test's: the failure of this body, after its effect; unless it has its own.
    """
    if not ticket.left:
        ticket.left = True
        with suppress(Exception) if has_failed else nullcontext():
            await reach_body(faults, *_named(ticket), ran=True, on_death=on_death)


def _named(ticket: Dispatched) -> tuple[str, str]:
    return ticket.call.position.kind.value, ticket.call.name


async def reach_body(
    faults: Faults, kind: str, name: str, *, ran: bool, on_death: Callable[[BaseException], None]
) -> None:
    """Tell ``on_death`` of what no program is meant to catch, before it is raised.

    A cancellation of a held point is a cancellation.
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
