"""What workers of every version go on with: executions that are only closed, waits that expired."""

from __future__ import annotations

from durable_adk.model.due import Due
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import new_nonce
from tests.conformance.bench import TTL_MS, Bench, answer, suspend, wait

SOON_MS = 10_000


async def due(bench: Bench, version: str = "v2") -> set[str]:
    return set(await bench.store.list_due(bench.tenant, version=version, limit=9))


async def theirs(bench: Bench, execution_id: str, **changes: object) -> Execution:
    return await bench.begin(execution_id, execution_id, version="v1", **changes)


async def test_what_is_over_is_due_for_workers_of_every_version(bench: Bench) -> None:
    late = await theirs(bench, "late", deadline=Due(after=SOON_MS), run_now=False)
    cancelled = await theirs(bench, "cancelled")
    closed = await theirs(bench, "closed", run_now=False)
    left = await theirs(bench, "left")  # its owner died, and code of its version has to go on
    assert await bench.store.request_cancel(cancelled.key, "not wanted")
    closing = {"closing": Status.FAILED, "reason": "", "nonce": new_nonce(), "ttl_ms": TTL_MS}
    assert await bench.store.claim_to_close(closed.key, **closing)
    assert await due(bench) == set()
    bench.pass_lease()
    over = {late.key, cancelled.key, closed.key}
    assert await due(bench) == over
    assert await due(bench, "v1") == over | {left.key}
    claimed = await bench.claim(late, version="v2")
    assert claimed.closing is Status.FAILED


async def test_waits_of_other_versions_that_expired_are_listed_by_the_servers_clock(
    bench: Bench,
) -> None:
    asked = [wait(1, expires_after=SOON_MS, on_expiry='"late"'), wait(2)]
    for name in ("first", "mine", "answered"):
        changes = {"version": "v2" if name == "mine" else "v1"}
        await suspend(
            bench, await bench.begin(name, name, **changes), asked[: 2 - (name != "first")]
        )
    nobodys = await bench.begin("nobodys", "nobodys")
    await suspend(bench, nobodys, asked[:1])
    answered = await bench.store.get_execution(bench.new("answered").key)
    assert answered is not None
    assert answered.frontier is not None
    assert await bench.store.put_answers(answered.key, answered.frontier, {0: answer()})

    async def listed(limit: int = 9) -> list[str]:
        found = await bench.store.list_expired_elsewhere(bench.tenant, version="v2", limit=limit)
        return [one.execution_id for one in found]

    assert await listed() == []
    bench.clock.advance(SOON_MS + 1)
    assert await listed() == ["first"]
    assert await listed(0) == []
    first = await bench.store.get_execution(bench.new("first").key)
    assert first is not None
    assert first.frontier is not None
    late = answer('"late"', by="expiry", at=1)
    assert await bench.store.put_answers(first.key, first.frontier, {0: late})
    assert await listed() == []


async def test_a_lease_is_held_until_it_runs_out_by_the_servers_clock(bench: Bench) -> None:
    e = await bench.begin()
    assert await bench.store.is_held(e.key)
    bench.pass_lease()
    assert not await bench.store.is_held(e.key)
    await suspend(bench, await bench.claim(e), [wait()])
    assert not await bench.store.is_held(e.key)
    assert not await bench.store.is_held(bench.new("nobody").key)
