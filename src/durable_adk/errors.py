"""Every error this package raises on purpose.

DurableError
├── ConfigError             you can fix it: a setting, an argument, a graph
│   ├── DurabilityDisabled  ``features.durable_workflow`` is off or missing
│   └── UnsupportedNode     a node that cannot be made durable
├── Unavailable             nothing happened; try again
├── WriteUnknown            not acknowledged in time; call again with the same id or answer
├── OutcomeUnknown          a ``fail`` tool may have run; nobody can know
├── SessionBusy             the session has an unfinished execution
├── NotFound                no such execution, session or wait
├── InvalidAnswer           the answer does not fit its wait or its frontier
├── AnswerConflict          the wait is already answered with something else
├── WaitClosed              the wait can no longer be answered
├── InputConflict           the execution id is taken by another input
├── LeaseLost               another owner took over; stop, report nothing
├── ReplayMismatch          the code no longer matches its history
├── CorruptHistory          recorded documents are missing or cannot be read
├── NotStorable             a value that cannot be recorded
└── ExecutionFailed         the execution ended without a result

Each error says subject, reason and remedy, and carries them as attributes.
"""

from __future__ import annotations

__all__ = [
    "AnswerConflict",
    "ConfigError",
    "CorruptHistory",
    "DurabilityDisabled",
    "DurableError",
    "ExecutionFailed",
    "InputConflict",
    "InvalidAnswer",
    "LeaseLost",
    "NotFound",
    "NotStorable",
    "OutcomeUnknown",
    "ReplayMismatch",
    "SessionBusy",
    "Unavailable",
    "UnsupportedNode",
    "WaitClosed",
    "WriteUnknown",
]


class DurableError(Exception):
    """The base of every error raised on purpose.

    Attributes:
        subject: What the error is about: a key, an id, a node path.
        reason: What is wrong with it.
        remedy: What the reader can do, or an empty text.
    """

    def __init__(self, subject: str, reason: str = "", remedy: str = "") -> None:
        head = f"{subject}: {reason}" if reason else subject
        super().__init__(f"{head.rstrip('.')}. {remedy}" if remedy else head)
        self.subject = subject
        self.reason = reason
        self.remedy = remedy


class ConfigError(DurableError):
    """A setting, an argument or a graph that the reader can fix."""


class DurabilityDisabled(ConfigError):
    """``features.durable_workflow`` is off or missing."""


class UnsupportedNode(ConfigError):
    """A node that cannot be made durable; refused before it has any effect."""

    def __init__(self, node_path: str, *, because: str, instead: str) -> None:
        super().__init__(node_path, because, f"Instead: {instead}")
        self.node_path = node_path
        self.because = because
        self.instead = instead


class Unavailable(DurableError):
    """Nothing happened: MongoDB, or something else that is needed, did not answer."""


class WriteUnknown(DurableError):
    """A write is still unacknowledged at its deadline; the same call again settles it."""


class OutcomeUnknown(DurableError):
    """A tool that must not run twice was entered and left no result."""


class SessionBusy(DurableError):
    """The session has an unfinished execution.

    Attributes:
        execution_id: The execution in the way.
        status: Its status.
        waits: The ids of its open waits, in frontier order.
    """

    def __init__(
        self,
        session_id: str,
        *,
        execution_id: str,
        status: str,
        waits: tuple[str, ...] = (),
        remedy: str = "Answer, retry or cancel that execution, or use another session.",
    ) -> None:
        open_waits = f"; open waits: {', '.join(waits)}" if waits else ""
        super().__init__(
            f"session {session_id!r}",
            f"execution {execution_id!r} is {status}{open_waits}",
            remedy,
        )
        self.execution_id = execution_id
        self.status = status
        self.waits = waits


class NotFound(DurableError):
    """No execution, session or wait has this id (for this tenant and app)."""


class InvalidAnswer(DurableError):
    """An answer, or a resume map, that does not fit. Nothing was stored.

    Attributes:
        problems: One entry per wait id: what is missing, unknown or invalid.
    """

    def __init__(self, subject: str, problems: dict[str, str]) -> None:
        listed = "; ".join(f"{wait}: {problem}" for wait, problem in problems.items())
        super().__init__(
            subject, listed, "Send every open wait of the frontier with a value it accepts."
        )
        self.problems = problems


class AnswerConflict(DurableError):
    """A wait is already answered with a different value. Nothing was stored."""


class WaitClosed(DurableError):
    """The wait can no longer be answered: its execution ended, or it expired."""


class InputConflict(DurableError):
    """The execution id is taken by an execution with another input."""


class LeaseLost(DurableError):
    """Another owner holds the execution. Nothing was committed."""


class ReplayMismatch(DurableError):
    """The code no longer does what the history says it did.

    Attributes:
        position: Text of the first position that differs.
        recorded: What the history has there.
        asked: What the code asked for.
    """

    def __init__(self, position: str, *, recorded: str, asked: str) -> None:
        super().__init__(
            f"position {position}",
            f"recorded {recorded}, asked {asked}",
            "Run the code that made this history, or cancel or give up the execution.",
        )
        self.position = position
        self.recorded = recorded
        self.asked = asked


class CorruptHistory(DurableError):
    """Documents that a commit refers to are missing or cannot be read."""


class NotStorable(DurableError):
    """A value that cannot be recorded.

    Attributes:
        path: Where the value sits, such as ``result.items[3].price``.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            path, reason, "Return plain data, or a value of an importable class of a known family."
        )
        self.path = path


class ExecutionFailed(DurableError):
    """The execution ended ``failed``, ``cancelled`` or ``stuck``."""
