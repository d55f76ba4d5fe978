"""What a replay compares: each call with its record, and open waits with those of the history.

A recorded result of a tool, a node, a ``step()`` or a wait is never given to another input. A
recorded model response may be, with a warning: a prompt may hold the time of day.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from durable_adk.engine.calls import Call
from durable_adk.engine.settings import EngineSettings
from durable_adk.errors import ReplayMismatch
from durable_adk.model import failure
from durable_adk.model.activity import Kind, Payload, Record
from durable_adk.model.execution import Execution
from durable_adk.model.versions import ran_under
from durable_adk.model.wait import WaitRequest

_log = logging.getLogger("durable_adk.engine")


def between(call: Call, record: Record) -> ReplayMismatch | None:
    """How a call differs from what is recorded at its position, or None."""
    position = call.position
    if record.position != position.text:  # two positions with one digest
        return ReplayMismatch(position.text, recorded=record.position, asked=position.text)
    same = (call.request, *call.alike)
    differs = bool(record.request and call.request and record.request not in same)
    if differs and call.explain is not None:
        explained = call.explain(record.request)
        if explained is None:
            return None
        recorded, asked = explained
        return ReplayMismatch(
            position.text,
            recorded=f"{record.name} with {recorded}",
            asked=f"{call.name} with {asked}",
        )
    if differs or (position.kind is Kind.TOOL and record.name != call.name):
        return ReplayMismatch(
            position.text,
            recorded=f"{record.name} with another input ({record.request or 'unknown'})",
            asked=f"{call.asked or call.name} ({call.request or 'unknown'})",
        )
    return None


def since_entered(call: Call, intent: Record) -> ReplayMismatch | None:
    """How a call differs from the one that its body was entered for before, or None. It is the same
    call, under the same idempotency key: a tool must take what it took then."""
    found = between(call, intent)
    if found is not None or call.since_entered is None:
        return found
    differs = call.since_entered(intent)
    if differs is None:
        return None
    return ReplayMismatch(call.position.text, recorded=differs[0], asked=differs[1])


def at_a_wait(
    call: Call, failed: Payload | None, execution: Execution, settings: EngineSettings
) -> Exception:
    """Why an attempt is over in which a body ended where a wait is recorded in it.

    A failure may be a passing one: the attempt fails with it, and another one asks again. Only the
    last attempt takes it for changed code; an execution whose history is whole is not ended by it.
    """
    left = "an outcome"
    if failed is not None:
        error = failure.decode_failure(failed)
        if execution.failures + 1 < settings.max_attempts:
            return error
        left = f"a failure ({error})"
    return ReplayMismatch(call.position.text, recorded="a wait in it", asked=left)


def is_refused(kind: Kind, settings: EngineSettings) -> bool:
    """Whether a record of this kind may not be used for another input."""
    return kind is not Kind.MODEL or settings.model_mismatch == "error"


def warn(found: ReplayMismatch, execution: Execution) -> None:
    """Log that a recorded model response is used for another prompt."""
    _log.warning(
        "a recorded model outcome is used for another input at %s: recorded %s, asked %s",
        found.position,
        found.recorded,
        found.asked,
        extra={"execution_id": execution.execution_id},
    )


def warn_of(unused: Iterable[Record], execution: Execution) -> None:
    """Log what the open step had on record and nothing asked for: a fallback that is not needed
    this time, or a name that was changed after a crash."""
    for record in unused:
        _log.warning(
            "execution %s: %s at position %s is on record and was asked for by nothing that ran;"
            " if it was renamed, it was done again under its new name",
            execution.execution_id,
            record.name or "a call",
            record.position,
            extra={"execution_id": execution.execution_id},
        )


def check_frontier(asked: Sequence[WaitRequest], recorded: Iterable[WaitRequest]) -> None:
    """Refuse to feed recorded answers to other questions.

    Raises:
        ReplayMismatch: the waits differ, or stand in another order.
    """
    known = tuple(recorded)
    for place in range(max(len(asked), len(known))):
        now = asked[place] if place < len(asked) else None
        then = known[place] if place < len(known) else None
        if now is None or then is None or now.digest != then.digest:
            raise ReplayMismatch(
                (then or now or known[0]).position,
                recorded=_described(then),
                asked=_described(now),
            )


def _described(wait: WaitRequest | None) -> str:
    return f"{wait.kind.value} at {wait.operation_path}" if wait else "no further wait"


def with_versions(
    found: ReplayMismatch, execution: Execution, settings: EngineSettings
) -> ReplayMismatch:
    """The same, saying under which versions the history was made and which run now."""
    before = [code for code in execution.codes if code != settings.code]
    if not before or not settings.code:
        return found
    recorded = " or ".join(ran_under(code).text for code in before)
    versions = f"recorded under {recorded}; running {ran_under(settings.code).text}"
    return ReplayMismatch(
        found.position, recorded=found.recorded, asked=found.asked, versions=versions
    )
