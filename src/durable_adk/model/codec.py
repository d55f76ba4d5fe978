"""Values to recorded text and back: equal value, same types, a fresh object on every read.

Plain JSON is stored as itself, dict order kept, so that ``mongosh`` shows it. Everything else
is an object with the one reserved key ``$t`` (a dict of the user's that has that key becomes a
``map``)::

    text with surrogates                {"$t": "str", "v": base64}   (UTF-8 cannot hold them)
    int beyond 64 bits                  {"$t": "int", "v": "0x1f..."}
    bytes bytearray decimal uuid        {"$t": <name>, "v": ...}
    date timedelta tuple                {"$t": <name>, "v": ...}
    datetime time                       {"$t": <name>, "v": iso, "zone"?, "name"?, "offset"?,
                                         "fold"?}
    set frozenset                       {"$t": <name>, "v": [...]}   sorted by text of the items
    dict OrderedDict Counter defaultdict
                                        {"$t": "map" | "ordered" | "counter" | "defaultdict",
                                         "v": [[key, value], ...], "of"?: factory}
    enum                                {"$t": "module:qualname", "name": ... | "value": ...}
    dataclass, pydantic model, named tuple
                                        {"$t": "module:qualname", <field>: ..., ...}, and
                                        "$absent": fields without a value,
                                        "$more": attributes of a dataclass that are no fields,
                                        of a model "$default": fields that were not set,
                                        "$extra", "$private", "$set": names of the fields set

Classes are rebuilt from their recorded fields without running their constructor, and only if
the name leads to a class of one of these families. The meaning of a tag never changes: another
form gets another tag, and ``CODEC_VERSION`` grows. Refused, by path: NaN and infinities, local
classes, other subclasses of built-in types, functions, and every other object.
"""

from __future__ import annotations

import hashlib
from typing import Any

from durable_adk.errors import CorruptHistory, NotStorable
from durable_adk.model._codec_classes import Refused
from durable_adk.model._codec_decode import plain_loads, tagged_loads
from durable_adk.model._codec_encode import dumps, place, sorted_dumps, to_json
from durable_adk.model._codec_scalars import TAG, is_plain_text
from durable_adk.model.activity import Payload

CODEC_VERSION = 1
"""Grows when a tag is added; texts of every earlier version are read."""

_MARK = f'"{TAG}"'
_UNORDERED = frozenset({"map", "counter", "defaultdict", "set", "frozenset"})


def is_text(text: str) -> bool:
    """Whether it can be stored as itself: names and ids have no other form. Text with a lone
    surrogate cannot."""
    return is_plain_text(text)


def encode(value: object, *, where: str = "value", most: int | None = None) -> Payload:
    """The recorded text of a value; of at most ``most`` bytes.

    Raises:
        NotStorable: its ``path`` begins with ``where`` and says what cannot be stored.
    """
    try:
        text = dumps(to_json(value))
    except (Refused, RecursionError) as error:
        raise _not_storable(error, where) from None
    check_size(text, most, where=where)
    return text


def check_size(text: Payload, most: int | None, *, where: str) -> None:
    """Refuse a text of more bytes than ``most``; None: any size.

    Raises:
        NotStorable: with the size and the limit.
    """
    if most is None or len(text) * 4 <= most:
        return
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > most:
        raise NotStorable(
            where,
            f"has {size} bytes, and payload.max is {most}",
            "Keep it elsewhere and record where, or raise payload.max.",
        )


def decode(text: Payload) -> Any:
    """A fresh value, equal to the encoded one and of the same types.

    Raises:
        CorruptHistory: the text was not made by ``encode``, or names a class that this program
            does not have.
    """
    try:
        return tagged_loads(text) if _MARK in text else plain_loads(text)
    except CorruptHistory:
        raise
    except Exception as error:
        # Whatever a damaged text makes the rebuilding raise, it means the same to the reader.
        raise CorruptHistory(
            "recorded value", f"cannot be read: {type(error).__name__}: {error}"
        ) from error


def digest(text: Payload) -> str:
    """32 hex digits by which contents are compared: equal for equal values, whatever the order
    in which a dict was filled.

    Raises:
        CorruptHistory: the text is not JSON.
    """
    try:
        structure = plain_loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptHistory("recorded value", f"is not JSON: {error}") from error
    return _digest(_sorted(structure) if _MARK in text else structure)


def digest_of(value: object, *, where: str = "value") -> str:
    """``digest(encode(value))``, without making the text twice.

    Raises:
        NotStorable: as ``encode``.
    """
    try:
        structure = to_json(value)
        return _digest(structure if structure is value else _sorted(structure))
    except (Refused, RecursionError) as error:
        raise _not_storable(error, where) from None


def plain(value: object, *, where: str = "value") -> Any:
    """A fresh copy of a value that is nothing but JSON (what an answer may be).

    Raises:
        NotStorable: it holds something else; its ``path`` says where.
    """
    text = encode(value, where=where)  # first: it bounds the depth
    try:
        _require_json(value)
    except Refused as refused:
        raise NotStorable(refused.path(where), refused.reason) from None
    return decode(text)


def _not_storable(error: Refused | RecursionError, where: str) -> NotStorable:
    if isinstance(error, Refused):
        return NotStorable(error.path(where), error.reason)
    return NotStorable(where, "is nested too deeply to be stored from here")


def _digest(structure: object) -> str:
    return hashlib.sha256(sorted_dumps(structure).encode()).hexdigest()[:32]


def _sorted(structure: Any) -> Any:
    """The structure with the items of unordered tagged values sorted by their own text."""
    if isinstance(structure, dict):
        sorted_inside = {key: _sorted(item) for key, item in structure.items()}
        items = sorted_inside.get("v")
        if sorted_inside.get(TAG) in _UNORDERED and isinstance(items, list):
            sorted_inside["v"] = sorted(items, key=sorted_dumps)
        return sorted_inside
    if isinstance(structure, list):
        return [_sorted(item) for item in structure]
    return structure


def _require_json(value: object) -> None:
    """Refuse what ``json.loads`` would not have made. The value is known to be finite."""
    kind = type(value)
    if kind in _JSON_SCALARS:
        return
    if not isinstance(value, (dict, list)) or kind not in (dict, list):
        raise Refused(f"a {kind.__name__} is not JSON")
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        try:
            if isinstance(value, dict) and type(key) is not str:
                raise Refused(f"a key of type {type(key).__name__} is not JSON")
            _require_json(item)
        except Refused as refused:
            refused.places.append(place(key))
            raise


_JSON_SCALARS = frozenset({type(None), bool, str, int, float})
