"""Pages of open waits while executions are answered and wait again: each has one once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from durable_adk.model.store_results import Selection
from tests.conformance.bench import Bench, suspend, wait


async def _waiting(bench: Bench, count: int) -> list[Any]:
    for number in range(count):
        await suspend(bench, await bench.begin(f"e{number}", f"s{number}"), [wait(1)])
        bench.clock.advance(10)
    items, _ = await bench.store.list_waiting(Selection(bench.tenant))
    assert len(items) == count
    return list(items)


async def test_what_waits_again_meanwhile_is_on_a_page_once(bench: Bench) -> None:
    """It moves forward in the order while a scan is between its old place and its new one."""
    found = await _waiting(bench, 20)
    first, last = found[0], found[-1]
    assert first.waiting_since and last.waiting_since
    places = (last.waiting_since + 1, first.waiting_since)
    async with bench.moving(first.key, waiting_since=places):
        for _ in range(100 if bench.is_real else 1):
            items, _ = await bench.store.list_waiting(Selection(bench.tenant))
            ids = [item.execution_id for item in items]
            if len(set(ids)) < len(ids):
                break
    assert len(set(ids)) == len(ids)


async def test_the_page_that_met_it_twice_shows_how_it_stands_and_is_followed_by_the_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await _waiting(bench, 5)
    since = found[2].waiting_since + 1
    moved = dataclasses.replace(found[0], waiting_since=since)
    seen = (*found[:3], moved, *found[3:])
    read: Any = bench.store._executions

    async def scan(what: str, wanted: Any, sort: Any, limit: int, **more: Any) -> Any:
        nonlocal seen
        if not seen:
            return await read(what, wanted, sort, limit, **more)
        met, seen = seen[:limit], ()
        return met

    monkeypatch.setattr(bench.store, "_executions", scan)
    await bench.collection("executions").update_one(
        {"_id": moved.key}, {"$set": {"waiting_since": since}}
    )
    items, cursor = await bench.store.list_waiting(Selection(bench.tenant, limit=4))
    assert items == (found[1], found[2], moved)
    rest, end_of_list = await bench.store.list_waiting(
        Selection(bench.tenant, limit=4, cursor=cursor)
    )
    assert (list(rest), end_of_list) == (found[3:], None)
