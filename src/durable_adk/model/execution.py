"""One durable run: its status, which statuses may follow, and what is stored of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from durable_adk.errors import CorruptHistory, Unavailable
from durable_adk.model.activity import Payload, Record
from durable_adk.model.due import Due
from durable_adk.model.identity import (
    ExecutionKey,
    FencingToken,
    Nonce,
    RunId,
    SessionKey,
    Tenant,
)
from durable_adk.model.retention import WHOLE, Begins, Retained
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
class Parent:
    """The part of another execution's record that a fork made inside it begins with.

    Attributes:
        run, execution_id: Whose it is.
        step, seq: Its steps before ``step``, and of ``step`` what its log holds up to ``seq``.
        answers: The answers to its frontiers of steps before this one.
    """

    run: RunId
    execution_id: str
    step: int
    seq: int
    answers: int

    def has(self, record: Record) -> bool:
        """Whether one of its outcomes is part of it."""
        is_before = record.step == self.step and 0 < record.seq <= self.seq
        return is_before or record.step < self.step


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
        codes: ``RanUnder.code`` of its attempts, each once, in the order of first use.
        result: Payload of ``{"response", "output"}`` at the end.
        created_at, ended_at: Server milliseconds.
        waiting_since: Server milliseconds of its open frontier, or None.
        scopes_due: Shared state of its last step is not applied yet.
        parents: Whose record it goes on from, oldest first; empty unless it is a fork made inside
            an execution.
        lease_ended: Server milliseconds when the last lease ended that was not given back, or None.
        deadline: Server milliseconds after which it is ended as failed, or None.
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
    codes: tuple[str, ...] = ()
    result: Payload | None = None
    created_at: int = 0
    ended_at: int | None = None
    waiting_since: int | None = None
    scopes_due: bool = False
    parents: tuple[Parent, ...] = ()
    lease_ended: int | None = None
    deadline: int | None = None

    @property
    def is_active(self) -> bool:
        return not self.status.is_final

    def run_of(self, step: int) -> RunId:
        """Under whose prefix the document of a step is, or will be."""
        return next((parent.run for parent in self.parents if step < parent.step), self.run)

    def id_of(self, step: int) -> str:
        """The execution that committed a step, or will: what its ids derive from."""
        found = (parent.execution_id for parent in self.parents if step < parent.step)
        return next(found, self.execution_id)

    def answers_of(self, step: int) -> tuple[RunId, str]:
        """Under whose prefix the answers to the frontier of a step are, and in whose id they
        were given."""
        found = ((p.run, p.execution_id) for p in self.parents if step < p.answers)
        return next(found, (self.run, self.execution_id))

    def id_of_record(self, record: Record) -> str:
        """The execution that made a record: what its activity id begins with."""
        found = (parent.execution_id for parent in self.parents if parent.has(record))
        return next(found, self.execution_id)


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
    code: str = ""
    initial_state: Payload | None = None
    deadline: Due | None = None


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
        abandoned: Position texts that were entered and have no outcome, or whose outcome an
            earlier attempt left and nothing asked for any more.
        state: Payload of the whole session state after it; on the last step of a turn only.
        artifacts: Payload of ``{file name: newest version}`` of the session's artifacts, likewise;
            None if it has none.
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
    artifacts: Payload | None = None
    scopes: Payload | None = None
    stamp: str = ""
    refs: tuple[str, ...] = ()
    bodies: Mapping[str, Payload] = field(default_factory=dict)
    nonce: Nonce

    @property
    def ref(self) -> StepRef:
        return StepRef(self.step, self.token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A session whose turns up to and including ``upto`` are the past of another one."""

    key: SessionKey
    session_id: str
    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NextExecution:
    """The first execution of a fork, before there is a document of it.

    Attributes:
        made: What a fork inside an execution goes on with; None for one of whole turns, whose
            execution is made by its first message.
    """

    key: ExecutionKey
    execution_id: str
    made: ForkedExecution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedExecution:
    """What the execution of a fork goes on with that was made inside another one.

    Attributes:
        source: Whose input and invocation id it has.
        parents, step, last_step, voided, frontier: As of ``Execution``.
    """

    source: ExecutionKey
    parents: tuple[Parent, ...]
    step: int
    last_step: StepRef | None
    voided: tuple[str, ...] = ()
    frontier: Frontier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a session was imported from.

    Attributes:
        digest: Of all that was imported, as it stands in the open.
        is_whole: All of it is there. Before that the session cannot be used.
        own: The digest itself, where ``digest`` is keyed: stored encrypted, it outlives the key.
    """

    digest: str
    is_whole: bool
    own: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord(Begins):
    """One document of the ``sessions`` collection.

    Attributes:
        state: Payload of the initial state, or None; a fork's is that of its oldest ancestor.
        created_at: Server milliseconds.
        lineage: Whose turns come before its own, oldest first; the last one is what it was forked
            from. The turns of each are those after the turns of the one before it.
        next: The first execution of a fork; stays when there is one.
        cut: Digest of what was asked for when it was forked; empty if it was not.
        artifacts: Payload of ``{file name: newest version}`` at the cut, or None.
        is_going: It is being deleted.
        is_removed: That is decided; before, it can still be found that a fork needs it.
        imported: What it was imported from, or None.
        retained: What retention left of it.
    """

    key: SessionKey
    tenant: Tenant
    user_id: str
    session_id: str
    state: Payload | None
    created_at: int = 0
    lineage: tuple[Ancestor, ...] = ()
    next: NextExecution | None = None
    cut: str = ""
    artifacts: Payload | None = None
    is_going: bool = False
    is_removed: bool = False
    imported: Imported | None = None
    retained: Retained = WHOLE

    @property
    def base(self) -> int:
        """How many turns it has from its ancestors."""
        return self.lineage[-1].upto if self.lineage else 0

    def check_whole(self) -> None:
        """Refuse a session of which only a part may be there.

        Raises:
            Unavailable: its import is not done.
        """
        if self.imported is not None and not self.imported.is_whole:
            raise Unavailable(
                f"session {self.session_id!r} of user {self.user_id!r}",
                "its import has not ended, so that a part of its past may be missing",
                "Wait for it; if it was cut off, call import_() with the same source again.",
            )


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
