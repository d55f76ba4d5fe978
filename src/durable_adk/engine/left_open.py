"""Which calls of a step that ends on waits somebody cancelled: no outcome, and no wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection

from durable_adk.engine.activities import StepRecords
from durable_adk.engine.calls import Dispatched
from durable_adk.model.position import Position


def left_open(
    entered: Collection[Dispatched], records: StepRecords, asks: Callable[[Position], bool]
) -> tuple[str, ...]:
    """Positions of those without an outcome that did not ask.

    One that was cancelled did not ask either, whatever asks below its path, if that path was
    entered again: nothing goes on behind a wait.
    """
    latest: defaultdict[str, int] = defaultdict(int)
    for ticket in entered:
        position = ticket.call.position
        latest[position.path] = max(latest[position.path], position.entry)
    found = []
    for ticket in entered:
        position = ticket.call.position
        is_past = ticket.settled and (
            latest[position.path] > position.entry or records.has_after(position)
        )
        if is_past or not asks(position):
            found.append(position.text)
    return tuple(sorted(found))
