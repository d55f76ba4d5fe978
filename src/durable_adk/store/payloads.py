"""Large texts: readable when short, compressed above that, chunks of our own when huge.

An *envelope* is what a document holds for a payload: the text itself, or
``{"zip": zlib data, "size": bytes}``, or ``{"ref": "<owner>:<nonce>", "n": chunks,
"size": bytes}``, in memory with ``sha``, the digest of the bytes, where payloads are encrypted
(``sealing.py``). A reader that does not know a key of it refuses it. Chunk ids are ``<ref>:<n>``,
and a chunk is written before anything refers to it.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from durable_adk.errors import CorruptHistory, unread_here
from durable_adk.model.activity import Payload

CHUNK_BYTES = 8 * 1024 * 1024
"""Half of MongoDB's document limit."""

CHUNKS_AT_ONCE = 200
BYTES_AT_ONCE = 2 * CHUNK_BYTES
"""What one read asks for."""

Envelope = str | dict[str, Any]

COMPRESS_ABOVE = 2048
"""By default. Characters: what people look at with ``mongosh`` is mostly shorter."""

_FAST = 1
"""zlib's level: JSON that repeats itself loses most of its size with the least work."""

_SHAPES = (
    frozenset({"ref", "n", "size"}),
    frozenset({"ref", "n", "size", "sha"}),
    frozenset({"zip", "size"}),
)


def part_nonce(nonce: str, part: str) -> str:
    """A chunk nonce that is the same in every repeat of the write that owns it."""
    return hashlib.sha256(f"{nonce}|{part}".encode()).hexdigest()[:16]


def inline(text: Payload, *, compress_above: int | None = COMPRESS_ABOVE) -> Envelope:
    """The envelope of a text that stays in its document."""
    if compress_above is None or len(text) <= compress_above:
        return text
    data = text.encode()
    compressed = zlib.compress(data, _FAST)
    return {"zip": compressed, "size": len(data)} if len(compressed) < len(data) else text


def spilled(
    owner: str, nonce: str, text: Payload, *, with_digest: bool = False
) -> tuple[Envelope, list[dict[str, Any]]]:
    """The envelope of a text that does not stay inline, and its chunk documents."""
    data = text.encode()
    ref = f"{owner}:{nonce}"
    pieces = [data[i : i + CHUNK_BYTES] for i in range(0, max(1, len(data)), CHUNK_BYTES)]
    chunks = [{"_id": f"{ref}:{n}", "b": piece} for n, piece in enumerate(pieces)]
    envelope: dict[str, Any] = {"ref": ref, "n": len(pieces), "size": len(data)}
    if with_digest:
        envelope["sha"] = content_digest(data)
    return envelope, chunks


def content_digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def is_large(text: Payload, limit: int) -> bool:
    """Whether the UTF-8 form is over ``limit`` bytes; encodes only where it could be."""
    return len(text) > limit or (len(text) * 4 > limit and len(text.encode()) > limit)


def batches(envelopes: Iterable[Envelope | None], most_bytes: int) -> Iterable[list[str]]:
    """The ids of all chunks, in groups whose reads stay within their timeout.

    Raises:
        CorruptHistory: as ``chunk_ids``.
    """
    group: list[str] = []
    size = 0
    for envelope in envelopes:
        ids = chunk_ids([envelope])
        for key in ids:
            if not isinstance(envelope, dict):
                continue
            bytes_of_it = min(CHUNK_BYTES, envelope["size"])
            if group and (size + bytes_of_it > most_bytes or len(group) >= CHUNKS_AT_ONCE):
                yield group
                group, size = [], 0
            group.append(key)
            size += bytes_of_it
    if group:
        yield group


def chunk_ids(envelopes: Iterable[Envelope | None]) -> list[str]:
    """The ids of all chunks that the envelopes refer to.

    Raises:
        CorruptHistory: an envelope has a key that this version does not know.
    """
    ids: list[str] = []
    for envelope in envelopes:
        if isinstance(envelope, dict):
            if frozenset(envelope) not in _SHAPES:
                raise unread_here(
                    f"payload {envelope.get('ref')}",
                    f"has {', '.join(sorted(envelope))}, which this version cannot read",
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
        if "sha" in envelope and content_digest(data) != envelope["sha"]:
            raise CorruptHistory(f"payload {ref}", "its chunks are not those that were stored")
        return _whole(ref, data, envelope["size"])

    def optional(self, envelope: Envelope | None) -> Payload | None:
        return None if envelope is None else self.of(envelope)
