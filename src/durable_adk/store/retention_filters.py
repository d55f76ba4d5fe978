"""Filters and updates of retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from durable_adk.model.identity import Tenant
from durable_adk.store import code_filters
from durable_adk.store.filters import (
    Filter,
    Pipeline,
    Update,
    by_id,
    later,
    literal,
    of_tenant,
    text,
)

NOT_GONE: Filter = {"gone": {"$ne": True}}
"""Executions whose removal has not begun."""

GONE: Update = {"$set": {"gone": True}}

LIGHT = {"state": 0, "artifacts": 0, "base.state": 0, "base.artifacts": 0, "next.frontier": 0}
"""Leaves the payloads of sessions out."""


def sessions_after(tenant: Tenant, after: str) -> Filter:
    later = {"_id": {"$gt": text("session key", after)}}
    return {**of_tenant(tenant), **code_filters.readable(), **later}


def ended_between(session_key: str, after: int, upto: int, now: Any, age_ms: int) -> Filter:
    """Turns after one, up to another one, that ended so long ago."""
    old = {"$expr": {"$lte": [{"$add": ["$ended_at", age_ms]}, now]}}
    turns = {"sk": text("session key", session_key), "turn": {"$gt": after, "$lte": upto}}
    return {**turns, "active": False, **old}


def turns_upto(session_key: str, upto: int) -> Filter:
    return {"sk": text("session key", session_key), "turn": {"$lte": upto}}


def unmarked(session_key: str) -> Filter:
    return {**by_id(session_key), "expiring": None}


def expiring(upto: int, now: Any) -> Pipeline:
    return [{"$set": {"expiring": {"upto": {"$literal": upto}, "at": now}}}]


def expiring_upto(session_key: str, upto: int) -> Filter:
    return {**by_id(session_key), "expiring.upto": upto}


NOT_EXPIRING: Update = {"$set": {"expiring": None}}


def expired(session_key: str, upto: int, now: Any, grace_ms: int) -> Filter:
    """Marked for long enough, and not being deleted."""
    is_over = {"$expr": {"$lte": [later("$expiring.at", grace_ms), now]}}
    return {**expiring_upto(session_key, upto), "going": None, **is_over}


def cutting(mark: str | None) -> Update:
    return {"$set": {"cutting": mark}}


def cutting_as(session_key: str, mark: str) -> Filter:
    return {**by_id(session_key), "cutting": text("mark", mark)}


def cut(fields: Mapping[str, Any]) -> Pipeline:
    """``base`` in place of the turns up to ``base.upto``; no mark any more."""
    return [{"$set": literal({"base": dict(fields), "expiring": None, "cutting": None})}]


def of_runs(session_key: str, runs: Sequence[str]) -> Filter:
    """Executions of a session by their prefixes: random, so nobody else's."""
    names = [text("run", run) for run in runs]
    return {"sk": text("session key", session_key), "run": {"$in": names}}


def ids_between(first: str, last: str) -> Filter:
    """Ids from one on, before another one."""
    return {"_id": {"$gte": text("key", first), "$lt": text("key", last)}}
