"""Recorded values as people are shown them: plain JSON, which needs none of the classes in it.

Who looks at a list, or answers, may be another program than the one that recorded.
"""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from durable_adk.errors import CorruptHistory
from durable_adk.model._codec_classes import Family, find_member
from durable_adk.model._codec_decode import plain_loads
from durable_adk.model._codec_scalars import TAG
from durable_adk.model.activity import Payload
from durable_adk.model.wait import WaitRequest

_MARK = f'"{TAG}"'


def shown(text: Payload) -> Any:
    """A recorded text as plain JSON: of an object its fields, of a set or a tuple a list, of an
    enum its value (its name where the class is not there), bytes in base64, the rest as text. An
    attribute that is private, or no field, is left out.

    Raises:
        CorruptHistory: the text is not JSON.
    """
    try:
        return _loads(text) if _MARK in text else plain_loads(text)
    except Exception as error:  # whatever a damaged text makes it raise
        raise CorruptHistory(
            "recorded value", f"cannot be read: {type(error).__name__}: {error}"
        ) from error


def content_of(wait: WaitRequest) -> Any:
    """What a wait says. Raises: CorruptHistory: as ``shown``."""
    return shown(wait.content)


def _plain(structure: dict[str, Any]) -> Any:
    if TAG not in structure:
        return structure
    tag = structure[TAG]
    if ":" in tag:
        return _of_class(structure)
    given = structure["v"]
    return _BY_TAG.get(tag, _itself)(given) if "zone" not in structure else _zoned(structure)


def _of_class(tagged: Mapping[str, Any]) -> Any:
    fields = {name: item for name, item in tagged.items() if not name.startswith("$")}
    fields |= tagged.get("$default", {}) | tagged.get("$extra", {})
    if len(fields) == 1 and ("name" in fields or "value" in fields):
        with contextlib.suppress(Exception):  # of a class that is not there, or is another one
            cls, family = find_member(tagged[TAG])
            if family is Family.ENUM:
                return _of_enum(cls, fields)
    return fields


def _of_enum(cls: Any, fields: Mapping[str, Any]) -> Any:
    if "value" in fields:
        return fields["value"]
    value = cls.__members__[fields["name"]].value
    return value if value is None or type(value) in (str, int, float, bool) else fields["name"]


def _itself(value: Any) -> Any:
    return value


def _zoned(tagged: Mapping[str, Any]) -> str:
    return f"{tagged['v']}[{tagged['zone']}]"


def _pairs(pairs: list[list[Any]]) -> dict[str, Any]:
    return {key if isinstance(key, str) else json.dumps(key): item for key, item in pairs}


def _text(encoded: str) -> str:
    """Text with what no text may hold, which is written out."""
    text = base64.b64decode(encoded).decode("utf-8", "surrogatepass")
    return text.encode("utf-8", "backslashreplace").decode()


_BY_TAG: dict[str, Callable[[Any], Any]] = {
    "str": _text,
    "int": lambda text: int(text, 16),
    "timedelta": lambda parts: str(timedelta(*parts)),
    "map": _pairs,
    "ordered": _pairs,
    "counter": _pairs,
    "defaultdict": _pairs,
}
"""Of every other tag the value is shown as it is stored: a list, or text."""

_loads: Callable[[str], Any] = json.JSONDecoder(object_hook=_plain).decode
