"""What the engine needs from the outside, as contracts that a stranger could implement.

``Store`` is implemented by ``durable_adk.store`` by shape (it does not import this module); the
program that runs is ``engine/program.py``. Each method says, in this order: Effect, Time, Repeat,
Returns, Raises. Every ``Store`` method may raise ``Unavailable`` (nothing happened, or for a
read: no answer) and every write ``WriteUnknown`` (unacknowledged at its deadline; the same
call again settles it); they are not repeated below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from durable_adk.engine.doubt_ports import DoubtStore
from durable_adk.engine.fault_points import Faults as Faults
from durable_adk.engine.fault_points import NoFaults as NoFaults
from durable_adk.engine.read_ports import ReadStore
from durable_adk.engine.retention_ports import RetentionStore
from durable_adk.engine.session_ports import SessionStore
from durable_adk.engine.unread_ports import UnreadStore
from durable_adk.model.activity import Payload, Record
from durable_adk.model.execution import (
    Execution,
    History,
    Lease,
    NewExecution,
    Parent,
    Status,
    StepDocument,
    StoredError,
)
from durable_adk.model.identity import ExecutionKey, Nonce, RunId, SessionKey, Tenant
from durable_adk.model.store_results import Begun, Busy, Forked, Renewal, Selection, Taken
from durable_adk.model.store_results import Write as Write
from durable_adk.model.wait import AnsweredWait, Frontier, StoredAnswer


class Clock(Protocol):
    """Time. The server decides leases and expiries; this supplies how it is asked.

    ``now``: an aggregation expression for int64 milliseconds since the epoch:
        ``{"$toLong": "$$NOW"}`` on a server, a number under a manual clock and on mongomock.
    ``estimate``: local guess of the same in milliseconds; only chooses when to look.
    ``elapsed``: seconds from an arbitrary start, the largest of monotonic, boot-time and
        wall-clock elapsed: what lease deadlines are measured with.
    """

    def now(self) -> Any: ...

    def estimate(self) -> int: ...

    def elapsed(self) -> float: ...


class KeeperLink(Protocol):
    """A connection of its own that renews leases, usable on one other event loop.

    ``renew`` has the contract of ``Store.renew``.
    """

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Renewal: ...

    async def close(self) -> None: ...


class Store(ReadStore, SessionStore, DoubtStore, RetentionStore, UnreadStore, Protocol):
    """The only spokesman of the database. One implementation, three drivers."""

    needs_own_loop: bool
    """Whether ``keeper_link`` should be used on a thread of its own (False on mongomock)."""

    async def open(self) -> None:
        """Check the server and make the indexes. Safe when many processes do it at once.

        Raises:
            ConfigError: too old a server, no ``$$NOW``, refused credentials, a sharded
                collection that must not be, ``create_indexes`` off and an index missing,
                a client that belongs to another event loop.
            Unavailable: no server answered in time.
        """
        ...

    async def close(self) -> None:
        """Close the client if the store made it. Repeat: yes."""
        ...

    def keeper_link(self) -> AbstractAsyncContextManager[KeeperLink]:
        """A link for the keeper, to be entered on the loop that will use it."""
        ...

    # ---------------------------------------------------------------- begin and own

    async def begin(self, new: NewExecution) -> Begun | Taken | Busy | Forked:
        """Insert an execution as the next turn of its session, making the session if new.
        ``Forked``: the session's first execution has another id, or is made already.

        Effect: ``turn`` = 1 + the last turn, inserted only after that turn was read as ended.
            With ``run_now`` it is ``running`` under token 1, ``new.nonce`` as claim, attempt 1,
            ``wake_at = NOW + ttl_ms``; else ``queued``, token 0, ``wake_at = NOW``.
        Time: the server's.
        Repeat: with the same nonce, yes: ``Begun`` again (while its claim is unchanged).

        Raises:
            NotStorable: the input or the state is larger than ``payload.max``; nothing is stored.
                So do ``create_session`` and ``put_answers`` refuse what they are given.
        """
        ...

    async def begin_forked(self, execution: Execution, nonce: Nonce) -> Execution:
        """Insert the first execution of a fork that was made inside another one, as it is given but
        for its times: ``wake_at`` 0 means now.

        Repeat: the first insert wins. Returns: the stored one.
        """
        ...

    async def claim(
        self,
        key: ExecutionKey,
        *,
        nonce: Nonce,
        ttl_ms: int,
        version: str | None = None,
        code: str = "",
        early: bool = False,
    ) -> Execution | None:
        """Take an execution that is due.

        Due: active; ``queued`` or ``running``, or ``suspended`` with no open wait; or ``stuck``
            with ``version`` given, recorded and different from ``version``, which has not taken
            it so since its last progress;
            and ``wake_at <= NOW`` (not asked of a ``stuck`` one; nor, with ``early``, of a
            ``queued`` one: a caller who is there does not wait for its back-off, and unlike
            ``retry`` leaves ``failures`` as they are).
        Effect: token + 1, ``claim`` = nonce, ``running``, ``wake_at = NOW + ttl_ms``, attempt + 1,
            ``error`` kept; ``version`` is set to the given one; ``code`` joins ``codes``.
        Time: the server's.
        Repeat: with the same nonce, yes.
        Returns: the claimed execution, read in the claim's causal session, or None.
        Raises: Unread: it is claimed, and its content cannot be read; likewise ``claim_to_close``.
        """
        ...

    async def claim_to_close(
        self, key: ExecutionKey, *, closing: Status, reason: str, nonce: Nonce, ttl_ms: int
    ) -> Execution | None:
        """Take what nobody runs, in order to end it: queued, suspended, stuck, or lease run out.

        Effect: as ``claim``, and ``closing``, ``error`` = reason, ``waiting`` off. Whoever claims
            it after a crash sees ``closing`` and finishes it.
        Returns: the claimed execution, or None if it is running under a live lease or has ended.
        """
        ...

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Renewal:
        """Move the lease's end. Filter: token, claim, ``running``. Time: the server's."""
        ...

    async def release(self, lease: Lease) -> bool:
        """Give a running execution back: ``queued`` and due at once.

        Returns: False if the lease was not ours any more (nothing was written).
        """
        ...

    async def request_cancel(self, key: ExecutionKey, reason: str) -> bool:
        """Ask the owner of a running execution to end it. Returns: False if it is not running."""
        ...

    async def retry(self, key: ExecutionKey) -> Execution | None:
        """Make a ``stuck`` or ``queued`` (backing off) execution due at once; failures = 0.

        Effect: a ``stuck`` one has no ``version`` from then on: any worker may go on with it.

        Returns: the execution, or None if it was neither.
        """
        ...

    # ---------------------------------------------------------------- read for an attempt

    async def load_history(self, key: SessionKey, *, before: int, max_turns: int | None) -> History:
        """A session and its finished turns before turn ``before``, those of its ancestors
        included, newest whole ones if ``max_turns`` is given, each with its committed steps along
        the ``prev`` chain; the ``bodies`` of every step's ``refs`` are filled in.

        Raises:
            CorruptHistory: the session, a turn, or a step of a chain, is missing.
        """
        ...

    async def load_steps(self, execution: Execution) -> tuple[StepDocument, ...]:
        """The committed steps of one execution, in order, along the chain from ``last_step``, with
        the ``bodies`` of their ``refs``."""
        ...

    async def load_records(
        self, run: RunId, *, from_step: int, parents: Sequence[Parent] = ()
    ) -> tuple[Record, ...]:
        """Every record of an execution from a step on, what it keeps of its parents first, in key
        order, bodies whole. One range read for each.

        Raises:
            CorruptHistory: a record's position text does not fit its key, or a chunk is missing.
        """
        ...

    async def load_waits(self, run: RunId, *, step: int) -> tuple[AnsweredWait, ...]:
        """The wait records of one step, in frontier order."""
        ...

    # ---------------------------------------------------------------- record

    async def insert_outcomes(
        self, run: RunId, records: Sequence[Record], *, at_once: bool = False
    ) -> Record | None:
        """Insert outcomes in order, in one ordered insert: with ``at_once`` nothing is waited for,
        else the store may wait for a moment and send those of several runs together.

        Repeat: yes; a duplicate under its own nonce is its own write.
        Returns: None when all are durable; else the first stored record that holds a slot
            under another nonce: those before it are stored, it and those after are not.
        """
        ...

    async def insert_intent(self, run: RunId, record: Record) -> bool:
        """Insert the intent of a body that must not run twice. Returns: whether it is ours."""
        ...

    async def insert_verdict(self, run: RunId, record: Record) -> Record:
        """Put a verdict into an outcome slot. Returns: what stands in the slot now."""
        ...

    # ---------------------------------------------------------------- commit points

    async def put_step(self, document: StepDocument) -> None:
        """Store a step document under its run, step and token. Unreachable until a commit names it.

        Repeat: with the same nonce, yes.
        Raises:
            LeaseLost: the key holds a document under another nonce.
        """
        ...

    async def commit_frontier(
        self, lease: Lease, *, step: StepDocument, frontier: Frontier
    ) -> None:
        """Suspend: one update of the execution, filter token, ``running``, ``step``.

        Effect: ``suspended``, the frontier whole, ``waiting``, ``waiting_since`` = NOW,
            ``wake_at`` = earliest expiry or FAR, no claim, ``failures`` = 0;
            ``scopes_due`` if the step has a stamp.
        Repeat: yes: a frontier with this id, or a later step, means it is committed.
        Raises:
            LeaseLost: somebody else owns it. Nothing was written.
        """
        ...

    async def put_answers(
        self,
        key: ExecutionKey,
        frontier: Frontier,
        answers: Mapping[int, StoredAnswer],
    ) -> bool:
        """Store answers of open places in one update, guarded by ``frontier.rev``.

        Effect: ``rev`` + 1, ``open`` less; with the last one: ``wake_at`` = 0, ``waiting`` off.
            Refused when a place with an expiry has expired by the server's clock.
        Returns: False if nothing was stored (another rev, expired, not suspended): read again.
        """
        ...

    async def commit_continue(
        self, lease: Lease, execution: Execution, answered: Sequence[AnsweredWait]
    ) -> None:
        """Close an answered frontier: wait records first, then one update.

        Effect: the wait records of ``execution.step`` (content only from the frontier, so
            duplicates are equal), then filter token, ``running``, step, frontier id: step + 1,
            ``last_step`` = the frontier's step document, no frontier.
        Repeat: yes. Raises: LeaseLost.
        """
        ...

    async def commit_end(
        self,
        lease: Lease,
        *,
        step: StepDocument,
        status: Status,
        result: Payload | None,
        error: StoredError | None,
    ) -> None:
        """End: one update, filter token, ``running``, ``execution.step``; ``last_step`` = step.

        Effect: the status, not active, ``ended_at`` = NOW, no claim, no frontier, ``wake_at`` FAR;
            ``scopes_due`` if the step has a stamp.
        Repeat: yes: the same status with this step document means it is committed.
        Raises: LeaseLost.
        """
        ...

    async def apply_scopes(self, execution: Execution, step: StepDocument) -> None:
        """Apply a step's shared state key by key, older stamps losing, then clear ``scopes_due``.

        Repeat: yes, by anybody.
        """
        ...

    async def load_scopes(self, tenant: Tenant, user_id: str) -> tuple[dict[str, Payload], str]:
        """Shared state seen now (``user:``/``app:`` keys, prefix kept) and its newest stamp."""
        ...

    async def attempt_failed(
        self,
        lease: Lease,
        *,
        status: Status,
        error: StoredError,
        failures: int,
        voided: Sequence[str],
        backoff_ms: int,
        is_readable: bool = True,
    ) -> None:
        """Give the attempt up: ``queued`` with ``wake_at = NOW + backoff``, or ``stuck`` (until its
        deadline; what cannot be read, and so not be ended either: FAR).

        Effect: error, failures, voided slots added; no claim. Filter token, ``running``.
        Raises: LeaseLost.
        """
        ...


__all__ = [
    "AnsweredWait",
    "Begun",
    "Busy",
    "Clock",
    "Faults",
    "KeeperLink",
    "NoFaults",
    "Renewal",
    "Selection",
    "Store",
    "Taken",
    "Write",
]
