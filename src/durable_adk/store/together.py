"""Outcomes of several attempts in one insert, when they are ready at the same time.

Each attempt has one ordered insert under way at a time (``engine/log.py``). With many attempts at
once most of a recorded call's processor time was the driver's, once for each of them. So what
comes while an insert is under way goes with the next one: in order for each attempt, and nobody
is told of more than of its own. One attempt alone inserts as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context
from dataclasses import dataclass
from typing import Final

from durable_adk.store.documents import Doc

MOST_DOCUMENTS: Final = 16
MOST_CHARACTERS: Final = 64 * 1024
"""What one attempt may bring along; more than that is inserted by itself."""

MOST_ATTEMPTS: Final = 64

PATIENCE_S: Final = 0.002
"""For how long an insert that does not come back holds up the next one: no longer than an outcome
waits for company in its own log."""

Insert = Callable[[Sequence[Doc]], Awaitable[bool]]
"""One ordered insert. False at a duplicate: what stands before it is stored."""


@dataclass(eq=False, slots=True)
class _Waiting:
    docs: Sequence[Doc]
    told: asyncio.Future[bool]


class Together:
    """The inserts of one collection, on one event loop.

    Args:
        insert: What is done with the documents of one or several callers.
        timeout: What bounds it; a caller alone has bounded it already.
    """

    def __init__(
        self, insert: Insert, *, timeout: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._insert = insert
        self._timeout = timeout
        self._under_way = 0
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def insert(self, docs: Sequence[Doc]) -> bool:
        """Insert in order. Whether all are stored; False at a duplicate among these.

        Repeat: as any insert: what is stored already is a duplicate then.

        Raises: what the insert raised that these were part of.
        """
        if not _is_small(docs):
            return await self._insert(docs)
        if not self._under_way:
            self._under_way += 1
            try:
                return await self._insert(docs)
            finally:
                self._ended()
        loop = asyncio.get_running_loop()
        one = _Waiting(docs, loop.create_future())
        self._waiting.append(one)
        if self._timer is None:
            self._timer = loop.call_later(PATIENCE_S, self._send)
        # At a duplicate nobody knows whose it was: each asks for itself.
        return await one.told or await self._insert(docs)

    def _ended(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._send()

    def _send(self) -> None:
        """Send what waits, as one insert; the rest goes with the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group = [one for one in self._waiting if not one.told.done()]
        self._waiting = group[MOST_ATTEMPTS:]
        del group[MOST_ATTEMPTS:]
        if not group:
            return
        loop = asyncio.get_running_loop()
        if self._waiting:
            self._timer = loop.call_later(PATIENCE_S, self._send)
        self._under_way += 1
        # In a context of its own: a caller's deadline is not that of the others.
        task = loop.create_task(self._inserted(group), context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _inserted(self, group: list[_Waiting]) -> None:
        group.sort(key=lambda one: str(one.docs[0]["_id"]))  # neighbours are on one shard
        try:
            with self._timeout():
                stored = await self._insert([doc for one in group for doc in one.docs])
        except asyncio.CancelledError:
            for one in group:
                one.told.cancel()
            raise
        except Exception as error:  # each caller reads it, as that of its own insert
            for one in group:
                if not one.told.done():
                    one.told.set_exception(error)
        else:
            for one in group:
                if not one.told.done():
                    one.told.set_result(stored)
        finally:
            self._ended()


def _is_small(docs: Sequence[Doc]) -> bool:
    return len(docs) <= MOST_DOCUMENTS and sum(map(_characters, docs)) <= MOST_CHARACTERS


def _characters(doc: Doc) -> int:
    body = doc.get("body", "")
    return len(body if isinstance(body, str) else body.get("zip", b""))
