"""Filters and updates for what ends by the server's clock: waits, timers, executions.

As in ``filters.py``: ``now`` is an expression on a server, a number elsewhere, where everything
is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durable_adk.model.due import Due
from durable_adk.model.execution import FAR, Status
from durable_adk.model.identity import Tenant
from durable_adk.model.store_results import OVERDUE
from durable_adk.model.wait import Frontier
from durable_adk.store import code_filters, filters
from durable_adk.store.documents import error_document


def moment(due: Due, now: Any) -> Any:
    """Server milliseconds of a moment, counted from the write that it stands in."""
    return due.at if due.after is None else filters.later(now, due.after)


def expiries(frontier: Frontier, now: Any) -> dict[int, Any]:
    """When each wait of a frontier expires, by place: as known, or counted from now."""
    found: dict[int, Any] = {}
    for place, wait in enumerate(frontier.waits):
        if wait.expires_at is not None:
            found[place] = wait.expires_at
        elif wait.expires_after is not None:
            found[place] = filters.later(now, wait.expires_after)
    return found


def wakes_at(frontier: Frontier, times: dict[int, Any]) -> Any:
    """When a suspended execution is next due: now if all is answered, else at the first expiry of
    an open wait or at its deadline, else never."""
    if frontier.open == 0:
        return 0
    ahead = [at for place, at in times.items() if place not in frontier.answers]
    return earliest([*ahead, FAR if frontier.deadline is None else frontier.deadline])


def earliest(times: Sequence[Any]) -> Any:
    if all(isinstance(at, int) for at in times):
        return min(times)
    return {"$min": list(times)}


def timed(stored: dict[str, Any], times: dict[int, Any]) -> dict[str, Any]:
    """A frontier's document, as an expression where the server has to compute an expiry."""
    expires = {str(place): at for place, at in times.items()}
    if all(isinstance(at, int) for at in expires.values()):
        return {"$literal": {**stored, "expires": expires}}
    return {"$mergeObjects": [{"$literal": stored}, {"expires": expires}]}


def open_in_time(frontier: Frontier, now: Any) -> list[filters.Filter]:
    """What an answer of somebody asks for: the execution may still go on."""
    return [] if frontier.deadline is None else [{"$gt": ["$frontier.deadline", now]}]


def overdue(now: Any) -> filters.Filter:
    """Kept for people, and past its deadline."""
    kept = {"status": {"$in": [Status.SUSPENDED.value, Status.STUCK.value]}}
    passed = [{"$lte": ["$wake_at", now]}, {"$lte": ["$deadline", now]}]
    return {**kept, "deadline": {"$gt": 0}, "$expr": {"$and": passed}}


def expired_elsewhere(tenant: Tenant, version: str, now: Any) -> filters.Filter:
    """Suspended under another version, with an open wait that may have expired."""
    theirs = {"version": {"$nin": [None, filters.text("version", version)]}}
    asks = {"status": Status.SUSPENDED.value, "frontier.open": {"$gt": 0}}
    is_due = {"$expr": {"$lte": ["$wake_at", now]}}
    whose = {**filters.of_tenant(tenant), **code_filters.readable(), "active": True}
    return {**whose, **asks, **theirs, **is_due}


def due_or_overdue(found: filters.Filter, now: Any) -> filters.Filter:
    """What may be claimed, and what else in order to end it."""
    return {**found, "$or": [*found["$or"], overdue(now)]}


def ending_overdue(claim: filters.Pipeline, now: Any) -> filters.Pipeline:
    """A claim that closes what is past its deadline."""
    return [{"$set": {**claim[0]["$set"], **_closing_if_overdue(now)}}]


def _closing_if_overdue(now: Any) -> dict[str, Any]:
    closing = {"$ifNull": ["$closing", None]}
    is_over = {"$and": [{"$lte": [{"$ifNull": ["$deadline", FAR]}, now]}, {"$eq": [closing, None]}]}
    return {
        "closing": {"$cond": [is_over, Status.FAILED.value, closing]},
        "error": {
            "$cond": [
                is_over,
                {"$literal": error_document(OVERDUE)},
                {"$ifNull": ["$error", None]},
            ]
        },
        "waiting": {"$cond": [is_over, False, "$waiting"]},
    }


def queued_until(now: Any, pause_ms: int) -> Any:
    """When what backs off is next due: after its pause, or at its deadline, if that is before."""
    at, deadline = filters.later(now, pause_ms), {"$ifNull": ["$deadline", FAR]}
    return {"$cond": [{"$lt": [deadline, at]}, deadline, at]}


def stuck_until() -> Any:
    """When something stuck is next due: at its deadline, if it has one."""
    return {"$ifNull": ["$deadline", FAR]}
