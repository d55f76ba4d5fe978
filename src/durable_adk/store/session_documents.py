"""Sessions as documents, and back: what they were forked from, and what a fork begins with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from durable_adk.model.execution import (
    Ancestor,
    ForkedExecution,
    Imported,
    NextExecution,
    SessionRecord,
)
from durable_adk.model.identity import ExecutionKey, SessionKey, Tenant
from durable_adk.model.retention import Retained
from durable_adk.store.documents import (
    SCHEMA_VERSION,
    Doc,
    current,
    frontier_envelopes,
    frontier_from,
    parents_documents,
    parents_from,
    reading,
    ref_document,
    ref_from,
)
from durable_adk.store.payloads import Envelope, Texts

SESSION_PAYLOADS: Final = ("state", "artifacts")
"""The payloads of a session, by attribute and field."""


def session_fields(
    session: SessionRecord,
    stored: Mapping[str, Envelope],
    frontier: Doc | None,
    nonce: str,
    base: Mapping[str, Envelope] | None = None,
) -> Doc:
    """Everything but the id and the time; ``stored`` has an envelope for each payload, ``frontier``
    is what a fork is suspended on, ``base`` has those of what it begins with instead of turns."""
    fields: Doc = {
        "v": SCHEMA_VERSION,
        "ns": session.tenant.namespace,
        "app": session.tenant.app,
        "user": session.user_id,
        "session": session.session_id,
        "lineage": [
            {"sk": one.key, "session": one.session_id, "upto": one.upto} for one in session.lineage
        ],
        "w": nonce,
        **stored,
    }
    if session.next is not None:
        fields["next"] = _next_document(session.next, frontier)
    if session.cut:
        fields["cut"] = session.cut
    if session.floor:
        fields["base"] = {"upto": session.floor, "w": nonce, **(base or {})}
    return fields


def session_from(doc: Doc, texts: Texts) -> SessionRecord:
    with reading("session", doc):
        doc = _shown(current(doc))
        return SessionRecord(
            key=SessionKey(doc["_id"]),
            tenant=Tenant(doc["ns"], doc["app"]),
            user_id=doc["user"],
            session_id=doc["session"],
            state=texts.optional(doc.get("state")),
            created_at=doc["created_at"],
            lineage=tuple(
                Ancestor(key=SessionKey(one["sk"]), session_id=one["session"], upto=one["upto"])
                for one in doc["lineage"]
            ),
            next=None if doc.get("next") is None else _next_from(doc["next"], texts),
            cut=doc.get("cut", ""),
            artifacts=texts.optional(doc.get("artifacts")),
            is_going=doc.get("going") is not None or "removed" in doc,
            is_removed="removed" in doc,
            imported=None
            if doc.get("import") is None
            else Imported(
                digest=doc["import"]["digest"],
                is_whole=doc["import"]["whole"],
                own=doc["import"].get("own", ""),
            ),
            retained=_retained_from(doc, texts),
        )


def session_envelopes(doc: Doc) -> Iterator[Envelope | None]:
    doc = _shown(doc)
    yield from (doc.get(field) for field in SESSION_PAYLOADS)
    yield from ((doc.get("base") or {}).get(field) for field in SESSION_PAYLOADS)
    yield from frontier_envelopes((doc.get("next") or {}).get("frontier"))


def _shown(doc: Doc) -> Doc:
    """What there is to read of a session: once its removal is decided, its chunks go first."""
    if "removed" not in doc:
        return doc
    fields = {name: value for name, value in doc.items() if name not in SESSION_PAYLOADS}
    base, following = doc.get("base"), doc.get("next")
    if base is not None:
        fields["base"] = {k: value for k, value in base.items() if k not in SESSION_PAYLOADS}
    if following is not None:
        fields["next"] = {k: value for k, value in following.items() if k != "frontier"}
    return fields


def _retained_from(doc: Doc, texts: Texts) -> Retained:
    base, expiring = doc.get("base") or {}, doc.get("expiring") or {}
    return Retained(
        floor=base.get("upto", 0),
        state=texts.optional(base.get("state")),
        artifacts=texts.optional(base.get("artifacts")),
        expiring=expiring.get("upto", 0),
        since=expiring.get("at", 0),
        cutting=doc.get("cutting") or "",
    )


def _next_document(following: NextExecution, frontier: Doc | None) -> Doc:
    doc: Doc = {"ek": following.key, "execution_id": following.execution_id}
    made = following.made
    if made is not None:
        doc |= {
            "source": made.source,
            "parents": parents_documents(made.parents),
            "step": made.step,
            "voided": list(made.voided),
        }
        if made.last_step is not None:
            doc["last_step"] = ref_document(made.last_step)
        if frontier is not None:
            doc["frontier"] = frontier
    return doc


def _next_from(doc: Doc, texts: Texts) -> NextExecution:
    made = None
    if "source" in doc:
        made = ForkedExecution(
            source=ExecutionKey(doc["source"]),
            parents=parents_from(doc),
            step=doc["step"],
            last_step=ref_from(doc.get("last_step")),
            voided=tuple(doc["voided"]),
            frontier=frontier_from(doc.get("frontier"), texts),
        )
    return NextExecution(key=ExecutionKey(doc["ek"]), execution_id=doc["execution_id"], made=made)
