"""Pages of waits over pages of executions.

The store pages over suspended executions; one execution may have many waits. A cursor says
which page of executions to read and which wait was shown last, by what the order is made of,
so waits that are answered between two pages neither hide nor repeat others.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from durable_adk.app import show
from durable_adk.app.outcome import Page, Wait
from durable_adk.engine.answers import open_waits
from durable_adk.engine.ports import Store
from durable_adk.errors import ConfigError
from durable_adk.model.execution import Execution
from durable_adk.model.store_results import Selection


@dataclass(frozen=True, slots=True)
class _Place:
    """After which wait a page begins.

    Attributes:
        page: The store's cursor of the page of executions, or None for the first.
        since: ``waiting_since`` of the execution whose wait was shown last.
        key: Its key.
        shown: How many places of its frontier were shown.
    """

    page: str | None = None
    since: int = 0
    key: str = ""
    shown: int = 0

    def text(self) -> str:
        parts = [self.page, self.since, self.key, self.shown]
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()

    @classmethod
    def parse(cls, text: str) -> _Place:
        try:
            page, since, key, shown = json.loads(base64.urlsafe_b64decode(text.encode()))
        except (ValueError, TypeError, binascii.Error):
            page, since, key, shown = 0, 0, 0, 0
        is_page = page is None or isinstance(page, str)
        if not (is_page and type(since) is int and isinstance(key, str) and type(shown) is int):
            raise ConfigError("cursor", f"{text[:80]!r} is none", "Use Page.cursor as it is.")
        return cls(page, since, key, shown)


async def page_of_waits(store: Store, selection: Selection, cursor: str | None) -> Page[Wait]:
    """The next ``selection.limit`` open waits, oldest first."""
    place = _Place() if cursor is None else _Place.parse(cursor)
    waits: list[Wait] = []
    met: set[str] = set()
    while True:
        executions, following = await store.list_waiting(replace(selection, cursor=place.page))
        for execution in executions:
            since = execution.waiting_since or 0
            if (since, execution.key) < (place.since, place.key):
                continue
            if execution.key in met:  # it was answered meanwhile, and waits again
                waits = [one for one in waits if one.execution_id != execution.execution_id]
            met.add(execution.key)
            skip = place.shown if (since, execution.key) == (place.since, place.key) else 0
            for index, wait in _open(execution, selection.kind):
                if index < skip:
                    continue
                if len(waits) == selection.limit:
                    return Page(tuple(waits), place.text())
                waits.append(wait)
                place = _Place(place.page, since, execution.key, index + 1)
        if following is None:
            return Page(tuple(waits))
        place = replace(place, page=following)
        if len(waits) == selection.limit:
            return Page(tuple(waits), place.text())


def _open(execution: Execution, kind: str | None) -> Iterator[tuple[int, Wait]]:
    """The open waits with their places in the frontier."""
    frontier = execution.frontier
    if frontier is None:
        return
    still_open = {wait.digest for wait in open_waits(execution)}
    for index, request in enumerate(frontier.waits):
        if request.digest in still_open and kind in (None, request.kind.value):
            yield index, show.wait_of(execution, request)
