"""What the store answers: the results of its writes and the words for them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from durable_adk.model.execution import Execution, SessionRecord, Status, StoredError
from durable_adk.model.identity import Tenant

OVERDUE = StoredError(
    type="DeadlineExceeded",
    message="its deadline has passed",
    remedy="Send the message again, with a later deadline or none.",
)
"""Why an execution ended that was not done in time."""


class Write(enum.Enum):
    """Each kind of write, named by what is true once it is stored."""

    SESSION = "the session exists"
    BEGIN = "the execution exists"
    CLAIM = "the lease is taken"
    RENEW = "the lease is renewed"
    CHUNK = "a chunk of a large payload is there"
    INTENT = "the intent of a body that must not run twice is there"
    VERDICT = "a body without an outcome is in doubt"
    OUTCOMES = "outcomes are recorded"
    STEP = "a step document is there, and not reachable yet"
    FRONTIER = "the frontier is committed"
    DOUBTS = "what is in doubt is committed"
    ANSWER = "an answer is stored"
    WAITS = "the answers are records of their step"
    CONTINUE = "the next step is open"
    END = "the execution has ended"
    SCOPES = "shared state is applied"
    ATTEMPT_FAILED = "the attempt is given up"
    RELEASE = "the lease is given back"
    CANCEL = "a cancellation is asked of the owner"
    RETRY = "a stuck execution is queued again"
    ARTIFACT = "a version of an artifact is there"
    DELETE = "a session and what belongs to it are gone"
    EXPIRING = "the oldest turns of a session are marked, or not any more"
    CUTTING = "somebody is about to move the floor of a session, or not any more"
    CUT = "a session begins behind its oldest turns"
    REMOVED = "something of the turns below a floor is gone"
    SWEPT = "chunks of overwritten shared state are gone"
    REENCRYPT = "a value is encrypted under the current key"


@dataclass(frozen=True, slots=True)
class Begun:
    """The execution was inserted by this call (or by an earlier try of it)."""

    execution: Execution


@dataclass(frozen=True, slots=True)
class Taken:
    """An execution with this id was there before. The caller compares ``input_digest``."""

    execution: Execution


@dataclass(frozen=True, slots=True)
class Busy:
    """The session's last turn is another execution, still active. Nothing was inserted."""

    execution: Execution


@dataclass(frozen=True, slots=True)
class Forked:
    """The session is a fork, and its first execution is another one (``session.next``). Nothing was
    inserted."""

    session: SessionRecord


class Unread(Exception):
    """A claim that took the lease of an execution whose content cannot be read.

    Attributes:
        execution: What can be read of it, under the lease; its ``error`` says what cannot.
    """

    def __init__(self, execution: Execution) -> None:
        super().__init__(f"execution {execution.execution_id!r} is claimed and cannot be read")
        self.execution = execution


@dataclass(frozen=True, slots=True)
class Renewal:
    """What a renewal found.

    Attributes:
        held: The lease is (again) ours. False: token or claim moved, or it is not running.
        cancel: The reason of a cancellation asked for, or None.
        overdue: The deadline of the execution has passed, by the server's clock.
    """

    held: bool
    cancel: str | None = None
    overdue: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reencrypted:
    """What a pass over all that is stored did.

    Attributes:
        seen: Documents that were looked at.
        rewritten: Those with a value that was plain, or under another key.
    """

    seen: int
    rewritten: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Which documents of a tenant a list or a scan wants.

    ``status`` narrows executions, and so does ``version``, an agent version that they ran under;
    ``kind`` narrows waits; ``cursor`` is what a page returned.
    """

    tenant: Tenant
    user_id: str | None = None
    session_id: str | None = None
    status: Status | None = None
    version: str | None = None
    kind: str | None = None
    limit: int = 50
    cursor: str | None = None
