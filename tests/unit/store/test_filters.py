from __future__ import annotations

import inspect
from typing import Any

import pytest

from durable_adk.errors import ConfigError
from durable_adk.model.execution import Lease, Status
from durable_adk.model.identity import FencingToken, Nonce, Tenant
from durable_adk.model.store_results import Selection
from durable_adk.store import filters, session_filters
from durable_adk.store.expiry_filters import timed
from durable_adk.store.listing import executions_of

NOW = {"$toLong": "$$NOW"}
HOSTILE = {"$gt": ""}
LEASE = Lease("key", FencingToken(3), Nonce("nonce"))  # type: ignore[arg-type]
TENANT = Tenant("ns", "app")


def hostile_calls() -> list[tuple[str, Any]]:
    bad_tenant = Tenant("ns", HOSTILE)  # type: ignore[arg-type]
    bad_lease = Lease(HOSTILE, FencingToken(1), Nonce("n"))  # type: ignore[arg-type]
    bad_claim = Lease("key", FencingToken(1), HOSTILE)  # type: ignore[arg-type]
    bad: Any = HOSTILE
    return [
        ("by_id", lambda: filters.by_id(bad)),
        ("by_ids", lambda: filters.by_ids(["a", bad])),
        ("starting_with", lambda: filters.starting_with(bad)),
        ("records_from", lambda: filters.records_from(bad, 1)),
        ("wait_records_of", lambda: filters.wait_records_of(bad, 1)),
        ("absent", lambda: filters.absent(bad)),
        ("due", lambda: filters.due(bad, NOW, version=None, early=False)),
        ("due version", lambda: filters.due("k", NOW, version=bad, early=False)),
        ("unowned", lambda: filters.unowned(bad, NOW)),
        ("claimed_as", lambda: filters.claimed_as("k", bad)),
        ("held_under key", lambda: filters.held_under(bad_lease)),
        ("held_under claim", lambda: filters.held_under(bad_claim)),
        ("answerable", lambda: filters.answerable("k", bad, 0, NOW, timely=[], expired=[])),
        ("holding_frontier", lambda: filters.holding_frontier(LEASE, 1, bad)),
        ("scope_before", lambda: filters.scope_before("k", bad)),
        ("of_tenant", lambda: filters.of_tenant(bad_tenant)),
        ("of_session", lambda: filters.of_session(bad)),
        ("turns_between", lambda: session_filters.turns_between(bad, 0, 1)),
        ("scopes_of", lambda: filters.scopes_of(TENANT, bad)),
        ("due_of", lambda: filters.due_of(TENANT, NOW, bad)),
        ("sessions_of", lambda: filters.sessions_of(Selection(TENANT, user_id=bad))),
        ("executions_of", lambda: executions_of(Selection(TENANT, session_id=bad))),
        ("waiting", lambda: filters.waiting(Selection(TENANT, kind=bad))),
        ("beyond", lambda: filters.beyond("at", 1, bad, descending=True)),
    ]


@pytest.mark.parametrize(("name", "call"), hostile_calls(), ids=lambda v: v if v else "")
def test_a_filter_takes_only_text_where_text_belongs(name: str, call: Any) -> None:
    with pytest.raises(ConfigError, match="expected text"):
        call()


def test_values_of_users_are_literals_in_every_pipeline() -> None:
    evil = {"a": "$$ROOT", "b": {"$add": [1, 2]}}
    assert filters.literal(evil) == {
        "a": {"$literal": "$$ROOT"},
        "b": {"$literal": {"$add": [1, 2]}},
    }
    pipelines = [
        filters.whole({"x": "$evil"}, {}),
        filters.take(NOW, nonce="$evil", ttl_ms=1, extra={"version": "$evil"}),
        filters.retried(NOW, "$evil"),
        filters.suspended(
            LEASE, NOW, frontier=timed({"x": "$evil"}, {0: 1}), wake_at=1, scopes_due=True
        ),
        filters.suspended(
            LEASE, NOW, frontier=timed({"x": "$evil"}, {0: NOW}), wake_at=1, scopes_due=True
        ),
        filters.ended(
            LEASE, NOW, status=Status.FAILED, last_step={"n": 1}, fields={"error": "$evil"}
        ),
        filters.attempt_failed(
            LEASE, status=Status.STUCK, wake_at=1, voided=["$evil"], fields={"error": "$evil"}
        ),
    ]
    for pipeline in pipelines:
        assert "$evil" in str(pipeline)
        assert "$evil" not in str(_without_literals(pipeline))


def _without_literals(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_literals(v) for k, v in value.items() if k != "$literal"}
    if isinstance(value, list):
        return [_without_literals(v) for v in value]
    return value


def test_every_write_after_a_claim_carries_the_fence() -> None:
    fence = {"_id": "key", "token": 3, "claim": "nonce", "status": "running"}
    for found in (
        filters.held_under(LEASE),
        filters.held_in(LEASE, 2),
        filters.holding_frontier(LEASE, 2, "f"),
    ):
        assert fence.items() <= found.items()


def test_every_list_filters_on_the_tenant() -> None:
    selection = Selection(TENANT)
    for found in (
        filters.due_of(TENANT, NOW, None),
        filters.stuck_of(TENANT, "v"),
        filters.waking(TENANT),
        filters.scopes_due_of(TENANT),
        filters.scopes_of(TENANT, "u"),
        filters.sessions_of(selection),
        executions_of(selection)[0],
        filters.waiting(selection),
    ):
        assert {"ns": "ns", "app": "app"}.items() <= found.items()


def test_time_is_added_by_whoever_keeps_it() -> None:
    assert filters.later(NOW, 5) == {"$add": [NOW, 5]}
    assert filters.later(1_000, 5) == 1_005


def test_a_prefix_is_one_range_of_keys() -> None:
    assert filters.starting_with("run:") == {"_id": {"$gte": "run:", "$lt": "run;"}}


def test_filters_do_not_touch_a_driver() -> None:
    source = inspect.getsource(filters)
    assert "pymongo" not in source
    assert "await" not in source
