from __future__ import annotations

import secrets

import pytest

from durable_adk.errors import CorruptHistory
from durable_adk.store import payloads
from durable_adk.store.payloads import (
    COMPRESS_ABOVE,
    Texts,
    chunk_ids,
    inline,
    is_large,
    part_nonce,
    spilled,
)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 95])
def test_a_spilled_text_comes_back_whole(monkeypatch, size: int) -> None:
    monkeypatch.setattr(payloads, "CHUNK_BYTES", 10)
    text = "ü" * (size // 2) + "x" * (size % 2)
    envelope, chunks = spilled("run", "nonce", text)
    assert all(len(chunk["b"]) <= 10 for chunk in chunks)
    assert [chunk["_id"] for chunk in chunks] == chunk_ids([envelope])
    assert Texts({chunk["_id"]: chunk["b"] for chunk in chunks}).of(envelope) == text


def test_a_missing_chunk_and_a_short_one_are_corruption(monkeypatch) -> None:
    monkeypatch.setattr(payloads, "CHUNK_BYTES", 10)
    envelope, chunks = spilled("run", "nonce", "x" * 25)
    found = {chunk["_id"]: chunk["b"] for chunk in chunks}
    with pytest.raises(CorruptHistory, match="25"):
        Texts({**found, "run:nonce:2": b""}).of(envelope)
    del found["run:nonce:1"]
    with pytest.raises(CorruptHistory, match="run:nonce:1 is missing"):
        Texts(found).of(envelope)


def test_inline_text_needs_no_chunks() -> None:
    assert chunk_ids(["text", None]) == []
    assert Texts({}).of("text") == "text"
    assert Texts({}).optional(None) is None


def test_an_envelope_of_a_newer_version_is_refused() -> None:
    with pytest.raises(CorruptHistory, match="key"):
        chunk_ids([{"ref": "a:b", "n": 1, "size": 2, "key": "k1"}])


@pytest.mark.parametrize("size", [0, COMPRESS_ABOVE, COMPRESS_ABOVE + 1, 100_000])
def test_a_long_text_is_compressed_and_comes_back(size: int) -> None:
    text = ('{"a":"ü"}' * size)[:size]
    envelope = inline(text)
    assert isinstance(envelope, str) is (size <= COMPRESS_ABOVE)
    assert Texts({}).of(envelope) == text


def test_a_text_that_does_not_get_smaller_stays_as_it_is() -> None:
    text = secrets.token_urlsafe(3 * COMPRESS_ABOVE)[: COMPRESS_ABOVE + 1]
    wide = "".join(chr(0x4E00 + b * 7 % 20000) for b in secrets.token_bytes(COMPRESS_ABOVE + 1))
    for one in (text, wide):
        assert Texts({}).of(inline(one)) == one


def test_a_damaged_compressed_text_is_corruption() -> None:
    envelope = inline("x" * (COMPRESS_ABOVE + 1))
    assert isinstance(envelope, dict)
    for damaged in ({**envelope, "zip": b"nonsense"}, {**envelope, "size": 3}):
        with pytest.raises(CorruptHistory):
            Texts({}).of(damaged)


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [("x" * 10, 10, False), ("x" * 11, 10, True), ("ü" * 6, 10, True), ("ü" * 5, 10, False)],
)
def test_largeness_is_counted_in_bytes(text: str, limit: int, expected: bool) -> None:
    assert is_large(text, limit) is expected


def test_the_parts_of_a_write_have_nonces_of_their_own_that_repeat() -> None:
    assert part_nonce("n", "a") == part_nonce("n", "a") != part_nonce("n", "b")
