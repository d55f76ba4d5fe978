"""Every filter and every update, named. Pure functions: no driver, no traffic.

``now`` is always what ``Clock.now()`` gave: an expression on a server, a number elsewhere.
Values of users are literals: ``$literal`` inside pipelines, and only text inside filters.
Fields are set to null rather than unset, which mongomock's pipelines cannot do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from durable_adk.errors import ConfigError
from durable_adk.model.execution import FAR, Lease, Status
from durable_adk.model.identity import Tenant
from durable_adk.model.store_results import Selection
from durable_adk.store import code_filters

Filter = dict[str, Any]
Update = dict[str, Any]
Pipeline = list[dict[str, Any]]

RUNNING = Status.RUNNING.value


def text(what: str, value: object) -> str:
    """Refuse to place anything but text in a filter."""
    if not isinstance(value, str):
        raise ConfigError(what, f"expected text, got {type(value).__name__}")
    return value


def later(now: Any, ms: int) -> Any:
    """``ms`` milliseconds after ``now``."""
    return now + ms if isinstance(now, int) else {"$add": [now, ms]}


def literal(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields for a pipeline's ``$set`` that no value can turn into an expression."""
    return {name: {"$literal": value} for name, value in fields.items()}


def by_id(key: str) -> Filter:
    return {"_id": text("key", key)}


def by_ids(keys: Sequence[str]) -> Filter:
    return {"_id": {"$in": [text("key", key) for key in keys]}}


def of_tenant(tenant: Tenant) -> Filter:
    return {"ns": text("namespace", tenant.namespace), "app": text("app", tenant.app)}


def starting_with(prefix: str) -> Filter:
    """Ids that begin with ``prefix``: one range of the ``_id`` index."""
    text("key", prefix)
    return {"_id": {"$gte": prefix, "$lt": prefix[:-1] + chr(ord(prefix[-1]) + 1)}}


def records_from(run: str, step: int) -> Filter:
    """All records of a run from a step on."""
    text("run", run)
    return {"_id": {"$gte": f"{run}:{step:06d}:", "$lt": f"{run};"}}


def kept_of(run: str, from_step: int, to_step: int) -> Filter:
    """The records of a run from a step to another one, both included."""
    text("run", run)
    return {"_id": {"$gte": f"{run}:{from_step:06d}:", "$lt": f"{run}:{to_step:06d};"}}


def steps_before(run: str, step: int) -> Filter:
    """The step documents of a run before a step, whoever wrote them."""
    text("run", run)
    return {"_id": {"$gte": f"{run}:", "$lt": f"{run}:{step:06d}"}}


def wait_records_of(run: str, step: int) -> Filter:
    """The wait records of one step."""
    text("run", run)
    key = f"{run}:{step:06d}"
    return {"_id": {"$gte": f"{key}:", "$lt": f"{key};"}, "wait": {"$exists": True}}


# ------------------------------------------------------------------ insert with server time


def absent(key: str) -> Filter:
    """With ``upsert``: insert, or fail with a duplicate. Never touches what is there."""
    return {"_id": text("key", key), "v": {"$exists": False}}


def whole(fields: Mapping[str, Any], times: Mapping[str, Any]) -> Pipeline:
    """A document of literal fields and computed times."""
    return [{"$set": {**literal(fields), **times}}]


# ------------------------------------------------------------------ own


def _is_due(now: Any) -> Filter:
    return {"$expr": {"$lte": ["$wake_at", now]}}


def due(key: str, now: Any, *, version: str | None, early: bool) -> Filter:
    """What may be claimed now."""
    running = {"status": RUNNING, **_is_due(now)}
    queued: Filter = {"status": Status.QUEUED.value}
    if not early:
        queued |= _is_due(now)
    answered = {"status": Status.SUSPENDED.value, "frontier.open": 0, **_is_due(now)}
    ways: list[Filter] = [queued, running, answered]
    if version is not None:
        ways.append(code_filters.stuck_under_another(text("version", version)))
    return {**by_id(key), **code_filters.readable(), "active": True, "$or": ways}


def unowned(key: str, now: Any) -> Filter:
    """Active, and nobody runs it."""
    idle = {"status": {"$in": [Status.QUEUED.value, Status.SUSPENDED.value, Status.STUCK.value]}}
    return {
        **by_id(key),
        "active": True,
        "$or": [idle, {"status": RUNNING, **_is_due(now)}],
    }


def take(now: Any, *, nonce: str, ttl_ms: int, extra: Mapping[str, Any] | None = None) -> Pipeline:
    """The claim: the next token, a new lease, one more attempt."""
    return [
        {
            "$set": {
                "token": {"$add": ["$token", 1]},
                "attempt": {"$add": ["$attempt", 1]},
                "wake_at": later(now, ttl_ms),
                **literal({"claim": nonce, "status": RUNNING, **(extra or {})}),
            }
        }
    ]


def claimed_as(key: str, nonce: str) -> Filter:
    """My own claim, found again."""
    return {**by_id(key), "claim": text("nonce", nonce), "status": RUNNING}


def held_under(lease: Lease) -> Filter:
    """The fence. Every write that follows a claim uses this filter."""
    return {
        "_id": text("key", lease.key),
        "token": lease.token,
        "claim": text("nonce", lease.claim),
        "status": RUNNING,
    }


def held_in(lease: Lease, step: int) -> Filter:
    """The fence, and the step that is open."""
    return {**held_under(lease), "step": step}


def renewed(now: Any, ttl_ms: int) -> Pipeline:
    return [{"$set": {"wake_at": later(now, ttl_ms)}}]


def left_by(key: str, token: int, how: str) -> Filter:
    """The owner under ``token`` has ended its run in this way: its write, found again."""
    return {**by_id(key), "left": {"token": token, "how": how}}


def leave(token: int, how: str, now_fields: Mapping[str, Any], fields: Mapping[str, Any]) -> Update:
    """The common part of every write that gives the lease up."""
    left = {"claim": None, "left": {"token": token, "how": how}}
    return {"$set": {**literal({**left, **fields}), **now_fields}}


def released(lease: Lease, now: Any) -> Pipeline:
    return [leave(lease.token, "release", {"wake_at": now}, {"status": Status.QUEUED.value})]


def attempt_failed(
    lease: Lease, *, status: Status, wake_at: Any, voided: Sequence[str], fields: Mapping[str, Any]
) -> Pipeline:
    """Queued again or stuck, with what the attempt leaves."""
    slots = {"$concatArrays": [{"$ifNull": ["$voided", []]}, {"$literal": list(voided)}]}
    computed = {"wake_at": wake_at, "voided": slots}
    return [leave(lease.token, "failed", computed, {"status": status.value, **fields})]


def is_running(key: str) -> Filter:
    return {**by_id(key), "active": True, "status": RUNNING}


def cancel_asked(reason: str, nonce: str) -> Update:
    return {"$set": {"cancel": {"reason": reason, "w": nonce}}}


def is_waiting_to_run(key: str) -> Filter:
    statuses = [Status.STUCK.value, Status.QUEUED.value]
    return {**by_id(key), "active": True, "status": {"$in": statuses}}


def retried(now: Any, nonce: str) -> Pipeline:
    fields = literal({"status": Status.QUEUED.value, "failures": 0, "retry": nonce})
    return [{"$set": {**fields, **code_filters.anew(), "wake_at": now}}]


# ------------------------------------------------------------------ frontier


def suspended(
    lease: Lease, now: Any, *, frontier: dict[str, Any], wake_at: Any, scopes_due: bool
) -> Pipeline:
    """The frontier, whole, in the update that suspends; it and ``wake_at`` are expressions."""
    fields: dict[str, Any] = {
        "status": Status.SUSPENDED.value,
        "waiting": True,
        "failures": 0,
        "refused": [],
        "error": None,  # that of an earlier attempt: this one went well
    }
    if scopes_due:
        fields["scopes_due"] = True
    computed = {"waiting_since": now, "frontier": frontier, "wake_at": wake_at}
    return [leave(lease.token, "frontier", computed, fields)]


def answerable(
    key: str,
    frontier_id: str,
    rev: int,
    now: Any,
    *,
    timely: Sequence[int],
    expired: Sequence[int],
    terms: Sequence[Filter] = (),
) -> Filter:
    """The frontier as it was read; ``timely`` places have not expired, ``expired`` ones have."""
    found: Filter = {
        **by_id(key),
        "status": Status.SUSPENDED.value,
        "frontier.id": text("frontier", frontier_id),
        "frontier.rev": rev,
    }
    terms = [*terms, *({"$gt": [f"$frontier.expires.{place}", now]} for place in timely)]
    terms += [{"$lte": [f"$frontier.expires.{place}", now]} for place in expired]
    if terms:
        found["$expr"] = {"$and": terms}
    return found


def answered(answers: Mapping[int, dict[str, Any]], *, rev: int, left: int, wake_at: int) -> Update:
    """Answers by place; with the last one the execution is due and leaves the inbox."""
    fields: dict[str, Any] = {f"frontier.answers.{i}": doc for i, doc in answers.items()}
    fields |= {"frontier.rev": rev + 1, "frontier.open": left, "wake_at": wake_at}
    if left == 0:
        fields["waiting"] = False
    return {"$set": fields}


def holding_frontier(lease: Lease, step: int, frontier_id: str) -> Filter:
    return {**held_in(lease, step), "frontier.id": text("frontier", frontier_id)}


def continued(step: int, last_step: dict[str, Any]) -> Update:
    """No frontier; the next step."""
    fields = {"frontier": None, "waiting": False, "step": step + 1, "last_step": last_step}
    return {"$set": fields}


# ------------------------------------------------------------------ end


def ended(
    lease: Lease,
    now: Any,
    *,
    status: Status,
    last_step: dict[str, Any] | None,
    fields: Mapping[str, Any],
) -> Pipeline:
    """The end: not active, nothing due."""
    fixed: dict[str, Any] = {
        "status": status.value,
        "active": False,
        "last_step": last_step,
        "frontier": None,
        "waiting": False,
        "wake_at": FAR,
        "closing": None,
    }
    return [leave(lease.token, "end", {"ended_at": now}, {**fixed, **fields})]


def ended_with(key: str, status: Status, step: int, token: int) -> Filter:
    """My own end, found again."""
    return {
        **by_id(key),
        "status": status.value,
        "last_step.n": step,
        "last_step.token": token,
    }


def scope_before(key: str, stamp: str) -> Filter:
    return {**by_id(key), "at": {"$lt": text("stamp", stamp)}}


def scopes_due_from(key: str, step: int, token: int) -> Filter:
    """Shared state of this step, and of no later one, is still to be applied."""
    return {
        **by_id(key),
        "scopes_due": True,
        "$or": [
            {"last_step.n": step, "last_step.token": token},
            {"frontier.step": step, "frontier.token": token},
        ],
    }


SCOPES_APPLIED: Update = {"$set": {"scopes_due": False}}


# ------------------------------------------------------------------ lists


def due_of(tenant: Tenant, now: Any, version: str | None) -> Filter:
    """What ``due`` matches, but for the stuck of other versions, of this version or of none, or
    only to be closed; and what has an open wait that has expired."""
    found: Filter = {
        **of_tenant(tenant),
        **code_filters.readable(),
        "active": True,
        **_is_due(now),
    }
    if version is not None:
        found["$or"] = code_filters.served_by(text("version", version), now)
    return found


def stuck_of(tenant: Tenant, version: str) -> Filter:
    stuck = code_filters.stuck_under_another(text("version", version))
    return {**of_tenant(tenant), **code_filters.readable(), "active": True, **stuck}


def waking(tenant: Tenant) -> Filter:
    active = {**of_tenant(tenant), **code_filters.readable(), "active": True}
    return {**active, "wake_at": {"$lt": FAR}}


def scopes_due_of(tenant: Tenant) -> Filter:
    return {**of_tenant(tenant), **code_filters.readable(), "scopes_due": True}


def of_session(session_key: str) -> Filter:
    return {"sk": text("session key", session_key)}


def scopes_of(tenant: Tenant, user_id: str) -> Filter:
    return {**of_tenant(tenant), "user": {"$in": ["", text("user_id", user_id)]}}


def scopes_of_user(tenant: Tenant, user_id: str) -> Filter:
    return {**of_tenant(tenant), "user": text("user_id", user_id)}


def sessions_of(selection: Selection) -> Filter:
    found = of_tenant(selection.tenant)
    if selection.user_id is not None:
        found["user"] = text("user_id", selection.user_id)
    if selection.session_id is not None:
        found["session"] = text("session_id", selection.session_id)
    return found


def waiting(selection: Selection) -> Filter:
    """Suspended executions with open waits (of a kind)."""
    found = {**sessions_of(selection), **code_filters.readable(), "waiting": True}
    if selection.status is not None:
        found["status"] = selection.status.value
    if selection.kind is not None:
        found["frontier.waits.kind"] = text("kind", selection.kind)
    return found


def beyond(field: str, value: int, key: str, *, descending: bool) -> Filter:
    """What a page after this place begins with."""
    beyond_it = "$lt" if descending else "$gt"
    return {
        "$or": [
            {field: {beyond_it: value}},
            {field: value, "_id": {beyond_it: text("cursor", key)}},
        ]
    }
