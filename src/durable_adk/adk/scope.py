"""Where work happens: the scope of the running node, agent or tool call.

ADK hands a model or a tool no path, so the scope that the enclosing wrapper knows travels in
one ContextVar, which the tasks that ADK starts inherit. It is set for one step of a generator
at a time, never across a ``yield``: an async generator that holds it while suspended shows it
to its consumer, and cannot reset it if another task closes the generator.

This module imports no ADK, so that ``durable_adk.step`` and its friends stay light.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from durable_adk.engine.exits import kept_inside

if TYPE_CHECKING:
    from durable_adk.adk.limits import Limit
    from durable_adk.adk.stage import Stage

T = TypeVar("T")

ScopeKind = Literal["root", "node", "agent", "call", "tool", "recorded"]


@dataclass(eq=False, slots=True, kw_only=True)
class Scope:
    """One node run, one agent run, one tool call, or the body of a user-recorded call.

    Attributes:
        path: Operation path; empty for the root scope of an attempt.
        entry: Which entry of that path in this step this is, from 1.
        kind: ``call`` is a tool call with its callbacks, ``tool`` the body in it; ``recorded`` is
            the body of a ``step()``: nothing inside it is recorded again.
        asked_before: The body may have run in an earlier step up to a wait, and runs again from its
            top: what it recorded with ``step()`` then is not done again.
        in_body: A recorded body runs here (a leaf node, a tool): the clock is the wall clock.
        counts: Ordinals given so far, by what is counted.
        calls: The latest model response's calls: call id to (model ordinal, place).
        log: Events of this scope and of those below it, in order, while it is a leaf that is
            being recorded; each as ``(own, encoded event)``.
        interrupts: Interrupt ids of waits raised below a tool.
        bodies, body_ended: Tool bodies running in this agent now; set when one ends.
        ended_at: Milliseconds: the end of the last record handed out here or below.
        asks_model: A model is being asked here.
        traced: What the spans of the newest model call say of it.
        runs: The function of the tool whose body this is: a generator is run as a node below it.
        once: This body must not run twice.
        has_items: A parallel worker, which runs a node for each item.
        limit: The timeout of this node run, if it has one.
        ran_out: This entry had run out of time when its record was made; a later one is recorded.
    """

    stage: Stage
    path: str
    entry: int
    kind: ScopeKind
    name: str
    node_path: str
    invocation_id: str
    parent: Scope | None
    asked_before: bool = False
    in_body: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)
    log: list[tuple[bool, dict[str, Any]]] | None = None
    interrupts: set[str] = field(default_factory=set)
    bodies: int = 0
    body_ended: asyncio.Event = field(default_factory=asyncio.Event)
    ended_at: int = 0
    limit: Limit | None = None
    ran_out: bool = False
    runs: object = None
    once: bool = False
    has_items: bool = False
    asks_model: bool = False
    activity_id: str | None = None
    traced: Mapping[str, Any] = field(default_factory=dict)
    agent_entered: bool = False
    id_mark: str = ""
    id_count: int = 0

    def count(self, what: str) -> int:
        """The next ordinal of ``what`` in this scope, from 1."""
        self.counts[what] = self.counts.get(what, 0) + 1
        return self.counts[what]

    def mark_ids(self, mark: str) -> None:
        """Start a new id sequence: how many were drawn before a model call may differ."""
        self.id_mark, self.id_count = mark, 0

    def new_id(self) -> str:
        """An id that is the same on every attempt."""
        self.id_count += 1
        return self.stage.draw_id(self, self.id_mark, str(self.id_count))

    def handed_out(self, ended_at: int) -> None:
        """Note the end of a record, here and in every enclosing scope."""
        scope: Scope | None = self
        while scope is not None and scope.ended_at < ended_at:
            scope.ended_at = ended_at
            scope = scope.parent

    def now(self) -> float:
        """Epoch seconds: the wall clock in a recorded body, else the end of the last record."""
        if self.in_body or not self.ended_at:
            return time.time()
        return self.ended_at / 1000

    def enclosing_activity(self) -> str | None:
        """The id of the innermost recorded call around this point."""
        scope: Scope | None = self
        while scope is not None:
            if scope.activity_id is not None:
                return scope.activity_id
            scope = scope.parent
        return None


_scope: ContextVar[Scope | None] = ContextVar("durable_adk_scope", default=None)


def current() -> Scope | None:
    """The scope of the running code, or None outside an attempt."""
    return _scope.get()


@contextmanager
def bound(scope: Scope) -> Iterator[None]:
    token = _scope.set(scope)
    try:
        with scope.stage.sleepers.running(scope):
            yield
    except SystemExit as error:
        raise kept_inside(error) from error
    finally:
        _scope.reset(token)


async def within(scope: Scope, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Drive a generator with the scope bound during each of its steps, its close included."""
    try:
        while True:
            token = _scope.set(scope)
            scope.stage.sleepers.enter(scope)
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            except SystemExit as error:
                raise kept_inside(error) from error
            finally:
                scope.stage.sleepers.left(scope)
                _scope.reset(token)
            yield item
    finally:
        with bound(scope):
            await items.aclose()


_NAMESPACE: Final = uuid.NAMESPACE_OID.bytes


def derived_uuid(*parts: str) -> str:
    """The text of ``uuid.uuid5(uuid.NAMESPACE_OID, "|".join(parts))``, without the object: several
    are made for each event."""
    named = _NAMESPACE + "|".join(parts).encode()
    made = bytearray(hashlib.sha1(named, usedforsecurity=False).digest()[:16])
    made[6] = made[6] & 0x0F | 0x50  # version 5
    made[8] = made[8] & 0x3F | 0x80
    text = made.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
