"""What an import that was cut off has left: steps of turns that have no execution yet.

Turns are imported in order, so many at a time, and the steps of these before their executions.
Nothing names such a step; but its key follows from the import and the number of its turn.
"""

from __future__ import annotations

from typing import Final

from durable_adk.model.exchange import run_of_turn
from durable_adk.model.identity import RunId
from durable_adk.store import filters
from durable_adk.store.core import EXECUTIONS, Core, Session
from durable_adk.store.documents import Doc

TURNS_AT_ONCE: Final = 100


async def runs_left(core: Core, doc: Doc) -> tuple[RunId, ...]:
    """The prefixes under which there may be something, of a session's document; of one that is
    whole, or was made here, none."""
    mark = doc.get("import")
    if mark is None or mark["whole"]:
        return ()
    key = doc["_id"]

    async def once(session: Session) -> set[int]:
        found = await core.find(session, EXECUTIONS, filters.of_session(key), fields={"turn": 1})
        return {one["turn"] for one in found}

    there = await core.read("the executions of a session", once)
    first = next(number for number in range(1, len(there) + 2) if number not in there)
    behind = range(first, first + TURNS_AT_ONCE)
    return tuple(run_of_turn(key, mark["digest"], n) for n in behind if n not in there)
