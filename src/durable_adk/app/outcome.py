"""What an App returns: frozen values, told apart from what is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, Self, TypeVar

from durable_adk.app._json import jsonable
from durable_adk.errors import ExecutionFailed
from durable_adk.model.versions import RanUnder

T = TypeVar("T")

OutcomeStatus = Literal[
    "completed", "suspended", "failed", "cancelled", "stuck", "queued", "running"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """The call that a wait is about. ``id`` is ADK's and may repeat."""

    id: str
    name: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """An open question. Answer it with ``App.resume`` or ``App.answer`` by its ``id``.

    Attributes:
        kind: ``adk_request_input``, ``adk_request_confirmation``, ``adk_request_credential``;
            ``in_doubt``: a call that was entered and left no result (``durable_tool``); or
            ``timer``: a ``sleep()``, which nobody answers and no resume map holds.
        node_path: ADK's path of the node that asked; empty for an agent outside the node runtime.
        payload: What the program sent along with its question, or None.
        tool_call: The call to confirm, that runs long, or that is in doubt; None for a plain
            question.
        response_schema: JSON schema of the answer, or None.
        since: When it became open. In the outcome of the attempt that asked, that process's
            estimate of the server's clock; not compared.
        expires_at: When it can no longer be answered, or None; of a timer, when it is due. By the
            server's clock.
    """

    id: str
    kind: str
    node_path: str
    operation_path: str
    message: str | None
    payload: Any
    tool_call: ToolCall | None
    response_schema: Any
    execution_id: str
    user_id: str
    session_id: str
    since: datetime | None = field(default=None, compare=False)
    expires_at: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        return dict(jsonable(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorInfo:
    """Why an execution, or its last attempt, failed.

    Attributes:
        type: Name of the error's class.
        position: Text of the position of the call that raised it, or that differs, or None.
        remedy: What can be done, or None.
    """

    type: str
    message: str
    position: str | None = None
    remedy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an execution.

    Attributes:
        status: ``queued`` means that an attempt failed (see ``error``) and another will follow.
            ``running`` only comes from ``app.executions.outcome``.
        response: Text of the last final event, or None.
        output: The root node's output.
        events: All committed events of the execution (ADK's ``Event``), the same for every caller.
        error: Why it failed, or why its last attempt did.
        waits: The open waits, in frontier order.
        resume_schema: JSON schema of the whole resume map.
    """

    status: OutcomeStatus
    execution_id: str
    user_id: str
    session_id: str
    response: str | None = None
    output: Any = None
    events: tuple[Any, ...] = ()
    error: ErrorInfo | None = None
    waits: tuple[Wait, ...] = ()
    resume_schema: Mapping[str, Any] = field(default_factory=dict)

    def raise_for_status(self) -> Self:
        """Return itself unless it is ``failed``, ``cancelled`` or ``stuck``.

        Raises:
            ExecutionFailed: the execution ended without a result, or is stuck.
        """
        if self.status not in ("failed", "cancelled", "stuck"):
            return self
        error = self.error
        why = f": {error.type}: {error.message}" if error else ""
        is_stuck = self.status == "stuck"
        then = "retry() it, or end it with cancel()." if is_stuck else "Send the session a message."
        remedy = (error.remedy if error else None) or then
        raise ExecutionFailed(f"execution {self.execution_id!r}", f"is {self.status}{why}", remedy)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain JSON."""
        return dict(jsonable(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """One item of a stream.

    Attributes:
        kind: ``token``, ``event``, or for the one last item ``suspend``, ``result``, ``error``.
        data: The text of a token, ADK's ``Event``, or the ``Outcome``.
    """

    kind: Literal["token", "event", "suspend", "result", "error"]
    data: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReceipt:
    """What storing one answer left.

    Attributes:
        open: How many waits of the frontier are still unanswered.
        runnable: The frontier is complete: a worker, ``recover()`` or ``resume`` goes on with it.
    """

    execution_id: str
    open: int
    runnable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRecord:
    """One execution as the list of executions shows it.

    Attributes:
        turn: Its place in the session, from 1.
        step: The open step, from 1.
        attempt: How many attempts were started.
        open_waits: How many waits are open.
        ran_under: The versions that its attempts ran under, in the order of first use.
        usage: What its own recorded model calls spent, only from ``executions.get``:
            ``model_calls`` and ``prompt_tokens``, ``output_tokens``, ``total_tokens``,
            ``cached_tokens``, ``thoughts_tokens``, ``tool_prompt_tokens``. A call whose process
            died before its record is not in it, and neither is one inside a ``step()``.
        usage_by_model: The same for each model, by the name that its agent has for it; only from
            ``executions.get``. Empty for an imported turn: its events do not name it so.
    """

    id: str
    user_id: str
    session_id: str
    turn: int
    status: str
    step: int
    attempt: int
    error: ErrorInfo | None = None
    usage: Mapping[str, int] | None = None
    usage_by_model: Mapping[str, Mapping[str, int]] | None = None
    version: str | None = None
    ran_under: tuple[RanUnder, ...] = ()
    open_waits: int = 0
    created_at: datetime | None = None
    ended_at: datetime | None = None

    def to_dict(self) -> dict[str, Any]:
        return dict(jsonable(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One session.

    Attributes:
        state: Its state after the last finished turn; only from ``sessions.get`` and ``create``.
        updated_at: Its last change; only from those too.
        forked_from: Id of the session that it was forked from, or None.
        base_turns: How many turns it has from its ancestors.
        pending: Id of its first execution, if that is still to come after a fork.
    """

    id: str
    user_id: str
    state: Mapping[str, Any] | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    forked_from: str | None = None
    base_turns: int = 0
    pending: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return dict(jsonable(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFork:
    """A new session that shares the past of another one up to a cut.

    Attributes:
        execution_id: Its first execution. Of a fork of whole turns it is ``pending``: the next
            message to the session starts it. Of a fork inside an execution it is there: suspended
            on the waits that are asked again, or due.
    """

    session_id: str
    execution_id: str

    def to_dict(self) -> dict[str, Any]:
        return dict(jsonable(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNode:
    """A session with the forks that were made of it.

    Attributes:
        info: Without state.
        forked_at: How many turns of its parent it has; None for a root.
        children: Its forks, oldest first.
    """

    info: SessionInfo
    forked_at: int | None = None
    children: tuple[SessionNode, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return dict(jsonable(self))

    def walk(self) -> Iterator[SessionNode]:
        """This session, then its forks and theirs: each before its own forks."""
        left = [self]
        while left:
            node = left.pop()
            yield node
            left.extend(reversed(node.children))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionImport:
    """What became of one session of another service.

    Attributes:
        status: ``skipped`` means that it is here already, equal. Of ``refused`` ones nothing is
            stored.
        reason: Why it was refused; or which of its questions were open, and are closed; or None.
    """

    user_id: str
    session_id: str
    status: Literal["imported", "skipped", "refused"]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What a look at sessions for retention did.

    Attributes:
        sessions: How many were looked at.
        removed: Turns that are gone now.
        expiring: Turns that are marked: a look an hour after the mark removes them.
        blocked: Of ``expiring``, the turns of sessions with an active execution, one that waits for
            an answer for instance: however old their mark is, they go only after it has ended.
        blocked_by: Ids of those executions, at most 20.
        forked: Turns that would go, and stay because forks of their session stand on them.
    """

    sessions: int
    removed: int
    expiring: int
    blocked: int = 0
    blocked_by: tuple[str, ...] = ()
    forked: int = 0

    def to_dict(self) -> dict[str, Any]:
        return dict(jsonable(self))


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some items, and where the next page begins (None: there is none)."""

    items: tuple[T, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)
