"""Unusual values for the fields of a pydantic model, made from its declarations: a field that a
newer ADK adds is covered without a line here."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import types
import typing
from collections.abc import Iterator
from typing import Any

from google.genai import types as genai
from pydantic import BaseModel, ValidationError

TEXT = 'nul \x00, quote ", ü, 💥, a lone surrogate \udc80'
DEEPEST = 3


class Owned(BaseModel):
    """What a program may put where anything may be."""

    number: int


FREE: list[Any] = [
    {"none": None, "tuple": (1, ("nested",)), "bytes": b"\xff\x00", "key": {1: {2, 3}}},
    dt.datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=dt.UTC),
    [None, 2**80, decimal.Decimal("0.10"), TEXT],
    {"model": Owned(number=1), "of ADK": genai.Part(text="a")},
    Owned(number=2),
]
"""For fields that take anything."""
PLAIN: dict[type, list[Any]] = {
    str: [TEXT, ""],
    int: [2**70, 0],
    float: [1.5e300, -0.0],
    bool: [False, True],
    bytes: [b"\xff\xfe\x00+/?", b""],
    dt.datetime: [FREE[1]],
    dict: [FREE[0], {}],
    list: [FREE[2], []],
}


def values_for(declared: Any, depth: int = 0) -> Iterator[Any]:
    """Unusual values of a declared type, each of another kind."""
    origin, args = typing.get_origin(declared), typing.get_args(declared)
    if declared in (Any, object) or isinstance(declared, typing.TypeVar):
        yield from FREE
    elif origin in (typing.Union, types.UnionType):
        for one in args:
            yield from values_for(one, depth) if one is not type(None) else ()
    elif origin is typing.Annotated:
        yield from values_for(args[0], depth)
    elif origin is typing.Literal:
        yield args[-1]
    elif origin in (list, set, tuple, frozenset):
        for value in values_for(args[0], depth):
            if origin is list or value.__hash__ is not None:
                yield origin([value])
        yield origin()
    elif origin is dict:
        for value in values_for(args[1], depth):
            yield {next(values_for(args[0])): value}
        yield {}
    elif isinstance(declared, type) and issubclass(declared, enum.Enum):
        yield list(declared)[-1]
    elif isinstance(declared, type) and issubclass(declared, BaseModel):
        yield from models(declared, depth)
    elif declared in PLAIN:
        yield from PLAIN[declared]


def models(cls: type[BaseModel], depth: int = 0) -> Iterator[BaseModel]:
    """An instance with everything set, one for each way of setting it; at the deepest an empty
    one."""
    if depth >= DEEPEST:
        yield from _made(cls, {})
        return
    found = {
        name: list(values_for(f.annotation, depth + 1)) for name, f in cls.model_fields.items()
    }
    for number in range(max(map(len, found.values()), default=1)):
        given = {name: made[number % len(made)] for name, made in found.items() if made}
        yield from _made(cls, given)


def _made(cls: type[BaseModel], given: dict[str, Any]) -> Iterator[BaseModel]:
    """The instance, without the fields that its validators refuse in this company."""
    for _ in range(len(given) + 1):
        try:
            yield cls(**given)
        except ValidationError as error:
            refused = {str(one["loc"][0]) for one in error.errors() if one["loc"]}
            left = {name: value for name, value in given.items() if name not in refused}
            if len(left) == len(given):
                return
            given = left
        else:
            return


def fields_of(cls: type[BaseModel]) -> list[Any]:
    """``(field, value)`` for pytest: every field with every kind of value."""
    import pytest

    found = []
    for name, field in cls.model_fields.items():
        for number, value in enumerate(values_for(field.annotation)):
            found.append(pytest.param(name, value, id=f"{name}-{number}"))
    return found
