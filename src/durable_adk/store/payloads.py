"""Large texts: readable when short, compressed above that, chunks of our own when huge.

An *envelope* is what a document holds for a payload: the text itself, or
``{"zip": zlib data, "size": bytes}``, or ``{"ref": "<owner>:<nonce>", "n": chunks,
"size": bytes}``. Further keys of that object are reserved (``key``: encryption key id); a reader
that does not know one refuses it. Chunk ids are ``<ref>:<n>``, and a chunk is written before
anything refers to it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Payload

CHUNK_BYTES = 8 * 1024 * 1024
"""Half of MongoDB's document limit."""

Envelope = str | dict[str, Any]

COMPRESS_ABOVE = 2048
"""Characters: what people look at with ``mongosh`` is mostly shorter."""

_FAST = 1
"""zlib's level: JSON that repeats itself loses most of its size with the least work."""

_SHAPES = (frozenset({"ref", "n", "size"}), frozenset({"zip", "size"}))


def part_nonce(nonce: str, part: str) -> str:
    """A chunk nonce that is the same in every repeat of the write that owns it."""
    return hashlib.sha256(f"{nonce}|{part}".encode()).hexdigest()[:16]


def inline(text: Payload) -> Envelope:
    """The envelope of a text that stays in its document."""
    if len(text) <= COMPRESS_ABOVE:
        return text
    data = text.encode()
    compressed = zlib.compress(data, _FAST)
    return {"zip": compressed, "size": len(data)} if len(compressed) < len(data) else text


def spilled(owner: str, nonce: str, text: Payload) -> tuple[Envelope, list[dict[str, Any]]]:
    """The envelope of a text that does not stay inline, and its chunk documents."""
    data = text.encode()
    ref = f"{owner}:{nonce}"
    pieces = [data[i : i + CHUNK_BYTES] for i in range(0, max(1, len(data)), CHUNK_BYTES)]
    chunks = [{"_id": f"{ref}:{n}", "b": piece} for n, piece in enumerate(pieces)]
    return {"ref": ref, "n": len(pieces), "size": len(data)}, chunks


def is_large(text: Payload, limit: int) -> bool:
    """Whether the UTF-8 form is over ``limit`` bytes; encodes only where it could be."""
    return len(text) > limit or (len(text) * 4 > limit and len(text.encode()) > limit)


def chunk_ids(envelopes: Iterable[Envelope | None]) -> list[str]:
    """The ids of all chunks that the envelopes refer to.

    Raises:
        CorruptHistory: an envelope has a key that this version does not know.
    """
    ids: list[str] = []
    for envelope in envelopes:
        if isinstance(envelope, dict):
            if frozenset(envelope) not in _SHAPES:
                raise CorruptHistory(
                    f"payload {envelope.get('ref')}",
                    f"has {', '.join(sorted(envelope))}, which this version cannot read",
                    "Use the version of durable-adk that wrote it, or a newer one.",
                )
            if "ref" in envelope:
                ids.extend(f"{envelope['ref']}:{n}" for n in range(envelope["n"]))
    return ids


def _decompressed(data: bytes) -> bytes:
    try:
        return zlib.decompress(data)
    except zlib.error as error:
        raise CorruptHistory("payload (inline)", f"cannot be decompressed: {error}") from error


def _whole(name: str, data: bytes, size: int) -> Payload:
    if len(data) != size:
        raise CorruptHistory(f"payload {name}", f"has {len(data)} bytes, not {size}")
    return data.decode()


class Texts:
    """Reads envelopes whose chunks have been loaded."""

    def __init__(self, chunks: Mapping[str, bytes]) -> None:
        self._chunks = chunks

    def of(self, envelope: Envelope) -> Payload:
        """The whole text.

        Raises:
            CorruptHistory: a chunk is missing, or the size differs.
        """
        if isinstance(envelope, str):
            return envelope
        if "zip" in envelope:
            return _whole("(inline)", _decompressed(envelope["zip"]), envelope["size"])
        ref = envelope["ref"]
        try:
            data = b"".join(self._chunks[f"{ref}:{n}"] for n in range(envelope["n"]))
        except KeyError as error:
            raise CorruptHistory(f"payload {ref}", f"chunk {error.args[0]} is missing") from None
        return _whole(ref, data, envelope["size"])

    def optional(self, envelope: Envelope | None) -> Payload | None:
        return None if envelope is None else self.of(envelope)
