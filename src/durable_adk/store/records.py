"""Activities, wait records and steps as documents, and back. Small, because there are many.

Digests and nonces are stored as bytes; fields with their usual value are left out.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Record, RecordStatus, slot_of
from durable_adk.model.execution import StepDocument, StepRef
from durable_adk.model.identity import FencingToken, Nonce, RunId
from durable_adk.model.wait import AnsweredWait
from durable_adk.store.documents import (
    SCHEMA_VERSION,
    Doc,
    answer_document,
    answer_from,
    current,
    packed,
    printable,
    reading,
    ref_document,
    ref_from,
    unpacked,
    wait_document,
    wait_from,
)
from durable_adk.store.payloads import Envelope, Texts, part_nonce

_STATUS: Final = {
    RecordStatus.COMPLETED: "c",
    RecordStatus.FAILED: "f",
    RecordStatus.WAITING: "w",
    RecordStatus.IN_DOUBT: "d",
}
_STATUS_OF: Final = {letter: status for status, letter in _STATUS.items()}
_SLOT = re.compile(r"(\d{6,}):([0-9a-f]{20})\.(\d+)([io])")
_PACKED_SLOT = struct.Struct(">I10sH")


def record_key(run: str, slot: str) -> str:
    return f"{run}:{slot}"


def record_document(run: str, record: Record, body: Envelope | None) -> Doc:
    doc: Doc = {
        "_id": f"{run}:{record.slot}",
        "v": SCHEMA_VERSION,
        "pos": record.position,
        "tok": record.token,
        "w": packed(record.nonce),
    }
    if record.seq:
        doc["seq"] = record.seq
    if record.request:
        doc["rd"] = packed(record.request)
    if record.status is not None:
        doc["st"] = _STATUS[record.status]
    if record.name:
        doc["name"] = printable(record.name)
    if record.node_path:
        doc["np"] = printable(record.node_path)
    if body is not None:
        doc["body"] = body
    if record.started_at or record.ended_at:
        doc["at"] = record.started_at
        doc["ms"] = record.ended_at - record.started_at
    if record.attempt != record.token:
        doc["try"] = record.attempt
    return doc


def record_from(doc: Doc, texts: Texts) -> Record:
    """Read a record, checking that its position fits its key."""
    with reading("record", doc):
        doc = current(doc)
        key, position = doc["_id"], doc["pos"]
        match = _SLOT.fullmatch(key, key.index(":") + 1)
        if match is None:
            raise CorruptHistory(f"record {key}", "its key is not run:step:digest.try")
        step, digest = int(match[1]), match[2]
        if hashlib.sha256(position.encode()).hexdigest()[:20] != digest or position.partition("|")[
            0
        ] != str(step):
            raise CorruptHistory(f"record {key}", f"holds another position, {position!r}")
        letter, started = doc.get("st"), doc.get("at", 0)
        return Record(
            step=step,
            digest=digest,
            attempt_try=int(match[3]),
            is_intent=match[4] == "i",
            position=position,
            token=FencingToken(doc["tok"]),
            seq=doc.get("seq", 0),
            nonce=Nonce(unpacked(doc["w"])),
            request=unpacked(doc.get("rd", "")),
            status=None if letter is None else _STATUS_OF[letter],
            name=doc.get("name", ""),
            node_path=doc.get("np", ""),
            body=texts.optional(doc.get("body")),
            started_at=started,
            ended_at=started + doc.get("ms", 0),
            attempt=doc["try"] if "try" in doc else doc["tok"],
        )


# ------------------------------------------------------------------ wait records


def wait_slot(step: int, digest: str) -> str:
    return slot_of(step, digest, 1)


def wait_record(
    answered: AnsweredWait, *, frontier_id: str, step: int, token: int, attempt: int
) -> Record:
    """The record of an answered wait; the same content whoever inserts it."""
    return Record(
        step=step,
        digest=answered.wait.digest,
        position=answered.wait.position,
        token=FencingToken(token),
        nonce=Nonce(part_nonce(frontier_id, answered.wait.digest)),
        status=RecordStatus.COMPLETED,
        name=answered.wait.call_name,
        node_path=answered.wait.node_path,
        body=answered.answer.value,
        started_at=answered.answer.at,
        ended_at=answered.answer.at,
        attempt=attempt,
    )


def wait_record_document(
    record_doc: Doc, answered: AnsweredWait, content: Envelope, place: int, count: int
) -> Doc:
    """A record document with what a continue needs to feed the answer again."""
    waiting = wait_document(answered.wait)
    del waiting["d"], waiting["pos"]
    answer = answer_document(answered.answer, "")
    del answer["value"]
    return record_doc | {
        "wait": waiting | {"c": content},
        "answer": answer,
        "place": [place, count],
    }


def answered_from(doc: Doc, texts: Texts) -> AnsweredWait:
    record = record_from(doc, texts)
    with reading("wait record", doc):
        waiting = doc["wait"] | {"d": record.digest, "pos": record.position}
        return AnsweredWait(
            wait=wait_from(waiting, texts.of(doc["wait"]["c"])),
            answer=answer_from(doc["answer"] | {"value": doc["body"]}, texts),
        )


def record_envelopes(doc: Doc) -> Iterator[Envelope | None]:
    yield doc.get("body")
    if "wait" in doc:
        yield doc["wait"]["c"]


# ------------------------------------------------------------------ steps


def step_key(run: str, ref: StepRef) -> str:
    return f"{run}:{ref.step:06d}:{ref.token}"


def _packed_slots(slots: tuple[str, ...]) -> bytes:
    """16 bytes for each slot of an outcome."""
    pieces = []
    for slot in slots:
        match = _SLOT.fullmatch(slot)
        if match is None or match[4] != "o":
            raise ValueError(f"{slot!r} is not the slot of an outcome")
        pieces.append(_PACKED_SLOT.pack(int(match[1]), bytes.fromhex(match[2]), int(match[3])))
    return b"".join(pieces)


def _slots(packed_slots: bytes) -> tuple[str, ...]:
    return tuple(
        slot_of(step, digest.hex(), attempt_try)
        for step, digest, attempt_try in _PACKED_SLOT.iter_unpack(packed_slots)
    )


def _packed_refs(step: StepDocument) -> bytes:
    """4 bytes for each record that the events refer to: its place among ``step.records``."""
    places = {slot: place for place, slot in enumerate(step.records)}
    return struct.pack(f">{len(step.refs)}I", *(places[slot] for slot in step.refs))


def ref_slots(doc: Doc) -> tuple[str, ...]:
    """The slots that the events of a step refer to."""
    if "refs" not in doc:
        return ()
    with reading("step", doc):
        records = _slots(doc["rec"])
        return tuple(records[place] for (place,) in struct.iter_unpack(">I", doc["refs"]))


STEP_PAYLOADS: Final = {
    "events": "ev",
    "finished": "fin",
    "state": "state",
    "artifacts": "art",
    "scopes": "scopes",
}
"""The payloads of a step document, by attribute, with their field."""


def step_fields(step: StepDocument, stored: dict[str, Envelope]) -> Doc:
    """The document; ``stored`` has an envelope for each payload that is not None."""
    doc: Doc = {
        "_id": step_key(step.run, step.ref),
        "v": SCHEMA_VERSION,
        "rec": _packed_slots(step.records),
        "w": packed(step.nonce),
        **{STEP_PAYLOADS[name]: envelope for name, envelope in stored.items()},
    }
    if step.prev is not None:
        doc["prev"] = ref_document(step.prev)
    if step.abandoned:
        doc["ab"] = list(step.abandoned)
    if step.stamp:
        doc["stamp"] = step.stamp
    if step.refs:
        doc["refs"] = _packed_refs(step)
    return doc


def step_from(doc: Doc, texts: Texts, bodies: Mapping[str, Envelope]) -> StepDocument:
    """Read a step; ``bodies`` has the envelope of each record that its events refer to, by slot."""
    with reading("step", doc):
        doc = current(doc)
        run, number, token = doc["_id"].split(":")
        refs = ref_slots(doc)
        return StepDocument(
            run=RunId(run),
            step=int(number),
            token=FencingToken(int(token)),
            prev=ref_from(doc.get("prev")),
            events=texts.of(doc["ev"]),
            finished=texts.of(doc["fin"]),
            records=_slots(doc["rec"]),
            abandoned=tuple(doc.get("ab", ())),
            state=texts.optional(doc.get("state")),
            artifacts=texts.optional(doc.get("art")),
            scopes=texts.optional(doc.get("scopes")),
            stamp=doc.get("stamp", ""),
            refs=refs,
            bodies={slot: texts.of(bodies[slot]) for slot in refs},
            nonce=Nonce(unpacked(doc["w"])),
        )


def step_envelopes(doc: Doc) -> Iterator[Any]:
    return (doc.get(field) for field in STEP_PAYLOADS.values())
