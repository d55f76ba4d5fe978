"""Every write whose reply is lost after it was stored: no duplicate, no false failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from durable_adk.errors import WriteUnknown
from durable_adk.model.activity import Kind
from durable_adk.model.artifact import ArtifactName, ArtifactScope, NewArtifact
from durable_adk.model.execution import Status
from durable_adk.model.identity import SessionKey, new_nonce
from durable_adk.model.store_results import Begun, Renewal, Write
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
    intent,
    lease_of,
    record,
    step_of,
    suspend,
    verdict,
    wait,
)

Losing = Callable[[], None]
Check = Callable[[Bench, Losing], Awaitable[None]]
CHECKS: dict[Write, Check] = {}


def losing(write: Write) -> Callable[[Check], Check]:
    def listed(check: Check) -> Check:
        CHECKS[write] = check
        return check

    return listed


@losing(Write.REENCRYPT)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    keys = {"k2": bytes(range(1, 33)), **(bench.keys or {})}
    store = await bench.rival(keys=keys, faults=bench.faults)
    lose()
    done = await store.reencrypt(bench.tenant)
    assert done.rewritten == 1
    assert (await store.reencrypt(bench.tenant)).rewritten == 0
    assert await store.get_execution(e.key) == e


@losing(Write.SESSION)
async def _(bench: Bench, lose: Losing) -> None:
    lose()
    made = await bench.store.create_session(bench.session("s", state='{"k":1}'))
    assert made is not None
    assert made.state == '{"k":1}'


@losing(Write.BEGIN)
async def _(bench: Bench, lose: Losing) -> None:
    lose()
    new = bench.new()
    begun = await bench.store.begin(new)
    assert isinstance(begun, Begun)
    assert begun.execution.claim == new.nonce


@losing(Write.CLAIM)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin(run_now=False)
    lose()
    claimed = await bench.claim(e)
    assert (claimed.token, claimed.attempt) == (1, 1)
    bench.pass_lease()
    lose()
    closing = await bench.store.claim_to_close(
        e.key, closing=Status.CANCELLED, reason="", nonce=new_nonce(), ttl_ms=TTL_MS
    )
    assert closing is not None
    assert (closing.token, closing.attempt) == (2, 2)


@losing(Write.RENEW)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    lose()
    assert await bench.store.renew(lease_of(e), ttl_ms=TTL_MS) == Renewal(held=True)
    lose()
    async with bench.store.keeper_link() as link:
        assert await link.renew(lease_of(e), ttl_ms=TTL_MS) == Renewal(held=True)


@losing(Write.CHUNK)
async def _(bench: Bench, lose: Losing) -> None:
    large = '"' + "x" * (2 << 20) + '"'
    lose()
    e = await bench.begin(input=large)
    assert (await bench.read(e)).input == large
    assert len(await bench.raw("payloads", {"_id": {"$regex": f"^{e.run}:"}})) == 1


@losing(Write.INTENT)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    lose()
    assert await bench.store.insert_intent(e.run, intent()) is True


@losing(Write.VERDICT)
async def _(bench: Bench, lose: Losing) -> None:
    e, doubt = await bench.begin(), verdict()
    lose()
    assert await bench.store.insert_verdict(e.run, doubt) == doubt


@losing(Write.OUTCOMES)
async def _(bench: Bench, lose: Losing) -> None:
    e, records = await bench.begin(), [record(n) for n in range(1, 6)]
    lose()
    assert await bench.store.insert_outcomes(e.run, records) is None
    lose()
    assert await bench.store.insert_outcomes(e.run, [record(6)]) is None
    assert len(await bench.store.load_records(e.run, from_step=1)) == 6


@losing(Write.STEP)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    lose()
    step = await end(bench, e)
    assert await bench.store.load_steps(await bench.read(e)) == (step,)


@losing(Write.FRONTIER)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    lose()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    assert (await bench.read(e)).frontier == frontier


@losing(Write.ANSWER)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    lose()
    assert await bench.store.put_answers(e.key, frontier, {0: answer()})
    current = (await bench.read(e)).frontier
    assert current is not None
    assert (current.rev, current.open) == (1, 1)
    lose()
    assert await bench.store.put_answers(e.key, current, {1: answer()})


@losing(Write.WAITS)
async def _(bench: Bench, lose: Losing) -> None:
    await _continue(bench, lose)


@losing(Write.CONTINUE)
async def _(bench: Bench, lose: Losing) -> None:
    await _continue(bench, lose)


async def _continue(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    frontier = await suspend(bench, e, [wait(1), wait(2)])
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    lose()
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    assert (await bench.read(e)).step == 2
    assert len(await bench.store.load_waits(e.run, step=1)) == 2


@losing(Write.END)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    lose()
    await end(bench, e)
    assert (await bench.read(e)).status is Status.COMPLETED


@losing(Write.SCOPES)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    step = await end(bench, e, step_of(e, scopes='{"user:a":1,"app:b":2}', stamp="1"))
    lose()
    await bench.store.apply_scopes(await bench.read(e), step)
    values, stamp = await bench.store.load_scopes(bench.tenant, "u")
    assert (values, stamp) == ({"user:a": "1", "app:b": "2"}, "1")
    assert not (await bench.read(e)).scopes_due


@losing(Write.SWEPT)
async def _(bench: Bench, lose: Losing) -> None:
    store = await bench.rival(spill_above=10, faults=bench.faults)
    for number in (1, 2):
        scopes = f'{{"user:a":"{number} is large"}}'
        await store.put_scopes(bench.tenant, "u", scopes, stamp=f"{number:015d}:e")
    bench.clock.advance(HOUR)
    lose()
    assert await store.sweep_scopes(bench.tenant, grace_ms=HOUR, limit=9) == 1
    values, _stamp = await store.load_scopes(bench.tenant, "u")
    assert values == {"user:a": '"2 is large"'}
    assert await store.sweep_scopes(bench.tenant, grace_ms=0, limit=9) == 0


@losing(Write.ATTEMPT_FAILED)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    lose()
    await bench.store.attempt_failed(
        lease_of(e),
        status=Status.QUEUED,
        error=failure(),
        failures=1,
        voided=("a",),
        backoff_ms=5,
    )
    stored = await bench.read(e)
    assert (stored.status, stored.voided) == (Status.QUEUED, ("a",))


@losing(Write.DOUBTS)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    doubt = wait(1, kind=WaitKind.IN_DOUBT)
    settled = frontier_of(e, [doubt], open=0, answers={0: answer()})
    lose()
    await bench.store.commit_doubts(lease_of(e), run=e.run, frontier=settled, nonce=new_nonce())
    stored = await bench.read(e)
    assert (stored.status, stored.frontier) == (Status.RUNNING, settled)
    await bench.store.commit_continue(lease_of(e), stored, answered_of(stored))
    asked = frontier_of(e, [wait(2, kind=WaitKind.IN_DOUBT)], ordinal=2)
    lose()
    await bench.store.commit_doubts(lease_of(e), run=e.run, frontier=asked, nonce=new_nonce())
    stored = await bench.read(e)
    assert (stored.status, stored.frontier) == (Status.SUSPENDED, asked)


@losing(Write.RELEASE)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    lose()
    assert await bench.store.release(lease_of(e)) is True


@losing(Write.CANCEL)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    lose()
    assert await bench.store.request_cancel(e.key, "x") is True


@losing(Write.RETRY)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin(run_now=False)
    lose()
    assert await bench.store.retry(e.key) is not None


@losing(Write.ARTIFACT)
async def _(bench: Bench, lose: Losing) -> None:
    scope = ArtifactScope(tenant=bench.tenant, user_id="u", session_id="s")
    file = ArtifactName(scope=scope, name="a")
    for version in (0, 1):
        if version:
            lose()
        saved = await bench.store.save_artifact(NewArtifact(file=file, content=f'"{version}"'))
        assert saved.version == version
    assert [one.version for one in await bench.store.artifact_versions(file)] == [0, 1]


HOUR = 3_600_000


@losing(Write.EXPIRING)
async def _(bench: Bench, lose: Losing) -> None:
    e = await bench.begin()
    await end(bench, e)
    lose()
    await bench.store.mark_expiring(e.session_key, upto=1)
    assert await _expiring(bench, e.session_key) == (1, "", 0)
    lose()
    await bench.store.unmark_expiring(e.session_key, upto=1)
    assert await _expiring(bench, e.session_key) == (0, "", 0)


@losing(Write.CUTTING)
async def _(bench: Bench, lose: Losing) -> None:
    key, nonce = await _marked(bench), new_nonce()
    lose()
    assert await bench.store.begin_cut(key, upto=1, grace_ms=HOUR, nonce=nonce)
    assert await _expiring(bench, key) == (1, nonce, 0)
    lose()
    await bench.store.stop_cut(key, nonce)
    assert await _expiring(bench, key) == (1, "", 0)


@losing(Write.CUT)
async def _(bench: Bench, lose: Losing) -> None:
    key, nonce = await _marked(bench), new_nonce()
    assert await bench.store.begin_cut(key, upto=1, grace_ms=HOUR, nonce=nonce)
    lose()
    assert await bench.store.commit_cut(key, nonce=nonce, upto=1, state="{}", artifacts=None)
    assert await _expiring(bench, key) == (0, "", 1)


@losing(Write.REMOVED)
async def _(bench: Bench, lose: Losing) -> None:
    key, nonce = await _marked(bench), new_nonce()
    assert await bench.store.begin_cut(key, upto=1, grace_ms=HOUR, nonce=nonce)
    assert await bench.store.commit_cut(key, nonce=nonce, upto=1, state="{}", artifacts=None)
    lose()
    await bench.store.remove_turns(key, await bench.store.runs_of(key))
    assert await bench.store.runs_of(key) == ()


async def _marked(bench: Bench) -> SessionKey:
    e = await bench.begin()
    await end(bench, e)
    await bench.store.mark_expiring(e.session_key, upto=1)
    bench.clock.advance(HOUR)
    return e.session_key


async def _expiring(bench: Bench, key: SessionKey) -> tuple[int, str, int]:
    found = await bench.store.get_session(key)
    assert found is not None
    return found.retained.expiring, found.retained.cutting, found.retained.floor


def test_every_kind_of_write_loses_its_reply_here() -> None:
    assert set(Write) - set(CHECKS) == {Write.DELETE}  # no method of the store deletes yet


@pytest.mark.parametrize("write", CHECKS, ids=lambda write: write.name.lower())
@pytest.mark.parametrize("times", [1, 2])
async def test_a_lost_reply_is_settled_by_writing_again(
    bench: Bench, write: Write, times: int
) -> None:
    await CHECKS[write](bench, lambda: bench.faults.lose(write, times if _repeats(write) else 1))
    assert bench.faults.all_lost or times == 2


def _repeats(write: Write) -> bool:
    """A keeper's renewal is tried twice only; the next one comes in a third of the lease."""
    return write is not Write.RENEW


async def test_a_write_whose_reply_never_comes_is_unknown(bench: Bench, monkeypatch) -> None:
    class Silent:
        def before(self, write: Write) -> None:
            pass

        def after(self, write: Write) -> bool:
            return write is Write.SCOPES

    store = await bench.rival(faults=Silent())
    monkeypatch.setattr(store._core, "_deadline_s", 0.05)
    e = await bench.begin()
    step = await end(bench, e, step_of(e, scopes='{"app:b":2}', stamp="1"))
    # Applying is the one write that is simply done again, so only its deadline ends it.
    with pytest.raises(WriteUnknown, match="was not acknowledged"):
        await store.apply_scopes(await bench.read(e), step)
    await bench.store.apply_scopes(await bench.read(e), step)
    assert not (await bench.read(e)).scopes_due


async def test_outcomes_of_which_a_part_was_stored_are_completed(bench: Bench) -> None:
    """An insert_many that was cut off in the middle, then repeated whole."""
    e, records = await bench.begin(), [record(n) for n in range(1, 8)]
    assert await bench.store.insert_outcomes(e.run, records[:4]) is None
    bench.faults.lose(Write.OUTCOMES)
    assert await bench.store.insert_outcomes(e.run, records) is None
    found = await bench.store.load_records(e.run, from_step=1)
    assert sorted(r.seq for r in found) == list(range(1, 8))


async def test_a_lost_reply_does_not_hide_a_rival(bench: Bench) -> None:
    e = await bench.begin()
    rival = record(3, kind=Kind.MODEL)
    await bench.store.insert_outcomes(e.run, [rival])
    bench.faults.lose(Write.OUTCOMES)
    mine = [record(n) for n in range(1, 6)]
    assert await bench.store.insert_outcomes(e.run, mine) == rival
    found = await bench.store.load_records(e.run, from_step=1)
    assert sorted(r.seq for r in found) == [1, 2, 3]


async def test_a_frontier_that_was_stored_without_a_reply_is_not_written_twice(
    bench: Bench,
) -> None:
    e = await bench.begin()
    step, frontier = step_of(e), frontier_of(e, [wait(1)])
    await bench.store.put_step(step)
    bench.faults.lose(Write.FRONTIER)
    await bench.store.commit_frontier(lease_of(e), step=step, frontier=frontier)
    assert (await bench.read(e)).frontier == frontier
    assert bench.faults.sent[Write.FRONTIER] == 1


@pytest.mark.parametrize("write", ["outcomes", "intent", "step", "session", "waits"])
async def test_a_duplicate_that_cannot_be_read_yet_is_neither_ours_nor_lost(
    bench: Bench, monkeypatch, write: str
) -> None:
    """Right after a failover a majority read may miss what the duplicate key has shown."""
    e, one, doubt = await bench.begin(), record(1), intent(2)
    step, frontier = step_of(e), frontier_of(e, [wait(1)])
    core = bench.store._core
    missed = 0

    def blind(find):
        async def first_nothing(session, name, *rest, **options):
            nonlocal missed
            if name in ("activities", "steps", "sessions") and missed < 2:
                missed += 1
                return [] if find.__name__ == "find" else None
            return await find(session, name, *rest, **options)

        return first_nothing

    async def act() -> object:
        match write:
            case "outcomes":
                return await bench.store.insert_outcomes(e.run, [one])
            case "intent":
                return await bench.store.insert_intent(e.run, doubt)
            case "step":
                return await bench.store.put_step(step)
            case "session":
                return await bench.store.create_session(bench.session("s1"))
            case _:
                return await bench.store.commit_continue(
                    lease_of(claimed), claimed, answered_of(claimed)
                )

    if write == "waits":
        await bench.store.commit_frontier(lease_of(e), step=step, frontier=frontier)
        await answer_all(bench, e, frontier)
        claimed = await bench.claim(e)
    first = await act()
    monkeypatch.setattr(core, "find", blind(core.find))
    monkeypatch.setattr(core, "find_one", blind(core.find_one))
    assert await act() == first
    assert missed == 2
