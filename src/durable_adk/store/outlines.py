"""Executions as a list shows them: one that cannot be read here is shown by who, where, and why.

One document of another version, under a key that is not here, or with a chunk that is gone must not
hide the rest of a page.
"""

from __future__ import annotations

from collections.abc import Sequence

from durable_adk.errors import CorruptHistory, DurableError, KeyMissing
from durable_adk.model.execution import Execution, StoredError
from durable_adk.model.identity import Nonce
from durable_adk.store.core import EXECUTIONS, Core, Session
from durable_adk.store.documents import (
    Doc,
    execution_envelopes,
    execution_from,
    named_by,
    parents_from,
    ref_from,
)

_RESTORE = (
    "Restore what is missing and retry() it. Or end it with give_up(): then nothing can go on in"
    " its session any more, but in a sessions.fork() before this execution."
)
_ENDED = "Restore what is missing; or go on in a sessions.fork() before this execution."


async def shown(core: Core, session: Session, docs: Sequence[Doc]) -> tuple[Execution, ...]:
    """Executions of documents as they are stored; what cannot be read of one is left out.

    Raises:
        CorruptHistory, KeyMissing: a document has not even an outline.
    """
    try:
        return await _whole(core, session, docs)
    except (CorruptHistory, KeyMissing):
        return tuple([await _one(core, session, doc) for doc in docs])


async def _whole(core: Core, session: Session, docs: Sequence[Doc]) -> tuple[Execution, ...]:
    opened = [core.sealing.opened(EXECUTIONS, doc) for doc in docs]
    texts = await core.texts(session, [e for doc in opened for e in execution_envelopes(doc)])
    return tuple(execution_from(doc, texts) for doc in opened)


async def _one(core: Core, session: Session, doc: Doc) -> Execution:
    try:
        return (await _whole(core, session, [doc]))[0]
    except (CorruptHistory, KeyMissing) as error:
        outline = outline_of(doc, error)
        if outline is None:
            raise
        return outline


def outline_of(doc: Doc, error: DurableError) -> Execution | None:
    """What is readable of a document without its content, with the error that says why; None if it
    has not even that."""
    try:
        return _outline(doc, error)
    except (LookupError, TypeError, ValueError, AttributeError):
        return None


def _outline(doc: Doc, error: DurableError) -> Execution:
    claim, named = doc.get("claim"), named_by(doc)
    return Execution(
        **named,
        input="{}",
        input_digest="",
        claim=None if claim is None else Nonce(claim),
        codes=tuple(doc.get("codes") or ()),
        failures=doc.get("failures") or 0,
        last_step=ref_from(doc.get("last_step")),
        parents=parents_from(doc),
        scopes_due=bool(doc.get("scopes_due")),
        waiting_since=doc["waiting_since"] if doc.get("waiting") else None,
        error=StoredError(
            type=type(error).__name__,
            message=f"{error.subject}: {error.reason}",
            remedy=error.remedy or (_ENDED if named["status"].is_final else _RESTORE),
        ),
    )
