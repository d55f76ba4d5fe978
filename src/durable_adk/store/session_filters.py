"""Filters and updates of session documents beyond their insert: forks, imports, deletion."""

from __future__ import annotations

from typing import Any

from durable_adk.store.filters import Filter, Update, by_id, is_running, text


def forks_of(session_key: str) -> Filter:
    """The sessions that have this one among their ancestors."""
    return {"lineage.sk": text("session key", session_key)}


def going(mark: str | None) -> Update:
    """A session that is being deleted; None: it is not."""
    return {"$set": {"going": mark}}


def going_as(session_key: str, mark: str) -> Filter:
    return {**by_id(session_key), "going": text("mark", mark)}


def held(execution_key: str, now: Any) -> Filter:
    """Running, under a lease that has not run out."""
    return {**is_running(execution_key), "$expr": {"$gt": ["$wake_at", now]}}


def not_decided(session_key: str) -> Filter:
    return {**by_id(session_key), "removed": {"$exists": False}}


REMOVED: Update = {"$set": {"removed": True}}
"""The removal is decided: it is going whatever becomes of marks."""


def forked_as(session_key: str, execution_key: str) -> Filter:
    """A fork by the execution that it begins with, which no other insert has."""
    return {**by_id(session_key), "next.ek": text("execution key", execution_key)}


def imported_as(session_key: str, digest: str) -> Filter:
    return {**by_id(session_key), "import.digest": text("digest", digest)}


def awaiting(execution_key: str) -> Filter:
    """The fork whose first execution this is."""
    return {"next.ek": text("execution key", execution_key)}


IMPORTED: Update = {"$set": {"import.whole": True}}


def turns_between(session_key: str, after: int, before: int) -> Filter:
    return {"sk": text("session key", session_key), "turn": {"$gt": after, "$lt": before}}
