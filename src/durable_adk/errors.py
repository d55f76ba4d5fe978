"""Every error this package raises on purpose.

DurableError
├── ConfigError             you can fix it: a setting, an argument, a graph
│   ├── DurabilityDisabled  ``features.durable_workflow`` is off or missing
│   ├── KeyMissing          content is encrypted under a key that is not configured
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

import re

__all__ = [
    "AnswerConflict",
    "ConfigError",
    "CorruptHistory",
    "DurabilityDisabled",
    "DurableError",
    "ExecutionFailed",
    "InputConflict",
    "InvalidAnswer",
    "KeyMissing",
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
        stop = "" if head.endswith(("?", "!")) else "."
        super().__init__(f"{head.rstrip('.')}{stop} {remedy}" if remedy else head)
        self.subject = subject
        self.reason = reason
        self.remedy = remedy


class ConfigError(DurableError):
    """A setting, an argument or a graph that the reader can fix."""


class DurabilityDisabled(ConfigError):
    """``features.durable_workflow`` is off or missing."""


class KeyMissing(ConfigError):
    """Content is encrypted under a key that is not configured here.

    Attributes:
        key_id: The id of that key.
    """

    def __init__(self, key_id: str) -> None:
        super().__init__(
            "encryption.keys",
            f"has no key {key_id!r}, which stored content is encrypted with",
            f"Configure {key_id!r} again (after the key that encrypts, if there is another);"
            " nothing is lost.",
        )
        self.key_id = key_id


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
    """A tool that must not run twice was entered and left no result.

    Attributes:
        position: Text of its position, or empty.
    """

    def __init__(
        self, subject: str, reason: str = "", remedy: str = "", *, position: str = ""
    ) -> None:
        super().__init__(subject, reason, remedy)
        self.position = position


_WAYS_ON = {
    "running": (
        "Wait for it: the call that began it, made again with execution_id={0!r} (of a runner:"
        " invocation_id), returns its outcome. If its process died, a worker, recover() or the"
        " next invoke() goes on with it once lease.ttl has passed."
    ),
    "queued": (
        "Run a worker or recover(), make the call that began it again with execution_id={0!r} (of a"
        " runner: invocation_id), or send the session its next message; retry() makes it due at"
        " once. If an attempt failed, executions.get({0!r}).error says why; cancel() ends it."
    ),
    "suspended": (
        "Answer its waits with resume() or answer(), or with function responses of a runner; or"
        " end it with cancel()."
    ),
    "stuck": (
        "Run the code that made its history, retry() it, and let a worker or recover() go on;"
        " or end it with cancel() or give_up()."
    ),
}


class SessionBusy(DurableError):
    """The session has an unfinished execution.

    Attributes:
        execution_id: The execution in the way.
        status: Its status.
        waits: The ids of its open waits, in frontier order, timers included.
    """

    def __init__(
        self,
        session_id: str,
        *,
        execution_id: str,
        status: str,
        waits: tuple[str, ...] = (),
        detail: str = "",
        remedy: str = "",
    ) -> None:
        way_on = _WAYS_ON.get(status, "Call again.").format(execution_id)
        open_waits = f"; open waits: {', '.join(waits)}" if waits else ""
        super().__init__(
            f"session {session_id!r}",
            f"execution {execution_id!r} is {status}{detail or open_waits}",
            remedy or way_on,
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

    def __init__(
        self,
        subject: str,
        problems: dict[str, str],
        remedy: str = "Send every open wait of the frontier with a value it accepts;"
        " app.answer() takes one alone.",
    ) -> None:
        listed = "; ".join(
            problem if repr(wait) in subject else f"{wait}: {problem}"
            for wait, problem in problems.items()
        )
        super().__init__(subject, listed, remedy)
        self.problems = problems


class AnswerConflict(DurableError):
    """A wait is already answered with a different value. Nothing was stored."""


class WaitClosed(DurableError):
    """The wait can no longer be answered: its execution ended, or it expired."""


class InputConflict(DurableError):
    """An id is taken by something else: an execution id by another input, a session id by another
    session; or forks depend on what was to be deleted."""


class LeaseLost(DurableError):
    """Another owner holds the execution. Nothing was committed."""


class ReplayMismatch(DurableError):
    """The code no longer does what the history says it did.

    Attributes:
        position: Text of the first position that differs.
        recorded: What the history has there.
        asked: What the code asked for.
        versions: Under which versions it was recorded and which run now; empty if they are equal.
    """

    def __init__(self, position: str, *, recorded: str, asked: str, versions: str = "") -> None:
        differs = f"recorded {_with_short_digests(recorded)}, asked {_with_short_digests(asked)}"
        super().__init__(
            f"position {position}",
            f"{differs} ({versions})" if versions else differs,
            "Run the code that made this history and retry() the execution; or end it with cancel()"
            " or give_up().",
        )
        self.position = position
        self.recorded = recorded
        self.asked = asked
        self.versions = versions


def _with_short_digests(text: str) -> str:
    """A text for people: a digest only has to be told from the other one."""
    return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{24}\b", r"\1", text)


class CorruptHistory(DurableError):
    """Documents that a commit refers to are missing or cannot be read.

    Attributes:
        is_gone: Nobody can read it. False: another version of durable-adk can, or another
            configuration.
    """

    is_gone = True


def unread_here(
    subject: str,
    reason: str,
    remedy: str = "Use the version of durable-adk that wrote it, or a newer one.",
) -> CorruptHistory:
    """The error for what cannot be read here, and is not gone."""
    error = CorruptHistory(subject, reason, remedy)
    error.is_gone = False
    return error


class NotStorable(DurableError):
    """A value that cannot be recorded.

    Attributes:
        path: Where the value sits, such as ``result.items[3].price``.
    """

    def __init__(
        self,
        path: str,
        reason: str,
        remedy: str = "Return plain data, or a value of an importable class of a known family.",
    ) -> None:
        super().__init__(path, reason, remedy)
        self.path = path


class ExecutionFailed(DurableError):
    """The execution ended ``failed``, ``cancelled`` or ``stuck``."""
