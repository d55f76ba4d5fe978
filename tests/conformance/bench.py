"""What a conformance test works on: a store of one driver, its rivals, its time, its faults."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from durable_adk.model.activity import Kind, Record, RecordStatus
from durable_adk.model.execution import (
    Execution,
    Lease,
    NewExecution,
    SessionRecord,
    Status,
    StepDocument,
    StoredError,
)
from durable_adk.model.identity import (
    FencingToken,
    Tenant,
    execution_key,
    new_nonce,
    new_run_id,
    session_key,
)
from durable_adk.model.position import Position
from durable_adk.model.store_results import Begun, Write
from durable_adk.model.wait import (
    AnsweredWait,
    Frontier,
    StoredAnswer,
    WaitKind,
    WaitRequest,
    frontier_id,
)
from durable_adk.store.mongo import MongoStore

TTL_MS = 30_000
COLLECTIONS = ("executions", "activities", "steps", "sessions", "scopes", "payloads")


class ScriptedFaults:
    """Loses replies on demand and counts what was sent."""

    def __init__(self) -> None:
        self.sent: Counter[Write] = Counter()
        self.stored: Counter[Write] = Counter()
        self._lose: Counter[Write] = Counter()

    def lose(self, write: Write, times: int = 1) -> None:
        """Lose the next replies of this kind of write."""
        self._lose[write] += times

    def before(self, write: Write) -> None:
        self.sent[write] += 1

    def after(self, write: Write) -> bool:
        self.stored[write] += 1
        if self._lose[write]:
            self._lose[write] -= 1
            return True
        return False

    @property
    def all_lost(self) -> bool:
        """Whether every reply that was to be lost has been."""
        return not +self._lose


class Bench:
    """One store, and everything that makes documents for it. Ids are fresh in every test."""

    def __init__(
        self,
        client: Any,
        *,
        database: str,
        clock: Any,
        is_real: bool,
        keys: Mapping[str, bytes] | None = None,
    ) -> None:
        self.client = client
        self.keys = keys
        self.database = database
        self.clock = clock
        self.is_real = is_real
        self.faults = ScriptedFaults()
        self.tenant = Tenant(f"ns-{secrets.token_hex(6)}", "app")
        self.store = self.make_store(faults=self.faults)
        self._numbers = itertools.count(1)

    def make_store(self, **options: Any) -> MongoStore:
        return MongoStore(
            self.client,
            **{
                "database": self.database,
                "clock": self.clock,
                "lease_ttl_ms": TTL_MS,
                "keys": self.keys,
                **options,
            },
        )

    async def rival(self, **options: Any) -> MongoStore:
        """A store as another process would have it."""
        store = self.make_store(**options)
        await store.open()
        return store

    @contextlib.asynccontextmanager
    async def moving(self, key: str, **values: Sequence[Any]) -> AsyncIterator[None]:
        """A field of an execution goes from value to value, again and again, while the server lets
        writers in after each document of a scan, not only when it is slow."""
        ((field, through),) = values.items()
        executions, is_over = self.collection("executions"), False

        async def move() -> None:
            while not is_over:
                for value in through:
                    await executions.update_one({"_id": key}, {"$set": {field: value}})
                    await asyncio.sleep(0)

        async with self._scans_that_give_way(), asyncio.TaskGroup() as tasks:
            tasks.create_task(move())
            yield
            is_over = True

    @contextlib.asynccontextmanager
    async def _scans_that_give_way(self) -> AsyncIterator[None]:
        if not self.is_real:
            yield
            return
        admin, name = self.client["admin"], "internalQueryExecYieldIterations"
        before = await admin.command("setParameter", 1, **{name: 1})
        try:
            yield
        finally:
            await admin.command("setParameter", 1, **{name: before["was"]})

    def pass_lease(self) -> None:
        self.clock.advance(TTL_MS + 1_000)

    async def server_now(self) -> int:
        """The time that the store's writes see, read through a session's creation."""
        number = next(self._numbers)
        made = await self.store.create_session(self.session(f"clock-{number}"))
        assert made is not None
        return made.created_at

    # ------------------------------------------------------------------ raw documents

    def collection(self, name: str) -> Any:
        return self.client[self.database][f"durable_{name}"]

    async def raw(self, name: str, found: dict[str, Any]) -> list[dict[str, Any]]:
        return await self.collection(name).find(found).to_list(None)

    async def everything(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """All that belongs to a run, and all of this test's sessions and shared state."""
        tenant = {"ns": self.tenant.namespace}
        mine = {"_id": {"$gte": f"{run}:", "$lt": f"{run};"}}
        wanted = {"executions": tenant, "sessions": tenant, "scopes": tenant}
        found = {}
        for name in COLLECTIONS:
            docs = await self.raw(name, wanted.get(name, mine))
            found[name] = sorted(docs, key=lambda doc: doc["_id"])
        return found

    # ------------------------------------------------------------------ values

    def session(self, session_id: str, *, user: str = "u", state: str | None = None) -> Any:
        return SessionRecord(
            key=session_key(self.tenant, user, session_id),
            tenant=self.tenant,
            user_id=user,
            session_id=session_id,
            state=state,
        )

    def new(self, execution_id: str = "e1", session_id: str = "s1", **changes: Any) -> NewExecution:
        user = changes.get("user_id", "u")
        values: dict[str, Any] = {
            "key": execution_key(self.tenant, execution_id),
            "execution_id": execution_id,
            "tenant": self.tenant,
            "user_id": user,
            "session_id": session_id,
            "session_key": session_key(self.tenant, user, session_id),
            "run": new_run_id(),
            "invocation_id": execution_id,
            "input": '{"message":"hello"}',
            "input_digest": "0" * 32,
            "nonce": new_nonce(),
            "run_now": True,
            "ttl_ms": TTL_MS,
        }
        return NewExecution(**{**values, **changes})

    async def begin(
        self, execution_id: str = "e1", session_id: str = "s1", **changes: Any
    ) -> Execution:
        begun = await self.store.begin(self.new(execution_id, session_id, **changes))
        assert isinstance(begun, Begun)
        return begun.execution

    async def claim(self, execution: Execution, **options: Any) -> Execution:
        """Claim what is due with a fresh nonce; it has to work."""
        claimed = await self.try_claim(execution, **options)
        assert claimed is not None
        return claimed

    async def try_claim(self, execution: Execution, **options: Any) -> Execution | None:
        options = {"nonce": new_nonce(), "ttl_ms": TTL_MS, **options}
        return await self.store.claim(execution.key, **options)

    async def read(self, execution: Execution) -> Execution:
        found = await self.store.get_execution(execution.key)
        assert found is not None
        return found


def lease_of(execution: Execution) -> Lease:
    assert execution.claim is not None
    return Lease(execution.key, execution.token, execution.claim)


def record(ordinal: int = 1, *, step: int = 1, **changes: Any) -> Record:
    """An outcome of a model call; ``ordinal`` makes the position."""
    kind = changes.pop("kind", Kind.MODEL)
    position = Position(step, "agent#1/inner#1/review#1", 1, kind, ordinal)
    values: dict[str, Any] = {
        "step": step,
        "digest": position.digest,
        "position": position.text,
        "token": FencingToken(1),
        "seq": ordinal,
        "nonce": new_nonce(),
        "request": secrets.token_hex(16),
        "status": RecordStatus.COMPLETED,
        "name": "gemini-2.5-flash",
        "node_path": "outer@1/inner@1/review@1",
        "body": json.dumps({"answer": ordinal}),
        "started_at": 1_700_000_000_000,
        "ended_at": 1_700_000_000_250,
        "attempt": 1,
    }
    return Record(**{**values, **changes})


def intent(ordinal: int = 1, **changes: Any) -> Record:
    fixed = {"is_intent": True, "seq": 0, "status": None, "body": None, "kind": Kind.TOOL}
    return record(ordinal, **{**fixed, **changes})


def verdict(ordinal: int = 1, **changes: Any) -> Record:
    fixed = {"seq": 0, "status": RecordStatus.IN_DOUBT, "body": None, "kind": Kind.TOOL}
    return record(ordinal, **{**fixed, **changes})


def step_of(execution: Execution, **changes: Any) -> StepDocument:
    """The open step of a claimed execution, under its token."""
    values: dict[str, Any] = {
        "run": execution.run,
        "step": execution.step,
        "token": execution.token,
        "prev": execution.last_step,
        "events": '[{"author":"agent"}]',
        "finished": "{}",
        "nonce": new_nonce(),
    }
    return StepDocument(**{**values, **changes})


def wait(ordinal: int = 1, *, step: int = 1, **changes: Any) -> WaitRequest:
    position = Position(step, "agent#1/ask#1", 1, Kind.WAIT, ordinal)
    values: dict[str, Any] = {
        "digest": position.digest,
        "position": position.text,
        "kind": WaitKind.INPUT,
        "call_name": "adk_request_input",
        "call_id": f"call-{ordinal}",
        "node_path": "outer@1/ask@1",
        "operation_path": "agent#1/ask#1",
        "branch": None,
        "isolation_scope": None,
        "author": "ask",
        "content": json.dumps({"message": f"question {ordinal}"}),
    }
    return WaitRequest(**{**values, **changes})


def frontier_of(
    execution: Execution, waits: Sequence[WaitRequest], ordinal: int = 1, **changes: Any
) -> Frontier:
    values: dict[str, Any] = {
        "id": frontier_id(execution.execution_id, execution.step, ordinal),
        "step": execution.step,
        "step_token": execution.token,
        "waits": tuple(waits),
        "open": len(waits),
        "rev": 0,
    }
    return Frontier(**{**values, **changes})


def answer(value: str = '"yes"', **changes: Any) -> StoredAnswer:
    digest = hashlib.sha256(value.encode()).hexdigest()[:32]
    values: dict[str, Any] = {"value": value, "digest": digest, "by": "me", "at": 7}
    return StoredAnswer(**{**values, **changes})


async def suspend(
    bench: Bench,
    execution: Execution,
    waits: Sequence[WaitRequest],
    step: StepDocument | None = None,
) -> Frontier:
    """Commit the open step and a frontier; gives the frontier as it is stored."""
    step = step or step_of(execution)
    await bench.store.put_step(step)
    frontier = frontier_of(execution, waits)
    await bench.store.commit_frontier(lease_of(execution), step=step, frontier=frontier)
    return frontier


async def answer_all(bench: Bench, execution: Execution, frontier: Frontier) -> None:
    answers = {place: answer(f'"{place}"') for place in range(len(frontier.waits))}
    assert await bench.store.put_answers(execution.key, frontier, answers)


def answered_of(execution: Execution) -> list[AnsweredWait]:
    frontier = execution.frontier
    assert frontier is not None
    return [
        AnsweredWait(wait=one, answer=frontier.answers[place])
        for place, one in enumerate(frontier.waits)
    ]


async def next_step(bench: Bench, execution: Execution, waits: Sequence[WaitRequest]) -> Execution:
    """Suspend, answer, claim and continue: the execution in its next step."""
    frontier = await suspend(bench, execution, waits)
    await answer_all(bench, execution, frontier)
    claimed = await bench.claim(execution)
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    return await bench.read(claimed)


async def end(
    bench: Bench,
    execution: Execution,
    step: StepDocument | None = None,
    status: Status = Status.COMPLETED,
) -> StepDocument:
    """Commit the open step and the end."""
    step = step or step_of(execution, state='{"k":1}')
    await bench.store.put_step(step)
    await bench.store.commit_end(
        lease_of(execution), step=step, status=status, result='{"response":"ok"}', error=None
    )
    return step


def failure(message: str = "it broke") -> StoredError:
    return StoredError(type="ValueError", message=message, position="1|agent#1|1|model|1")
