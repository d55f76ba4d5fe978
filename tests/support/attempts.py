"""Attempts without ADK: a scripted program that makes recorded calls, over the real store.

A script is plain asyncio code; ``Calls`` does for it what the adapter does for ADK. What ran and
what was served is written to a ``Ledger``, which outlives the attempts, as the world does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mongomock_motor

from durable_adk.engine.attempt import Attempt, Call, Replayed
from durable_adk.engine.keeper import Keeper
from durable_adk.engine.program import Quiet, Sink
from durable_adk.engine.settings import EngineSettings
from durable_adk.engine.settle import run_attempt
from durable_adk.model import codec, failure
from durable_adk.model.activity import Kind, Record, RecordStatus, UnknownOutcome
from durable_adk.model.execution import Execution, History, NewExecution, StepDocument
from durable_adk.model.identity import (
    FencingToken,
    Tenant,
    execution_key,
    new_nonce,
    new_run_id,
    session_key,
)
from durable_adk.model.position import Position
from durable_adk.model.store_results import Begun
from durable_adk.model.wait import AnsweredWait, StoredAnswer, WaitKind, WaitRequest
from durable_adk.store.clock import ManualClock
from durable_adk.store.mongo import MongoStore
from durable_adk.testing.faults import FaultPlan

TTL_MS = 30_000
AGENT = "agent#1"
FAIL = UnknownOutcome.FAIL


class ProcessDied(BaseException):
    """The process is gone: no handler may tidy up after it, as after a SIGKILL."""


@dataclass
class Ledger:
    """What happened in the world: bodies entered, and recorded outcomes handed out, in order."""

    entered: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)


Body = Callable[[], Awaitable[object]]


class Calls:
    """Recorded calls of one step of one attempt."""

    def __init__(self, attempt: Attempt, ledger: Ledger, shared: Mapping[str, str]) -> None:
        self.attempt = attempt
        self.ledger = ledger
        self.shared = {key: codec.decode(value) for key, value in shared.items()}

    async def model(self, name: str, body: Body | None = None, **more: Any) -> Any:
        return await self.call(Kind.MODEL, name, body, **more)

    async def tool(self, name: str, body: Body | None = None, **more: Any) -> Any:
        return await self.call(Kind.TOOL, name, body, **more)

    async def node(self, name: str, body: Body | None = None, **more: Any) -> Any:
        return await self.call(Kind.NODE, name, body, path=f"{AGENT}/{name}#1", **more)

    async def call(
        self,
        kind: Kind,
        name: str,
        body: Body | None = None,
        *,
        path: str = "",
        ordinal: int = 1,
        entry: int = 1,
        label: str = "",
        request: str = "",
        policy: UnknownOutcome = UnknownOutcome.RERUN,
        durable: bool = False,
        intent: str | None = None,
    ) -> Any:
        """One call; by default its place is its name, and its result too."""
        where = path or (f"{AGENT}/{name}~1" if kind is Kind.MODEL else f"{AGENT}/:{name}")
        position = Position(self.attempt.step, where, entry, kind, ordinal, label)
        admitted = await self.attempt.admit(
            Call(
                position=position,
                name=name,
                request=request,
                asked=f"{name}()",
                policy=policy,
                intent=intent,
            )
        )
        if isinstance(admitted, Replayed):
            self.ledger.served.append(name)
            return self._outcome(admitted.record)
        self.ledger.entered.append(name)
        try:
            value = await body() if body else name
        except asyncio.CancelledError:
            self.ledger.cancelled.append(name)
            await self.attempt.cancelled(admitted)
            raise
        except Exception as error:
            payload = failure.encode_failure(error)
            record = await self.attempt.record(admitted, RecordStatus.FAILED, payload)
            raise self.attempt.causes.failure_of(record) from error
        self.ledger.ran.append(name)
        record = await self.attempt.record(
            admitted, RecordStatus.COMPLETED, codec.encode(value), durable=durable
        )
        return self._outcome(record)

    def _outcome(self, record: Record) -> Any:
        if record.status is RecordStatus.FAILED:
            raise self.attempt.causes.failure_of(record)
        return codec.decode(record.body or "null")


def ask(step: int, name: str = "review") -> WaitRequest:
    position = Position(step, f"{AGENT}/{name}#1", 1, Kind.WAIT, 1)
    return WaitRequest(
        digest=position.digest,
        position=position.text,
        kind=WaitKind.INPUT,
        call_name=WaitKind.INPUT.value,
        call_id=f"{step}-{name}",
        node_path=f"agent@1/{name}@1",
        operation_path=f"{AGENT}/{name}#1",
        branch=None,
        isolation_scope=None,
        author=name,
        content=codec.encode({"message": "?", "response_schema": None}),
    )


def foreign_tool_record(step: int, path: str) -> Record:
    """An outcome that another owner recorded for the tool ``t``."""
    position = Position(step, path, 1, Kind.TOOL, 1)
    return Record(
        step=step,
        digest=position.digest,
        position=position.text,
        token=FencingToken(9),
        seq=1,
        nonce=new_nonce(),
        status=RecordStatus.COMPLETED,
        name="t",
        body='"theirs"',
    )


Script = Callable[[Calls, list[Any]], Awaitable[object]]
"""Takes the calls and the answers of the step before. A list of waits that it returns is the
frontier; anything else is the output."""


class Scripted:
    """Implements ``engine.ports.Program`` over scripts, one per step."""

    def __init__(self, *steps: Script, ledger: Ledger | None = None) -> None:
        self.steps = steps
        self.ledger = ledger or Ledger()
        self.attempts: list[Attempt] = []
        self.restored: list[int] = []
        self.scopes: dict[str, Any] | None = None
        self.notes: list[tuple[str, list[str]]] = []

    def reconciler(self, intent: Any) -> None:
        """Nobody finds out."""

    def begin(self, attempt: Attempt, history: History) -> _Play:
        self.attempts.append(attempt)
        return _Play(self, attempt)


class _Play:
    def __init__(self, program: Scripted, attempt: Attempt) -> None:
        self._program = program
        self._attempt = attempt

    def check(self, step: StepDocument, asked: Any = ()) -> None:
        pass

    def restore(self, step: StepDocument) -> None:
        self._program.restored.append(step.step)

    async def run_step(
        self, step: int, answered: Sequence[AnsweredWait], shared: Mapping[str, str]
    ) -> Quiet:
        calls = Calls(self._attempt, self._program.ledger, shared)
        given = [codec.decode(one.answer.value) for one in answered]
        left = await self._program.steps[step - 1](calls, given)
        waits = tuple(left) if isinstance(left, list) else ()
        return _quiet(waits, left if not waits else None, self._program.scopes)

    def close_turn(
        self, note: str, records: Sequence[Record], answered: Sequence[AnsweredWait] = ()
    ) -> Quiet:
        self._program.notes.append((note, [record.name for record in records]))
        return _quiet((), note, None)

    async def aclose(self) -> None:
        pass


def _quiet(waits: tuple[WaitRequest, ...], output: object, scopes: dict[str, Any] | None) -> Quiet:
    return Quiet(
        waits=waits,
        events=codec.encode([]),
        finished=codec.encode({}),
        state=codec.encode({}),
        scopes=None if scopes is None else codec.encode(scopes),
        result=codec.encode({"response": None, "output": output}),
    )


class Desk:
    """One in-memory database, one clock, one execution at a time."""

    def __init__(self, store_class: type[MongoStore] = MongoStore, **settings: Any) -> None:
        self.clock = ManualClock()
        self.settings = EngineSettings(lease_ttl_ms=TTL_MS, **settings)
        self.tenant = Tenant("tests", "attempt")
        self.client: Any = mongomock_motor.AsyncMongoMockClient()
        self._names = itertools.count(1)
        self.store = self.new_store(store_class)

    def new_store(
        self, store_class: type[MongoStore] = MongoStore, faults: FaultPlan | None = None
    ) -> MongoStore:
        return store_class(self.client, database="d", clock=self.clock, faults=faults)

    async def begin(self, session: str = "s", name: str = "") -> Execution:
        """An execution that is claimed by the insert."""
        await self.store.open()
        name = name or f"e{next(self._names)}"
        begun = await self.store.begin(
            NewExecution(
                key=execution_key(self.tenant, name),
                execution_id=name,
                tenant=self.tenant,
                user_id="u",
                session_id=session,
                session_key=session_key(self.tenant, "u", session),
                run=new_run_id(),
                invocation_id=name,
                input=codec.encode({"message": "go"}),
                input_digest="",
                nonce=new_nonce(),
                run_now=True,
                ttl_ms=TTL_MS,
            )
        )
        assert isinstance(begun, Begun)
        return begun.execution

    async def claim(self, execution: Execution) -> Execution:
        """Claim it once its lease or its back-off has passed."""
        self.clock.advance(2 * TTL_MS)
        claimed = await self.store.claim(execution.key, nonce=new_nonce(), ttl_ms=TTL_MS)
        assert claimed is not None, f"not due: {await self.read(execution)}"
        return claimed

    async def run(
        self,
        execution: Execution,
        program: Scripted,
        *,
        faults: FaultPlan | None = None,
        store: MongoStore | None = None,
        sink: Sink | None = None,
        keeper: Any = None,
        **settings: Any,
    ) -> Execution:
        """One attempt, as a process of its own: another store, another keeper."""
        plan = faults or FaultPlan()
        own = store or self.new_store(type(self.store), plan)
        given = EngineSettings(
            **{**{name: getattr(self.settings, name) for name in _SETTINGS}, **settings}
        )
        await own.open()
        own_keeper = keeper or Keeper(own, clock=self.clock, settings=given)
        if keeper is None:
            await own_keeper.start()
        try:
            return await run_attempt(
                execution,
                store=own,
                program=program,
                keeper=own_keeper,
                clock=self.clock,
                settings=given,
                faults=plan,
                sink=sink,
            )
        finally:
            if keeper is None:
                await own_keeper.stop()

    async def answer(self, execution: Execution, *values: object) -> None:
        """Answer the whole frontier."""
        now = await self.read(execution)
        assert now.frontier is not None
        answers = {}
        for place, value in enumerate(values):
            text = codec.encode(value)
            answers[place] = StoredAnswer(
                value=text, digest=codec.digest(text), by="p", at=self.clock.estimate()
            )
        assert await self.store.put_answers(now.key, now.frontier, answers)

    async def read(self, execution: Execution) -> Execution:
        found = await self.store.get_execution(execution.key)
        assert found is not None
        return found

    async def records(self, execution: Execution) -> list[Record]:
        """What the log holds, in its order."""
        found = await self.store.load_records(execution.run, from_step=1)
        return sorted((r for r in found if r.seq), key=lambda r: r.seq)


_SETTINGS = tuple(EngineSettings.__dataclass_fields__)
