"""What ends by the server's clock: waits that expire, and executions with a deadline."""

from __future__ import annotations

import asyncio

import pytest

from durable_adk.errors import LeaseLost
from durable_adk.model.due import Due
from durable_adk.model.execution import FAR, Status
from durable_adk.model.identity import new_nonce
from durable_adk.model.store_results import Write
from durable_adk.model.wait import WaitKind
from tests.conformance.bench import (
    TTL_MS,
    Bench,
    answer,
    failure,
    frontier_of,
    lease_of,
    step_of,
    suspend,
    wait,
)

SOON_MS = 10_000


def expires(ordinal: int = 1, after: int = SOON_MS, **more: object):  # type: ignore[no-untyped-def]
    return wait(ordinal, expires_after=after, on_expiry='"late"', **more)


def late() -> object:
    return answer('"late"', by="expiry", at=1)


# ---------------------------------------------------------------------- waits


async def test_the_server_counts_from_the_commit_of_the_frontier(bench: Bench) -> None:
    e = await bench.begin()
    before = await bench.server_now()
    await suspend(bench, e, [expires(1, 9_000), expires(2, SOON_MS), wait(3)])
    after = await bench.server_now()
    read = await bench.read(e)
    assert read.frontier is not None
    first, second, third = read.frontier.waits
    assert first.expires_at is not None
    assert before <= first.expires_at - 9_000 <= after
    assert second.expires_at == first.expires_at + 1_000
    assert third.expires_at is None
    assert read.wake_at == first.expires_at
    assert (first.expires_after, first.on_expiry) == (9_000, '"late"')
    assert await bench.store.next_wake(bench.tenant) == first.expires_at


async def test_a_lost_reply_of_the_frontier_keeps_what_the_server_counted(bench: Bench) -> None:
    e = await bench.begin()
    bench.faults.lose(Write.FRONTIER)
    await suspend(bench, e, [expires()])
    assert bench.faults.all_lost
    stored = (await bench.read(e)).frontier
    assert stored is not None
    bench.clock.advance(5_000)
    with pytest.raises(LeaseLost):  # a stale owner's repeat starts nothing anew
        await bench.store.commit_frontier(
            lease_of(e), step=step_of(e), frontier=frontier_of(e, [expires()], 2)
        )
    assert (await bench.read(e)).frontier == stored


async def test_an_answer_and_an_expiry_race_and_one_wins(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [expires(1), wait(2)])
    frontier = (await bench.read(e)).frontier
    assert frontier is not None
    bench.clock.advance(SOON_MS + 1)
    whole = {0: answer('"mine"'), 1: answer('"mine too"')}
    rivals = [bench.store.put_answers(e.key, frontier, whole) for _ in range(5)]
    rivals += [bench.store.put_answers(e.key, frontier, {0: late()}) for _ in range(5)]  # type: ignore[dict-item]
    assert await asyncio.gather(*rivals) == [False] * 5 + [True] * 5  # equal ones all find theirs
    read = await bench.read(e)
    assert read.frontier is not None
    assert {place: one.by for place, one in read.frontier.answers.items()} == {0: "expiry"}
    assert (read.frontier.open, read.status) == (1, Status.SUSPENDED)
    assert read.wake_at == FAR


async def test_an_answer_that_lost_its_reply_is_found_under_an_expiry(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [expires()])
    frontier = (await bench.read(e)).frontier
    assert frontier is not None
    bench.clock.advance(SOON_MS + 1)
    bench.faults.lose(Write.ANSWER)
    assert await bench.store.put_answers(e.key, frontier, {0: late()})  # type: ignore[dict-item]
    assert bench.faults.all_lost
    assert (await bench.claim(e)).status is Status.RUNNING


async def test_an_expiry_answer_that_is_stored_is_never_too_large(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [expires()])
    frontier = (await bench.read(e)).frontier
    assert frontier is not None
    bench.clock.advance(SOON_MS + 1)
    smaller = await bench.rival(payload_max=3)
    assert await smaller.put_answers(e.key, frontier, {0: late()})  # type: ignore[dict-item]
    assert (await bench.claim(e)).status is Status.RUNNING


async def test_a_timer_is_a_wait_that_stays_in_its_step(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [expires(kind=WaitKind.TIMER)])
    assert await bench.try_claim(e) is None
    bench.clock.advance(SOON_MS + 1)
    assert await bench.try_claim(e) is None  # due, and not answered yet
    assert await bench.store.list_due(bench.tenant, version=None, limit=9) == (e.key,)
    frontier = (await bench.read(e)).frontier
    assert frontier is not None
    assert not frontier.ends_step
    assert await bench.store.put_answers(e.key, frontier, {0: late()})  # type: ignore[dict-item]
    claimed = await bench.claim(e)
    assert (claimed.step, claimed.frontier and claimed.frontier.open) == (1, 0)
    second = frontier_of(claimed, [wait(2)], 7)  # the next one of the same step takes its place
    step = step_of(claimed)
    await bench.store.put_step(step)
    await bench.store.commit_frontier(lease_of(claimed), step=step, frontier=second)
    assert (await bench.read(e)).frontier == second


async def test_a_frontier_that_is_answered_already_is_due_at_once(bench: Bench) -> None:
    e = await bench.begin()
    frontier = frontier_of(e, [wait(1)], open=0, answers={0: answer()})
    step = step_of(e)
    await bench.store.put_step(step)
    await bench.store.commit_frontier(lease_of(e), step=step, frontier=frontier)
    assert (await bench.claim(e)).frontier == frontier


# ---------------------------------------------------------------------- deadlines


async def test_a_deadline_is_counted_from_the_insert(bench: Bench) -> None:
    after = await bench.begin("after", "s1", deadline=Due(after=SOON_MS))
    assert after.deadline == after.created_at + SOON_MS
    at = await bench.begin("at", "s2", deadline=Due(at=77))
    assert at.deadline == 77
    assert (await bench.begin("none", "s3")).deadline is None


async def test_a_suspended_execution_wakes_at_its_deadline_and_is_claimed_to_end(
    bench: Bench,
) -> None:
    e = await bench.begin(deadline=Due(after=SOON_MS))
    step = step_of(e)
    await bench.store.put_step(step)
    frontier = frontier_of(e, [wait(1), wait(2)], deadline=e.deadline)
    await bench.store.commit_frontier(lease_of(e), step=step, frontier=frontier)
    assert (await bench.read(e)).wake_at == e.deadline
    assert await bench.store.put_answers(e.key, frontier, {0: answer()})
    assert (await bench.read(e)).wake_at == e.deadline
    assert await bench.try_claim(e) is None
    bench.clock.advance(SOON_MS + 1)
    read = await bench.read(e)
    assert read.frontier is not None
    assert await bench.store.put_answers(e.key, read.frontier, {1: answer()}) is False
    claims = await asyncio.gather(*(bench.try_claim(e) for _ in range(5)))
    (claimed,) = [one for one in claims if one is not None]
    assert (claimed.status, claimed.closing) == (Status.RUNNING, Status.FAILED)
    assert claimed.error is not None
    assert claimed.error.type == "DeadlineExceeded"
    assert claimed.waiting_since is None
    bench.pass_lease()
    again = await bench.claim(e)  # whoever died while ending it
    assert (again.closing, again.error) == (Status.FAILED, claimed.error)


async def test_a_claim_that_lost_its_reply_still_ends_what_is_overdue(bench: Bench) -> None:
    e = await bench.begin(run_now=False, deadline=Due(after=1))
    bench.clock.advance(1_000)
    bench.faults.lose(Write.CLAIM)
    claimed = await bench.claim(e)
    assert bench.faults.all_lost
    assert (claimed.token, claimed.closing) == (1, Status.FAILED)


async def test_what_is_in_time_is_claimed_to_go_on(bench: Bench) -> None:
    e = await bench.begin(run_now=False, deadline=Due(after=SOON_MS))
    claimed = await bench.claim(e)
    assert (claimed.closing, claimed.error) == (None, None)


async def test_a_cancellation_that_began_before_the_deadline_stays_one(bench: Bench) -> None:
    e = await bench.begin(deadline=Due(after=SOON_MS))
    bench.pass_lease()
    await bench.store.claim_to_close(
        e.key, closing=Status.CANCELLED, reason="no", nonce=new_nonce(), ttl_ms=TTL_MS
    )
    bench.pass_lease()
    claimed = await bench.claim(e)
    assert claimed.closing is Status.CANCELLED
    assert claimed.error is not None
    assert claimed.error.message == "no"


async def test_a_renewal_says_that_the_deadline_has_passed(bench: Bench) -> None:
    e = await bench.begin(deadline=Due(after=SOON_MS))
    assert (await bench.store.renew(lease_of(e), ttl_ms=TTL_MS)).overdue is False
    bench.clock.advance(SOON_MS + 1)
    assert (await bench.store.renew(lease_of(e), ttl_ms=TTL_MS)).overdue is True
    async with bench.store.keeper_link() as link:
        assert (await link.renew(lease_of(e), ttl_ms=TTL_MS)).overdue is True


async def test_a_stuck_execution_ends_at_its_deadline(bench: Bench) -> None:
    e = await bench.begin(deadline=Due(after=SOON_MS))
    await bench.store.attempt_failed(
        lease_of(e), status=Status.STUCK, error=failure(), failures=1, voided=(), backoff_ms=0
    )
    assert (await bench.read(e)).wake_at == e.deadline
    assert await bench.try_claim(e) is None
    bench.clock.advance(SOON_MS + 1)
    assert (await bench.claim(e)).closing is Status.FAILED
    other = await bench.begin("other", "s2")
    await bench.store.attempt_failed(
        lease_of(other), status=Status.STUCK, error=failure(), failures=1, voided=(), backoff_ms=0
    )
    assert (await bench.read(other)).wake_at == FAR
