"""Recorded calls: what an activity is, and what can be recorded of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime

from durable_adk.model.identity import FencingToken, Nonce

Payload = str
"""Canonical JSON text made by ``model/codec.py``. Storage may spill it; readers get it whole."""


class Kind(enum.Enum):
    """What sort of call a record is about."""

    MODEL = "model"
    TOOL = "tool"
    NODE = "node"
    WAIT = "wait"
    STEP = "step"
    """A call recorded by the user with ``step()``."""
    TIMER = "timer"
    """A ``sleep()`` that is over."""
    SHARED = "shared"
    """What a step saw of ``user:`` and ``app:`` state; its first record."""


class RecordStatus(enum.Enum):
    """What the outcome slot of a position holds."""

    COMPLETED = "completed"
    FAILED = "failed"
    WAITING = "waiting"
    """A leaf node that asked a question: done until the answer."""
    IN_DOUBT = "in_doubt"
    """A verdict: an intent was found without an outcome."""


class UnknownOutcome(enum.Enum):
    """What to do with a body that was entered and left no outcome."""

    RERUN = "rerun"
    FAIL = "fail"
    ASK = "ask"


POLICY_MARK = "__durable_policy__"
"""Attribute of a function or tool that ``durable_tool`` marked: its ``UnknownOutcome``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One document of the ``activities`` collection.

    Attributes:
        step: The step of the position (repeated for the key).
        digest: The position's digest.
        attempt_try: The k-th slot of the position, from 1.
        is_intent: An intent (``i``) or an outcome (``o``).
        position: The position's full text.
        token: The fencing token of the writer.
        seq: Place in the ordered log of the execution, from 1; 0 for an intent or a verdict.
        nonce: Fresh per write, the same in its retries.
        request: Digest of what was asked (tool name and arguments, model request); may be empty.
        status: None for an intent.
        name: Tool, node or model name, for people.
        node_path: ADK's path of the node that asked, for people; may be empty.
        body: Kind-specific payload; None for an intent or a verdict.
        started_at, ended_at: Milliseconds since the epoch by the writer's clock; for people.
        attempt: The attempt number that wrote it.
    """

    step: int
    digest: str
    attempt_try: int = 1
    is_intent: bool = False
    position: str
    token: FencingToken
    seq: int = 0
    nonce: Nonce
    request: str = ""
    status: RecordStatus | None = None
    name: str = ""
    node_path: str = ""
    body: Payload | None = None
    started_at: int = 0
    ended_at: int = 0
    attempt: int = 0

    @property
    def slot(self) -> str:
        """Where it sits within the run: ``SSSSSS:<digest>.<try>{i|o}``."""
        return slot_of(self.step, self.digest, self.attempt_try, is_intent=self.is_intent)


def slot_of(step: int, digest: str, attempt_try: int, *, is_intent: bool = False) -> str:
    return f"{step:06d}:{digest}.{attempt_try}{'i' if is_intent else 'o'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityInfo:
    """One activity as shown to people and programs (``app.executions.activities``).

    Attributes:
        kind: ``model``, ``tool``, ``node``, ``step``, ``wait`` or ``timer``.
        status: ``completed``, ``failed``, ``waiting``, ``denied``, ``running``, ``in_doubt`` or
            ``abandoned``.
        attempt: The number of the attempt that recorded it; 0 for a wait.
        started_at, ended_at: By the clock of the process that ran it; None where that is not
            known or it is not over. A wait began when it became open (known while it is), and
            ended when it was answered.
        details: Of a wait: ``wait_kind``, and once it is answered ``by``, which may be None.
    """

    id: str
    kind: str
    name: str
    operation_path: str
    node_path: str
    step: int
    entry: int
    ordinal: int
    status: str
    attempt: int
    started_at: datetime | None
    ended_at: datetime | None
    details: dict[str, object] = field(default_factory=dict)
