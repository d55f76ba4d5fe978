"""Filters and updates of shared state: overwritten values, and their chunks.

A chunk's name begins with the time of its write's stamp, so the chunks of older writes are a range
of keys. ``at`` only grows: below it nothing can be named again, whoever repeats an old write.
``left`` says that there may be such chunks: since when, and below which stamp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from durable_adk.model.identity import Tenant
from durable_adk.store.filters import Filter, Pipeline, by_id, later, literal, of_tenant, text
from durable_adk.store.payloads import part_nonce

_DIGITS = 15
"""Of the milliseconds that a stamp begins with."""


def _time_of(stamp: str) -> str:
    return f"at{stamp.partition(':')[0].zfill(_DIGITS)}"


def chunk_nonce(stamp: str, key: str) -> str:
    """The same in every repeat of a write; ordered as the times of stamps are."""
    return f"{_time_of(stamp)}-{part_nonce(stamp, key)}"


def chunks_before(document_key: str, stamp: str) -> Filter:
    """Chunks of a key's values whose stamps have an earlier time."""
    owner = text("key", document_key)
    return {"_id": {"$gte": f"{owner}:at", "$lt": f"{owner}:{_time_of(text('stamp', stamp))}"}}


def put(fields: Mapping[str, Any], stamp: str, now: Any) -> Pipeline:
    """The new value; and a mark, unless there is one, where the old one is in chunks."""
    is_large = {"$gt": [{"$ifNull": ["$value.n", 0]}, 0]}
    marked = {"$ifNull": ["$left", None]}
    is_first = {"$and": [is_large, {"$eq": [marked, None]}]}
    mark = {"since": now, "upto": {"$literal": stamp}}
    return [
        {"$set": {"left": {"$cond": [is_first, mark, marked]}}},
        {"$set": literal(fields)},
    ]


def newer_unmarked(document_key: str, stamp: str) -> Filter:
    """The value of a newer write, whose loser has left chunks."""
    return {**by_id(document_key), "at": {"$gt": text("stamp", stamp)}, "left": None}


def marked(now: Any) -> Pipeline:
    return [{"$set": {"left": {"since": now, "upto": "$at"}}}]


def left_over(tenant: Tenant, now: Any, grace_ms: int) -> Filter:
    """Marked for long enough."""
    is_over = {"$expr": {"$lte": [later("$left.since", grace_ms), now]}}
    return {**of_tenant(tenant), "left.since": {"$gt": 0}, **is_over}


def left_since(document_key: str, since: int, upto: str) -> Filter:
    return {**by_id(document_key), "left.since": since, "left.upto": text("stamp", upto)}


def swept(upto: str, now: Any) -> Pipeline:
    """No mark; a new one where the value was overwritten since."""
    is_same = {"$eq": ["$at", {"$literal": upto}]}
    return [{"$set": {"left": {"$cond": [is_same, None, {"since": now, "upto": "$at"}]}}}]
