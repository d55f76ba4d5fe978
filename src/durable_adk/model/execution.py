"""One durable run: its status, which statuses may follow, and what is stored of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Payload
from durable_adk.model.identity import (
    ExecutionKey,
    FencingToken,
    Nonce,
    RunId,
    SessionKey,
    Tenant,
)
from durable_adk.model.wait import Frontier

FAR = 2**53
"""A ``wake_at`` that never comes. Never absent: a missing field would match ``$lte``."""


class Status(enum.Enum):
    """Where an execution stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STUCK = "stuck"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return not MAY_BECOME[self]


MAY_BECOME: Mapping[Status, frozenset[Status]] = {
    Status.QUEUED: frozenset({Status.RUNNING}),
    Status.RUNNING: frozenset(
        {
            Status.SUSPENDED,
            Status.QUEUED,
            Status.STUCK,
            Status.COMPLETED,
            Status.FAILED,
            Status.CANCELLED,
        }
    ),
    Status.SUSPENDED: frozenset({Status.RUNNING}),
    Status.STUCK: frozenset({Status.QUEUED, Status.RUNNING}),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset(),
    Status.CANCELLED: frozenset(),
}
"""The legal transitions. RUNNING to RUNNING is a new claim of an expired lease."""


def check_transition(before: Status, after: Status) -> None:
    """Refuse a transition that the table does not have."""
    if after not in MAY_BECOME[before]:
        raise CorruptHistory("execution status", f"{before.value} may not become {after.value}")


@dataclass(frozen=True, slots=True)
class StepRef:
    """Which step document counts: a stale owner's has another token."""

    step: int
    token: FencingToken


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredError:
    """Why an attempt or an execution failed, as shown to people and programs."""

    type: str
    message: str
    position: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One document of the ``executions`` collection, read whole.

    Attributes:
        turn: Place in its session, from 1; unique per session.
        run: Prefix of all its records.
        input: Payload of ``{"message", "state_delta", "run_config"}``.
        token, claim: The current lease.
        attempt: How many attempts were started.
        step: The open step, from 1.
        last_step: The newest committed step document, or None.
        wake_at: Server milliseconds when something is due; ``FAR`` for never.
        failures: Attempts that failed in a row without a new record.
        voided: Slots of failed outcomes that do not count.
        closing: The end that the current claim must commit without starting ADK.
        cancel: The reason of a cancellation asked of the owner, or None.
        version: The agent version that began it, or None.
        result: Payload of ``{"response", "output"}`` at the end.
        created_at, ended_at: Server milliseconds.
        waiting_since: Server milliseconds of its open frontier, or None.
        scopes_due: Shared state of its last step is not applied yet.
    """

    key: ExecutionKey
    execution_id: str
    tenant: Tenant
    user_id: str
    session_id: str
    session_key: SessionKey
    turn: int
    run: RunId
    invocation_id: str
    input: Payload
    input_digest: str
    status: Status
    token: FencingToken
    claim: Nonce | None
    attempt: int
    step: int
    last_step: StepRef | None = None
    frontier: Frontier | None = None
    wake_at: int = FAR
    failures: int = 0
    voided: tuple[str, ...] = ()
    error: StoredError | None = None
    closing: Status | None = None
    cancel: str | None = None
    version: str | None = None
    result: Payload | None = None
    created_at: int = 0
    ended_at: int | None = None
    waiting_since: int | None = None
    scopes_due: bool = False

    @property
    def is_active(self) -> bool:
        return not self.status.is_final


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution:
    """What the insert of an execution needs; the rest is decided by the insert.

    ``run_now`` claims it in the same write; else it is ``queued`` and due at once.
    """

    key: ExecutionKey
    execution_id: str
    tenant: Tenant
    user_id: str
    session_id: str
    session_key: SessionKey
    run: RunId
    invocation_id: str
    input: Payload
    input_digest: str
    nonce: Nonce
    run_now: bool
    ttl_ms: int
    version: str | None = None
    initial_state: Payload | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to commit for one execution: what every fenced write filters on."""

    key: ExecutionKey
    token: FencingToken
    claim: Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDocument:
    """One committed step.

    Attributes:
        prev: The step document before it, or None for the first.
        events: Payload of the list of event envelopes, in order.
        finished: Payload of ``{operation path: what a finished node run left}``.
        records: Slots (``SSSSSS:<digest>.<try>o``) of the records that belong to it.
        abandoned: Position texts that were entered and have no outcome.
        state: Payload of the whole session state after it; on the last step of a turn only.
        scopes: Payload of ``{key: value or None}`` written to ``user:`` and ``app:`` state.
        stamp: Order of those writes; empty if there are none.
        refs: Slots of the records whose content the events refer to instead of repeating it.
        bodies: Their bodies by slot, filled in by whoever reads the document; not stored with it.
    """

    run: RunId
    step: int
    token: FencingToken
    prev: StepRef | None
    events: Payload
    finished: Payload
    records: tuple[str, ...] = ()
    abandoned: tuple[str, ...] = ()
    state: Payload | None = None
    scopes: Payload | None = None
    stamp: str = ""
    refs: tuple[str, ...] = ()
    bodies: Mapping[str, Payload] = field(default_factory=dict)
    nonce: Nonce

    @property
    def ref(self) -> StepRef:
        return StepRef(self.step, self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """One document of the ``sessions`` collection.

    Attributes:
        state: Payload of the initial state, or None.
        created_at: Server milliseconds.
    """

    key: SessionKey
    tenant: Tenant
    user_id: str
    session_id: str
    state: Payload | None
    created_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A finished execution with its committed steps, in order."""

    execution: Execution
    steps: tuple[StepDocument, ...] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A session at an execution's start.

    Attributes:
        turns: All finished turns before it, or the newest whole ones that were asked for.
    """

    session: SessionRecord
    turns: tuple[Turn, ...] = ()
