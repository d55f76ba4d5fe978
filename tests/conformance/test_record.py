from __future__ import annotations

import asyncio
import dataclasses

import pytest

from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Kind, RecordStatus
from durable_adk.model.identity import new_nonce, new_run_id
from durable_adk.model.store_results import Write
from tests.conformance.bench import Bench, intent, record, verdict


async def loaded(bench: Bench, run, from_step: int = 1):
    return await bench.store.load_records(run, from_step=from_step)


async def test_outcomes_are_read_back_as_they_were_handed_over(bench: Bench) -> None:
    run = new_run_id()
    records = [
        record(1),
        record(2, status=RecordStatus.FAILED, kind=Kind.TOOL, attempt_try=2),
        record(3, status=RecordStatus.WAITING, kind=Kind.NODE, body=None, node_path="", name=""),
        record(4, request="", started_at=0, ended_at=0, attempt=3),
        record(5, request="not hex", nonce="nor this"),
        record(6, body='{"$t":"$$ROOT","ü":"\\u0000"}'),
    ]
    assert await bench.store.insert_outcomes(run, records) is None
    found = sorted(await loaded(bench, run), key=lambda r: r.seq)
    assert found == records


async def test_no_outcomes_are_no_write(bench: Bench) -> None:
    assert await bench.store.insert_outcomes(new_run_id(), []) is None
    assert bench.faults.sent[Write.OUTCOMES] == 0


async def test_outcomes_inserted_again_are_our_own(bench: Bench) -> None:
    run, records = new_run_id(), [record(n) for n in range(1, 6)]
    assert await bench.store.insert_outcomes(run, records[:3]) is None
    assert await bench.store.insert_outcomes(run, records) is None
    assert await bench.store.insert_outcomes(run, records) is None
    assert len(await loaded(bench, run)) == 5


@pytest.mark.parametrize("at", [1, 2, 3, 5])
async def test_a_rivals_outcome_ends_the_log_there(bench: Bench, at: int) -> None:
    run, records = new_run_id(), [record(n) for n in range(1, 6)]
    rival = dataclasses.replace(records[at - 1], nonce=new_nonce(), body='{"answer":"rival"}')
    assert await bench.store.insert_outcomes(run, [rival]) is None
    assert await bench.store.insert_outcomes(run, records) == rival
    found = {r.seq: r for r in await loaded(bench, run)}
    assert sorted(found) == list(range(1, at + 1))
    assert found[at] == rival
    assert await bench.store.insert_outcomes(run, records) == rival


async def test_an_outcome_with_the_same_content_under_another_nonce_is_not_ours(
    bench: Bench,
) -> None:
    run, mine = new_run_id(), record()
    rival = dataclasses.replace(mine, nonce=new_nonce())
    await bench.store.insert_outcomes(run, [rival])
    assert await bench.store.insert_outcomes(run, [mine]) == rival


async def test_of_20_rivals_for_one_slot_one_wins_and_the_others_see_it(bench: Bench) -> None:
    run = new_run_id()
    results = await asyncio.gather(
        *(bench.store.insert_outcomes(run, [record(1, body=f'"{n}"')]) for n in range(20))
    )
    (stored,) = await loaded(bench, run)
    assert results.count(None) == 1
    assert all(found == stored for found in results if found is not None)


async def test_outcomes_of_many_attempts_at_once_keep_apart(bench: Bench) -> None:
    """They share inserts. Of each, all is stored up to where a rival of its own stands."""
    runs, records = [new_run_id() for _ in range(12)], [record(n) for n in range(1, 4)]
    rivals = {run: dataclasses.replace(records[1], nonce=new_nonce()) for run in runs[::5]}
    for run, rival in rivals.items():
        assert await bench.store.insert_outcomes(run, [rival]) is None
    found = await asyncio.gather(
        *(
            bench.store.insert_outcomes(run, records, at_once=number % 4 == 3)
            for number, run in enumerate(runs)
        )
    )
    assert found == [rivals.get(run) for run in runs]
    for run in runs:
        stored = sorted(await loaded(bench, run), key=lambda r: r.seq)
        assert stored == ([records[0], rivals[run]] if run in rivals else records)


async def test_outcomes_of_many_attempts_whose_replies_are_lost_are_not_written_twice(
    bench: Bench,
) -> None:
    runs, records = [new_run_id() for _ in range(6)], [record(n) for n in range(1, 3)]
    bench.faults.lose(Write.OUTCOMES, times=4)
    found = await asyncio.gather(*(bench.store.insert_outcomes(run, records) for run in runs))
    assert found == [None] * 6
    assert bench.faults.all_lost
    for run in runs:
        assert len(await loaded(bench, run)) == 2


async def test_a_large_body_comes_back_whole(bench: Bench) -> None:
    run = new_run_id()
    body = '"' + "ü" * (9 * 1024 * 1024) + '"'
    records = [record(1), record(2, body=body), record(3)]
    assert await bench.store.insert_outcomes(run, records) is None
    assert await bench.store.insert_outcomes(run, records) is None
    found = sorted(await loaded(bench, run), key=lambda r: r.seq)
    assert found == records
    assert len(await bench.raw("payloads", {"_id": {"$regex": f"^{run}:"}})) == 3


async def test_a_missing_chunk_is_corruption(bench: Bench) -> None:
    run = new_run_id()
    store = await bench.rival(spill_above=100)
    await store.insert_outcomes(run, [record(1, body='"' + "x" * 200 + '"')])
    await bench.collection("payloads").delete_many({"_id": {"$regex": f"^{run}:"}})
    with pytest.raises(CorruptHistory, match="missing"):
        await loaded(bench, run)


async def test_records_are_read_from_a_step_on_in_key_order(bench: Bench) -> None:
    run, other = new_run_id(), new_run_id()
    records = [record(n, step=step) for step in (2, 10, 1, 100) for n in (1, 2)]
    await bench.store.insert_outcomes(run, records)
    await bench.store.insert_outcomes(other, [record(9, step=5)])
    found = await loaded(bench, run, from_step=2)
    assert [r.step for r in found] == [2, 2, 10, 10, 100, 100]
    assert [r.slot for r in found] == sorted(r.slot for r in found)
    assert await loaded(bench, run, from_step=101) == ()


async def test_a_run_whose_id_begins_another_reads_only_its_own(bench: Bench) -> None:
    run = new_run_id()
    await bench.store.insert_outcomes(run, [record(1)])
    await bench.store.insert_outcomes(type(run)(run + "00"), [record(2)])
    assert [r.seq for r in await loaded(bench, run)] == [1]


async def test_a_record_whose_position_does_not_fit_its_key_is_corruption(bench: Bench) -> None:
    run = new_run_id()
    await bench.store.insert_outcomes(run, [record(1)])
    other = record(2)
    await bench.collection("activities").update_one(
        {"_id": f"{run}:{record(1).slot}"}, {"$set": {"pos": other.position}}
    )
    with pytest.raises(CorruptHistory, match="holds another position"):
        await loaded(bench, run)


async def test_a_record_that_cannot_be_read_is_corruption(bench: Bench) -> None:
    run = new_run_id()
    await bench.store.insert_outcomes(run, [record(1)])
    await bench.collection("activities").update_one(
        {"_id": f"{run}:{record(1).slot}"}, {"$unset": {"tok": ""}}
    )
    with pytest.raises(CorruptHistory, match="cannot be read"):
        await loaded(bench, run)


async def test_a_record_of_a_newer_schema_is_refused_by_name(bench: Bench) -> None:
    run = new_run_id()
    await bench.store.insert_outcomes(run, [record(1)])
    await bench.collection("activities").update_one(
        {"_id": f"{run}:{record(1).slot}"}, {"$set": {"v": 99}}
    )
    with pytest.raises(CorruptHistory, match="schema version 99"):
        await loaded(bench, run)


# ---------------------------------------------------------------------- intents and verdicts


async def test_an_intent_is_ours_also_when_it_is_inserted_again(bench: Bench) -> None:
    run, mine = new_run_id(), intent()
    assert await bench.store.insert_intent(run, mine) is True
    assert await bench.store.insert_intent(run, mine) is True
    assert await loaded(bench, run) == (mine,)


async def test_an_intent_under_another_nonce_is_not_ours(bench: Bench) -> None:
    run, first = new_run_id(), intent()
    assert await bench.store.insert_intent(run, first)
    assert await bench.store.insert_intent(run, dataclasses.replace(first, nonce=new_nonce())) is (
        False
    )
    assert await loaded(bench, run) == (first,)


async def test_of_20_rival_intents_one_is_stored(bench: Bench) -> None:
    run = new_run_id()
    results = await asyncio.gather(*(bench.store.insert_intent(run, intent()) for _ in range(20)))
    assert results.count(True) == 1


async def test_a_verdict_takes_an_empty_outcome_slot(bench: Bench) -> None:
    run, doubt = new_run_id(), verdict()
    await bench.store.insert_intent(run, intent())
    assert await bench.store.insert_verdict(run, doubt) == doubt
    assert await bench.store.insert_verdict(run, doubt) == doubt


async def test_a_verdict_that_comes_after_the_outcome_gives_the_outcome(bench: Bench) -> None:
    run, outcome = new_run_id(), record(kind=Kind.TOOL)
    await bench.store.insert_outcomes(run, [outcome])
    assert await bench.store.insert_verdict(run, verdict()) == outcome


async def test_an_outcome_that_comes_after_the_verdict_loses(bench: Bench) -> None:
    run, doubt = new_run_id(), verdict()
    await bench.store.insert_verdict(run, doubt)
    assert await bench.store.insert_outcomes(run, [record(kind=Kind.TOOL)]) == doubt


async def test_of_20_rival_verdicts_and_outcomes_all_see_the_one_that_stands(
    bench: Bench,
) -> None:
    run = new_run_id()
    verdicts = [bench.store.insert_verdict(run, verdict()) for _ in range(10)]
    outcomes = [
        bench.store.insert_outcomes(run, [record(kind=Kind.TOOL, body=f'"{n}"')]) for n in range(10)
    ]
    results = await asyncio.gather(*verdicts, *outcomes)
    (stored,) = await loaded(bench, run)
    assert all(found == stored for found in results if found is not None)
    assert results.count(None) <= 1


async def test_the_next_try_has_a_slot_of_its_own(bench: Bench) -> None:
    run = new_run_id()
    first, second = verdict(), record(kind=Kind.TOOL, attempt_try=2)
    await bench.store.insert_verdict(run, first)
    assert await bench.store.insert_outcomes(run, [second]) is None
    assert set(await loaded(bench, run)) == {first, second}
