"""Recorded text back to values. Tagged objects are rebuilt from the inside out."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from durable_adk.errors import CorruptHistory
from durable_adk.model._codec_classes import Family, find_member
from durable_adk.model._codec_encode import FACTORIES
from durable_adk.model._codec_scalars import TAG

_Tagged = dict[str, Any]


def _constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def _rebuilt(structure: dict[str, Any]) -> Any:
    if TAG not in structure:
        return structure
    tag = structure[TAG]
    rebuild = _BY_TAG.get(tag)
    if rebuild is not None:
        return rebuild(structure)
    if ":" in tag:
        cls, family = find_member(tag)
        return _BY_FAMILY[family](cls, structure)
    raise CorruptHistory(
        "recorded value",
        f"has the unknown tag {tag!r}",
        "Run the version of durable-adk that wrote it, or a newer one.",
    )


plain_loads: Callable[[str], Any] = json.JSONDecoder(parse_constant=_constant).decode
tagged_loads: Callable[[str], Any] = json.JSONDecoder(
    parse_constant=_constant, object_hook=_rebuilt
).decode


def _base64(tagged: _Tagged) -> bytes:
    return base64.b64decode(tagged["v"], validate=True)


def _moment(kind: type[datetime] | type[time]) -> Callable[[_Tagged], object]:
    def rebuild(tagged: _Tagged) -> object:
        value = kind.fromisoformat(tagged["v"])
        if "zone" in tagged:
            value = value.replace(tzinfo=ZoneInfo(tagged["zone"]))
        if "offset" in tagged:
            value = value.replace(tzinfo=timezone(timedelta(microseconds=tagged["offset"])))
        if "name" in tagged and isinstance(value.tzinfo, timezone):
            value = value.replace(tzinfo=timezone(value.tzinfo.utcoffset(None), tagged["name"]))
        return value.replace(fold=tagged.get("fold", 0))

    return rebuild


def _map(tagged: _Tagged) -> dict[Any, Any]:
    return dict(tagged["v"])


def _defaultdict(tagged: _Tagged) -> object:
    factory = FACTORIES[tagged["of"]] if "of" in tagged else None
    return defaultdict(factory, _map(tagged))


def _enum(cls: Any, tagged: _Tagged) -> object:
    if "value" not in tagged:
        return cls.__members__[tagged["name"]]
    member = cls(tagged["value"])
    if type(member) is not cls:
        raise ValueError("not a member")
    return member


def _named_tuple(cls: Any, tagged: _Tagged) -> object:
    _check_known(cls, tagged, cls._fields)
    if missing := [name for name in cls._fields if name not in tagged]:
        raise _changed(cls, f"has a new field {missing[0]!r}")
    return tuple.__new__(cls, [tagged[name] for name in cls._fields])


def _dataclass(cls: Any, tagged: _Tagged) -> object:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    _check_known(cls, tagged, fields)
    absent = tagged.get("$absent", ())
    value = object.__new__(cls)
    for name, field in fields.items():
        if name in tagged:
            object.__setattr__(value, name, tagged[name])
        elif name in absent:
            continue
        elif field.default_factory is not dataclasses.MISSING:
            object.__setattr__(value, name, field.default_factory())
        elif field.default is not dataclasses.MISSING:
            object.__setattr__(value, name, field.default)
        else:
            raise _changed(cls, f"has a new field {name!r} without a default")
    for name, item in tagged.get("$more", {}).items():
        object.__setattr__(value, name, item)
    return value


def _model(cls: Any, tagged: _Tagged) -> object:
    extra: dict[str, Any] = tagged.pop("$extra", {})
    default: dict[str, Any] = tagged.pop("$default", {})
    given = {name for name in tagged if not name.startswith("$")}
    stored = tagged | default
    fields = cls.model_fields
    _check_known(cls, stored, fields)
    absent = tagged.get("$absent", ())
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in stored:
            values[name] = stored[name]
        elif name not in absent:
            if field.default is None:
                values[name] = None
                continue
            if field.is_required():
                raise _changed(cls, f"has a new field {name!r} without a default")
            values[name] = field.get_default(call_default_factory=True, validated_data=values)
    value: BaseModel = object.__new__(cls)
    state: dict[str, object] = {
        "__dict__": values,
        "__pydantic_fields_set__": set(*tagged.get("$set", [given | extra.keys()])),
    }
    if not cls.__pydantic_root_model__:  # importing RootModel would load a module for its sake
        allows_extra = cls.model_config.get("extra") == "allow"
        state["__pydantic_extra__"] = extra if allows_extra else None
        state["__pydantic_private__"] = _private(cls, tagged.get("$private", {}))
    for name, item in state.items():
        object.__setattr__(value, name, item)
    return value


def _private(cls: Any, stored: dict[str, Any]) -> dict[str, Any] | None:
    declared = cls.__private_attributes__
    empty = {
        name: attribute.get_default()
        for name, attribute in declared.items()
        if name not in stored and attribute.get_default() is not PydanticUndefined
    }
    return {**empty, **stored} if declared else None


def _check_known(cls: type, tagged: _Tagged, fields: Iterable[str]) -> None:
    unknown = {name for name in tagged if not name.startswith("$")}.difference(fields)
    if unknown:
        raise _changed(cls, f"no longer has the field {min(unknown)!r}")


def _changed(cls: type, what: str) -> CorruptHistory:
    return CorruptHistory(
        f"recorded class {cls.__module__}.{cls.__qualname__}",
        what,
        "Run the code that wrote it, or give the field a default.",
    )


_BY_TAG: dict[str, Callable[[_Tagged], object]] = {
    "bytes": _base64,
    "bytearray": lambda tagged: bytearray(_base64(tagged)),
    "str": lambda tagged: _base64(tagged).decode("utf-8", "surrogatepass"),
    "int": lambda tagged: int(tagged["v"], 16),
    "decimal": lambda tagged: Decimal(tagged["v"]),
    "uuid": lambda tagged: UUID(tagged["v"]),
    "datetime": _moment(datetime),
    "time": _moment(time),
    "date": lambda tagged: date.fromisoformat(tagged["v"]),
    "timedelta": lambda tagged: timedelta(*tagged["v"]),
    "tuple": lambda tagged: tuple(tagged["v"]),
    "set": lambda tagged: set(tagged["v"]),
    "frozenset": lambda tagged: frozenset(tagged["v"]),
    "map": _map,
    "ordered": lambda tagged: OrderedDict(_map(tagged)),
    "counter": lambda tagged: Counter(_map(tagged)),
    "defaultdict": _defaultdict,
}

_BY_FAMILY: dict[Family, Callable[[Any, _Tagged], object]] = {
    Family.ENUM: _enum,
    Family.DATACLASS: _dataclass,
    Family.PYDANTIC: _model,
    Family.NAMED_TUPLE: _named_tuple,
}
