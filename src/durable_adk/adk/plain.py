"""ADK's values as codec data: their JSON where that loses nothing, else what they are.

ADK's JSON is short and can be read by a later release; but it makes lists of tuples and dicts of
models where a field takes anything, and has no form for some text. What an attempt hands to ADK
must be what was recorded, so such a value is stored with its types.
"""

from __future__ import annotations

import enum
import functools
import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from durable_adk.errors import CorruptHistory, NotStorable
from durable_adk.model import codec

TYPED = "typed"
"""The only key of a value that is stored as what it is: no field of ADK has this name."""

Field = tuple[type[BaseModel], str]
M = TypeVar("M", bound=BaseModel)


def dumped(model: BaseModel, where: str, **options: Any) -> dict[str, Any]:
    """ADK's JSON of one of its values.

    Raises:
        NotStorable: it has no JSON form.
    """
    try:
        data: dict[str, Any] = model.model_dump(
            mode="json", exclude_none=True, by_alias=False, **options
        )
    except ValueError as error:  # of pydantic; of a codec, for bytes
        raise NotStorable(where, str(error)) from error
    return data


def to_plain(model: BaseModel, where: str) -> dict[str, Any]:
    """One of ADK's values as codec data: its JSON, if that brings it back equal, else itself.

    Raises:
        NotStorable: it has no JSON form and holds what cannot be recorded.
    """
    data = json_of(model, where)
    if data is not None and brings_back(model, lambda: _validated(type(model), data)):
        return data
    return itself(model, where, instead=data)


def json_of(model: BaseModel, where: str, **options: Any) -> dict[str, Any] | None:
    try:
        return dumped(model, where, **options)
    except NotStorable:
        return None


def brings_back(
    model: BaseModel, back: Callable[[], BaseModel], *, apart: Collection[Field] = ()
) -> bool:
    """Whether the JSON of a value loses nothing; it is read back only where something in it is
    unusual.

    ``back`` makes the value from its JSON; ``apart`` are the fields that are not in it.
    """
    if _free_fields(type(model)) is None:
        return False
    if _is_usual(model, apart):
        return True
    try:
        return back() == model
    except (ValidationError, CorruptHistory):
        return False


def _is_usual(model: BaseModel, apart: Collection[Field]) -> bool:
    """Whether there is nothing in it but ADK's own models and JSON, each where it is declared."""
    cls = type(model)
    free = _free_fields(cls)
    if free is None:
        return False
    for name, item in model.__dict__.items():
        if item is None or item is False or item is True:
            continue
        kind = type(item)
        if (kind is str and item.isascii()) or (not item and (kind is dict or kind is list)):
            continue
        if (cls, name) in apart:
            continue
        if not (_is_json(item) if name in free else _is_declared(item, apart)):
            return False
    return True


def _is_declared(item: Any, apart: Collection[Field]) -> bool:
    kind: Any = type(item)
    if kind is list or kind is set:
        return all(_is_declared(one, apart) for one in item)
    if kind is str or kind is int:
        return _is_json(item)
    if _is_class_of(BaseModel, kind):
        return _is_usual(item, apart)
    return _is_class_of(enum.Enum, kind) or _is_json(item)


@functools.lru_cache(maxsize=1024)
def _is_class_of(base: type, kind: type) -> bool:
    """``issubclass``, which takes its time for classes of pydantic."""
    return issubclass(kind, base)


def _is_json(value: Any) -> bool:
    kind = type(value)
    if kind is str:
        return value.isascii() or _is_text(value)
    if kind is int or kind is bool or value is None:
        return True
    if kind is dict:
        return all(type(key) is str and _is_json(key) for key in value) and all(
            map(_is_json, value.values())
        )
    if kind is list:
        return all(map(_is_json, value))
    return kind is float and math.isfinite(value)


def _is_text(text: str) -> bool:
    """Whether it has no lone surrogate: readers of JSON refuse them."""
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


@functools.cache
def _free_fields(cls: type[BaseModel]) -> frozenset[str] | None:
    """The fields whose declaration does not say what a value of theirs is; None for a class that
    is not ADK's own."""
    if cls is not _known_class(cls):
        return None
    fields = cls.model_fields
    return frozenset(name for name in fields if _is_free(fields[name].annotation))


def _is_free(declared: Any) -> bool:
    if declared in (Any, object, dict, list, set, tuple) or isinstance(declared, TypeVar):
        return True
    return any(map(_is_free, get_args(declared)))


def itself(model: BaseModel, where: str, instead: dict[str, Any] | None) -> dict[str, Any]:
    """The value as the codec stores it; the JSON ``instead`` where only the class is unknown."""
    typed = model.model_copy(deep=True)
    try:
        codec.encode(typed, where=where)
    except NotStorable:
        if instead is None or type(model) is _known_class(type(model)):
            raise
        return instead  # ADK's own sessions, too, know no class but ADK's
    return {TYPED: typed}


def _known_class(cls: type[BaseModel]) -> type[BaseModel] | None:
    """ADK's own class, which this one is or is derived from."""
    return next((one for one in cls.__mro__ if one.__module__.startswith("google.")), None)


def from_plain(cls: type[M], data: Mapping[str, Any]) -> M:
    """The value again; a fresh object each time.

    What a newer ADK recorded and this one does not know stays in the record and is left out.

    Raises:
        CorruptHistory: it is none of that class.
    """
    if TYPED in data:
        typed: M = data[TYPED].model_copy(deep=True)
        return typed
    try:
        return _validated(cls, data)
    except ValidationError as error:
        unknown = [one["loc"] for one in error.errors() if one["type"] == "extra_forbidden"]
        if len(unknown) != error.error_count():
            raise CorruptHistory(f"recorded {cls.__name__}", str(error)) from error
    known = json.loads(json.dumps(data))
    for place in unknown:
        _remove(known, place)
    return _validated(cls, known)


def _validated(cls: type[M], data: Mapping[str, Any]) -> M:
    return cls.model_validate_json(json.dumps(data))


def _remove(data: Any, place: tuple[int | str, ...]) -> None:
    for key in place[:-1]:
        data = data[key]
    del data[place[-1]]
