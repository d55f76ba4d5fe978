from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets

import pytest

from durable_adk.errors import CorruptHistory, LeaseLost
from durable_adk.model.execution import FAR, Status, StepRef
from durable_adk.model.identity import FencingToken, new_nonce
from durable_adk.model.store_results import Selection
from durable_adk.model.wait import WaitKind
from durable_adk.store.documents import contents_text
from tests.conformance.bench import (
    Bench,
    answer,
    answer_all,
    answered_of,
    end,
    failure,
    frontier_of,
    lease_of,
    next_step,
    record,
    step_of,
    suspend,
    wait,
)

# ---------------------------------------------------------------------- step documents


async def test_a_step_document_is_unreachable_until_a_commit_names_it(bench: Bench) -> None:
    e = await bench.begin()
    await bench.store.put_step(step_of(e))
    assert await bench.store.load_steps(await bench.read(e)) == ()


async def test_a_step_document_is_read_back_as_it_was_put(bench: Bench) -> None:
    e = await bench.begin()
    step = step_of(
        e,
        records=tuple(record(n, attempt_try=n).slot for n in range(1, 300)),
        abandoned=("1|agent#1|1|tool|1",),
        state='{"a":1}',
        scopes='{"user:x":1}',
        stamp="0001.e1",
    )
    await end(bench, e, step)
    assert await bench.store.load_steps(await bench.read(e)) == (step,)


async def test_a_large_step_document_comes_back_whole(bench: Bench) -> None:
    e = await bench.begin()
    large = json.dumps("x" * (2 << 20))
    step = step_of(e, events=large, finished=large, state=large, scopes=large, stamp="1")
    await end(bench, e, step)
    assert await bench.store.load_steps(await bench.read(e)) == (step,)


async def test_a_step_document_put_again_with_its_nonce_is_the_same(bench: Bench) -> None:
    e = await bench.begin()
    step = step_of(e)
    await bench.store.put_step(step)
    await bench.store.put_step(step)


async def test_a_step_document_under_another_nonce_is_a_lost_lease(bench: Bench) -> None:
    e = await bench.begin()
    await bench.store.put_step(step_of(e))
    with pytest.raises(LeaseLost):
        await bench.store.put_step(step_of(e))


async def test_a_stale_owners_step_document_is_on_no_chain(bench: Bench) -> None:
    e = await bench.begin()
    await bench.store.put_step(step_of(e, events='["stale"]'))
    bench.pass_lease()
    current = await bench.claim(e)
    step = await end(bench, current)
    assert await bench.store.load_steps(await bench.read(e)) == (step,)


async def test_a_step_that_a_chain_names_and_is_missing_is_corruption(bench: Bench) -> None:
    e = await next_step(bench, await bench.begin(), [wait()])
    await end(bench, e)
    await bench.collection("steps").delete_one({"_id": f"{e.run}:000001:1"})
    with pytest.raises(CorruptHistory, match="is missing"):
        await bench.store.load_steps(await bench.read(e))


# ---------------------------------------------------------------------- frontier


async def test_a_frontier_suspends_in_one_update(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2, branch="b", isolation_scope="i")])
    stored = await bench.read(e)
    assert stored.frontier == frontier
    assert (stored.status, stored.claim, stored.token) == (Status.SUSPENDED, None, 1)
    assert (stored.wake_at, stored.failures, stored.scopes_due) == (FAR, 0, False)
    assert stored.waiting_since is not None
    assert stored.waiting_since >= e.created_at
    assert (stored.step, stored.last_step) == (1, None)


async def test_a_frontier_wakes_at_its_earliest_expiry(bench: Bench) -> None:
    e = await bench.begin()
    soon = await bench.server_now() + 60_000
    waits = [wait(1, expires_at=soon + 9), wait(2, expires_at=soon), wait(3)]
    await suspend(bench, e, waits)
    assert (await bench.read(e)).wake_at == soon


async def test_a_frontier_with_a_stamped_step_has_shared_state_due(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [wait()], step_of(e, scopes='{"app:x":1}', stamp="1"))
    assert (await bench.read(e)).scopes_due


async def test_a_frontier_forgets_earlier_failures(bench: Bench) -> None:
    e = await bench.begin()
    await bench.store.attempt_failed(
        lease_of(e),
        status=Status.QUEUED,
        error=failure(),
        failures=3,
        voided=(),
        backoff_ms=0,
    )
    e = await bench.claim(e)
    assert (e.failures, e.error) == (3, failure())
    await suspend(bench, e, [wait()])
    stored = await bench.read(e)
    assert (stored.failures, stored.error) == (0, None)


async def test_a_frontier_committed_again_is_committed(bench: Bench) -> None:
    e = await bench.begin()
    frontier, step = frontier_of(e, [wait()]), step_of(e)
    for _ in range(2):
        await bench.store.commit_frontier(lease_of(e), step=step, frontier=frontier)
    assert (await bench.read(e)).frontier == frontier


async def test_a_frontier_committed_again_after_a_continue_is_committed(bench: Bench) -> None:
    e = await bench.begin()
    step = step_of(e)
    frontier = await suspend(bench, e, [wait()], step)
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    before = await bench.everything(e.run)
    await bench.store.commit_frontier(lease_of(e), step=step, frontier=frontier)
    assert await bench.everything(e.run) == before


async def test_a_frontier_of_another_step_than_the_open_one_is_a_lost_lease(bench: Bench) -> None:
    e = await bench.begin()
    ahead = dataclasses.replace(e, step=2)
    with pytest.raises(LeaseLost):
        await suspend(bench, ahead, [wait(step=2)])
    assert (await bench.read(e)).status is Status.RUNNING


async def test_a_large_frontier_keeps_the_execution_document_small(bench: Bench) -> None:
    e = await bench.begin()
    waits = [wait(n, content=json.dumps("x" * 40_000)) for n in range(1, 21)]
    frontier = await suspend(bench, e, waits)
    assert (await bench.read(e)).frontier == frontier
    (document,) = await bench.raw("executions", {"_id": e.key})
    assert len(str(document)) < 20_000
    page, _ = await bench.store.list_waiting(Selection(bench.tenant))
    assert [item.frontier for item in page] == [frontier]


async def test_200_waits_are_one_frontier_visible_whole(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(n) for n in range(1, 201)])
    assert len(contents_text(frontier)) > 200
    stored = await bench.read(e)
    assert stored.frontier == frontier
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    assert await bench.store.load_waits(e.run, step=1) == tuple(answered_of(claimed))


# ---------------------------------------------------------------------- answers


async def test_one_answer_of_two_is_stored_and_nothing_is_due(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    given = answer('{"$gt":"$$ROOT"}', by="$by")
    assert await bench.store.put_answers(e.key, frontier, {1: given})
    stored = await bench.read(e)
    assert stored.frontier is not None
    assert stored.frontier.answers == {1: given}
    assert (stored.frontier.open, stored.frontier.rev) == (1, 1)
    assert (stored.status, stored.wake_at) == (Status.SUSPENDED, FAR)
    assert stored.waiting_since is not None


async def test_the_last_answer_makes_it_due_and_takes_it_from_the_inbox_in_the_same_update(
    bench: Bench,
) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    await bench.store.put_answers(e.key, frontier, {1: answer()})
    current = (await bench.read(e)).frontier
    assert current is not None
    assert await bench.store.put_answers(e.key, current, {0: answer(by=None)})
    stored = await bench.read(e)
    assert stored.frontier is not None
    assert (stored.frontier.open, stored.wake_at, stored.waiting_since) == (0, 0, None)
    assert stored.frontier.answers == {0: answer(by=None), 1: answer()}


async def test_answers_for_an_older_revision_are_refused_and_nothing_is_stored(
    bench: Bench,
) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2), wait(3)])
    assert await bench.store.put_answers(e.key, frontier, {0: answer()})
    before = await bench.everything(e.run)
    assert await bench.store.put_answers(e.key, frontier, {1: answer()}) is False
    assert await bench.everything(e.run) == before


async def test_answers_for_another_frontier_are_refused(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1)])
    other = dataclasses.replace(frontier, id="f" * 20)
    assert await bench.store.put_answers(e.key, other, {0: answer()}) is False


async def test_a_place_that_is_not_open_is_a_programming_error(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    with pytest.raises(ValueError, match="not open"):
        await bench.store.put_answers(e.key, frontier, {2: answer()})
    answered = dataclasses.replace(frontier, answers={0: answer()})
    with pytest.raises(ValueError, match="not open"):
        await bench.store.put_answers(e.key, answered, {0: answer()})


async def test_the_same_answer_put_again_is_stored(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1)])
    assert await bench.store.put_answers(e.key, frontier, {0: answer()})
    assert await bench.store.put_answers(e.key, frontier, {0: answer()})


async def test_the_same_answer_put_again_after_a_continue_is_stored(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1)])
    large = answer(json.dumps("x" * 50_000))
    assert await bench.store.put_answers(e.key, frontier, {0: large})
    claimed = await bench.claim(e)
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    assert await bench.store.put_answers(e.key, frontier, {0: large})
    assert await bench.store.put_answers(e.key, frontier, {0: answer('"other"')}) is False


async def test_answers_that_are_much_together_keep_the_document_small(bench: Bench) -> None:
    """A document has room for 16 MB: a thousand times what one answer alone may have there."""
    e = await bench.begin()
    count, kept = 70, 60
    frontier = await suspend(bench, e, [wait(n) for n in range(1, count + 1)])
    given = {place: answer(json.dumps(secrets.token_hex(8_000))) for place in range(count)}
    first = {place: given[place] for place in range(kept)}
    assert await bench.store.put_answers(e.key, frontier, first)
    (before,) = await bench.raw("executions", {"_id": e.key})
    there = await bench.read(e)
    assert there.frontier is not None
    rest = {place: given[place] for place in range(kept, count)}
    assert await bench.store.put_answers(e.key, there.frontier, rest)
    assert await bench.store.put_answers(e.key, there.frontier, rest)  # its reply was lost
    (after,) = await bench.raw("executions", {"_id": e.key})
    assert len(str(after)) < len(str(before)) + 10_000
    claimed = await bench.claim(e)
    assert claimed.frontier is not None
    assert claimed.frontier.answers == given
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    assert await bench.store.load_waits(e.run, step=1) == tuple(answered_of(claimed))


async def test_the_chunks_of_an_answer_belong_to_its_execution(bench: Bench) -> None:
    store = await bench.rival(spill_above=500)
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1)])
    given = answer(json.dumps(secrets.token_hex(2_000)))
    assert await store.put_answers(e.key, frontier, {0: given})
    assert (await bench.everything(e.run))["payloads"]
    await store.remove_session(e.session_key, [e.run])
    assert not await bench.raw("payloads", {"_id": {"$regex": "^:"}})


async def test_of_20_rival_maps_one_is_stored_whole(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(n) for n in (1, 2, 3)])
    maps = [{place: answer(f'"{n}"') for place in range(3)} for n in range(20)]
    results = await asyncio.gather(*(bench.store.put_answers(e.key, frontier, one) for one in maps))
    assert results.count(True) == 1
    stored = (await bench.read(e)).frontier
    assert stored is not None
    assert stored.answers == maps[results.index(True)]


async def test_a_large_answer_comes_back_whole_and_keeps_the_document_small(
    bench: Bench,
) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1)])
    large = answer(json.dumps("ü" * 50_000))
    assert await bench.store.put_answers(e.key, frontier, {0: large})
    stored = await bench.read(e)
    assert stored.frontier is not None
    assert stored.frontier.answers == {0: large}
    (document,) = await bench.raw("executions", {"_id": e.key})
    assert len(str(document)) < 10_000


async def test_an_expired_wait_is_refused_by_the_servers_clock(bench: Bench) -> None:
    e = await bench.begin()
    expires_at = await bench.server_now() + 10_000
    frontier = await suspend(bench, e, [wait(1, expires_at=expires_at), wait(2)])
    bench.clock.advance(20_000)
    before = await bench.everything(e.run)
    assert await bench.store.put_answers(e.key, frontier, {0: answer()}) is False
    assert await bench.store.put_answers(e.key, frontier, {0: answer(), 1: answer()}) is False
    assert await bench.everything(e.run) == before
    assert await bench.store.put_answers(e.key, frontier, {1: answer()})


async def test_an_answer_by_expiry_is_taken_only_after_the_wait_has_expired(bench: Bench) -> None:
    e = await bench.begin()
    expires_at = await bench.server_now() + 10_000
    frontier = await suspend(bench, e, [wait(1, expires_at=expires_at), wait(2)])
    by_expiry = answer('"too late"', by="expiry")
    assert await bench.store.put_answers(e.key, frontier, {0: by_expiry}) is False
    bench.clock.advance(20_000)
    assert await bench.store.put_answers(e.key, frontier, {0: by_expiry})


async def test_an_answer_before_the_expiry_is_taken_and_the_next_expiry_wakes(
    bench: Bench,
) -> None:
    e = await bench.begin()
    soon = await bench.server_now() + 60_000
    waits = [wait(1, expires_at=soon), wait(2, expires_at=soon + 5), wait(3)]
    frontier = await suspend(bench, e, waits)
    assert await bench.store.put_answers(e.key, frontier, {0: answer()})
    assert (await bench.read(e)).wake_at == soon + 5


# ---------------------------------------------------------------------- continue


async def test_a_continue_opens_the_next_step_and_keeps_the_claim(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    stored = await bench.read(e)
    assert (stored.step, stored.last_step, stored.frontier) == (2, StepRef(1, e.token), None)
    assert (stored.status, stored.token, stored.claim) == (
        Status.RUNNING,
        claimed.token,
        claimed.claim,
    )


async def test_the_answers_are_records_of_their_step_in_frontier_order(bench: Bench) -> None:
    e = await bench.begin()
    waits = [wait(n, kind=WaitKind.CONFIRMATION, branch="b") for n in (3, 1, 2)]
    frontier = await suspend(bench, e, waits)
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    assert await bench.store.load_waits(e.run, step=1) == tuple(answered_of(claimed))
    assert await bench.store.load_waits(e.run, step=2) == ()
    records = await bench.store.load_records(e.run, from_step=1)
    assert {r.digest for r in records} == {w.digest for w in waits}
    assert {r.body for r in records} == {'"0"', '"1"', '"2"'}


async def test_a_continue_again_is_done(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1)])
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    for _ in range(2):
        await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    assert (await bench.read(e)).step == 2


async def test_wait_records_that_a_crashed_owner_left_are_equal(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    await answer_all(bench, e, frontier)
    first = await bench.claim(e)
    bench.pass_lease()
    second = await bench.claim(e)
    with pytest.raises(LeaseLost):
        await bench.store.commit_continue(lease_of(first), first, answered_of(first))
    await bench.store.commit_continue(lease_of(second), second, answered_of(second))
    assert await bench.store.load_waits(e.run, step=1) == tuple(answered_of(second))


async def test_a_missing_wait_record_is_corruption(bench: Bench) -> None:
    e = await next_step(bench, await bench.begin(), [wait(1), wait(2), wait(3)])
    await bench.collection("activities").delete_one({"_id": f"{e.run}:000001:{wait(2).digest}.1o"})
    with pytest.raises(CorruptHistory, match="2 of 3"):
        await bench.store.load_waits(e.run, step=1)


async def test_settled_doubts_leave_the_step_open(bench: Bench) -> None:
    e = await bench.begin()
    doubt = wait(1, kind=WaitKind.IN_DOUBT)
    frontier = frontier_of(e, [doubt])
    await bench.store.commit_doubts(lease_of(e), run=e.run, frontier=frontier, nonce=new_nonce())
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    stored = await bench.read(e)
    assert (stored.step, stored.last_step, stored.frontier) == (1, None, None)
    assert [a.wait for a in await bench.store.load_waits(e.run, step=1)] == [doubt]

    second = frontier_of(stored, [wait(2)], ordinal=2)
    step = step_of(stored)
    await bench.store.put_step(step)
    await bench.store.commit_frontier(lease_of(claimed), step=step, frontier=second)
    await answer_all(bench, e, second)
    claimed = await bench.claim(e)
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    assert (await bench.read(e)).step == 2
    found = await bench.store.load_waits(e.run, step=1)
    assert [a.wait for a in found] == [doubt, wait(2)]


async def test_doubts_suspend_without_a_step(bench: Bench) -> None:
    e = await bench.begin()
    doubts = [wait(n, kind=WaitKind.IN_DOUBT) for n in (1, 2)]
    frontier = frontier_of(e, doubts, open=1, answers={1: answer()})
    await bench.store.commit_doubts(lease_of(e), run=e.run, frontier=frontier, nonce=new_nonce())
    stored = await bench.read(e)
    assert stored.frontier == frontier
    assert (stored.status, stored.claim, stored.step) == (Status.SUSPENDED, None, 1)
    assert (stored.wake_at, stored.failures, stored.last_step) == (FAR, 0, None)
    assert stored.waiting_since is not None
    assert await bench.store.load_steps(stored) == ()
    assert await bench.try_claim(e) is None
    assert await bench.store.put_answers(e.key, frontier, {0: answer()})
    assert (await bench.claim(e)).frontier is not None


async def test_doubts_that_are_settled_leave_the_lease_where_it_is(bench: Bench) -> None:
    e = await bench.begin()
    frontier = frontier_of(e, [wait(1, kind=WaitKind.IN_DOUBT)], open=0, answers={0: answer()})
    await bench.store.commit_doubts(lease_of(e), run=e.run, frontier=frontier, nonce=new_nonce())
    stored = await bench.read(e)
    assert (stored.status, stored.claim, stored.token) == (Status.RUNNING, e.claim, e.token)
    assert (stored.frontier, stored.waiting_since) == (frontier, None)
    await bench.store.commit_continue(lease_of(e), stored, answered_of(stored))
    stored = await bench.read(e)
    assert (stored.step, stored.frontier, stored.status) == (1, None, Status.RUNNING)
    bench.pass_lease()
    assert (await bench.claim(e)).step == 1


async def test_many_doubts_go_to_chunks(bench: Bench) -> None:
    e = await bench.begin()
    text = json.dumps({"message": "x" * 40_000})
    doubts = [wait(n, kind=WaitKind.IN_DOUBT, content=text) for n in range(1, 9)]
    frontier = frontier_of(e, doubts)
    await bench.store.commit_doubts(lease_of(e), run=e.run, frontier=frontier, nonce=new_nonce())
    assert (await bench.read(e)).frontier == frontier


async def test_a_claim_notes_when_the_lease_before_it_ended(bench: Bench) -> None:
    e = await bench.begin()
    assert (await bench.read(e)).lease_ended is None
    ended = (await bench.read(e)).wake_at
    bench.pass_lease()
    second = await bench.claim(e)
    assert second.lease_ended == ended
    await bench.store.release(lease_of(second))
    third = await bench.claim(e)
    assert third.lease_ended == ended, "one that was given back did not run out"


async def test_a_continue_without_a_frontier_is_a_lost_lease(bench: Bench) -> None:
    e = await bench.begin()
    with pytest.raises(LeaseLost):
        await bench.store.commit_continue(lease_of(e), e, [])


# ---------------------------------------------------------------------- end


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.CANCELLED])
async def test_an_end_is_one_update_and_nothing_is_due(bench: Bench, status: Status) -> None:
    e = await bench.begin()
    step = step_of(e, state="{}", scopes='{"app:x":1}', stamp="1")
    await bench.store.put_step(step)
    error = None if status is Status.COMPLETED else failure("\ud800 $$ROOT")
    await bench.store.commit_end(
        lease_of(e), step=step, status=status, result='{"response":"$$NOW"}', error=error
    )
    stored = await bench.read(e)
    assert (stored.status, stored.is_active, stored.claim) == (status, False, None)
    assert (stored.last_step, stored.frontier, stored.wake_at) == (step.ref, None, FAR)
    assert (stored.result, stored.scopes_due) == ('{"response":"$$NOW"}', True)
    assert stored.ended_at is not None
    assert stored.ended_at >= e.created_at
    if error is not None:
        assert stored.error == dataclasses.replace(error, message="\\ud800 $$ROOT")


async def test_an_end_committed_again_is_committed(bench: Bench) -> None:
    e = await bench.begin()
    step = await end(bench, e)
    await bench.store.commit_end(
        lease_of(e), step=step, status=Status.COMPLETED, result=None, error=None
    )


async def test_an_end_after_another_end_is_a_lost_lease(bench: Bench) -> None:
    e = await bench.begin()
    step = await end(bench, e)
    before = await bench.read(e)
    with pytest.raises(LeaseLost):
        await bench.store.commit_end(
            lease_of(e), step=step, status=Status.FAILED, result=None, error=failure()
        )
    assert await bench.read(e) == before


async def test_an_end_of_a_closing_claim_has_no_closing_and_no_frontier(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [wait()])
    closing = await bench.store.claim_to_close(
        e.key, closing=Status.CANCELLED, reason="no", nonce=new_nonce(), ttl_ms=1000
    )
    assert closing is not None
    await end(bench, closing, status=Status.CANCELLED)
    stored = await bench.read(e)
    assert (stored.status, stored.closing, stored.frontier) == (Status.CANCELLED, None, None)


async def test_a_large_result_and_input_come_back_whole(bench: Bench) -> None:
    large = json.dumps("x" * (2 << 20))
    e = await bench.begin(input=large)
    assert (await bench.read(e)).input == large
    step = step_of(e)
    await bench.store.put_step(step)
    await bench.store.commit_end(
        lease_of(e), step=step, status=Status.COMPLETED, result=large, error=None
    )
    assert (await bench.read(e)).result == large
    (document,) = await bench.raw("executions", {"_id": e.key})
    assert len(str(document)) < 10_000


async def test_of_20_owners_with_one_lease_the_end_is_committed_once(bench: Bench) -> None:
    e = await bench.begin()
    step = step_of(e)
    await bench.store.put_step(step)
    statuses = [Status.COMPLETED, Status.FAILED] * 10
    results = await asyncio.gather(
        *(
            bench.store.commit_end(lease_of(e), step=step, status=status, result=None, error=None)
            for status in statuses
        ),
        return_exceptions=True,
    )
    stored = await bench.read(e)
    for status, result in zip(statuses, results, strict=True):
        assert (result is None) == (status is stored.status)


# ---------------------------------------------------------------------- attempt failed


async def test_a_failed_attempt_is_queued_after_its_back_off(bench: Bench) -> None:
    e = await bench.begin()
    await fail(bench, e, voided=("000001:a.1o", "$x"), backoff_ms=5_000)
    stored = await bench.read(e)
    assert (stored.status, stored.claim, stored.failures) == (Status.QUEUED, None, 2)
    assert (stored.error, stored.voided) == (failure(), ("000001:a.1o", "$x"))
    assert e.wake_at > stored.wake_at >= e.created_at + 5_000


async def test_voided_slots_add_up_over_attempts(bench: Bench) -> None:
    e = await bench.begin()
    await fail(bench, e, voided=("a",), backoff_ms=0)
    await fail(bench, await bench.claim(e), voided=("b", "c"), backoff_ms=0)
    assert (await bench.read(e)).voided == ("a", "b", "c")


async def test_a_stuck_execution_is_never_due(bench: Bench) -> None:
    e = await bench.begin()
    await fail(bench, e, status=Status.STUCK)
    stored = await bench.read(e)
    assert (stored.status, stored.wake_at, stored.is_active) == (Status.STUCK, FAR, True)


async def test_a_failed_attempt_told_again_is_told_once(bench: Bench) -> None:
    e = await bench.begin()
    for _ in range(2):
        await fail(bench, e, voided=("a",), backoff_ms=5_000)
    assert (await bench.read(e)).voided == ("a",)


async def test_a_release_after_a_failed_attempt_is_false(bench: Bench) -> None:
    e = await bench.begin()
    await fail(bench, e)
    assert await bench.store.release(lease_of(e)) is False


async def fail(bench: Bench, e, **changes) -> None:
    values = {
        "status": Status.QUEUED,
        "error": failure(),
        "failures": 2,
        "voided": (),
        "backoff_ms": 0,
    }
    await bench.store.attempt_failed(lease_of(e), **{**values, **changes})


async def test_a_token_of_the_future_commits_nothing(bench: Bench) -> None:
    e = await bench.begin()
    before = await bench.read(e)
    future = dataclasses.replace(e, token=FencingToken(9))
    with pytest.raises(LeaseLost):
        await end(bench, future)
    assert await bench.read(e) == before


# ---------------------------------------------------------------------- content once


async def test_a_step_comes_with_the_bodies_that_its_events_refer_to(bench: Bench) -> None:
    store = await bench.rival(spill_above=500)
    e = await bench.begin()
    records = [record(n, body=json.dumps("x" * 300 * n)) for n in range(1, 6)]
    await store.insert_outcomes(e.run, records)
    refs = (records[4].slot, records[1].slot)
    bodies = {records[4].slot: records[4].body, records[1].slot: records[1].body}
    step = step_of(e, records=tuple(r.slot for r in records), refs=refs, bodies=bodies)
    await end(bench, e, step)
    assert await store.load_steps(await bench.read(e)) == (step,)
    following = await bench.begin("e2")
    history = await store.load_history(following.session_key, before=following.turn, max_turns=None)
    assert history.turns[0].steps == (step,)


async def test_a_record_that_a_steps_events_refer_to_and_is_missing_is_corruption(
    bench: Bench,
) -> None:
    e = await bench.begin()
    one = record()
    await bench.store.insert_outcomes(e.run, [one])
    await end(bench, e, step_of(e, records=(one.slot,), refs=(one.slot,)))
    await bench.collection("activities").delete_one({"_id": f"{e.run}:{one.slot}"})
    with pytest.raises(CorruptHistory, match="refers to it and it is missing"):
        await bench.store.load_steps(await bench.read(e))
