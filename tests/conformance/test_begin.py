from __future__ import annotations

import asyncio

import pytest

from durable_adk.errors import ConfigError
from durable_adk.model.execution import FAR, Status
from durable_adk.model.identity import execution_key, new_nonce
from durable_adk.model.store_results import Begun, Busy, Taken
from tests.conformance.bench import TTL_MS, Bench, end, lease_of, suspend, wait


async def test_begin_makes_the_session_with_the_initial_state(bench: Bench) -> None:
    new = bench.new(initial_state='{"k":1}')
    await bench.store.begin(new)
    session = await bench.store.get_session(new.session_key)
    assert session is not None
    assert (session.user_id, session.session_id, session.state) == ("u", "s1", '{"k":1}')


async def test_begin_leaves_a_session_that_is_there_as_it_is(bench: Bench) -> None:
    await bench.store.create_session(bench.session("s1", state='{"first":1}'))
    new = bench.new(initial_state='{"second":2}')
    assert isinstance(await bench.store.begin(new), Begun)
    session = await bench.store.get_session(new.session_key)
    assert session is not None
    assert session.state == '{"first":1}'


async def test_begin_now_runs_under_token_1_with_a_lease_by_the_servers_clock(bench: Bench) -> None:
    new = bench.new(version="v1")
    begun = await bench.store.begin(new)
    assert isinstance(begun, Begun)
    e = begun.execution
    assert (e.status, e.token, e.claim, e.attempt, e.step, e.turn) == (
        Status.RUNNING,
        1,
        new.nonce,
        1,
        1,
        1,
    )
    assert e.wake_at == e.created_at + TTL_MS
    assert (e.input, e.input_digest, e.run, e.invocation_id, e.version) == (
        new.input,
        new.input_digest,
        new.run,
        new.invocation_id,
        "v1",
    )
    assert (e.last_step, e.frontier, e.result, e.error, e.ended_at) == (None,) * 5
    assert await bench.read(e) == e


async def test_begin_later_is_queued_under_token_0_and_due_at_once(bench: Bench) -> None:
    e = await bench.begin(run_now=False)
    assert (e.status, e.token, e.claim, e.attempt) == (Status.QUEUED, 0, None, 0)
    assert e.wake_at == e.created_at
    assert (await bench.claim(e)).token == 1


async def test_the_clock_that_was_moved_is_the_time_of_a_begin(bench: Bench) -> None:
    first = await bench.begin("e1", "s1")
    bench.clock.advance(3_600_000)
    second = await bench.begin("e2", "s2")
    assert second.created_at - first.created_at >= 3_600_000


async def test_begin_again_with_the_same_nonce_is_begun_again(bench: Bench) -> None:
    new = bench.new()
    first, second = await bench.store.begin(new), await bench.store.begin(new)
    assert isinstance(second, Begun)
    assert first == second


async def test_begin_later_again_with_the_same_nonce_is_begun_again(bench: Bench) -> None:
    new = bench.new(run_now=False)
    assert await bench.store.begin(new) == await bench.store.begin(new)


async def test_begin_again_after_a_rival_claimed_is_taken(bench: Bench) -> None:
    new = bench.new()
    begun = await bench.store.begin(new)
    bench.pass_lease()
    rival = await bench.claim(begun.execution)
    again = await bench.store.begin(new)
    assert isinstance(again, Taken)
    assert again.execution.claim == rival.claim


async def test_begin_later_again_after_a_rival_claimed_is_taken(bench: Bench) -> None:
    new = bench.new(run_now=False)
    begun = await bench.store.begin(new)
    rival = await bench.claim(begun.execution)
    assert await bench.store.release(lease_of(rival))
    assert isinstance(await bench.store.begin(new), Taken)


async def test_an_execution_id_that_is_there_is_taken_under_another_nonce(bench: Bench) -> None:
    first = await bench.begin()
    taken = await bench.store.begin(bench.new(input='{"message":"other"}', input_digest="1" * 32))
    assert isinstance(taken, Taken)
    assert taken.execution == first


async def test_a_finished_execution_id_is_taken_even_while_its_session_is_busy(
    bench: Bench,
) -> None:
    first = await bench.begin("e1")
    await end(bench, first)
    await bench.begin("e2")
    taken = await bench.store.begin(bench.new("e1"))
    assert isinstance(taken, Taken)
    assert taken.execution.status is Status.COMPLETED


async def test_an_execution_id_is_taken_in_every_session_of_the_tenant(bench: Bench) -> None:
    first = await bench.begin("e1", "s1")
    taken = await bench.store.begin(bench.new("e1", "s2"))
    assert isinstance(taken, Taken)
    assert taken.execution == first


@pytest.mark.parametrize("status", ["running", "queued", "suspended"])
async def test_a_session_with_an_active_execution_is_busy_and_nothing_is_inserted(
    bench: Bench, status: str
) -> None:
    first = await bench.begin("e1", run_now=status != "queued")
    if status == "suspended":
        await suspend(bench, first, [wait()])
    before = await bench.everything(first.run)
    busy = await bench.store.begin(bench.new("e2"))
    assert isinstance(busy, Busy)
    assert busy.execution.execution_id == "e1"
    assert busy.execution.status.value == status
    assert await bench.everything(first.run) == before


async def test_the_next_turn_follows_the_end_of_the_last_one(bench: Bench) -> None:
    first = await bench.begin("e1")
    await end(bench, first)
    assert (await bench.begin("e2")).turn == 2


async def test_of_20_rivals_with_one_id_one_begins_and_the_others_find_it(bench: Bench) -> None:
    results = await asyncio.gather(*(bench.store.begin(bench.new()) for _ in range(20)))
    begun = [r for r in results if isinstance(r, Begun)]
    assert len(begun) == 1
    assert all(isinstance(r, Begun | Taken) for r in results)
    assert {r.execution.run for r in results} == {begun[0].execution.run}


async def test_of_20_rivals_in_one_session_one_begins_and_the_others_are_told_so(
    bench: Bench,
) -> None:
    results = await asyncio.gather(*(bench.store.begin(bench.new(f"e{i}")) for i in range(20)))
    begun = [r for r in results if isinstance(r, Begun)]
    assert len(begun) == 1
    assert {r.execution.key for r in results} == {begun[0].execution.key}
    assert len(await bench.raw("executions", {"ns": bench.tenant.namespace})) == 1


async def test_20_sessions_begin_side_by_side(bench: Bench) -> None:
    results = await asyncio.gather(
        *(bench.store.begin(bench.new(f"e{i}", f"s{i}")) for i in range(20))
    )
    assert all(isinstance(r, Begun) for r in results)


async def test_the_same_execution_id_of_another_tenant_is_another_execution(bench: Bench) -> None:
    mine = await bench.begin()
    bench.tenant = type(bench.tenant)(bench.tenant.namespace, "another app")
    theirs = await bench.begin()
    assert mine.key != theirs.key
    assert await bench.store.get_execution(execution_key(bench.tenant, "e1")) == theirs


async def test_text_that_looks_like_an_operator_is_only_text(bench: Bench) -> None:
    hostile = "$$ROOT"
    new = bench.new(
        execution_id="$where",
        session_id='{"$gt": ""}',
        user_id="$user",
        input="$input",
        version="$version",
    )
    begun = await bench.store.begin(new)
    assert isinstance(begun, Begun)
    e = await bench.read(begun.execution)
    assert (e.execution_id, e.session_id, e.user_id) == ("$where", '{"$gt": ""}', "$user")
    assert (e.input, e.version) == ("$input", "$version")
    bench.pass_lease()
    claimed = await bench.store.claim(e.key, nonce=new_nonce(), ttl_ms=TTL_MS, version=hostile)
    assert claimed is not None
    assert claimed.version == hostile


async def test_a_key_that_is_not_text_is_refused_before_it_is_sent(bench: Bench) -> None:
    e = await bench.begin()
    with pytest.raises(ConfigError, match="expected text"):
        await bench.store.get_execution({"$gt": ""})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="expected text"):
        await bench.store.claim(
            {"$gt": ""},  # type: ignore[arg-type]
            nonce=new_nonce(),
            ttl_ms=TTL_MS,
        )
    assert (await bench.read(e)) == e


async def test_wake_at_is_never_absent(bench: Bench) -> None:
    e = await bench.begin()
    await end(bench, e)
    assert (await bench.read(e)).wake_at == FAR
