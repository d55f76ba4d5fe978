"""Questions to the outside: waits, the frontier they are committed in, and answers."""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from durable_adk.model.activity import Payload
from durable_adk.model.identity import FencingToken

BY_EXPIRY = "expiry"
"""Who gives the answer that a wait carries for the case that nobody answers in time."""


class WaitKind(enum.Enum):
    """What is asked. The texts are ADK's own function names where ADK has one."""

    INPUT = "adk_request_input"
    CONFIRMATION = "adk_request_confirmation"
    CREDENTIAL = "adk_request_credential"
    IN_DOUBT = "in_doubt"
    TIMER = "timer"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRequest:
    """One open wait as the adapter found it and as a frontier stores it.

    Attributes:
        digest: Digest of the wait's position; with the execution id it is the public wait id.
        position: The position's text.
        kind: What is asked.
        call_name: ADK's function-call name that the answer must carry.
        call_id: ADK's function-call id that the answer must carry. Never a wait id: it may repeat.
        node_path: ADK's node path, or empty for an agent outside the node runtime.
        operation_path: Our path of the node or agent that asked.
        branch, isolation_scope: Copied to the answer's event.
        author: The agent that asked.
        content: Payload of ``{"message", "payload", "tool_call", "response_schema", "shown"}``;
            ``tool_call`` is ``{"id", "name", "args"}`` or None, ``shown`` the digest of tool and
            arguments that the answer is about, or empty. Where it is not, ``fits``, ``lacks`` and
            ``unknown`` say how the tool took them (``adk.parameters.Fit``).
        expires_at: Server milliseconds, or None. Of a timer: when it is due.
        expires_after: Where ``expires_at`` is not known yet: milliseconds from the write that makes
            the frontier visible. Stays, for forks that ask again.
        on_expiry: Payload of the answer that counts then; of every wait that expires.
    """

    digest: str
    position: str
    kind: WaitKind
    call_name: str
    call_id: str
    node_path: str
    operation_path: str
    branch: str | None
    isolation_scope: str | None
    author: str
    content: Payload
    expires_at: int | None = None
    expires_after: int | None = None
    on_expiry: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """The reply to one wait.

    Attributes:
        value: Payload of the value as it was sent.
        digest: Digest of that payload: what repeats are compared by.
        by: Who answered, or None.
        at: Milliseconds since the epoch when it was accepted.
        state: Payload of the state that is set with it, or None. Each answer of one message has it.
    """

    value: Payload
    digest: str
    by: str | None
    at: int
    state: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """All waits open at one quiescent moment.

    Attributes:
        id: 20 hex digits of (execution, step, k-th frontier of the step).
        step: The step that it ends.
        step_token: The token whose step document counts; 0: it has none.
        waits: In frontier order; an answer refers to its place.
        open: How many are unanswered.
        rev: Grows with each stored answer; guards the map.
        answers: By place.
        deadline: That of its execution, in server milliseconds, or None: no answer after it.
    """

    id: str
    step: int
    step_token: FencingToken
    waits: tuple[WaitRequest, ...]
    open: int
    rev: int
    answers: Mapping[int, StoredAnswer] = field(default_factory=dict)
    deadline: int | None = None

    @property
    def ends_step(self) -> bool:
        """Whether its step is over. One with a timer is left within its step: what slept goes on
        there; and so is one with calls in doubt."""
        return not self.sleeps and not self.is_in_doubt

    @property
    def sleeps(self) -> bool:
        return any(wait.kind is WaitKind.TIMER for wait in self.waits)

    @property
    def is_in_doubt(self) -> bool:
        """Whether calls are in doubt. What the step's timers came to stands behind them."""
        return any(wait.kind is WaitKind.IN_DOUBT for wait in self.waits)

    def without_doubts(self) -> Frontier | None:
        """What is left when its doubts are settled: the timers of the step, and what was asked
        beside them; None without any."""
        first = sum(1 for wait in self.waits if wait.kind is WaitKind.IN_DOUBT)
        if first == len(self.waits):
            return None
        answers = {place - first: one for place, one in self.answers.items() if place >= first}
        return replace(
            self,
            id=hashlib.sha256(f"{self.id}|settled".encode()).hexdigest()[:20],
            step_token=FencingToken(0),
            waits=self.waits[first:],
            open=len(self.waits) - first - len(answers),
            answers=answers,
        )

    def place_of(self, digest: str) -> int | None:
        """The place of the wait with this digest, or None."""
        for place, wait in enumerate(self.waits):
            if wait.digest == digest:
                return place
        return None


def frontier_id(execution_id: str, step: int, ordinal: int = 1) -> str:
    """The id of the ``ordinal``-th frontier of a step (in-doubt frontiers do not end one)."""
    return hashlib.sha256(f"{execution_id}|{step}|{ordinal}".encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredWait:
    """A wait with its answer, as a continue feeds it back. It becomes a record of its step."""

    wait: WaitRequest
    answer: StoredAnswer
