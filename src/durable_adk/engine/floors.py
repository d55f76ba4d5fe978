"""What forks ask of retention: which turns are still there to stand on."""

from __future__ import annotations

from durable_adk.engine.ports import Store
from durable_adk.errors import NotFound
from durable_adk.model.execution import SessionRecord
from durable_adk.model.retention import removable_for


def check_kept(source: SessionRecord, upto: int, *, last: int) -> None:
    """Refuse a cut among turns that are removed, or are about to be.

    Args:
        source: What is forked.
        upto: The last turn that the fork has.
        last: The last one that it reads.

    Raises:
        NotFound: saying after which turn a fork can be made.
    """
    floor, expiring = source.floor, source.retained.expiring
    if upto >= floor and not floor < last <= expiring:
        return
    why = "is removed" if last <= floor else "is about to be removed"
    raise NotFound(
        f"turn {last} of session {source.session_id!r}",
        f"{why} by retention",
        f"Fork after a turn behind turn {max(floor, expiring)}.",
    )


async def has_its_turns(store: Store, fork: SessionRecord) -> bool:
    """Whether retention left the turns that a fork stands on; ask after its insert.

    Whoever moves the floor of an ancestor looks for forks after setting its mark: it found this
    one, or the mark is here and is taken off, or the floor has moved.
    """
    for ancestor in fork.lineage:
        found = await store.get_session(ancestor.key)
        while found is not None and found.retained.cutting:
            await store.stop_cut(found.key, found.retained.cutting)
            found = await store.get_session(ancestor.key)
        spare = removable_for(fork, ancestor.key)
        if found is not None and spare is not None and found.floor > spare:
            return False
    return True
