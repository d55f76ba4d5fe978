"""What a commit is made of: step documents, frontiers, and errors as they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from durable_adk.engine.program import Quiet
from durable_adk.errors import (
    ConfigError,
    CorruptHistory,
    DurableError,
    LeaseLost,
    NotStorable,
    OutcomeUnknown,
    ReplayMismatch,
)
from durable_adk.model import codec
from durable_adk.model.activity import Payload, Record
from durable_adk.model.execution import Execution, StepDocument, StoredError
from durable_adk.model.identity import new_nonce
from durable_adk.model.lengths import cut
from durable_adk.model.wait import AnsweredWait, Frontier, WaitRequest, frontier_id

_FINDS = (LeaseLost, ReplayMismatch, CorruptHistory, OutcomeUnknown, NotStorable, ConfigError)
"""What decides an attempt's fate also when it comes inside a group, first one first."""


def principal(error: Exception) -> Exception:
    """The error that decides: the weightiest one inside a group, else the error itself."""
    leaves = list(_leaves(error))
    for kind in _FINDS:
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    return leaves[0] if len(leaves) == 1 else error


def _leaves(error: Exception) -> Iterator[Exception]:
    if isinstance(error, ExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def stored_error(error: BaseException, at: str = "") -> StoredError:
    """An error as people and programs see it later. ``at`` is the position of the call that raised
    it, where one did; an error that has a position of its own keeps that. Of a very long text the
    beginning is kept: it stands in the execution's document."""
    name = type(error).__name__
    if isinstance(error, DurableError):
        reason = f"{error.subject}: {error.reason}" if error.reason else error.subject
        own = error.position if isinstance(error, ReplayMismatch | OutcomeUnknown) else ""
        return StoredError(type=name, message=cut(reason), position=own or at, remedy=error.remedy)
    return StoredError(type=name, message=cut(_text_of(error)), position=at)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # a user's class may fail to print
        return f"<its text raised {type(broken).__name__}>"


def step_document(
    execution: Execution,
    quiet: Quiet,
    *,
    records: Iterable[Record],
    abandoned: tuple[str, ...],
    stamp: str,
    is_last: bool,
) -> StepDocument:
    """The document of the open step; only the last one of a turn carries the whole state."""
    return StepDocument(
        run=execution.run,
        step=execution.step,
        token=execution.token,
        prev=execution.last_step,
        events=quiet.events,
        finished=quiet.finished,
        records=tuple(record.slot for record in records),
        abandoned=abandoned,
        state=quiet.state if is_last else None,
        artifacts=quiet.artifacts if is_last else None,
        scopes=quiet.scopes,
        stamp=stamp,
        refs=quiet.refs,
        nonce=new_nonce(),
    )


def frontier_of(execution: Execution, waits: tuple[WaitRequest, ...], ordinal: int = 1) -> Frontier:
    """The frontier that ends the open step, the ``ordinal``-th of that step."""
    return Frontier(
        id=frontier_id(execution.execution_id, execution.step, ordinal),
        step=execution.step,
        step_token=execution.token,
        waits=waits,
        open=len(waits),
        rev=0,
    )


def answered_waits(frontier: Frontier) -> tuple[AnsweredWait, ...]:
    """The waits of a frontier with their answers, in frontier order.

    Raises:
        CorruptHistory: an answer is missing.
    """
    missing = [w.digest for place, w in enumerate(frontier.waits) if place not in frontier.answers]
    if missing:
        raise CorruptHistory(f"frontier {frontier.id}", f"has no answer for {', '.join(missing)}")
    return tuple(
        AnsweredWait(wait=wait, answer=frontier.answers[place])
        for place, wait in enumerate(frontier.waits)
    )


def shared_payload(shared: Mapping[str, Payload]) -> Payload:
    """What a step saw of shared state, as the body of its first record."""
    return codec.encode({key: codec.decode(value) for key, value in shared.items()})


def shared_from(body: Payload | None) -> dict[str, Payload]:
    return {key: codec.encode(value) for key, value in codec.decode(body or "{}").items()}


def stamp_after(newest: str, *, now: int, execution_id: str) -> str:
    """The order of a step's writes to shared state: now, but after everything it saw.

    Text that sorts: milliseconds first, the execution id between equals.
    """
    seen = int(newest.partition(":")[0]) if newest else 0
    return f"{max(now, seen + 1):015d}:{execution_id}"
