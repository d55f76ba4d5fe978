from __future__ import annotations

import dataclasses
import json

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Kind, Record, RecordStatus
from durable_adk.model.execution import StepDocument, StepRef
from durable_adk.model.identity import new_nonce, new_run_id
from durable_adk.model.position import Position
from durable_adk.store import documents
from durable_adk.store.documents import (
    SCHEMA_VERSION,
    current,
    execution_from,
    packed,
    printable,
    unpacked,
)
from durable_adk.store.outlines import outline_of
from durable_adk.store.payloads import Texts
from durable_adk.store.records import record_document, record_from, step_fields, step_from

INLINE = Texts({})
RUN = new_run_id()


def a_record(**changes) -> Record:
    position = Position(1, "agent#1/inner#1/review#12", 1, Kind.MODEL, 7)
    values = {
        "step": 1,
        "digest": position.digest,
        "position": position.text,
        "token": 1,
        "seq": 12,
        "nonce": new_nonce(),
        "request": "ab" * 16,
        "status": RecordStatus.COMPLETED,
        "name": "gemini-2.5-flash",
        "node_path": "outer@1/inner@1/review@12",
        "body": '{"content":{"parts":[{"text":"ok"}]}}',
        "started_at": 1_700_000_000_000,
        "ended_at": 1_700_000_000_900,
        "attempt": 1,
    }
    return Record(**{**values, **changes})


def test_an_outline_has_all_that_a_document_of_any_version_says_of_its_execution() -> None:
    doc = {
        "_id": "key", "v": SCHEMA_VERSION, "eid": "e", "ns": "n", "app": "a", "user": "u",
        "session": "s", "sk": "sk", "turn": 2, "run": RUN, "invocation_id": "i", "input": "{}",
        "input_digest": "", "status": "failed", "token": 3, "attempt": 4, "step": 5,
        "version": "v1", "created_at": 6, "ended_at": 7, "deadline": 8, "wake_at": 9,
        "failures": 0, "waiting": False,
    }  # fmt: skip
    whole = execution_from(doc, INLINE)
    why = CorruptHistory("execution e", "was written by a newer version")
    outline = outline_of(doc | {"v": SCHEMA_VERSION + 1}, why)
    assert outline is not None
    assert outline_of({"_id": "key"}, why) is None
    named = documents.named_by(doc)
    for name, value in named.items():
        assert getattr(outline, name) == getattr(whole, name) == value
    assert {"ended_at", "deadline", "version"} < set(named)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(
    seq=st.integers(0, 2**40),
    token=st.integers(1, 2**40),
    attempt=st.integers(0, 2**40),
    attempt_try=st.integers(1, 99),
    nonce=st.one_of(st.just(new_nonce()), texts),
    request=st.one_of(st.just(""), st.just("0F"), st.just("0f"), texts),
    status=st.sampled_from([*RecordStatus, None]),
    is_intent=st.booleans(),
    name=texts,
    node_path=texts,
    body=st.one_of(st.none(), texts),
    started_at=st.integers(0, 2**45),
    took=st.integers(-5, 2**40),
)
def test_a_record_comes_back_equal_through_bson(took, started_at, **fields) -> None:
    ended_at = max(0, started_at + took) if started_at else 0
    record = a_record(**fields, started_at=started_at, ended_at=ended_at)
    stored = bson.decode(bson.encode(record_document(RUN, record, record.body)))
    assert record_from(stored, INLINE) == record


def test_a_record_costs_less_than_300_bytes_besides_its_content() -> None:
    """Of 400 for each call over all collections; the rest is for the step document."""
    record = a_record()
    assert record.body is not None
    size = len(bson.encode(record_document(RUN, record, record.body)))
    assert size - len(record.body) <= 300


def test_a_step_document_costs_16_bytes_for_each_record() -> None:
    def size(count: int) -> int:
        slots = tuple(a_record(attempt_try=n + 1).slot for n in range(count))
        return len(bson.encode(step_fields(a_step(records=slots), {"events": "", "finished": ""})))

    assert size(1_000) - size(0) == 16_000


def a_step(**changes) -> StepDocument:
    values = {
        "run": RUN,
        "step": 3,
        "token": 4,
        "prev": StepRef(2, 2),
        "events": "[]",
        "finished": "{}",
        "nonce": new_nonce(),
    }
    return StepDocument(**{**values, **changes})


@pytest.mark.parametrize("count", [0, 1, 300])
def test_a_step_comes_back_equal_through_bson(count: int) -> None:
    slots = tuple(a_record(attempt_try=n + 1).slot for n in range(count))
    step = a_step(
        records=slots, abandoned=("a", "b"), state="{}", scopes='{"app:a":1}', stamp="0001.e"
    )
    stored = {n: getattr(step, n) for n in ("events", "finished", "state", "scopes")}
    assert step_from(bson.decode(bson.encode(step_fields(step, stored))), INLINE, {}) == step


def test_a_step_knows_the_records_that_its_events_refer_to_by_four_bytes_each() -> None:
    slots = tuple(a_record(attempt_try=n + 1).slot for n in range(300))
    refs = (slots[7], slots[299], slots[0])
    bodies = {slot: f'"{slot}"' for slot in refs}
    step = a_step(records=slots, refs=refs, bodies=bodies)
    doc = bson.decode(bson.encode(step_fields(step, {"events": "[]", "finished": "{}"})))
    assert len(doc["refs"]) == 12
    assert step_from(doc, INLINE, bodies) == step


def test_only_slots_of_outcomes_belong_to_a_step() -> None:
    for slot in ("x", a_record(is_intent=True).slot):
        with pytest.raises(ValueError, match="not the slot of an outcome"):
            step_fields(a_step(records=(slot,)), {})


@pytest.mark.parametrize("text", ["", "00ff", "00FF", "0", "zz", "00 ff", "$$NOW"])
def test_packing_loses_nothing(text: str) -> None:
    assert unpacked(packed(text)) == text


def test_hex_digits_are_packed_to_half() -> None:
    assert packed("00ff") == b"\x00\xff"


def test_text_for_people_is_always_storable() -> None:
    assert printable("a\ud800b") == "a\\ud800b"
    assert printable("ü") == "ü"


def test_this_schema_version_and_the_previous_one_are_read(monkeypatch) -> None:
    assert current({"_id": "x", "v": SCHEMA_VERSION}) == {"_id": "x", "v": SCHEMA_VERSION}
    with pytest.raises(CorruptHistory, match="schema version 0"):
        current({"_id": "x", "v": SCHEMA_VERSION - 1})
    monkeypatch.setitem(
        documents.UPGRADES, SCHEMA_VERSION - 1, lambda doc: doc | {"v": SCHEMA_VERSION, "new": 1}
    )
    assert current({"_id": "x", "v": SCHEMA_VERSION - 1})["new"] == 1


@pytest.mark.parametrize("version", [None, "1", SCHEMA_VERSION + 1, [], {}])
def test_any_other_schema_version_is_refused(version: object) -> None:
    with pytest.raises(CorruptHistory, match="schema version"):
        current({"_id": "x", "v": version})


@pytest.mark.parametrize("key", ["000001", "000001:abc.1o", "000001:" + "0" * 20 + ".1x"])
def test_a_record_key_that_is_none_is_corruption(key: str) -> None:
    doc = record_document(RUN, a_record(), None) | {"_id": f"{RUN}:{key}"}
    with pytest.raises(CorruptHistory):
        record_from(doc, INLINE)


def test_a_record_whose_key_names_another_step_is_corruption() -> None:
    record = dataclasses.replace(a_record(), step=2)
    with pytest.raises(CorruptHistory, match="another position"):
        record_from(record_document(RUN, record, None), INLINE)


def test_payloads_stay_readable_text_in_the_database() -> None:
    record = a_record()
    assert json.loads(record_document(RUN, record, record.body)["body"])
