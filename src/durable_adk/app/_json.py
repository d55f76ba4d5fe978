"""Any value as plain JSON, for people and logs. Nothing is rebuilt from it: ``model.codec`` is."""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
from collections.abc import Mapping, Set
from datetime import date, datetime, time, timedelta
from typing import Any


def jsonable(value: object) -> Any:
    """``value`` with everything that JSON does not know turned into the nearest JSON."""
    match value:
        case None | bool() | int() | str() if not isinstance(value, enum.Enum):
            return value
        case enum.Enum():
            return jsonable(value.value)
        case float():
            return value if math.isfinite(value) else repr(value)
        case Mapping():
            return {_key(key): jsonable(item) for key, item in value.items()}
        case list() | tuple():
            return [jsonable(item) for item in value]
        case Set():
            return sorted((jsonable(item) for item in value), key=repr)
        case bytes() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: jsonable(getattr(value, field.name)) for field in fields}
    dump = getattr(value, "model_dump", None)  # pydantic, without importing it
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json", exclude_none=True)
    return str(value)


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(jsonable(key))
