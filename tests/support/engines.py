"""Engines on mongomock with a scripted program: what a step does is what the test says."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import mongomock_motor

from durable_adk.engine.ports import Store
from durable_adk.engine.program import Play, Quiet
from durable_adk.engine.requests import Request
from durable_adk.engine.service import Engine
from durable_adk.engine.settings import EngineSettings
from durable_adk.model.activity import Kind, Record
from durable_adk.model.codec import decode, encode
from durable_adk.model.execution import (
    Execution,
    History,
    Lease,
    Status,
    StepDocument,
    StoredError,
)
from durable_adk.model.identity import Tenant, new_nonce
from durable_adk.model.position import Position, activity_id
from durable_adk.model.wait import AnsweredWait, WaitKind, WaitRequest
from durable_adk.store.clock import ManualClock
from durable_adk.store.mongo import MongoStore

TTL_MS = 30_000


def ask(
    step: int,
    place: int = 0,
    kind: WaitKind = WaitKind.INPUT,
    schema: object = None,
    expires_at: int | None = None,
) -> WaitRequest:
    """The wait that a scripted step leaves at a place."""
    position = Position(step, f"agent#1/n{place}#1", 1, Kind.WAIT, 1)
    return WaitRequest(
        digest=position.digest,
        position=position.text,
        kind=kind,
        call_name=kind.value,
        call_id=f"c{step}.{place}",
        node_path=f"agent@1/n{place}@1",
        operation_path=f"agent#1/n{place}#1",
        branch=None,
        isolation_scope=None,
        author=f"n{place}",
        content=encode({"message": "?", "response_schema": schema}),
        expires_at=expires_at,
    )


def ids(execution: Execution) -> list[str]:
    """The public ids of the open frontier's waits, answered ones included."""
    assert execution.frontier is not None
    return [activity_id(execution.execution_id, w.digest) for w in execution.frontier.waits]


Step = Callable[[list[object]], Awaitable[Sequence[WaitRequest] | None]]
"""Takes the values it was answered with; gives its waits, or None at the end."""


@dataclass
class ScriptedProgram:
    """Runs ``script(execution_id)[step]``; remembers what ran and with which answers.

    Attributes:
        steps: By number; a step that is missing ends the execution.
        runs: ``(execution id, step, answers)`` of every step that was entered for real.
    """

    steps: dict[int, Step] = field(default_factory=dict)
    runs: list[tuple[str, int, list[object]]] = field(default_factory=list)
    attempts: list[tuple[str, int]] = field(default_factory=list)
    shared: dict[int, dict[str, object]] = field(default_factory=dict)

    seen: list[dict[str, str]] = field(default_factory=list)
    """The shared state that each of ``runs`` saw."""
    attempt: Any = None
    """The newest attempt, for steps that make calls."""

    def reconciler(self, intent: Any) -> None:
        """Nobody finds out."""

    def begin(self, attempt: Any, history: History) -> Play:
        self.attempt = attempt
        self.attempts.append((attempt.execution.execution_id, attempt.execution.attempt))
        return _Play(self, attempt.execution.execution_id)

    def asks(self, step: int, *waits: WaitRequest) -> ScriptedProgram:
        async def ask_them(_: list[object]) -> Sequence[WaitRequest]:
            return waits

        self.steps[step] = ask_them
        return self

    def writes_shared(self, step: int, values: dict[str, object]) -> None:
        """Make a step write ``user:`` and ``app:`` state."""
        self.shared[step] = values

    def raises(self, step: int, *errors: Exception) -> ScriptedProgram:
        """Raise these, one per entry; then end."""
        left = iter(errors)

        async def fail(_: list[object]) -> None:
            for error in left:
                raise error

        self.steps[step] = fail
        return self

    def gate(self, step: int) -> Gate:
        """Make a step wait until it is opened; then it ends."""
        gate = Gate()

        async def pass_gate(_: list[object]) -> None:
            gate.entered.set()
            try:
                await gate.opened.wait()
            except asyncio.CancelledError:
                gate.cancelled += 1
                raise

        self.steps[step] = pass_gate
        return gate

    def entries(self, step: int) -> int:
        """How often a step was entered."""
        return sum(1 for _, entered, _ in self.runs if entered == step)


class Gate:
    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.cancelled = 0


class _Play:
    def __init__(self, program: ScriptedProgram, execution_id: str) -> None:
        self._program = program
        self._execution_id = execution_id

    async def run_step(
        self, step: int, answered: Sequence[AnsweredWait], shared: Mapping[str, str]
    ) -> Quiet:
        values = [decode(each.answer.value) for each in answered]
        self._program.runs.append((self._execution_id, step, values))
        self._program.seen.append(dict(shared))
        act = self._program.steps.get(step)
        waits = await act(values) if act else None
        return _quiet(tuple(waits or ()), step, self._program.shared.get(step))

    def check(self, step: StepDocument, asked: Any = ()) -> None:
        pass

    def restore(self, step: StepDocument) -> None:
        pass

    def close_turn(
        self, note: str, records: Sequence[Record], answered: Sequence[AnsweredWait] = ()
    ) -> Quiet:
        return _quiet((), 0)

    async def aclose(self) -> None:
        pass


def _quiet(
    waits: tuple[WaitRequest, ...], step: int, shared: dict[str, object] | None = None
) -> Quiet:
    return Quiet(
        waits=waits,
        events=encode([]),
        finished=encode({}),
        state=encode({}),
        scopes=None if shared is None else encode(shared),
        result=encode({"response": f"after step {step}", "output": None}),
    )


class World:
    """One in-memory database and one clock, with as many engines as a test wants."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.tenant = Tenant("tests", "engine")
        self._client = mongomock_motor.AsyncMongoMockClient()
        self._database = f"d{uuid.uuid4().hex}"
        self._engines = AsyncExitStack()
        self.store = self.new_store()

    def new_store(self, faults: Any = None) -> MongoStore:
        """Another store over the same database."""
        return MongoStore(self._client, database=self._database, clock=self.clock, faults=faults)

    async def engine(
        self, program: ScriptedProgram, *, store: Store | None = None, **settings: Any
    ) -> Engine:
        """An engine as another process would have it: a store, a keeper and attempts of its own."""
        given = {"lease_ttl_ms": TTL_MS, "poll_s": 0.001, "grace_s": 0.05, **settings}
        engine = Engine(
            store or self.new_store(),
            program,
            self.clock,
            self.tenant,
            EngineSettings(**given),
        )
        await engine.open()
        self._engines.push_async_callback(engine.close)
        return engine

    def pass_lease(self) -> None:
        self.clock.advance(TTL_MS + 1)

    def message(self, text: str = "hello", *, session: str = "s", **more: Any) -> Request:
        return Request(user_id="u", session_id=session, input=encode({"message": text}), **more)

    async def close(self) -> None:
        await self._engines.aclose()


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    await made.store.open()
    try:
        yield made
    finally:
        await made.close()


async def eventually(holds: Callable[[], Awaitable[bool]], *, within_s: float = 5.0) -> None:
    """Look until it holds."""
    async with asyncio.timeout(within_s):
        while not await holds():
            await asyncio.sleep(0.002)


async def make_stuck(here: World, execution_id: str, session: str = "s") -> Execution:
    """An execution whose last attempt found that the code does not match its history."""
    engine = await here.engine(ScriptedProgram())
    queued = await engine.submit(here.message(session=session, execution_id=execution_id))
    store = here.store
    claimed = await store.claim(queued.key, nonce=new_nonce(), ttl_ms=TTL_MS)
    assert claimed is not None
    assert claimed.claim is not None
    await store.attempt_failed(
        Lease(claimed.key, claimed.token, claimed.claim),
        status=Status.STUCK,
        error=StoredError(type="ReplayMismatch", message="other code"),
        failures=0,
        voided=(),
        backoff_ms=0,
    )
    return await engine.get(execution_id)
