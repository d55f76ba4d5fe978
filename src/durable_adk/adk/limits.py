"""Timeouts of nodes: while an outcome that is on record waits for its turn, they stand still.

ADK cuts a node off with ``asyncio.wait_for``. Outcomes come back in the order of the log, so what
others take to be replayed would count, and what came back too late would run a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any

from google.adk.agents.context import Context
from google.adk.workflow import NodeTimeoutError

from durable_adk.adk.scope import Scope, current


class Limit:
    """The timeout of one run of a node. It begins again with each recorded outcome that is handed
    out in the run: what runs for the first time has all of it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timer: asyncio.Timeout | None = None
        self._held = 0

    async def cut_off(self, body: Awaitable[None]) -> None:
        """Wait for a body as long as the timeout lets it.

        Raises:
            TimeoutError: it did not end in time.
        """
        try:
            async with asyncio.timeout(self._seconds) as self._timer:
                await body
        finally:
            self._timer = None  # who still holds it is a task that outlived the run

    def hold(self) -> None:
        self._held += 1
        self._run_out(None)

    def begin_again(self) -> None:
        self._held -= 1
        if not self._held:
            self._run_out(asyncio.get_running_loop().time() + self._seconds)

    def _run_out(self, when: float | None) -> None:
        if self._timer is not None and not self._timer.expired():
            self._timer.reschedule(when)


@contextmanager
def held(scope: Scope) -> Iterator[None]:
    """An outcome that is on record is asked for in a scope."""
    around: list[Limit] = []
    inner: Scope | None = scope
    while inner is not None:
        if inner.limit is not None:
            around.append(inner.limit)
        inner = inner.parent
    for limit in around:
        limit.hold()
    try:
        yield
    finally:
        for limit in around:
            limit.begin_again()


def wrap(adk_run: Any) -> Any:
    """The run of a node that has a timeout; outside an attempt it is ADK's."""

    async def _run_node_loop_with_timeout(
        self: Any, ctx: Context, node_input: Any, timeout: float
    ) -> None:
        scope = current()
        if scope is None or scope.kind == "recorded" or timeout <= 0:
            await adk_run(self, ctx, node_input, timeout)
            return
        limits, run = scope.stage.limits, id(ctx)
        limits[run] = Limit(timeout)
        try:
            await limits[run].cut_off(self._run_node_loop(ctx, node_input))
        except TimeoutError as error:  # the body's own as well, as in ADK
            raise NodeTimeoutError(node_name=self._node.name, timeout=timeout) from error
        finally:
            del limits[run]

    return _run_node_loop_with_timeout
