"""An execution whose document this code cannot read, as a list shows it: who, where, and why."""

from __future__ import annotations

from durable_adk.errors import CorruptHistory
from durable_adk.model.execution import Execution, Status, StoredError
from durable_adk.model.identity import ExecutionKey, FencingToken, RunId, SessionKey, Tenant
from durable_adk.store.documents import Doc, current


def outline_of(doc: Doc) -> Execution | None:
    """None if the document can be read, or has not even an outline.

    One document of another version must not hide the rest of a page.
    """
    try:
        current(doc)
    except CorruptHistory as error:
        try:
            return _outline(doc, error)
        except (KeyError, ValueError):
            return None
    return None


def _outline(doc: Doc, error: CorruptHistory) -> Execution:
    return Execution(
        key=ExecutionKey(doc["_id"]),
        execution_id=doc["eid"],
        tenant=Tenant(doc["ns"], doc["app"]),
        user_id=doc["user"],
        session_id=doc["session"],
        session_key=SessionKey(doc["sk"]),
        turn=doc["turn"],
        run=RunId(doc["run"]),
        invocation_id=doc["invocation_id"],
        input="{}",
        input_digest="",
        status=Status(doc["status"]),
        token=FencingToken(doc["token"]),
        claim=None,
        attempt=doc["attempt"],
        step=doc["step"],
        version=doc.get("version"),
        created_at=doc["created_at"],
        error=StoredError(
            type=type(error).__name__,
            message=f"{error.subject}: {error.reason}",
            remedy=error.remedy,
        ),
    )
