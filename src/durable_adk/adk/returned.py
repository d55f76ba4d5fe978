"""What a function says that it returns: what somebody else says that it returned must fit it.

Only an annotation that is an ordinary one of data counts. A generator, a class of ADK or genai (an
``Event``, a ``Content``), a name that is not found and whatever has no JSON schema say nothing.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import types
import typing
import weakref
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

_known: weakref.WeakKeyDictionary[Any, dict[str, Any] | None] = weakref.WeakKeyDictionary()


def schema_of(function: object) -> dict[str, Any] | None:
    """The JSON schema of what a function returns; None where nothing is known of it."""
    with contextlib.suppress(KeyError, TypeError):  # what is called may have no hash
        return _known[function]
    found = _schema_of(function)
    with contextlib.suppress(TypeError):
        _known[function] = found
    return found


def rebuilt(function: object, value: Any) -> Any:
    """Plain JSON as the value that the function returns; as it is where nothing is known of that,
    or where it no longer fits."""
    if schema_of(function) is None:
        return value
    try:
        return TypeAdapter(_hint_of(_plain(function))).validate_json(
            json.dumps(value), by_alias=False, by_name=True
        )
    except Exception:  # as below; and validators are user code
        return value


def _schema_of(function: object) -> dict[str, Any] | None:
    try:
        plain = _plain(function)
        if plain is None or inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
            return None
        hint = _hint_of(plain)
        if any(map(_is_of_adk, _parts(hint))):
            return None
        # As the fields of a model are called in what a node makes of it.
        found = TypeAdapter(hint).json_schema(by_alias=False, schema_generator=_Whole)
    except Exception:  # a hint may be anything, and fail in any way: then it says nothing
        return None
    return found or None


def _hint_of(plain: object) -> Any:
    """Only that: a name in the hint of a parameter may be known to type checkers alone."""
    hint = getattr(plain, "__annotations__", {}).get("return", Any)
    annotated: Any = types.SimpleNamespace(__annotations__={"return": hint})
    names = getattr(plain, "__globals__", {})
    return typing.get_type_hints(annotated, globalns=names)["return"]


def _plain(function: object) -> object:
    while isinstance(function, functools.partial):
        function = function.func
    if not callable(function):
        return None
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) else type(function).__call__


def _is_of_adk(part: object) -> bool:
    return any(one.__module__.startswith("google.") for one in getattr(part, "__mro__", ()))


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for part in typing.get_args(hint):
        yield from _parts(part)


class _Whole(GenerateJsonSchema):
    """No schema rather than one that leaves out what the function may return."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        if kind == "skipped-choice":
            raise PydanticInvalidForJsonSchema(detail)
