"""What happens in an attempt, as it happens: an async generator over the engine's sink."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Literal

from durable_adk.app.outcome import Outcome, StreamEvent
from durable_adk.engine.program import Sink

_LAST: dict[str, Literal["suspend", "result", "error"]] = {
    "suspended": "suspend",
    "completed": "result",
}


async def items(
    start: Callable[[Sink], Awaitable[Any]],
) -> AsyncGenerator[tuple[str, Any], None]:
    """Yield what ``start`` puts into its sink, then ``("end", its result)``.

    An error of ``start`` is raised after what came before it. Closing the generator cancels
    only the waiting: the attempt runs in a task of its own.
    """
    waiting: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue()

    def sink(kind: str, data: object) -> None:
        waiting.put_nowait((kind, data))

    async def run() -> Any:
        try:
            return await start(sink)
        finally:
            waiting.put_nowait(None)

    task = asyncio.create_task(run())
    try:
        while (item := await waiting.get()) is not None:
            yield item
        end = await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    yield "end", end


async def stream(start: Callable[[Sink], Awaitable[Outcome]]) -> AsyncGenerator[StreamEvent, None]:
    """The tokens and events of an attempt, then its outcome as the one last item."""
    async with aclosing(items(start)) as found:
        async for kind, data in found:
            match kind:
                case "token":
                    yield StreamEvent(kind="token", data=data)
                case "event":
                    yield StreamEvent(kind="event", data=data)
                case "end":
                    yield StreamEvent(kind=_LAST.get(data.status, "error"), data=data)
