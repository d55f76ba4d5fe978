"""Overwritten shared state: its chunks go an hour later, and never those of a stored value."""

from __future__ import annotations

import json

from durable_adk.model.identity import scope_key
from durable_adk.model.store_results import Write
from durable_adk.store.mongo import MongoStore
from tests.conformance.bench import Bench

HOUR = 3_600_000
KEY = "user:a"


def value(number: int) -> str:
    return json.dumps(f"{number}." * 600)


def stamp(number: int, who: str = "e") -> str:
    return f"{number:015d}:{who}"


async def put(bench: Bench, store: MongoStore, number: int, text: str, who: str = "e") -> None:
    await store.put_scopes(bench.tenant, "u", f'{{"{KEY}":{text}}}', stamp=stamp(number, who))


async def chunks(bench: Bench) -> list[str]:
    owner = scope_key(bench.tenant, "u", KEY)
    found = await bench.raw("payloads", {"_id": {"$regex": f"^{owner}:"}})
    return sorted(doc["_id"] for doc in found)


async def stored(bench: Bench) -> str:
    values, _stamp = await bench.store.load_scopes(bench.tenant, "u")
    return values[KEY]


async def sweep(bench: Bench, limit: int = 9) -> int:
    return await bench.store.sweep_scopes(bench.tenant, grace_ms=HOUR, limit=limit)


async def small_chunks(bench: Bench) -> MongoStore:
    return await bench.rival(spill_above=1_000, faults=bench.faults)


async def test_the_chunks_of_an_overwritten_value_go_by_the_servers_clock(bench: Bench) -> None:
    store = await small_chunks(bench)
    await put(bench, store, 1, value(1))
    [first] = await chunks(bench)
    bench.clock.advance(HOUR)
    assert await sweep(bench) == 0  # nothing was overwritten
    await put(bench, store, 2, value(2))
    assert len(await chunks(bench)) == 2
    assert await sweep(bench) == 0  # a reader may be reading it
    bench.clock.advance(HOUR)
    assert await sweep(bench) == 1
    [second] = await chunks(bench)
    assert second != first
    assert await stored(bench) == value(2)
    bench.clock.advance(HOUR)
    assert await sweep(bench) == 0


async def test_a_small_value_and_a_deletion_let_go_of_the_large_one(bench: Bench) -> None:
    store = await small_chunks(bench)
    for number, text in ((2, "1"), (4, "null")):
        await put(bench, store, number - 1, value(number))
        await put(bench, store, number, text)
        bench.clock.advance(HOUR)
        assert await sweep(bench) == 1
        assert await chunks(bench) == []


async def test_a_value_that_is_overwritten_all_the_time_leaves_no_more_than_two_hours(
    bench: Bench,
) -> None:
    """The mark is that of the first overwriting: a later one does not put it off."""
    store = await small_chunks(bench)
    for number in range(1, 10):
        await put(bench, store, number, value(number))
        bench.clock.advance(HOUR // 2)
        await sweep(bench)
    assert len(await chunks(bench)) < 6
    assert await stored(bench) == value(9)
    for _ in range(2):
        bench.clock.advance(HOUR)
        await sweep(bench)
    assert len(await chunks(bench)) == 1
    assert await stored(bench) == value(9)


async def test_who_lost_to_a_newer_value_leaves_no_chunks(bench: Bench) -> None:
    """Also who repeats an old write after everything else: what it writes, nobody names."""
    store = await small_chunks(bench)
    await put(bench, store, 5, value(5))
    for _ in range(2):
        await put(bench, store, 3, value(3))
        assert len(await chunks(bench)) == 2
        assert await stored(bench) == value(5)
        bench.clock.advance(HOUR)
        assert await sweep(bench) == 1
        assert len(await chunks(bench)) == 1
        assert await stored(bench) == value(5)


async def test_a_write_under_way_keeps_its_chunks_however_long_it_takes(bench: Bench) -> None:
    """Its chunks are there, its value is not: and it is newer than what is swept."""
    store = await small_chunks(bench)
    await put(bench, store, 1, value(1))
    await put(bench, store, 2, value(2))

    class Cut(Exception):
        pass

    class Stalled:
        def before(self, write: Write) -> None:
            if write is Write.SCOPES:
                raise Cut

        def after(self, write: Write) -> bool:
            return False

    rival = await bench.rival(spill_above=1_000, faults=Stalled())
    for number in (2, 3):  # in the same millisecond as the stored one, and after it
        try:
            await put(bench, rival, number, value(7), who="f")
        except Cut:
            continue
        raise AssertionError
    bench.clock.advance(HOUR)
    assert await sweep(bench) == 1
    assert len(await chunks(bench)) == 3
    await put(bench, store, 2, value(7), who="f")
    assert await stored(bench) == value(7)
    await put(bench, store, 3, value(7), who="f")
    assert await stored(bench) == value(7)


async def test_a_sweep_takes_so_many_keys_and_nobody_elses(bench: Bench) -> None:
    store = await small_chunks(bench)
    for number in (1, 2):
        for user in ("u", "v", "w"):
            scopes = f'{{"{KEY}":{value(number)}}}'
            await store.put_scopes(bench.tenant, user, scopes, stamp=stamp(number))
    bench.clock.advance(HOUR)
    assert [await sweep(bench, limit=2) for _ in range(3)] == [2, 1, 0]
    for user in ("u", "v", "w"):
        values, _stamp = await bench.store.load_scopes(bench.tenant, user)
        assert values == {KEY: value(2)}
