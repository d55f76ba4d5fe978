from __future__ import annotations

import json
import secrets

import pytest

from durable_adk.errors import ConfigError, CorruptHistory
from durable_adk.model.execution import Status
from durable_adk.model.identity import new_nonce, session_key
from durable_adk.model.store_results import Selection
from durable_adk.model.wait import WaitKind
from durable_adk.store import filters
from tests.conformance.bench import (
    TTL_MS,
    Bench,
    answer_all,
    answered_of,
    end,
    failure,
    lease_of,
    next_step,
    step_of,
    suspend,
    wait,
)

# ---------------------------------------------------------------------- sessions


async def test_a_created_session_is_read_back_with_the_servers_time(bench: Bench) -> None:
    made = await bench.store.create_session(bench.session("s", state='{"k":"$$ROOT"}'))
    assert made is not None
    assert made.created_at > 0
    assert made.state == '{"k":"$$ROOT"}'
    assert await bench.store.get_session(made.key) == made


async def test_the_first_insert_of_a_session_wins(bench: Bench) -> None:
    made = await bench.store.create_session(bench.session("s", state="1"))
    assert await bench.store.create_session(bench.session("s", state="2")) is None
    assert made is not None
    assert await bench.store.get_session(made.key) == made


async def test_a_session_that_does_not_exist_is_none(bench: Bench) -> None:
    assert await bench.store.get_session(session_key(bench.tenant, "u", "none")) is None
    assert await bench.store.latest_execution(session_key(bench.tenant, "u", "none")) is None


async def test_a_large_initial_state_comes_back_whole(bench: Bench) -> None:
    large = json.dumps("x" * (2 << 20))
    made = await bench.store.create_session(bench.session("s", state=large))
    assert made is not None
    assert made.state == large


async def test_sessions_are_listed_oldest_first_by_user_in_pages(bench: Bench) -> None:
    for number in range(5):
        await bench.store.create_session(bench.session(f"s{number}"))
        await bench.store.create_session(bench.session(f"s{number}", user="other"))
        bench.clock.advance(10)
    seen: list[str] = []
    cursor = None
    for expected in (2, 2, 1):
        items, cursor = await bench.store.list_sessions(
            Selection(bench.tenant, user_id="u", limit=2, cursor=cursor)
        )
        assert len(items) == expected
        seen += [item.session_id for item in items]
    assert cursor is None
    assert seen == [f"s{n}" for n in range(5)]
    items, _ = await bench.store.list_sessions(Selection(bench.tenant))
    assert len(items) == 10


# ---------------------------------------------------------------------- history


async def turn(bench: Bench, number: int, steps: int = 1):
    e = await bench.begin(f"e{number}")
    for _ in range(steps - 1):
        e = await next_step(bench, e, [wait(step=e.step)])
    await end(bench, e, step_of(e, state=f'{{"turn":{number}}}'))
    return await bench.read(e)


async def test_the_first_turn_has_a_session_and_no_past(bench: Bench) -> None:
    e = await bench.begin(initial_state='{"k":1}')
    history = await bench.store.load_history(e.session_key, before=e.turn, max_turns=None)
    assert (history.session.state, history.turns) == ('{"k":1}', ())


async def test_history_has_every_finished_turn_with_its_committed_steps_in_order(
    bench: Bench,
) -> None:
    past = [await turn(bench, number, steps) for number, steps in ((1, 1), (2, 3), (3, 1))]
    e = await bench.begin("e4")
    history = await bench.store.load_history(e.session_key, before=e.turn, max_turns=None)
    assert [t.execution for t in history.turns] == past
    assert [[s.step for s in t.steps] for t in history.turns] == [[1], [1, 2, 3], [1]]
    assert [t.steps[-1].state for t in history.turns] == [f'{{"turn":{n}}}' for n in (1, 2, 3)]


@pytest.mark.parametrize("max_turns", [0, 1, 2, 9])
async def test_history_may_be_limited_to_the_newest_whole_turns(
    bench: Bench, max_turns: int
) -> None:
    for number in (1, 2, 3):
        await turn(bench, number)
    e = await bench.begin("e4")
    history = await bench.store.load_history(e.session_key, before=e.turn, max_turns=max_turns)
    wanted = [1, 2, 3][max(0, 3 - max_turns) :]
    assert [t.execution.turn for t in history.turns] == wanted


async def test_a_missing_turn_is_corruption(bench: Bench) -> None:
    past = [await turn(bench, number) for number in (1, 2, 3)]
    e = await bench.begin("e4")
    await bench.collection("executions").delete_one({"_id": past[1].key})
    with pytest.raises(CorruptHistory, match=r"turns \[2\]"):
        await bench.store.load_history(e.session_key, before=e.turn, max_turns=None)
    assert (
        len((await bench.store.load_history(e.session_key, before=e.turn, max_turns=1)).turns) == 1
    )


async def test_a_missing_step_of_a_past_turn_is_corruption(bench: Bench) -> None:
    past = await turn(bench, 1, steps=3)
    e = await bench.begin("e2")
    await bench.collection("steps").delete_one({"_id": {"$regex": f"^{past.run}:000002:"}})
    with pytest.raises(CorruptHistory, match="is missing"):
        await bench.store.load_history(e.session_key, before=e.turn, max_turns=None)


async def test_a_missing_session_is_corruption(bench: Bench) -> None:
    e = await bench.begin()
    await bench.collection("sessions").delete_one({"_id": e.session_key})
    with pytest.raises(CorruptHistory, match="session"):
        await bench.store.load_history(e.session_key, before=e.turn, max_turns=None)


async def test_history_leaves_out_what_a_stale_owner_wrote(bench: Bench) -> None:
    e = await bench.begin("e1")
    await bench.store.put_step(step_of(e, events='["stale"]'))
    bench.pass_lease()
    current = await bench.claim(e)
    step = await end(bench, current)
    begun = await bench.begin("e2")
    history = await bench.store.load_history(begun.session_key, before=begun.turn, max_turns=None)
    assert history.turns[0].steps == (step,)


async def test_a_long_history_is_read_whole(bench: Bench) -> None:
    for number in range(1, 41):
        await turn(bench, number, steps=1 + number % 2)
    begun = await bench.begin("e41")
    history = await bench.store.load_history(begun.session_key, before=begun.turn, max_turns=None)
    assert [t.execution.turn for t in history.turns] == list(range(1, 41))


# ---------------------------------------------------------------------- executions


async def test_an_execution_that_does_not_exist_is_none(bench: Bench) -> None:
    assert await bench.store.get_execution(bench.new("none").key) is None


async def test_the_latest_execution_of_a_session_is_its_last_turn_active_or_not(
    bench: Bench,
) -> None:
    first = await turn(bench, 1)
    assert await bench.store.latest_execution(first.session_key) == first
    second = await bench.begin("e2")
    assert await bench.store.latest_execution(first.session_key) == second


async def test_executions_are_listed_newest_first_in_pages(bench: Bench) -> None:
    for number in range(5):
        await bench.begin(f"e{number}", f"s{number}")
        bench.clock.advance(10)
    seen: list[str] = []
    cursor = None
    for expected in (2, 2, 1):
        items, cursor = await bench.store.list_executions(
            Selection(bench.tenant, limit=2, cursor=cursor)
        )
        assert len(items) == expected
        seen += [item.execution_id for item in items]
    assert cursor is None
    assert seen == ["e4", "e3", "e2", "e1", "e0"]


async def test_executions_of_the_same_millisecond_are_each_on_one_page(bench: Bench) -> None:
    for number in range(7):
        await bench.begin(f"e{number}", f"s{number}")
    seen: list[str] = []
    cursor = None
    while True:
        items, cursor = await bench.store.list_executions(
            Selection(bench.tenant, limit=2, cursor=cursor)
        )
        seen += [item.execution_id for item in items]
        if cursor is None:
            break
    assert sorted(seen) == [f"e{n}" for n in range(7)]


async def test_executions_are_narrowed_by_user_session_and_status(bench: Bench) -> None:
    await bench.begin("e1", "s1")
    done = await bench.begin("e2", "s2")
    await end(bench, done)
    await bench.begin("e3", "s1", user_id="other")
    for wanted, found in (
        ({"user_id": "u"}, {"e1", "e2"}),
        ({"user_id": "other"}, {"e3"}),
        ({"session_id": "s1"}, {"e1", "e3"}),
        ({"user_id": "u", "session_id": "s1"}, {"e1"}),
        ({"status": Status.COMPLETED}, {"e2"}),
        ({"user_id": "nobody"}, set()),
    ):
        items, _ = await bench.store.list_executions(Selection(bench.tenant, **wanted))
        assert {item.execution_id for item in items} == found, wanted


async def test_a_list_leaves_out_nothing_that_changes_its_status_meanwhile(bench: Bench) -> None:
    await end(bench, await bench.begin("e1", "s"))
    bench.clock.advance(1)  # of one millisecond, either may come first
    moving = await bench.begin("e2", "s")
    for number in range(40):
        await bench.begin(f"of others {number}", f"s{number}")
    async with bench.moving(moving.key, status=("suspended", "running")):
        for wanted in ({"user_id": "u", "session_id": "s"}, {"session_id": "s"}):
            for _ in range(300):
                selection = Selection(bench.tenant, limit=1, **wanted)
                (newest,), _ = await bench.store.list_executions(selection)
                if newest.execution_id != "e2":
                    break
            assert newest.execution_id == "e2", wanted


async def test_nothing_of_another_tenant_is_listed(bench: Bench) -> None:
    await bench.begin(run_now=False)
    bench.tenant = type(bench.tenant)(bench.tenant.namespace, "another app")
    assert await bench.store.list_executions(Selection(bench.tenant)) == ((), None)
    assert await bench.store.list_waiting(Selection(bench.tenant)) == ((), None)
    assert await bench.store.list_sessions(Selection(bench.tenant)) == ((), None)
    assert await bench.store.list_due(bench.tenant, version=None, limit=9) == ()
    assert await bench.store.next_wake(bench.tenant) is None


@pytest.mark.parametrize("wrong", ["", "x", "1.zz", "1.2.3", '{"$gt":""}', "-1." + "0" * 32])
async def test_a_cursor_that_no_page_returned_is_refused(bench: Bench, wrong: str) -> None:
    with pytest.raises(ConfigError, match="cursor"):
        await bench.store.list_executions(Selection(bench.tenant, cursor=wrong))


@pytest.mark.parametrize("limit", [0, -1, 1001])
async def test_a_limit_out_of_range_is_refused(bench: Bench, limit: int) -> None:
    with pytest.raises(ConfigError, match="limit"):
        await bench.store.list_waiting(Selection(bench.tenant, limit=limit))


async def test_user_and_session_ids_that_are_not_text_are_refused(bench: Bench) -> None:
    for field in ("user_id", "session_id", "kind"):
        selection = Selection(bench.tenant, **{field: {"$gt": ""}})
        with pytest.raises(ConfigError, match="expected text"):
            await bench.store.list_waiting(selection)


# ---------------------------------------------------------------------- waiting


async def test_open_waits_are_listed_oldest_first_and_leave_with_the_last_answer(
    bench: Bench,
) -> None:
    frontiers = {}
    for number in (1, 2, 3):
        e = await bench.begin(f"e{number}", f"s{number}")
        frontiers[number] = e, await suspend(bench, e, [wait(1), wait(2)])
        bench.clock.advance(10)
    items, cursor = await bench.store.list_waiting(Selection(bench.tenant))
    assert [item.execution_id for item in items] == ["e1", "e2", "e3"]
    assert cursor is None
    await answer_all(bench, *frontiers[2])
    items, _ = await bench.store.list_waiting(Selection(bench.tenant))
    assert [item.execution_id for item in items] == ["e1", "e3"]
    first, cursor = await bench.store.list_waiting(Selection(bench.tenant, limit=1))
    rest, end_of_list = await bench.store.list_waiting(
        Selection(bench.tenant, limit=1, cursor=cursor)
    )
    assert [item.execution_id for item in first + rest] == ["e1", "e3"]
    assert end_of_list is None


async def test_open_waits_are_narrowed_by_kind_and_user(bench: Bench) -> None:
    asked = await bench.begin("e1", "s1")
    await suspend(bench, asked, [wait(1)])
    confirmed = await bench.begin("e2", "s2", user_id="other")
    await suspend(bench, confirmed, [wait(1, kind=WaitKind.CONFIRMATION)])
    for wanted, found in (
        ({"kind": WaitKind.CONFIRMATION.value}, {"e2"}),
        ({"kind": WaitKind.INPUT.value}, {"e1"}),
        ({"user_id": "other"}, {"e2"}),
        ({"kind": WaitKind.TIMER.value}, set()),
    ):
        items, _ = await bench.store.list_waiting(Selection(bench.tenant, **wanted))
        assert {item.execution_id for item in items} == found, wanted


# ---------------------------------------------------------------------- due


async def test_what_a_claim_would_take_is_due_longest_due_first(bench: Bench) -> None:
    run_out = await bench.begin("run-out", "s1")
    bench.clock.advance(60_000)
    answered = await bench.begin("answered", "s2")
    frontier = await suspend(bench, answered, [wait(1)])
    await answer_all(bench, answered, frontier)
    waiting = await bench.begin("waiting", "s3")
    await suspend(bench, waiting, [wait(1, expires_at=1)])
    await bench.begin("running", "s4")
    queued = await bench.begin("queued", "s5", run_now=False)
    done = await bench.begin("done", "s6")
    await end(bench, done)
    bench.clock.advance(1)
    due = await bench.store.list_due(bench.tenant, version=None, limit=10)
    assert due == (answered.key, waiting.key, run_out.key, queued.key)
    assert await bench.try_claim(waiting) is None  # its expiry answer has to be stored first
    assert await bench.store.list_due(bench.tenant, version=None, limit=2) == due[:2]
    assert await bench.store.list_due(bench.tenant, version=None, limit=0) == ()
    for key in set(due) - {waiting.key}:
        assert await bench.store.claim(key, nonce=new_nonce(), ttl_ms=TTL_MS)
    assert await bench.store.list_due(bench.tenant, version=None, limit=10) == (waiting.key,)


async def test_only_this_version_or_none_is_due_and_the_stuck_of_others(bench: Bench) -> None:
    keys = {}
    for name, version in (("none", None), ("mine", "v2"), ("theirs", "v1")):
        keys[name] = (await bench.begin(name, name, run_now=False, version=version)).key
    for name, version in (("stuck-none", None), ("stuck-mine", "v2"), ("stuck-theirs", "v1")):
        e = await bench.begin(name, name, version=version)
        keys[name] = e.key
        await bench.store.attempt_failed(
            lease_of(e),
            status=Status.STUCK,
            error=failure(),
            failures=1,
            voided=(),
            backoff_ms=0,
        )
    due = await bench.store.list_due(bench.tenant, version="v2", limit=10)
    assert set(due) == {keys["none"], keys["mine"], keys["stuck-theirs"]}
    assert due[-1] == keys["stuck-theirs"]
    everything = await bench.store.list_due(bench.tenant, version=None, limit=10)
    assert set(everything) == {keys["none"], keys["mine"], keys["theirs"]}


async def test_the_next_wake_up_is_the_earliest_of_what_is_active(bench: Bench) -> None:
    assert await bench.store.next_wake(bench.tenant) is None
    first = await bench.begin("e1", "s1")
    bench.clock.advance(1_000)
    await bench.begin("e2", "s2")
    assert await bench.store.next_wake(bench.tenant) == first.wake_at
    await suspend(bench, first, [wait()])
    second_wake = await bench.store.next_wake(bench.tenant)
    assert second_wake is not None
    assert second_wake > first.wake_at


# ---------------------------------------------------------------------- shared state


async def shared(bench: Bench, number: int, scopes: str, stamp: str, user: str = "u"):
    e = await bench.begin(f"x{number}", f"x{number}", user_id=user)
    step = await end(bench, e, step_of(e, scopes=scopes, stamp=stamp))
    return await bench.read(e), step


async def test_shared_state_is_due_until_it_is_applied_and_then_seen_by_user(
    bench: Bench,
) -> None:
    e, step = await shared(bench, 1, '{"user:a":{"b":[1,2.5,"ü"]},"app:c":null,"app:d":0}', "5")
    assert [d.key for d in await bench.store.list_scopes_due(bench.tenant, limit=5)] == [e.key]
    assert await bench.store.load_scopes(bench.tenant, "u") == ({}, "")
    for _ in range(2):
        await bench.store.apply_scopes(e, step)
    assert await bench.store.list_scopes_due(bench.tenant, limit=5) == ()
    mine = {"user:a": '{"b":[1,2.5,"ü"]}', "app:d": "0"}
    assert await bench.store.load_scopes(bench.tenant, "u") == (mine, "5")
    assert await bench.store.load_scopes(bench.tenant, "other") == ({"app:d": "0"}, "5")


async def test_an_older_stamp_loses_key_by_key_in_any_order(bench: Bench) -> None:
    newer = await shared(bench, 1, '{"app:a":"new","app:b":"new"}', "0005")
    older = await shared(bench, 2, '{"app:a":"old","app:c":"old"}', "0003")
    await bench.store.apply_scopes(*newer)
    await bench.store.apply_scopes(*older)
    values, stamp = await bench.store.load_scopes(bench.tenant, "u")
    assert values == {"app:a": '"new"', "app:b": '"new"', "app:c": '"old"'}
    assert stamp == "0005"


async def test_a_deletion_keeps_its_stamp(bench: Bench) -> None:
    await bench.store.apply_scopes(*await shared(bench, 1, '{"app:a":1}', "1"))
    await bench.store.apply_scopes(*await shared(bench, 2, '{"app:a":null}', "3"))
    await bench.store.apply_scopes(*await shared(bench, 3, '{"app:a":2}', "2"))
    assert await bench.store.load_scopes(bench.tenant, "u") == ({}, "3")


async def test_a_large_shared_value_comes_back_whole(bench: Bench) -> None:
    large = json.dumps("x" * (2 << 20))
    await bench.store.apply_scopes(*await shared(bench, 1, f'{{"app:a":{large}}}', "1"))
    assert (await bench.store.load_scopes(bench.tenant, "u"))[0] == {"app:a": large}


async def test_shared_state_of_a_frontiers_step_is_applied_while_it_waits(bench: Bench) -> None:
    e = await bench.begin()
    step = step_of(e, scopes='{"user:a":1}', stamp="1")
    await suspend(bench, e, [wait()], step)
    await bench.store.apply_scopes(await bench.read(e), step)
    assert not (await bench.read(e)).scopes_due
    assert (await bench.store.load_scopes(bench.tenant, "u"))[0] == {"user:a": "1"}


async def test_applying_an_earlier_step_leaves_a_later_one_due(bench: Bench) -> None:
    e = await bench.begin()
    first = step_of(e, scopes='{"app:a":1}', stamp="1")
    frontier = await suspend(bench, e, [wait()], first)
    suspended = await bench.read(e)
    await answer_all(bench, e, frontier)
    claimed = await bench.claim(e)
    await bench.store.commit_continue(lease_of(claimed), claimed, answered_of(claimed))
    await bench.store.apply_scopes(suspended, first)
    current = await bench.read(e)
    await end(bench, current, step_of(current, scopes='{"app:a":2}', stamp="2"))
    await bench.store.apply_scopes(suspended, first)
    assert (await bench.read(e)).scopes_due


async def test_a_pass_that_reencrypts_leaves_out_nothing_that_changes_its_status_meanwhile(
    bench: Bench,
) -> None:
    """Else the old key goes, and with it what was passed by. Most of the database is others'."""
    executions = bench.collection("executions")
    others = [secrets.token_hex(16) for _ in range(400)]
    await executions.insert_many({"_id": k, "ns": "others", "sk": k, "turn": 1} for k in others)
    all_of_it = {(await bench.begin(f"e{n}", f"s{n}")).key for n in range(40)}
    moving = await bench.begin("moving", "moving")
    async with bench.moving(moving.key, status=("suspended", "running")):
        for _ in range(60 if bench.is_real else 1):
            pages = bench.store._pages("executions", filters.of_tenant(bench.tenant), "")
            if (found := {doc["_id"] async for doc in pages}) != all_of_it | {moving.key}:
                break
    await executions.delete_many({"_id": {"$in": others}})
    assert found == all_of_it | {moving.key}
