"""Values of named fields, left out of what people are shown.

For what is written for people only: the call in a wait, and in the text of a mismatch. What a
replay needs is recorded whole, and compared by the digest of the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Final

REDACTED: Final = "[redacted]"


def redacted(value: Any, names: Set[str]) -> Any:
    """A copy without the values of fields with these names, at any depth."""
    if not names:
        return value
    if isinstance(value, Mapping):
        return {
            key: REDACTED if key in names else redacted(item, names) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(item, names) for item in value]
    return value


def redacted_at(values: Sequence[Any], places: Sequence[str], names: Set[str]) -> list[Any]:
    """A copy without the values at places with these names; the last place is that of all that
    follow if its name begins with ``*``."""
    rest = [one for one in places[-1:] if one.startswith("*")]
    named = [*places, *(rest * len(values))]
    return [
        REDACTED if place < len(named) and named[place].removeprefix("*") in names else value
        for place, value in enumerate(values)
    ]
