"""Removing the oldest turns: marks, the cut, what is removed, and who may not."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from durable_adk.errors import CorruptHistory, Unavailable
from durable_adk.model.execution import Ancestor, Execution
from durable_adk.model.identity import new_nonce, new_run_id, session_key
from durable_adk.model.retention import Retained
from durable_adk.model.store_results import Begun, Selection, Write
from tests.conformance.bench import Bench, end, record, step_of

HOUR = 3_600_000


async def turns(bench: Bench, count: int) -> list[Execution]:
    """A session of so many finished turns, each with a record; numbered in their states."""
    found = []
    for number in range(1, count + 1):
        e = await bench.begin(f"e{number}")
        one = record(1)
        await bench.store.insert_outcomes(e.run, [one])
        step = step_of(e, state=f'{{"n":{number}}}', records=(one.slot,), artifacts='{"f":1}')
        await end(bench, e, step)
        found.append(e)
    return found


async def marked(bench: Bench, upto: int = 2, count: int = 3) -> list[Execution]:
    """Turns of which some may be cut off now."""
    found = await turns(bench, count)
    await bench.store.mark_expiring(found[0].session_key, upto=upto)
    bench.clock.advance(HOUR)
    return found


async def cut(bench: Bench, first: Execution, upto: int = 2) -> str:
    nonce = new_nonce()
    key = first.session_key
    assert await bench.store.begin_cut(key, upto=upto, grace_ms=HOUR, nonce=nonce)
    state = f'{{"n":{upto}}}'
    assert await bench.store.commit_cut(
        key, nonce=nonce, upto=upto, state=state, artifacts='{"f":1}'
    )
    return nonce


async def retained(bench: Bench, e: Execution) -> Retained:
    found = await bench.store.get_session(e.session_key)
    assert found is not None
    return found.retained


async def test_a_mark_has_the_servers_time_and_is_not_replaced(bench: Bench) -> None:
    first, *_ = await turns(bench, 3)
    before = await bench.server_now()
    await bench.store.mark_expiring(first.session_key, upto=1)
    found = await retained(bench, first)
    assert found.expiring == 1
    assert before <= found.since <= await bench.server_now()
    bench.clock.advance(5_000)
    await bench.store.mark_expiring(first.session_key, upto=2)
    assert await retained(bench, first) == found
    await bench.store.unmark_expiring(first.session_key, upto=2)  # not this one
    assert await retained(bench, first) == found
    await bench.store.unmark_expiring(first.session_key, upto=1)
    assert (await retained(bench, first)).expiring == 0


async def test_a_cut_waits_for_its_mark_by_the_servers_clock(bench: Bench) -> None:
    first, *_ = await turns(bench, 3)
    key, nonce = first.session_key, new_nonce()
    assert not await bench.store.begin_cut(key, upto=2, grace_ms=0, nonce=nonce)  # no mark
    await bench.store.mark_expiring(key, upto=2)
    assert not await bench.store.begin_cut(key, upto=2, grace_ms=HOUR, nonce=nonce)
    bench.clock.advance(HOUR)
    assert not await bench.store.begin_cut(key, upto=1, grace_ms=HOUR, nonce=nonce)
    assert not await bench.store.begin_cut(key, upto=3, grace_ms=HOUR, nonce=nonce)
    mark = await bench.store.mark_going(key)
    assert not await bench.store.begin_cut(key, upto=2, grace_ms=HOUR, nonce=nonce)
    await bench.store.unmark_going(key, mark)
    assert (await retained(bench, first)).cutting == ""
    assert await bench.store.begin_cut(key, upto=2, grace_ms=HOUR, nonce=nonce)
    assert (await retained(bench, first)).cutting == nonce


async def test_the_floor_moves_under_its_mark_only(bench: Bench) -> None:
    """The loser: its mark was taken off, or another one stands."""
    first, *_ = await marked(bench)
    key, mine, other = first.session_key, new_nonce(), new_nonce()
    assert await bench.store.begin_cut(key, upto=2, grace_ms=HOUR, nonce=mine)
    await bench.store.stop_cut(key, other)  # not this one
    assert (await retained(bench, first)).cutting == mine
    await bench.store.stop_cut(key, mine)
    assert not await bench.store.commit_cut(key, nonce=mine, upto=2, state="{}", artifacts=None)
    assert await bench.store.begin_cut(key, upto=2, grace_ms=HOUR, nonce=mine)
    assert await bench.store.begin_cut(key, upto=2, grace_ms=HOUR, nonce=other)
    assert not await bench.store.commit_cut(key, nonce=mine, upto=2, state="{}", artifacts=None)
    assert (await retained(bench, first)).floor == 0
    assert await bench.store.commit_cut(key, nonce=other, upto=2, state='{"n":2}', artifacts=None)
    assert await bench.store.commit_cut(key, nonce=other, upto=2, state='{"n":2}', artifacts=None)
    assert await retained(bench, first) == Retained(floor=2, state='{"n":2}')


async def test_only_one_of_many_moves_the_floor(bench: Bench) -> None:
    first, *_ = await marked(bench)

    async def one(number: int) -> bool:
        nonce = new_nonce()
        await bench.store.begin_cut(first.session_key, upto=2, grace_ms=HOUR, nonce=nonce)
        return await bench.store.commit_cut(
            first.session_key, nonce=nonce, upto=2, state=f'{{"by":{number}}}', artifacts=None
        )

    assert sum(await asyncio.gather(*map(one, range(20)))) == 1


async def test_behind_the_floor_a_history_has_the_turns_that_are_left(bench: Bench) -> None:
    first, second, third = await marked(bench)
    await cut(bench, first)
    for most in (None, 1, 9):
        found = await bench.store.load_history(first.session_key, before=4, max_turns=most)
        assert [turn.execution.turn for turn in found.turns] == [3]
        assert found.session.first_state == '{"n":2}'
    for before in (1, 2, 3):
        found = await bench.store.load_history(first.session_key, before=before, max_turns=None)
        assert found.turns == ()
    listed = await bench.store.list_turns(found.session, before=9, limit=9)
    assert [one.turn for one in listed] == [3]
    below = await bench.store.turns_below(first.session_key, 2, limit=9)
    assert [(one.turn, one.run) for one in below] == [(1, first.run), (2, second.run)]
    await bench.store.remove_turns(first.session_key, [first.run, second.run])
    again = await bench.store.load_history(first.session_key, before=4, max_turns=None)
    assert [turn.execution.turn for turn in again.turns] == [3]
    assert await bench.read(third) is not None


async def test_a_removal_takes_what_belongs_to_its_turns_and_nothing_else(bench: Bench) -> None:
    first, second, third = await marked(bench)
    large = '"' + "x" * (2 << 20) + '"'
    other = await bench.begin("x1", "other", input=large)
    kept = {run: await bench.everything(run) for run in (third.run, other.run)}
    await cut(bench, first)
    for _ in range(2):
        await bench.store.remove_turns(first.session_key, [first.run, second.run])
    for gone in (first, second):
        assert await bench.store.get_execution(gone.key) is None
        found = await bench.everything(gone.run)
        assert found["activities"] == found["steps"] == found["payloads"] == []
    for run, before in kept.items():
        after = await bench.everything(run)
        assert {n: after[n] for n in ("activities", "steps", "payloads")} == {
            n: before[n] for n in ("activities", "steps", "payloads")
        }
    assert [e["eid"] for e in await bench.raw("executions", {"sk": first.session_key})] == ["e3"]
    # A prefix of another session's execution is not touched, whoever asks.
    await bench.store.remove_turns(first.session_key, [new_run_id()])
    assert await bench.store.get_execution(other.key) is not None


async def test_a_turn_whose_removal_was_cut_off_is_on_no_read(bench: Bench) -> None:
    first, second, _third = await marked(bench)
    await cut(bench, first)

    class Cut(Exception):
        pass

    class Once:
        left = 2

        def before(self, write: Write) -> None:
            self.left -= write is Write.REMOVED
            if not self.left:
                raise Cut

        def after(self, write: Write) -> bool:
            return False

    rival = await bench.rival(faults=Once())
    with pytest.raises(Cut):
        await rival.remove_turns(first.session_key, [first.run, second.run])
    assert await bench.store.get_execution(first.key) is None
    selection = dataclasses.replace(_all(bench), session_id="s1")
    listed, _cursor = await bench.store.list_executions(selection)
    assert [one.execution_id for one in listed] == ["e3"]
    with pytest.raises(Unavailable, match="is being removed"):
        await bench.store.begin(bench.new("e1"))
    below = await bench.store.turns_below(first.session_key, 2, limit=9)
    await bench.store.remove_turns(first.session_key, [one.run for one in below])
    begun = await bench.store.begin(bench.new("e1"))
    assert isinstance(begun, Begun)
    assert begun.execution.turn == 4


def _all(bench: Bench) -> Selection:
    return Selection(tenant=bench.tenant)


async def test_without_a_turn_left_the_next_one_goes_on_counting(bench: Bench) -> None:
    first, second = await marked(bench, upto=2, count=2)
    await cut(bench, first)
    await bench.store.remove_turns(first.session_key, [first.run, second.run])
    assert await bench.store.latest_execution(first.session_key) is None
    assert (await bench.begin("e9")).turn == 3


async def test_old_turns_are_found_by_the_servers_clock(bench: Bench) -> None:
    first, second, third = await turns(bench, 3)
    session = await bench.store.get_session(first.session_key)
    assert session is not None

    async def old(age_ms: int, **given: int) -> list[int]:
        asked = {"upto": 9, "limit": 9, **given}
        found = await bench.store.oldest_turns(session, age_ms=age_ms, **asked)
        return [one.turn for one in found]

    assert await old(HOUR) == []
    bench.clock.advance(HOUR)
    await bench.begin("e4")  # active: never
    assert await old(HOUR) == [1, 2, 3]
    assert await old(HOUR, upto=2) == [1, 2]
    assert await old(HOUR, limit=1) == [1]
    assert await old(HOUR * 2) == []
    fork = dataclasses.replace(
        session,
        key=session_key(bench.tenant, "u", "fork"),
        session_id="fork",
        lineage=(Ancestor(key=session.key, session_id="s1", upto=2),),
    )
    made = await bench.store.create_session(fork)
    found = await bench.store.oldest_turns(made, upto=9, age_ms=HOUR, limit=9)
    assert [(one.turn, one.session) for one in found] == [(1, session.key), (2, session.key)]
    assert [one.run for one in found] == [first.run, second.run]
    assert third.run not in {one.run for one in found}


async def test_forks_and_sessions_come_without_their_payloads(bench: Bench) -> None:
    first, *_ = await marked(bench, upto=1)
    await cut(bench, first, upto=1)
    source = await bench.store.get_session(first.session_key)
    assert source is not None
    fork = dataclasses.replace(
        source,
        key=session_key(bench.tenant, "u", "fork"),
        session_id="fork",
        state='{"s":1}',
        lineage=(Ancestor(key=source.key, session_id="s1", upto=2),),
    )
    made = await bench.store.create_session(fork)
    assert made is not None
    assert (made.retained, made.state) == (source.retained, '{"s":1}')
    [light] = await bench.store.forks_from(source.key)
    assert (light.key, light.lineage, light.floor) == (fork.key, fork.lineage, 1)
    assert (light.state, light.retained.state) == (None, None)
    assert await bench.store.forks_from(fork.key) == ()
    keys = sorted([source.key, fork.key])
    both = await bench.store.sessions_after(bench.tenant, "", limit=9)
    assert [one.key for one in both] == keys
    [last] = await bench.store.sessions_after(bench.tenant, keys[0], limit=9)
    assert last.key == keys[1]
    [one] = await bench.store.sessions_after(bench.tenant, "", limit=1)
    assert one.key == keys[0]


async def test_a_base_over_the_limit_is_chunks_of_the_session(bench: Bench) -> None:
    first, *_ = await marked(bench)
    key, large = first.session_key, '"' + "x" * (2 << 20) + '"'
    for upto in (2, 3):
        nonce = new_nonce()
        if upto == 3:
            await bench.store.mark_expiring(key, upto=3)
            bench.clock.advance(HOUR)
        assert await bench.store.begin_cut(key, upto=upto, grace_ms=HOUR, nonce=nonce)
        done = await bench.store.commit_cut(
            key, nonce=nonce, upto=upto, state=large, artifacts=None
        )
        assert done
        found = await retained(bench, first)
        assert (found.floor, found.state) == (upto, large)
        chunks = await bench.raw("payloads", {"_id": {"$regex": f"^{key}:"}})
        assert len(chunks) == 1
    await bench.collection("payloads").delete_many({"_id": {"$regex": f"^{key}:"}})
    with pytest.raises(CorruptHistory, match="chunk"):
        await bench.store.get_session(key)
