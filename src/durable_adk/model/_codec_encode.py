"""Values to JSON-only structures: plain JSON as it is, everything else as tagged objects."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic.fields import FieldInfo, ModelPrivateAttr

from durable_adk.model import _codec_scalars as scalars
from durable_adk.model._codec_classes import Family, Refused, family_of, name_of
from durable_adk.model._codec_scalars import TAG, is_plain_text, tagged

MAX_DEPTH = 100
"""Nesting levels of a value. BSON has the same bound."""

FACTORIES: dict[str, Callable[[], object]] = {
    factory.__name__: factory for factory in (bool, dict, float, int, list, set, str, tuple)
}
"""The default factories that a ``defaultdict`` may have."""

dumps: Callable[[object], str] = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":")
).encode

sorted_dumps: Callable[[object], str] = json.JSONEncoder(
    ensure_ascii=False,
    check_circular=False,
    allow_nan=False,
    separators=(",", ":"),
    sort_keys=True,
).encode


def to_json(value: object, depth: int = 0) -> object:
    """``value`` itself (not a copy) where it is plain JSON, else a structure that is.

    Raises:
        Refused: it cannot be stored.
    """
    kind = type(value)
    if kind is bool or value is None:
        return value
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value)
    container = _CONTAINERS.get(kind)
    if container is not None:
        _check_depth(depth)
        return container(value, depth)
    family = family_of(kind)
    if family is None:
        raise Refused(_why_not(value))
    _check_depth(depth)
    try:
        return _BY_FAMILY[family](value, depth)
    except (Refused, RecursionError):
        raise
    except Exception as error:  # properties and descriptors are the user's code
        raise Refused(f"reading it raised {type(error).__name__}: {error}") from error


def place(key: object) -> str:
    """One step of a path: ``.name``, ``["odd name"]``, ``[7]``."""
    if type(key) is str:
        return f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]"
    if type(key) is int and -(2**63) <= key < 2**63:
        return f"[{key}]"
    return f"[a key of type {type(key).__name__}]"


def _check_depth(depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise Refused(f"is nested deeper than {MAX_DEPTH} levels, or contains itself")


# ---------------------------------------------------------------------------- containers


def _dict(value: dict[Any, Any], depth: int) -> object:
    for key in value:
        if type(key) is not str or key == TAG or not is_plain_text(key):
            return tagged("map", _pairs(value, depth))
    changed: dict[str, object] = {}
    key = ""
    try:
        for key, item in value.items():
            kind = type(item)
            if kind is bool or item is None or (kind is str and item.isascii()):
                continue
            new = to_json(item, depth + 1)
            if new is not item:
                changed[key] = new
    except Refused as refused:
        refused.places.append(place(key))
        raise
    return {**value, **changed} if changed else value


def _list(value: list[object], depth: int) -> object:
    changed: dict[int, object] = {}
    index = 0
    try:
        for index, item in enumerate(value):
            new = to_json(item, depth + 1)
            if new is not item:
                changed[index] = new
    except Refused as refused:
        refused.places.append(f"[{index}]")
        raise
    if not changed:
        return value
    return [changed.get(index, item) for index, item in enumerate(value)]


def _tuple(value: tuple[object, ...], depth: int) -> object:
    return tagged("tuple", _list(list(value), depth))


def _set(value: set[object] | frozenset[object], depth: int) -> object:
    """Sorted by text, so that equal sets have equal texts in every process."""
    try:
        items = [to_json(item, depth + 1) for item in value]
    except Refused as refused:
        refused.places.append("[item]")
        raise
    return tagged(type(value).__name__, sorted(items, key=sorted_dumps))


def _pairs(value: Mapping[Any, object], depth: int) -> list[list[object]]:
    pairs = []
    key: object = None
    try:
        for key, item in value.items():
            pairs.append([to_json(key, depth + 1), to_json(item, depth + 1)])
    except Refused as refused:
        refused.places.append(place(key))
        raise
    return pairs


def _ordered(value: OrderedDict[Any, object], depth: int) -> object:
    return tagged("ordered", _pairs(value, depth))


def _counter(value: Counter[Any], depth: int) -> object:
    return tagged("counter", _pairs(value, depth))


def _defaultdict(value: defaultdict[Any, object], depth: int) -> object:
    factory = value.default_factory
    if factory is None:
        return tagged("defaultdict", _pairs(value, depth))
    name = getattr(factory, "__name__", "")
    if FACTORIES.get(name) is not factory:
        raise Refused("is a defaultdict whose factory is not a built-in type")
    return tagged("defaultdict", _pairs(value, depth), of=name)


# ------------------------------------------------------------------------------- classes


def _of_class(cls: type, content: Mapping[str, object], **more: object) -> dict[str, object]:
    """``{"$t": "module:qualname", <field>: ..., "$more": ...}``; empty ``more`` are left out."""
    if any(name.startswith("$") or not is_plain_text(name) for name in content):
        raise Refused(f"{cls.__qualname__} has a field whose name cannot be stored")
    stored: dict[str, object] = {TAG: name_of(cls), **content}
    stored.update((f"${name}", item) for name, item in more.items() if item)
    return stored


def _enum(value: enum.Enum, depth: int) -> object:
    cls = type(value)
    if cls.__members__.get(value._name_) is value:
        return _of_class(cls, {"name": value._name_})
    # A combination of flags, or a value that the class makes up when it is asked for it.
    try:
        again = cls(value._value_)
    except (ValueError, TypeError, KeyError):
        again = None
    if type(again) is not cls or again != value:
        raise Refused(f"is no member of {cls.__qualname__}")
    return _of_class(cls, _attributes([("value", value._value_)], depth))


def _named_tuple(value: Any, depth: int) -> object:
    fields: tuple[str, ...] = type(value)._fields
    if getattr(value, "__dict__", None) or len(value) != len(fields):
        raise Refused("is a named tuple with more than its fields")
    return _of_class(type(value), _attributes(zip(fields, value, strict=True), depth))


def _dataclass(value: Any, depth: int) -> object:
    """All fields, and what else the instance holds: its constructor will not run again."""
    names = {field.name: None for field in dataclasses.fields(value)}
    present = [(name, getattr(value, name)) for name in names if hasattr(value, name)]
    more = {name: item for name, item in _held(value).items() if name not in names}
    return _of_class(
        type(value),
        _attributes(present, depth),
        absent=sorted(names.keys() - dict(present).keys()),
        more=to_json(more, depth),
    )


def _held(value: object) -> dict[str, object]:
    """What an instance holds, by attribute, in ``__dict__`` and in slots."""
    held = dict(getattr(value, "__dict__", {}))
    held.pop("__orig_class__", None)  # typing leaves it on instances of Generic[int]
    for cls in type(value).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__"):
                if name.endswith("__"):
                    continue
                name = f"_{cls.__name__.lstrip('_')}{name}"
            if hasattr(value, name):
                held[name] = getattr(value, name)
    return held


def _model(value: BaseModel, depth: int) -> object:
    """The instance's own state, without what was not set and is empty by default."""
    cls = type(value)
    fields = cls.model_fields
    is_set = value.__pydantic_fields_set__
    given: list[tuple[str, object]] = []
    default: list[tuple[str, object]] = []
    for name, item in value.__dict__.items():
        if name not in fields:
            continue  # a cached property
        if name in is_set:
            given.append((name, item))
        elif not _is_empty_default(item, fields[name]):
            default.append((name, item))
    declared = cls.__private_attributes__
    private = {
        name: item
        for name, item in (value.__pydantic_private__ or {}).items()
        if not (name in declared and _is_empty_default(item, declared[name]))
    }
    extra = value.__pydantic_extra__ or {}
    is_usual = is_set == dict(given).keys() | extra.keys()
    return _of_class(
        cls,
        _attributes(given, depth),
        absent=sorted(fields.keys() - value.__dict__.keys()),
        default=_attributes(default, depth),
        extra=to_json(dict(extra), depth),
        private=to_json(private, depth),
        set=[] if is_usual else [sorted(is_set)],
    )


def _is_empty_default(item: object, declared: FieldInfo | ModelPrivateAttr) -> bool:
    """Whether ``item`` is the None, empty text or empty container of the declaration."""
    if item is None:
        return declared.default is None
    if type(item) is str:
        return not item and type(declared.default) is str and not declared.default
    return type(item) in (dict, list) and not item and declared.default_factory is type(item)


def _attributes(items: Iterable[tuple[str, object]], depth: int) -> dict[str, object]:
    stored = {}
    name = ""
    try:
        for name, item in items:
            stored[name] = to_json(item, depth + 1)
    except Refused as refused:
        refused.places.append(place(name))
        raise
    return stored


def _why_not(value: object) -> str:
    kind = type(value)
    if isinstance(value, type):
        return f"is a class ({value.__qualname__})"
    for base in (str, int, float, bytes, dict, list, tuple, set, frozenset, datetime, date):
        if isinstance(value, base):
            return f"is a {kind.__qualname__}, a subclass of {base.__name__} that cannot be kept"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"is a function ({value.__qualname__})"
    return f"cannot store a {kind.__module__}.{kind.__qualname__}"


_SCALARS: dict[type, Callable[[Any], object]] = {
    str: scalars.from_text,
    int: scalars.from_int,
    float: scalars.from_float,
    bytes: scalars.from_bytes,
    bytearray: scalars.from_bytes,
    datetime: scalars.from_moment,
    time: scalars.from_moment,
    date: scalars.from_date,
    timedelta: scalars.from_timedelta,
    Decimal: scalars.from_decimal,
    UUID: scalars.from_uuid,
}

_CONTAINERS: dict[type, Callable[[Any, int], object]] = {
    dict: _dict,
    list: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    OrderedDict: _ordered,
    Counter: _counter,
    defaultdict: _defaultdict,
}

_BY_FAMILY: dict[Family, Callable[[Any, int], object]] = {
    Family.ENUM: _enum,
    Family.DATACLASS: _dataclass,
    Family.PYDANTIC: _model,
    Family.NAMED_TUPLE: _named_tuple,
}
