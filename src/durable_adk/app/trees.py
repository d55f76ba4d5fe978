"""Sessions as a forest: each below the one that it was forked from."""

from __future__ import annotations

from collections.abc import Iterable

from durable_adk.app.outcome import SessionInfo, SessionNode
from durable_adk.model.execution import SessionRecord
from durable_adk.model.identity import SessionKey


def forest(
    records: Iterable[SessionRecord], infos: dict[SessionKey, SessionInfo]
) -> tuple[SessionNode, ...]:
    """The roots, in the order of the records. A fork whose parent is not there is a root."""
    ordered = list(records)
    there = {record.key for record in ordered}
    below: dict[SessionKey, list[SessionRecord]] = {}
    roots: list[SessionRecord] = []
    for record in ordered:
        parent = record.lineage[-1].key if record.lineage else None
        if parent is None or parent not in there:
            roots.append(record)
        else:
            below.setdefault(parent, []).append(record)
    before_forks: list[tuple[SessionRecord, bool]] = []
    left = [(root, True) for root in roots]
    while left:
        record, is_root = left.pop()
        before_forks.append((record, is_root))
        left.extend((fork, False) for fork in below.get(record.key, ()))
    nodes: dict[SessionKey, SessionNode] = {}
    for record, is_root in reversed(before_forks):
        nodes[record.key] = SessionNode(
            info=infos[record.key],
            forked_at=None if is_root else record.base,
            children=tuple(nodes[fork.key] for fork in below.get(record.key, ())),
        )
    return tuple(nodes[root.key] for root in roots)
