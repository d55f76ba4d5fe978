"""Pages of a list: a cursor is the sort value and the id of the last item shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from durable_adk.errors import ConfigError
from durable_adk.model.store_results import Selection
from durable_adk.store.filters import Filter, beyond

T = TypeVar("T")

_CURSOR = re.compile(r"(\d{1,16})\.([0-9a-f]{32})")
MAX_LIMIT = 1000


def place_in(found: Filter, field: str, selection: Selection, *, descending: bool) -> Filter:
    """The filter from the selection's cursor on.

    Raises:
        ConfigError: the cursor is not one that a page returned, or the limit is out of range.
    """
    if not 1 <= selection.limit <= MAX_LIMIT:
        raise ConfigError("limit", f"{selection.limit} is not between 1 and {MAX_LIMIT}")
    if selection.cursor is None:
        return found
    match = _CURSOR.fullmatch(selection.cursor)
    if match is None:
        raise ConfigError("cursor", "is not one that a page returned", "Start without a cursor.")
    return found | beyond(field, int(match[1]), match[2], descending=descending)


def page(
    items: tuple[T, ...], selection: Selection, place: Callable[[T], tuple[int, str]]
) -> tuple[tuple[T, ...], str | None]:
    """The first ``limit`` items and, if there are more, the cursor of the next page."""
    if len(items) <= selection.limit:
        return items, None
    shown = items[: selection.limit]
    value, key = place(shown[-1])
    return shown, f"{value}.{key}"


def each_once(items: tuple[T, ...], key: Callable[[T], str]) -> tuple[T, ...]:
    """The items without what a scan met again, further on in the order: as it was met last."""
    last = {key(item): place for place, item in enumerate(items)}
    return tuple(item for place, item in enumerate(items) if last[key(item)] == place)
