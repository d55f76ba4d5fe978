"""What one process of a life does: invoke, resume, recover, fork, read; and what goes wrong."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from durable_adk import App, Unavailable, WriteUnknown
from durable_adk.testing import FaultPlan, Write


class Ledger:
    """What really ran: one line per effect, in a file that survives every process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, *what: Any) -> None:
        handle = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(handle, (json.dumps(list(what)) + "\n").encode())
        finally:
            os.close(handle)

    def rows(self) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        return [tuple(json.loads(line)) for line in self.path.read_text().splitlines()]


Point = tuple[str, int]
"""A fault point by its name and the how-manyeth time it is reached in the process: numbers of all
points shift when a write takes one outcome more or less along."""


_NAMES = {write.value: write.name.lower() for write in Write}


def in_a_plan(point: str) -> str:
    """The name that a ``FaultPlan`` has for a point of ``KillAt``."""
    when, _, where = point.partition(": ")
    if when in ("before", "after"):
        return f"{when} {_NAMES[where]}"
    kind, _, name = where.partition(" ")
    return f"{when} {kind}:{name}"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong at a point (by its name in a ``FaultPlan``), as plain data.

    Attributes:
        what: ``kill``, ``raise`` (what a store or a body raises), ``lose`` or ``stop``.
    """

    what: str
    point: str
    at: int = 1

    def plan(self) -> FaultPlan:
        plan, at = FaultPlan(), self.at
        if self.what == "kill":
            return plan.kill(self.point, at=at)
        if self.what == "lose":
            return plan.lose_reply(Write[self.point.removeprefix("after ").upper()], at=at)
        if self.what == "stop":
            return plan.stop(self.point, at=at)
        assert self.what == "raise", self.what
        return plan.fail(self.point, self._error(), at=at)

    def _error(self) -> Exception:
        if self.point.startswith("before "):
            return Unavailable("MongoDB", "does not answer (a fault of the test)")
        if self.point.startswith("after "):
            return WriteUnknown("MongoDB", "did not acknowledge in time (a fault of the test)")
        return RuntimeError("a fault of the test")


@dataclass(frozen=True, kw_only=True)
class Forked:
    """A fork of the session.

    Attributes:
        turn, wait: Where it is cut: a turn by its number, or a wait by its place among all of the
            life so far.
        after: Whether the turn, or the frontier with its answers, is kept.
        message: The first message of a fork of whole turns.
        answer: The value for a wait in the fork; as in the source if None.
    """

    turn: int | None = None
    wait: int | None = None
    after: bool = False
    message: str = ""
    answer: Callable[[Mapping[str, Any]], Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Act:
    """What one process does, as plain data: a fresh interpreter must be able to read it."""

    what: str
    execution_id: str = ""
    message: str = ""
    answers: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[str] = ()
    kill_at: Point | None = None
    late_ms: int = 0
    session_id: str = "s"
    cut: Mapping[str, str] = field(default_factory=dict)
    fault: Fault | None = None


@dataclass(frozen=True)
class Told:
    """How each turn is run: with which ``RunConfig``, and who listens."""

    run_config: Any = None
    ledger: Ledger | None = None

    async def end(self, items: AsyncIterator[Any]) -> dict[str, Any]:
        """Listen to a stream. Returns: its outcome."""
        assert self.ledger is not None
        async with aclosing(items) as stream:  # type: ignore[type-var]
            async for item in stream:
                if item.kind == "token":
                    self.ledger.add("token", item.data)
                elif item.kind != "event":
                    return item.data.to_dict()  # type: ignore[no-any-return]
        raise AssertionError("a stream without an end")


WAITS_S = 5.0
"""For how long one waits where a fault may have left a lease behind: nothing runs meanwhile."""


async def _invoke(app: App, act: Act, told: Told) -> dict[str, Any]:
    given: dict[str, Any] = {
        "user_id": "u",
        "session_id": act.session_id,
        "message": act.message,
        "execution_id": act.execution_id,
        "run_config": told.run_config,
    }
    if told.ledger is not None:
        return await told.end(app.stream(**given))
    return (await app.invoke(**given, timeout=_patience(act))).to_dict()


def _patience(act: Act) -> float | None:
    is_left = act.what == "recover" and act.fault is not None and act.fault.what == "raise"
    return WAITS_S if is_left else None


async def _resume(app: App, act: Act, told: Told) -> dict[str, Any]:
    if told.ledger is not None:
        told.ledger.add("goes on", *sorted(act.answers))
        return await told.end(app.resume_stream(act.execution_id, act.answers))
    return (await app.resume(act.execution_id, act.answers)).to_dict()


async def _go_on(app: App, act: Act, _told: Told) -> dict[str, Any]:
    """What is inside a fork of an execution: it waits, or it can run."""
    out = await app.executions.outcome(act.execution_id)
    if out.status in ("queued", "running"):
        out = await app.resume(act.execution_id, timeout=_patience(act))
    return out.to_dict()


async def _recover(app: App, act: Act, told: Told) -> dict[str, Any]:
    """What a worker and the client that lost its connection do."""
    await app.recover()
    return await (_invoke if act.message else _go_on)(app, act, told)


async def _work(app: App, _act: Act, _told: Told) -> dict[str, Any]:
    """What a worker does."""
    await app.recover()
    return {}


async def _fork(app: App, act: Act, _told: Told) -> dict[str, Any]:
    fork = await app.sessions.fork("u", "s", **act.cut, idempotency_key=act.message)
    return {"session_id": fork.session_id, "execution_id": fork.execution_id}


async def _read(app: App, act: Act, told: Told) -> dict[str, Any]:
    outs = [
        await _invoke(
            app,
            Act(what="invoke", execution_id=f"x{turn}", message=message),
            Told(told.run_config),
        )
        for turn, message in enumerate(act.messages)
    ]
    return {**await _kept(app, act.session_id), "output": [out["output"] for out in outs]}


async def _read_fork(app: App, act: Act, _told: Told) -> dict[str, Any]:
    out = await app.executions.outcome(act.execution_id)
    named = {"execution_id": act.execution_id, "session_id": act.session_id}
    return {**await _kept(app, act.session_id), "output": out.output, "named": named}


async def _kept(app: App, session_id: str) -> dict[str, Any]:
    events = await app.sessions.events(user_id="u", session_id=session_id)
    session = await app.sessions.get(user_id="u", session_id=session_id)
    return {
        "events": [json.loads(event.model_dump_json(exclude_none=True)) for event in events],
        "state": session.to_dict()["state"],
    }


ACTS: Mapping[str, Callable[[App, Act, Told], Awaitable[dict[str, Any]]]] = {
    "invoke": _invoke,
    "resume": _resume,
    "go on": _go_on,
    "recover": _recover,
    "work": _work,
    "fork": _fork,
    "read": _read,
    "read a fork": _read_fork,
}
