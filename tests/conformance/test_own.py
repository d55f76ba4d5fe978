from __future__ import annotations

import asyncio
import dataclasses
import threading

import pytest
from pymongo.monitoring import CommandListener

from durable_adk.model.execution import FAR, Execution, Status
from durable_adk.model.identity import FencingToken, execution_key, new_nonce
from durable_adk.model.store_results import Renewal
from durable_adk.store.mongo import MongoStore
from tests.conformance.bench import (
    TTL_MS,
    Bench,
    answer,
    answer_all,
    end,
    failure,
    lease_of,
    suspend,
    wait,
)


async def stuck(bench: Bench, **changes):
    e = await bench.begin(**changes)
    await bench.store.attempt_failed(
        lease_of(e),
        status=Status.STUCK,
        error=failure(),
        failures=1,
        voided=(),
        backoff_ms=0,
    )
    return await bench.read(e)


async def backing_off(bench: Bench, backoff_ms: int = 5_000):
    e = await bench.begin()
    await bench.store.attempt_failed(
        lease_of(e),
        status=Status.QUEUED,
        error=failure(),
        failures=1,
        voided=(),
        backoff_ms=backoff_ms,
    )
    return await bench.read(e)


# ---------------------------------------------------------------------- claim


async def test_a_claim_takes_the_next_token_and_a_new_lease(bench: Bench) -> None:
    e = await bench.begin(run_now=False)
    nonce = new_nonce()
    claimed = await bench.store.claim(e.key, nonce=nonce, ttl_ms=TTL_MS)
    assert claimed is not None
    assert (claimed.status, claimed.token, claimed.claim, claimed.attempt) == (
        Status.RUNNING,
        1,
        nonce,
        1,
    )
    assert claimed.wake_at >= e.wake_at + TTL_MS
    assert await bench.read(e) == claimed


async def test_a_claim_of_what_does_not_exist_is_none(bench: Bench) -> None:
    key = execution_key(bench.tenant, "nobody")
    assert await bench.store.claim(key, nonce=new_nonce(), ttl_ms=TTL_MS) is None


async def test_a_live_lease_is_not_claimed(bench: Bench) -> None:
    e = await bench.begin()
    bench.clock.advance(TTL_MS - 5_000)
    assert await bench.try_claim(e) is None
    assert await bench.read(e) == e


async def test_a_lease_that_has_run_out_is_claimed(bench: Bench) -> None:
    e = await bench.begin()
    bench.pass_lease()
    claimed = await bench.claim(e)
    assert (claimed.token, claimed.attempt) == (2, 2)


async def test_a_claim_again_with_the_same_nonce_is_the_same_claim(bench: Bench) -> None:
    e = await bench.begin(run_now=False)
    nonce = new_nonce()
    first = await bench.store.claim(e.key, nonce=nonce, ttl_ms=TTL_MS)
    assert await bench.store.claim(e.key, nonce=nonce, ttl_ms=TTL_MS) == first


async def test_a_claim_again_after_a_rival_took_over_is_none(bench: Bench) -> None:
    e = await bench.begin(run_now=False)
    nonce = new_nonce()
    await bench.store.claim(e.key, nonce=nonce, ttl_ms=TTL_MS)
    bench.pass_lease()
    await bench.claim(e)
    assert await bench.store.claim(e.key, nonce=nonce, ttl_ms=TTL_MS) is None


async def test_of_20_claimers_one_wins(bench: Bench) -> None:
    e = await bench.begin()
    bench.pass_lease()
    claims = await asyncio.gather(*(bench.try_claim(e) for _ in range(20)))
    winners = [claim for claim in claims if claim is not None]
    assert len(winners) == 1
    assert await bench.read(e) == winners[0]


async def test_a_suspended_execution_with_an_open_wait_is_not_claimed(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [wait(1), wait(2)])
    bench.pass_lease()
    assert await bench.try_claim(e) is None


async def test_a_suspended_execution_is_not_claimed_when_a_wait_has_expired(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [wait(expires_at=await bench.server_now() + 1_000)])
    bench.pass_lease()
    assert await bench.try_claim(e) is None


async def test_a_suspended_execution_with_all_answers_is_claimed(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    assert claimed.frontier is not None
    assert (claimed.frontier.open, set(claimed.frontier.answers)) == (0, {0, 1})
    assert claimed.token == 2


async def test_a_queued_execution_is_claimed_only_after_its_back_off(bench: Bench) -> None:
    e = await backing_off(bench)
    assert await bench.try_claim(e) is None
    bench.clock.advance(6_000)
    claimed = await bench.claim(e)
    assert claimed.error == failure()


async def test_an_early_claim_does_not_wait_for_a_back_off_and_keeps_the_failures(
    bench: Bench,
) -> None:
    e = await backing_off(bench)
    claimed = await bench.claim(e, early=True)
    assert (claimed.token, claimed.failures) == (2, 1)


async def test_an_early_claim_still_respects_a_live_lease(bench: Bench) -> None:
    e = await bench.begin()
    assert await bench.try_claim(e, early=True) is None


async def test_a_stuck_execution_is_claimed_only_by_another_recorded_version(bench: Bench) -> None:
    e = await stuck(bench, version="v1")
    assert await bench.try_claim(e) is None
    assert await bench.try_claim(e, version="v1") is None
    claimed = await bench.claim(e, version="v2")
    assert claimed.version == "v2"


async def test_a_stuck_execution_without_a_version_is_not_claimed(bench: Bench) -> None:
    e = await stuck(bench)
    assert await bench.try_claim(e, version="v2") is None


async def test_a_claim_without_a_version_keeps_the_recorded_one(bench: Bench) -> None:
    e = await bench.begin(version="v1")
    bench.pass_lease()
    assert (await bench.claim(e)).version == "v1"


async def test_a_finished_execution_is_never_claimed(bench: Bench) -> None:
    e = await bench.begin()
    await end(bench, e)
    bench.clock.advance(10**12)
    assert await bench.try_claim(e, early=True, version="v9") is None


class Commands(CommandListener):
    def __init__(self) -> None:
        self.reads: list[dict] = []

    def started(self, event) -> None:
        if event.command_name == "find":
            self.reads.append(dict(event.command))

    def succeeded(self, event) -> None:
        pass

    def failed(self, event) -> None:
        pass


async def test_reads_after_a_claim_are_told_the_time_of_the_claim(
    bench: Bench, replica_set_uri: str
) -> None:
    commands = Commands()
    client = type(bench.client)(replica_set_uri, event_listeners=[commands])
    store = MongoStore(client, database=bench.database, clock=bench.clock)
    await store.open()
    e = await bench.begin(run_now=False)
    claimed = await store.claim(e.key, nonce=new_nonce(), ttl_ms=TTL_MS)
    assert claimed is not None
    commands.reads.clear()
    await store.load_history(claimed.session_key, before=claimed.turn, max_turns=None)
    await store.load_records(e.run, from_step=1)
    assert len(commands.reads) == 2
    for read in commands.reads:
        assert read["readConcern"]["level"] == "majority"
        assert read["readConcern"]["afterClusterTime"]
    await store.close()
    closing = client.close()
    if closing is not None:
        await closing


# ---------------------------------------------------------------------- claim to close


async def test_an_execution_keeps_each_text_of_versions_once_in_the_order_of_first_use(
    bench: Bench,
) -> None:
    e = await bench.begin(code="0 1 $a")
    assert e.codes == ("0 1 $a",)
    for code in ("0 1 $a", "0 2 b", "", "0 1 $a"):
        bench.pass_lease()
        e = await bench.claim(e, code=code)
    assert e.codes == ("0 1 $a", "0 2 b")
    assert (await bench.read(e)).codes == e.codes
    queued = await bench.begin("e2", "s2", run_now=False, code="0 1 a")
    assert queued.codes == (), "nothing ran"
    assert (await bench.claim(queued, code="0 3 c")).codes == ("0 3 c",)


async def test_two_versions_do_not_take_a_stuck_execution_in_turn(bench: Bench) -> None:
    e = await bench.begin(version="1")
    for version in ("2", "1"):
        await fail_stuck(bench, e)
        assert await bench.try_claim(e, version=e.version) is None
        e = await bench.claim(e, version=version)
    await fail_stuck(bench, e)
    for version in ("1", "2"):
        assert await bench.try_claim(e, version=version) is None
        assert await bench.store.list_due(e.tenant, version=version, limit=5) == ()
    assert await bench.store.list_due(e.tenant, version="4", limit=5) == (e.key,)
    e = await bench.claim(e, version="4")
    await answer_all(bench, e, await suspend(bench, e, [wait()]))  # it went on
    e = await bench.claim(e, version="1")
    await fail_stuck(bench, e)
    assert await bench.try_claim(e, version="2") is not None


async def test_a_stuck_execution_that_is_retried_may_be_taken_by_any_version(bench: Bench) -> None:
    e = await bench.begin(version="1")
    await fail_stuck(bench, e)
    retried = await bench.store.retry(e.key)
    assert retried is not None and retried.version is None
    assert await bench.store.list_due(e.tenant, version="2", limit=5) == (e.key,)
    e = await bench.claim(e, version="2")
    await fail_stuck(bench, e)
    e = await bench.claim(e, version="1")


async def test_a_retry_leaves_the_version_of_one_that_backs_off(bench: Bench) -> None:
    e = await bench.begin(version="1")
    await bench.store.attempt_failed(
        lease_of(e),
        status=Status.QUEUED,
        error=failure(),
        failures=1,
        voided=(),
        backoff_ms=60_000,
    )
    retried = await bench.store.retry(e.key)
    assert retried is not None and retried.version == "1"


async def fail_stuck(bench: Bench, e: Execution) -> None:
    await bench.store.attempt_failed(
        lease_of(e), status=Status.STUCK, error=failure(), failures=1, voided=(), backoff_ms=0
    )


@pytest.mark.parametrize("closing", [Status.CANCELLED, Status.FAILED])
@pytest.mark.parametrize("before", ["queued", "suspended", "stuck", "run out"])
async def test_what_nobody_runs_is_claimed_to_be_closed(
    bench: Bench, closing: Status, before: str
) -> None:
    match before:
        case "queued":
            e = await backing_off(bench)
        case "suspended":
            e = await bench.begin()
            await suspend(bench, e, [wait()])
        case "stuck":
            e = await stuck(bench)
        case _:
            e = await bench.begin()
            bench.pass_lease()
    nonce = new_nonce()
    claimed = await bench.store.claim_to_close(
        e.key, closing=closing, reason="no more", nonce=nonce, ttl_ms=TTL_MS
    )
    assert claimed is not None
    assert (claimed.status, claimed.token, claimed.claim) == (Status.RUNNING, 2, nonce)
    assert (claimed.attempt, claimed.closing, claimed.waiting_since) == (2, closing, None)
    assert claimed.error is not None
    assert claimed.error.message == "no more"
    assert (claimed.frontier is not None) == (before == "suspended")
    assert claimed == await bench.store.claim_to_close(
        e.key, closing=closing, reason="no more", nonce=nonce, ttl_ms=TTL_MS
    )


async def test_a_live_lease_is_not_claimed_to_be_closed(bench: Bench) -> None:
    e = await bench.begin()
    assert await close(bench, e) is None
    assert await bench.read(e) == e


async def test_a_finished_execution_is_not_claimed_to_be_closed(bench: Bench) -> None:
    e = await bench.begin()
    await end(bench, e)
    before = await bench.read(e)
    assert await close(bench, e) is None
    assert await bench.read(e) == before


async def test_whoever_claims_after_a_crash_sees_that_it_is_to_be_closed(bench: Bench) -> None:
    e = await bench.begin()
    await suspend(bench, e, [wait()])
    await close(bench, e)
    bench.pass_lease()
    assert (await bench.claim(e)).closing is Status.CANCELLED


async def test_a_closed_claim_is_not_in_the_inbox_and_takes_no_answer(bench: Bench) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait()])
    await close(bench, e)
    assert not await bench.store.put_answers(e.key, frontier, {0: answer()})


async def close(bench: Bench, e):
    return await bench.store.claim_to_close(
        e.key, closing=Status.CANCELLED, reason="", nonce=new_nonce(), ttl_ms=TTL_MS
    )


# ---------------------------------------------------------------------- renew and release


async def test_a_renewal_moves_the_end_of_the_lease(bench: Bench) -> None:
    e = await bench.begin()
    bench.clock.advance(20_000)
    assert await bench.store.renew(lease_of(e), ttl_ms=TTL_MS) == Renewal(held=True)
    bench.clock.advance(20_000)
    assert await bench.try_claim(e) is None
    assert (await bench.read(e)).wake_at >= e.wake_at + 20_000


async def test_a_late_renewal_that_finds_our_token_gives_the_right_back(bench: Bench) -> None:
    e = await bench.begin()
    bench.pass_lease()
    assert (await bench.store.renew(lease_of(e), ttl_ms=TTL_MS)).held
    assert await bench.try_claim(e) is None


@pytest.mark.parametrize("wrong", ["token", "claim"])
async def test_a_renewal_under_another_token_or_claim_is_refused(bench: Bench, wrong: str) -> None:
    e = await bench.begin()
    changes = {"token": FencingToken(7)} if wrong == "token" else {"claim": new_nonce()}
    lease = dataclasses.replace(lease_of(e), **changes)
    assert await bench.store.renew(lease, ttl_ms=TTL_MS) == Renewal(held=False)
    assert await bench.read(e) == e


async def test_a_late_renewal_does_not_move_the_wake_up_of_a_suspended_execution(
    bench: Bench,
) -> None:
    e = await bench.begin()
    await suspend(bench, e, [wait()])
    assert not (await bench.store.renew(lease_of(e), ttl_ms=TTL_MS)).held
    assert (await bench.read(e)).wake_at == FAR


async def test_a_renewal_tells_the_owner_that_a_cancellation_was_asked(bench: Bench) -> None:
    e = await bench.begin()
    assert await bench.store.request_cancel(e.key, "the user left")
    renewal = await bench.store.renew(lease_of(e), ttl_ms=TTL_MS)
    assert renewal == Renewal(held=True, cancel="the user left")


async def test_a_released_execution_is_queued_and_due_at_once(bench: Bench) -> None:
    e = await bench.begin()
    assert await bench.store.release(lease_of(e)) is True
    released = await bench.read(e)
    assert (released.status, released.claim) == (Status.QUEUED, None)
    assert (await bench.claim(e)).token == 2


async def test_a_release_again_is_true_again(bench: Bench) -> None:
    e = await bench.begin()
    assert await bench.store.release(lease_of(e))
    assert await bench.store.release(lease_of(e))


# ---------------------------------------------------------------------- cancel and retry


async def test_a_cancellation_is_asked_of_the_owner_and_survives_a_new_claim(bench: Bench) -> None:
    e = await bench.begin()
    assert await bench.store.request_cancel(e.key, "") is True
    assert (await bench.read(e)).status is Status.RUNNING
    bench.pass_lease()
    assert (await bench.claim(e)).cancel == ""


@pytest.mark.parametrize("status", ["queued", "suspended", "completed"])
async def test_a_cancellation_is_not_asked_of_what_is_not_running(
    bench: Bench, status: str
) -> None:
    e = await bench.begin(run_now=status != "queued")
    if status == "suspended":
        await suspend(bench, e, [wait()])
    if status == "completed":
        await end(bench, e)
    assert await bench.store.request_cancel(e.key, "x") is False
    assert (await bench.read(e)).cancel is None


@pytest.mark.parametrize("status", ["stuck", "queued"])
async def test_a_retry_makes_it_due_at_once_with_no_failures(bench: Bench, status: str) -> None:
    e = await (stuck(bench) if status == "stuck" else backing_off(bench))
    retried = await bench.store.retry(e.key)
    assert retried is not None
    assert (retried.status, retried.failures, retried.error) == (Status.QUEUED, 0, failure())
    assert (await bench.claim(e)).token == 2


@pytest.mark.parametrize("status", ["running", "suspended", "completed", "missing"])
async def test_a_retry_of_anything_else_is_none_and_changes_nothing(
    bench: Bench, status: str
) -> None:
    e = await bench.begin()
    if status == "suspended":
        await suspend(bench, e, [wait()])
    if status == "completed":
        await end(bench, e)
    before = await bench.read(e)
    key = execution_key(bench.tenant, "nobody") if status == "missing" else e.key
    assert await bench.store.retry(key) is None
    assert await bench.read(e) == before


# ---------------------------------------------------------------------- the keeper's connection


async def test_a_keeper_link_renews_and_tells_of_a_cancellation_and_of_a_loss(
    bench: Bench,
) -> None:
    e = await bench.begin()
    async with bench.store.keeper_link() as link:
        bench.clock.advance(20_000)
        assert await link.renew(lease_of(e), ttl_ms=TTL_MS) == Renewal(held=True)
        bench.clock.advance(20_000)
        assert await bench.try_claim(e) is None
        await bench.store.request_cancel(e.key, "stop")
        assert await link.renew(lease_of(e), ttl_ms=TTL_MS) == Renewal(held=True, cancel="stop")
        bench.pass_lease()
        await bench.claim(e)
        assert await link.renew(lease_of(e), ttl_ms=TTL_MS) == Renewal(held=False)
        await link.close()


async def test_the_keeper_renews_from_a_thread_with_its_own_loop(bench: Bench) -> None:
    assert bench.store.needs_own_loop
    e = await bench.begin()
    found: list[Renewal] = []

    async def keep() -> None:
        async with bench.store.keeper_link() as link:
            found.append(await link.renew(lease_of(e), ttl_ms=TTL_MS))

    thread = threading.Thread(target=lambda: asyncio.run(keep()))
    thread.start()
    thread.join(timeout=20)  # the loop of this test is held up, as by a tool that does not await
    assert found == [Renewal(held=True)]


async def test_only_mongomock_needs_no_loop_of_its_own(bench: Bench) -> None:
    assert bench.store.needs_own_loop == bench.is_real
