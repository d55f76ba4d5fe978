"""Sessions that go, and whoever reads them meanwhile."""

from __future__ import annotations

import dataclasses

import pytest

from durable_adk.errors import CorruptHistory
from durable_adk.model.execution import Ancestor, NextExecution, SessionRecord
from durable_adk.model.identity import execution_key
from durable_adk.model.retention import Retained
from durable_adk.model.store_results import Selection
from tests.conformance.bench import Bench

LARGE = '"' + "x" * 2_000 + '"'


async def fork(bench: Bench, first: str, session_id: str = "fork") -> SessionRecord:
    """A fork with each of its payloads in a chunk."""
    store = await bench.rival(spill_above=1_000)
    source = bench.session("s")
    record = dataclasses.replace(
        bench.session(session_id, state=LARGE),
        artifacts=LARGE,
        lineage=(Ancestor(key=source.key, session_id="s", upto=2),),
        retained=Retained(floor=1, state=LARGE, artifacts=LARGE),
        next=NextExecution(key=execution_key(bench.tenant, first), execution_id=first),
    )
    made = await store.create_session(record)
    assert made is not None
    return made


async def chunks(bench: Bench, record: SessionRecord) -> list[str]:
    found = await bench.raw("payloads", {"_id": {"$regex": f"^{record.key}:"}})
    return [doc["_id"] for doc in found]


async def test_a_fork_that_is_taken_back_leaves_nothing(bench: Bench) -> None:
    made = await fork(bench, "f1")
    assert len(await chunks(bench, made)) == 4
    for _ in range(2):
        await bench.store.remove_fork(made)
    assert await bench.store.get_session(made.key) is None
    assert await chunks(bench, made) == []


async def test_taking_a_fork_back_leaves_the_next_one_under_its_key_alone(bench: Bench) -> None:
    first = await fork(bench, "f1")
    await bench.store.remove_fork(first)
    second = await fork(bench, "f2")
    await bench.store.remove_fork(first)
    assert await bench.store.get_session(second.key) == second
    assert len(await chunks(bench, second)) == 4


async def test_a_session_whose_removal_was_cut_off_is_read_without_its_payloads(
    bench: Bench,
) -> None:
    """Its chunks go before its document."""
    made = await fork(bench, "f1")
    other = await bench.store.create_session(bench.session("other", state='{"k":1}'))
    assert await bench.store.decide_removal(made.key, await bench.store.mark_going(made.key))
    await bench.collection("payloads").delete_many({"_id": {"$regex": f"^{made.key}:"}})
    found = await bench.store.get_session(made.key)
    assert found is not None
    assert (found.is_removed, found.state, found.artifacts, found.floor) == (True, None, None, 1)
    listed, _cursor = await bench.store.list_sessions(Selection(bench.tenant))
    assert {one.session_id for one in listed} == {"fork", "other"}
    assert other in listed


async def test_a_session_that_goes_while_it_is_read_hides_no_other_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await fork(bench, "f1")
    other = await bench.store.create_session(bench.session("other"))
    core, rival = bench.store._core, await bench.rival()
    texts = core.texts

    async def gone_in_between(*args: object) -> object:
        monkeypatch.setattr(core, "texts", texts)
        await rival.remove_fork(made)
        return await texts(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(core, "texts", gone_in_between)
    listed, _cursor = await bench.store.list_sessions(Selection(bench.tenant))
    assert listed == (other,)


async def test_a_chunk_that_is_missing_otherwise_is_corruption(bench: Bench) -> None:
    made = await fork(bench, "f1")
    await bench.collection("payloads").delete_many({"_id": {"$regex": f"^{made.key}:"}})
    with pytest.raises(CorruptHistory, match="chunk"):
        await bench.store.list_sessions(Selection(bench.tenant))
