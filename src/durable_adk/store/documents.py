"""Executions and frontiers as documents, and back.

Field names and what they hold are listed in ``README.md``. ``v`` is the schema version of a
document: this version and the previous one are read, see ``current``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from durable_adk.errors import CorruptHistory, unread_here
from durable_adk.model.execution import (
    FAR,
    Execution,
    NewExecution,
    Parent,
    Status,
    StepRef,
    StoredError,
)
from durable_adk.model.identity import ExecutionKey, FencingToken, Nonce, RunId, SessionKey, Tenant
from durable_adk.model.wait import Frontier, StoredAnswer, WaitKind, WaitRequest
from durable_adk.store.payloads import Envelope, Texts

LEASE_ENDED = "lease_ended"

Doc = dict[str, Any]

SCHEMA_VERSION: Final = 1
UPGRADES: Final[dict[int, Callable[[Doc], Doc]]] = {}
"""From the previous version: gives the document as this version would have written it."""


def current(doc: Doc) -> Doc:
    """The document in this version's shape.

    Raises:
        CorruptHistory: a version that is neither this one nor the previous one.
    """
    version = doc.get("v")
    if version == SCHEMA_VERSION:
        return doc
    upgrade = UPGRADES.get(version) if isinstance(version, int) else None
    if upgrade is None:
        raise unread_here(
            f"document {doc.get('_id')}",
            f"has schema version {version!r}, this code reads {SCHEMA_VERSION}",
            "Use the version of durable-adk that wrote it.",
        )
    return upgrade(doc)


@contextmanager
def reading(what: str, doc: Doc) -> Iterator[None]:
    """Turn a field that is missing or of the wrong kind into an error that names the document."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CorruptHistory(
            f"{what} {doc.get('_id')}", f"cannot be read: {type(error).__name__} {error}"
        ) from error


def printable(text: str) -> str:
    """Text for people, with what UTF-8 cannot hold written as an escape."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def packed(digits: str) -> str | bytes:
    """Hex digits as bytes, half the size; anything else as it is."""
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        return digits
    return raw if raw.hex() == digits else digits


def unpacked(stored: str | bytes) -> str:
    return stored if isinstance(stored, str) else stored.hex()


def ref_document(ref: StepRef) -> Doc:
    return {"n": ref.step, "token": ref.token}


def ref_from(doc: Doc | None) -> StepRef | None:
    return None if doc is None else StepRef(doc["n"], FencingToken(doc["token"]))


def error_document(error: StoredError | None) -> Doc | None:
    if error is None:
        return None
    return {
        "type": printable(error.type),
        "message": printable(error.message),
        "position": printable(error.position),
        "remedy": printable(error.remedy),
    }


def _error_from(doc: Doc | None) -> StoredError | None:
    return None if doc is None else StoredError(**doc)


# ------------------------------------------------------------------ parents


def parents_documents(parents: Sequence[Parent]) -> list[Doc]:
    return [
        {"run": p.run, "eid": p.execution_id, "step": p.step, "seq": p.seq, "answers": p.answers}
        for p in parents
    ]


def parents_from(doc: Doc) -> tuple[Parent, ...]:
    return tuple(
        Parent(
            run=RunId(one["run"]),
            execution_id=one["eid"],
            step=one["step"],
            seq=one["seq"],
            answers=one["answers"],
        )
        for one in doc.get("parents") or ()
    )


# ------------------------------------------------------------------ frontiers


def wait_document(wait: WaitRequest) -> Doc:
    """A wait without its content, which is stored apart where it is large."""
    doc: Doc = {
        "d": wait.digest,
        "pos": wait.position,
        "kind": wait.kind.value,
        "call": wait.call_name,
        "cid": wait.call_id,
        "np": wait.node_path,
        "op": wait.operation_path,
        "author": wait.author,
    }
    optional = {
        "br": wait.branch,
        "iso": wait.isolation_scope,
        "exp": wait.expires_at,
        "aft": wait.expires_after,
        "onx": wait.on_expiry,
    }
    return doc | {name: value for name, value in optional.items() if value is not None}


def wait_from(doc: Doc, content: str) -> WaitRequest:
    return WaitRequest(
        digest=doc["d"],
        position=doc["pos"],
        kind=WaitKind(doc["kind"]),
        call_name=doc["call"],
        call_id=doc["cid"],
        node_path=doc["np"],
        operation_path=doc["op"],
        branch=doc.get("br"),
        isolation_scope=doc.get("iso"),
        author=doc["author"],
        content=content,
        expires_at=doc.get("exp"),
        expires_after=doc.get("aft"),
        on_expiry=doc.get("onx"),
    )


def answer_document(answer: StoredAnswer, value: Envelope) -> Doc:
    doc: Doc = {"digest": answer.digest, "at": answer.at, "value": value}
    if answer.by is not None:
        doc["by"] = printable(answer.by)
    if answer.state is not None:
        doc["state"] = answer.state
    return doc


def answer_from(doc: Doc, texts: Texts) -> StoredAnswer:
    return StoredAnswer(
        value=texts.of(doc["value"]),
        digest=doc["digest"],
        by=doc.get("by"),
        at=doc["at"],
        state=doc.get("state"),
    )


def contents_text(frontier: Frontier) -> str:
    """The contents of all waits as one payload, for a frontier too large to be inline."""
    return json.dumps([wait.content for wait in frontier.waits], ensure_ascii=False)


def frontier_document(
    frontier: Frontier, contents: Envelope | None, answers: Mapping[int, Envelope]
) -> Doc:
    """The frontier as it stands in the execution; ``contents`` if they are not inline."""
    waits = [wait_document(wait) for wait in frontier.waits]
    doc: Doc = {
        "id": frontier.id,
        "step": frontier.step,
        "token": frontier.step_token,
        "open": frontier.open,
        "rev": frontier.rev,
        "waits": waits,
        "answers": {
            str(place): answer_document(answer, answers[place])
            for place, answer in frontier.answers.items()
        },
        "expires": {str(i): w["exp"] for i, w in enumerate(waits) if "exp" in w},
    }
    if frontier.deadline is not None:
        doc["deadline"] = frontier.deadline
    if contents is not None:
        doc["contents"] = contents
    else:
        for stored, wait in zip(waits, frontier.waits, strict=True):
            stored["c"] = wait.content
    return doc


def frontier_envelopes(doc: Doc | None) -> Iterator[Envelope | None]:
    if doc is not None:
        yield doc.get("contents")
        for answer in doc["answers"].values():
            yield answer["value"]


def frontier_from(doc: Doc | None, texts: Texts) -> Frontier | None:
    if doc is None:
        return None
    if "contents" in doc:
        contents = json.loads(texts.of(doc["contents"]))
    else:
        contents = [wait["c"] for wait in doc["waits"]]
    expires = doc["expires"]  # some were computed by the server, with the frontier
    waits = [
        {**one, "exp": expires[str(i)]} if str(i) in expires else one
        for i, one in enumerate(doc["waits"])
    ]
    return Frontier(
        id=doc["id"],
        step=doc["step"],
        step_token=FencingToken(doc["token"]),
        waits=tuple(wait_from(w, c) for w, c in zip(waits, contents, strict=True)),
        open=doc["open"],
        rev=doc["rev"],
        answers={int(place): answer_from(a, texts) for place, a in doc["answers"].items()},
        deadline=doc.get("deadline"),
    )


# ------------------------------------------------------------------ executions


def new_execution_fields(new: NewExecution, turn: int, stored_input: Envelope) -> Doc:
    """Everything but the id and the times."""
    return {
        "v": SCHEMA_VERSION,
        "eid": new.execution_id,
        "ns": new.tenant.namespace,
        "app": new.tenant.app,
        "user": new.user_id,
        "session": new.session_id,
        "sk": new.session_key,
        "turn": turn,
        "run": new.run,
        "invocation_id": new.invocation_id,
        "input": stored_input,
        "input_digest": new.input_digest,
        "status": (Status.RUNNING if new.run_now else Status.QUEUED).value,
        "active": True,
        "token": 1 if new.run_now else 0,
        "claim": new.nonce if new.run_now else None,
        "attempt": 1 if new.run_now else 0,
        "step": 1,
        "failures": 0,
        "waiting": False,
        "version": new.version,
        "codes": [new.code] if new.code and new.run_now else [],
        "w": new.nonce,
    }


def forked_execution_fields(
    execution: Execution, stored_input: Envelope, frontier: Doc | None, nonce: str
) -> Doc:
    """Everything but the id and the times of an execution that goes on from others."""
    fields: Doc = {
        "v": SCHEMA_VERSION,
        "eid": execution.execution_id,
        "ns": execution.tenant.namespace,
        "app": execution.tenant.app,
        "user": execution.user_id,
        "session": execution.session_id,
        "sk": execution.session_key,
        "turn": execution.turn,
        "run": execution.run,
        "parents": parents_documents(execution.parents),
        "invocation_id": execution.invocation_id,
        "input": stored_input,
        "input_digest": execution.input_digest,
        "status": execution.status.value,
        "active": True,
        "token": execution.token,
        "claim": None,
        "attempt": execution.attempt,
        "step": execution.step,
        "voided": list(execution.voided),
        "failures": 0,
        "waiting": frontier is not None and frontier["open"] > 0,
        "version": execution.version,
        "codes": list(execution.codes),
        "w": nonce,
    }
    if execution.last_step is not None:
        fields["last_step"] = ref_document(execution.last_step)
    if frontier is not None:
        fields["frontier"] = frontier
    return fields


def execution_envelopes(doc: Doc) -> Iterator[Envelope | None]:
    """Every payload of an execution, for loading their chunks."""
    yield doc.get("input")
    yield doc.get("result")
    yield from frontier_envelopes(doc.get("frontier"))


def lease_end_from(stored: int | None) -> int | None:
    """``FAR`` stands for never: a pipeline on mongomock cannot leave a field out."""
    return None if stored is None or stored == FAR else stored


def named_by(doc: Doc) -> dict[str, Any]:
    """Which execution a document is, and where it stands: what documents of all versions have."""
    return {
        "key": ExecutionKey(doc["_id"]),
        "execution_id": doc["eid"],
        "tenant": Tenant(doc["ns"], doc["app"]),
        "user_id": doc["user"],
        "session_id": doc["session"],
        "session_key": SessionKey(doc["sk"]),
        "turn": doc["turn"],
        "run": RunId(doc["run"]),
        "invocation_id": doc["invocation_id"],
        "status": Status(doc["status"]),
        "token": FencingToken(doc["token"]),
        "attempt": doc["attempt"],
        "step": doc["step"],
        "version": doc.get("version"),
        "created_at": doc["created_at"],
        "ended_at": doc.get("ended_at"),
        "deadline": doc.get("deadline"),
    }


def execution_from(doc: Doc, texts: Texts) -> Execution:
    with reading("execution", doc):
        doc = current(doc)
        claim, closing, cancel = doc.get("claim"), doc.get("closing"), doc.get("cancel")
        return Execution(
            **named_by(doc),
            input=texts.of(doc["input"]),
            input_digest=doc["input_digest"],
            claim=None if claim is None else Nonce(claim),
            last_step=ref_from(doc.get("last_step")),
            frontier=frontier_from(doc.get("frontier"), texts),
            wake_at=doc["wake_at"],
            failures=doc["failures"],
            voided=tuple(doc.get("voided") or ()),
            error=_error_from(doc.get("error")),
            closing=None if closing is None else Status(closing),
            cancel=None if cancel is None else cancel["reason"],
            codes=tuple(doc.get("codes") or ()),
            result=texts.optional(doc.get("result")),
            waiting_since=doc["waiting_since"] if doc["waiting"] else None,
            scopes_due=bool(doc.get("scopes_due")),
            parents=parents_from(doc),
            lease_ended=lease_end_from(doc.get(LEASE_ENDED)),
        )
