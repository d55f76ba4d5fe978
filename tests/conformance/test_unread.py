"""A claim that took what cannot be read, and what it leaves."""

from __future__ import annotations

from typing import Any

import pytest

from durable_adk.errors import CorruptHistory
from durable_adk.model.due import Due
from durable_adk.model.execution import FAR, Execution, Status
from durable_adk.model.identity import new_nonce
from durable_adk.model.store_results import Selection, Unread, Write
from tests.conformance.bench import TTL_MS, Bench, failure, lease_of, suspend, wait

LARGE = '{"message":"' + "x" * (2 << 20) + '"}'


async def torn(bench: Bench, **given: Any) -> tuple[Execution, dict[str, Any]]:
    """An execution whose input's chunk is gone, and the chunk."""
    e = await bench.begin(input=LARGE, run_now=False, **given)
    (chunk,) = await bench.raw("payloads", {"_id": {"$regex": f"^{e.run}:"}})
    await bench.collection("payloads").delete_one({"_id": chunk["_id"]})
    return e, chunk


async def closing(bench: Bench, e: Execution) -> Any:
    return await bench.store.claim_to_close(
        e.key, closing=Status.CANCELLED, reason="no", nonce=new_nonce(), ttl_ms=TTL_MS
    )


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("claims", [Bench.try_claim, closing])
async def test_what_is_claimed_and_cannot_be_read_is_given_with_its_lease(
    bench: Bench, claims: Any, lost: bool
) -> None:
    e, _ = await torn(bench)
    if lost:
        bench.faults.lose(Write.CLAIM)
    with pytest.raises(Unread) as caught:
        await claims(bench, e)
    outline = caught.value.execution
    assert (outline.key, outline.token, outline.status) == (e.key, 1, Status.RUNNING)
    assert outline.error is not None and "chunk" in outline.error.message
    assert (await bench.store.renew(lease_of(outline), ttl_ms=TTL_MS)).held
    (listed,), _ = await bench.store.list_executions(Selection(bench.tenant))
    assert (listed.key, listed.claim, listed.error) == (e.key, outline.claim, outline.error)


async def test_what_is_stuck_and_cannot_be_read_is_not_due_at_its_deadline(bench: Bench) -> None:
    e, chunk = await torn(bench, deadline=Due(after=TTL_MS))
    with pytest.raises(Unread) as caught:
        await bench.claim(e)
    lease = lease_of(caught.value.execution)
    given = {"error": failure(), "failures": 1, "voided": (), "backoff_ms": 0}
    stuck = {"status": Status.STUCK, "is_readable": False}
    await bench.store.attempt_failed(lease, **given, **stuck)
    await bench.store.attempt_failed(lease, **given, **stuck)  # its reply was lost
    bench.clock.advance(2 * TTL_MS)
    assert await bench.try_claim(e) is None
    assert await bench.store.list_due(bench.tenant, version=None, limit=5) == ()
    await bench.collection("payloads").insert_one(chunk)
    assert (await bench.read(e)).wake_at == FAR
    assert await bench.store.retry(e.key) is not None
    assert (await bench.claim(e)).closing is Status.FAILED


async def test_an_expired_wait_of_what_cannot_be_read_hides_no_others(bench: Bench) -> None:
    asked = [wait(1, expires_after=TTL_MS, on_expiry='"late"')]
    for name, given in (("torn", LARGE), ("whole", '{"message":"hi"}')):
        e = await bench.begin(name, name, input=given, version="v1")
        await suspend(bench, e, asked)
        if name == "torn":
            await bench.collection("payloads").delete_many({"_id": {"$regex": f"^{e.run}:"}})
    bench.clock.advance(TTL_MS + 1)
    found = await bench.store.list_expired_elsewhere(bench.tenant, version="v2", limit=9)
    assert {e.execution_id: e.frontier is not None for e in found} == {"torn": False, "whole": True}


@pytest.mark.parametrize("lost", [False, True])
async def test_what_cannot_be_read_is_ended_without_a_step(bench: Bench, lost: bool) -> None:
    e, chunk = await torn(bench)
    with pytest.raises(Unread) as caught:
        await closing(bench, e)
    lease, error = lease_of(caught.value.execution), failure()
    if lost:
        bench.faults.lose(Write.END)
    await bench.store.end_unread(lease, status=Status.CANCELLED, error=error)
    outline = await bench.store.get_outline(e.key)
    assert outline is not None and outline.error is not None
    assert (outline.status, outline.claim) == (Status.CANCELLED, None)
    assert outline.error.type == "CorruptHistory" and outline.ended_at is not None
    with pytest.raises(CorruptHistory):
        await bench.store.get_execution(e.key)
    assert await bench.store.list_due(bench.tenant, version=None, limit=5) == ()
    await bench.store.end_unread(lease, status=Status.CANCELLED, error=error)  # its reply was lost
    await bench.collection("payloads").insert_one(chunk)
    ended = await bench.read(e)
    assert (ended.error, ended.last_step, ended.wake_at) == (error, None, FAR)
    assert await bench.store.get_outline(e.key) == ended
    for read in (
        bench.store.load_steps(ended),
        bench.store.load_history(e.session_key, before=2, max_turns=None),
    ):
        with pytest.raises(CorruptHistory, match="was ended although"):
            await read


async def test_what_is_gone_has_no_outline(bench: Bench) -> None:
    e = await bench.begin()
    assert await bench.store.get_outline(e.key) == e
    await bench.collection("executions").delete_one({"_id": e.key})
    assert await bench.store.get_outline(e.key) is None
