"""Whether the answers that committed steps were left with are all there."""

from __future__ import annotations

import pytest

from durable_adk.errors import CorruptHistory
from tests.conformance.bench import Bench, next_step, suspend, wait


async def test_a_missing_answer_of_any_committed_step_is_corruption(bench: Bench) -> None:
    e = await bench.begin()
    await bench.store.check_waits(e)  # none is committed
    e = await next_step(bench, e, [wait(1), wait(2)])
    e = await next_step(bench, e, [wait(1, step=2)])
    await bench.store.check_waits(e)
    docs = await bench.raw("activities", {"_id": {"$regex": f"^{e.run}:"}, "wait": {"$ne": None}})
    assert len(docs) == 3
    for doc in docs:
        await bench.collection("activities").delete_one({"_id": doc["_id"]})
        with pytest.raises(CorruptHistory, match=f"step {int(doc['_id'].split(':')[1])} of"):
            await bench.store.check_waits(e)
        await bench.collection("activities").insert_one(doc)
    await bench.store.check_waits(e)


async def test_an_open_frontier_has_no_answers_to_look_for(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [wait(1)])
    await bench.store.check_waits(await bench.read(e))


async def test_what_an_answered_wait_had_asked_is_read_with_its_record(bench: Bench) -> None:
    e = await bench.begin()
    large = '{"message":"' + "x" * (2 << 20) + '"}'
    e = await next_step(bench, e, [wait(1, content=large)])
    assert len(await bench.store.load_records(e.run, from_step=1)) == 1
    await bench.collection("payloads").delete_many({"_id": {"$regex": f"^{e.run}:"}})
    with pytest.raises(CorruptHistory, match="chunk"):
        await bench.store.load_records(e.run, from_step=1)
