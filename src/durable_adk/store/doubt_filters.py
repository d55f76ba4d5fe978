"""Filters and updates for calls that are in doubt; as ``filters.py``."""

from __future__ import annotations

from typing import Any

from durable_adk.model.execution import FAR
from durable_adk.store.documents import LEASE_ENDED
from durable_adk.store.filters import RUNNING, Pipeline, Update


def keeping_lease_end(claim: Pipeline) -> Pipeline:
    """A claim that notes when the lease of an owner ended who did not give it back: of a running
    execution that is ``wake_at``, which the claim moves."""
    was_left = {"$eq": ["$status", RUNNING]}
    kept = {"$cond": [was_left, "$wake_at", {"$ifNull": [f"${LEASE_ENDED}", FAR]}]}
    return [{"$set": {LEASE_ENDED: kept}}, *claim]


def left(kept: dict[str, Any] | None) -> Update:
    """Doubts that are settled; their step goes on, with what its timers came to."""
    return {"$set": {"frontier": kept, "waiting": False}}


def settled(frontier: dict[str, Any]) -> Update:
    """A frontier of which nothing is open; its owner goes on."""
    return {"$set": {"frontier": frontier}}
