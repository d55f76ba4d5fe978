"""An owner that lost its lease tries everything; nothing that anybody reads changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from durable_adk.errors import LeaseLost
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import new_nonce
from durable_adk.model.store_results import Renewal
from durable_adk.model.wait import WaitKind
from tests.conformance.bench import (
    TTL_MS,
    Bench,
    answer,
    answer_all,
    answered_of,
    end,
    failure,
    frontier_of,
    lease_of,
    next_step,
    step_of,
    suspend,
    wait,
)

Try = Callable[[Bench, Execution], Awaitable[object]]


async def _frontier(bench: Bench, e: Execution) -> object:
    step = step_of(e)
    await bench.store.put_step(step)
    return await bench.store.commit_frontier(
        lease_of(e), step=step, frontier=frontier_of(e, [wait(1), wait(2)])
    )


async def _doubts(bench: Bench, e: Execution) -> object:
    frontier = frontier_of(e, [wait(1, kind=WaitKind.IN_DOUBT)])
    return await bench.store.commit_doubts(
        lease_of(e), run=e.run, frontier=frontier, nonce=new_nonce()
    )


async def _settled_doubts(bench: Bench, e: Execution) -> object:
    frontier = frontier_of(e, [wait(1, kind=WaitKind.IN_DOUBT)], open=0, answers={0: answer()})
    return await bench.store.commit_doubts(
        lease_of(e), run=e.run, frontier=frontier, nonce=new_nonce()
    )


async def _end(bench: Bench, e: Execution) -> object:
    return await end(bench, e)


async def _failed(bench: Bench, e: Execution) -> object:
    return await bench.store.attempt_failed(
        lease_of(e),
        status=Status.QUEUED,
        error=failure(),
        failures=9,
        voided=("x",),
        backoff_ms=0,
    )


async def _stuck(bench: Bench, e: Execution) -> object:
    return await bench.store.attempt_failed(
        lease_of(e), status=Status.STUCK, error=failure(), failures=9, voided=(), backoff_ms=0
    )


async def _unread(bench: Bench, e: Execution) -> object:
    return await bench.store.end_unread(lease_of(e), status=Status.FAILED, error=failure())


async def _renew(bench: Bench, e: Execution) -> object:
    return (await bench.store.renew(lease_of(e), ttl_ms=TTL_MS)).held


async def _keeper(bench: Bench, e: Execution) -> object:
    async with bench.store.keeper_link() as link:
        return (await link.renew(lease_of(e), ttl_ms=TTL_MS)).held


async def _release(bench: Bench, e: Execution) -> object:
    return await bench.store.release(lease_of(e))


TRIES: dict[str, Try] = {
    "commit_frontier": _frontier,
    "commit_doubts": _doubts,
    "commit_doubts that are settled": _settled_doubts,
    "commit_end": _end,
    "end_unread": _unread,
    "attempt_failed to queued": _failed,
    "attempt_failed to stuck": _stuck,
    "renew": _renew,
    "renew by the keeper": _keeper,
    "release": _release,
}


async def _taken_over(bench: Bench, stalled: Execution) -> None:
    bench.pass_lease()
    await bench.claim(stalled)


async def _ended(bench: Bench, stalled: Execution) -> None:
    bench.pass_lease()
    await end(bench, await bench.claim(stalled))


async def _suspended(bench: Bench, stalled: Execution) -> None:
    bench.pass_lease()
    await suspend(bench, await bench.claim(stalled), [wait(1), wait(2)])


async def _a_step_ahead(bench: Bench, stalled: Execution) -> None:
    bench.pass_lease()
    await next_step(bench, await bench.claim(stalled), [wait(1)])


async def _given_back(bench: Bench, stalled: Execution) -> None:
    bench.pass_lease()
    await bench.store.release(lease_of(await bench.claim(stalled)))


async def _closing(bench: Bench, stalled: Execution) -> None:
    bench.pass_lease()
    await bench.store.claim_to_close(
        stalled.key, closing=Status.CANCELLED, reason="", nonce=new_nonce(), ttl_ms=TTL_MS
    )


LOSSES = {
    "another runs it": _taken_over,
    "another ended it": _ended,
    "another suspended it": _suspended,
    "another is a step ahead": _a_step_ahead,
    "another gave it back": _given_back,
    "another closes it": _closing,
}


async def _visible(bench: Bench, e: Execution) -> object:
    """All but step documents, which are unreachable until a commit names them."""
    found = await bench.everything(e.run)
    del found["steps"]
    return found, await bench.store.load_steps(await bench.read(e))


async def _refused(bench: Bench, e: Execution, attempt: Try) -> bool:
    try:
        return await attempt(bench, e) is False
    except LeaseLost:
        return True


@pytest.mark.parametrize("attempt", TRIES)
@pytest.mark.parametrize("loss", LOSSES)
async def test_an_owner_that_lost_its_lease_changes_nothing(
    bench: Bench, loss: str, attempt: str
) -> None:
    stalled = await bench.begin()
    await LOSSES[loss](bench, stalled)
    before = await _visible(bench, stalled)
    assert await _refused(bench, stalled, TRIES[attempt])
    assert await _visible(bench, stalled) == before


async def test_an_owner_that_lost_its_lease_cannot_continue(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    await answer_all(bench, e, frontier)
    stalled = await bench.claim(e)
    bench.pass_lease()
    current = await bench.claim(e)
    with pytest.raises(LeaseLost):
        await bench.store.commit_continue(lease_of(stalled), stalled, answered_of(stalled))
    assert await bench.read(e) == current
    await bench.store.commit_continue(lease_of(current), current, answered_of(current))
    with pytest.raises(LeaseLost):
        await bench.store.commit_continue(lease_of(stalled), stalled, answered_of(stalled))
    assert (await bench.read(e)).step == 2


async def test_an_owner_whose_execution_was_continued_by_another_cannot_commit_its_frontier(
    bench: Bench,
) -> None:
    stalled = await bench.begin()
    await _a_step_ahead(bench, stalled)
    with pytest.raises(LeaseLost):
        await _frontier(bench, stalled)


async def test_an_owner_that_suspended_changes_nothing_more(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [wait(1)])
    before = await _visible(bench, e)
    for name in ("commit_end", "attempt_failed to queued", "renew", "release"):
        assert await _refused(bench, e, TRIES[name]), name
    assert await _visible(bench, e) == before


async def test_the_fence_holds_whatever_owners_race(bench: Bench) -> None:
    """Ten owners, each with a lease that ran out but the last; all end it at once."""
    owners = [await bench.begin()]
    for _ in range(9):
        bench.pass_lease()
        owners.append(await bench.claim(owners[0]))
    results = await asyncio.gather(*(end(bench, owner) for owner in owners), return_exceptions=True)
    assert [isinstance(r, LeaseLost) for r in results] == [True] * 9 + [False]
    stored = await bench.read(owners[0])
    assert stored.last_step is not None
    assert stored.last_step.token == owners[-1].token


@pytest.mark.parametrize("first", ["renewal", "commit"])
async def test_a_commit_that_races_a_renewal_of_its_own_lease_succeeds(
    bench: Bench, first: str
) -> None:
    e = await bench.begin()
    step = step_of(e)
    await bench.store.put_step(step)
    commit = bench.store.commit_frontier(lease_of(e), step=step, frontier=frontier_of(e, [wait(1)]))
    renewals = [bench.store.renew(lease_of(e), ttl_ms=TTL_MS) for _ in range(10)]
    calls = [*renewals, commit] if first == "renewal" else [commit, *renewals]
    results = await asyncio.gather(*calls)
    assert all(r is None or isinstance(r, Renewal) for r in results)
    assert (await bench.read(e)).status is Status.SUSPENDED
