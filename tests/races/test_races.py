"""W3, S1, S2, S13: the same moments again and again on a real mongod, each time in another order.

Every store call waits a few milliseconds that a seed gives. Effects are counted exactly.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from durable_adk import (
    AnswerConflict,
    App,
    InputConflict,
    NotFound,
    SessionBusy,
    Unavailable,
    WaitClosed,
)
from durable_adk.model.execution import FAR, Status
from durable_adk.model.store_results import Begun
from durable_adk.store.clock import ServerClock
from tests.app.conftest import ON
from tests.conformance.bench import Bench, frontier_of, lease_of, step_of, wait
from tests.sessions.desk import Ledger, desk

pytestmark = pytest.mark.timeout(600)

LONGEST_S = 0.004
YES, NO = {"confirmed": True}, {"confirmed": False}


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> range:
    return range(100 if request.config.getoption("--all-points") else 5)


class Desks:
    """Three Apps over one database, and what their tools did."""

    def __init__(self, uri: str, database: str, seed: int) -> None:
        self.ledger: Ledger = []
        self.dice = random.Random(seed)
        given = {"config": ON, "mongodb": uri, "database": f"{database}_{secrets.token_hex(4)}"}
        self.apps = [App("races", root_agent=desk(self.ledger), **given) for _ in range(3)]

    async def open(self) -> None:
        for app in self.apps:
            _delay((await app._lifecycle.opened()).store, self.dice)

    async def begin(self, session: str, message: str) -> Any:
        return await self.apps[0].invoke(user_id="u", session_id=session, message=message)

    async def at_once(self, *calls: Callable[[App], Any]) -> list[Any]:
        """Each call on an App, in an order of its own; what they gave or raised."""
        apps = [self.apps[place % len(self.apps)] for place in range(len(calls))]
        self.dice.shuffle(apps)

        async def late(call: Callable[[App], Any], app: App) -> Any:
            await asyncio.sleep(self.dice.random() * 3 * LONGEST_S)
            return await call(app)

        pairs = zip(calls, apps, strict=True)
        return await asyncio.gather(*(late(*pair) for pair in pairs), return_exceptions=True)

    def paid(self, execution: str) -> list[int]:
        """What an execution has paid."""
        rows = [row for row in self.ledger if row[0] == "pay"]
        return sorted(row[1] for row in rows if row[2].startswith(f"{execution}~"))


def _delay(store: Any, dice: random.Random) -> None:
    """Each method of a store waits a little, before and after."""
    slow = (
        "begin claim claim_to_close release request_cancel insert_outcomes put_step put_answers"
        " commit_frontier commit_continue commit_end get_execution create_session get_session"
        " forks_of mark_going decide_removal latest_execution load_history"
    )
    for name in slow.split():

        def wrapped(method: Any) -> Any:
            async def late(*args: Any, **named: Any) -> Any:
                await asyncio.sleep(dice.random() * LONGEST_S)
                found = await method(*args, **named)
                await asyncio.sleep(dice.random() * LONGEST_S)
                return found

            return late

        setattr(store, name, wrapped(getattr(store, name)))


@pytest.fixture
async def desks(
    replica_set_uri: str, database: str, request: pytest.FixtureRequest
) -> AsyncIterator[Desks]:
    made = Desks(replica_set_uri, database, request.config.getoption("--fault-seed"))
    await made.open()
    yield made
    for app in made.apps:
        await app.close()


async def test_the_same_answer_three_times_at_once_pays_once(desks: Desks, rounds: range) -> None:
    """W3, S1."""

    async def once(number: int) -> None:
        out = await desks.begin(f"s{number}", "pay 5")
        answers = {out.waits[0].id: YES}
        found = await desks.at_once(*[lambda app: app.resume(out.execution_id, answers)] * 3)
        assert [one.status for one in found] == ["completed"] * 3
        assert desks.paid(out.execution_id) == [5]

    for number in rounds:
        await once(number)


async def test_one_of_approve_and_deny_holds(desks: Desks, rounds: range) -> None:
    """W3."""

    async def once(number: int) -> None:
        out = await desks.begin(f"s{number}", "pay 5")
        wait_id = out.waits[0].id
        found = await desks.at_once(
            lambda app: app.resume(out.execution_id, {wait_id: YES}),
            lambda app: app.resume(out.execution_id, {wait_id: NO}),
        )
        assert sorted(type(one).__name__ for one in found) == ["AnswerConflict", "Outcome"]
        is_approved = not isinstance(found[0], AnswerConflict)
        assert desks.paid(out.execution_id) == [5] * is_approved

    for number in rounds:
        await once(number)


async def test_a_map_and_a_single_answer_against_it(desks: Desks, rounds: range) -> None:
    """W3: the map is taken whole, or not at all."""

    async def once(number: int) -> None:
        out = await desks.begin(f"s{number}", "pay 1 2")
        first, second = (one.id for one in out.waits)
        whole, single = await desks.at_once(
            lambda app: app.resume(out.execution_id, {first: YES, second: YES}),
            lambda app: app.answer(first, NO),
        )
        if isinstance(whole, AnswerConflict):
            assert (single.open, single.runnable) == (1, False)
            assert desks.paid(out.execution_id) == []
            await desks.apps[0].resume(out.execution_id, {second: YES})
            assert desks.paid(out.execution_id) == [2]
        else:
            assert isinstance(single, AnswerConflict)
            assert whole.status == "completed"
            assert desks.paid(out.execution_id) == [1, 2]

    for number in rounds:
        await once(number)


async def test_three_recoverers_run_it_once(desks: Desks, rounds: range) -> None:
    """S1."""

    async def once(number: int) -> None:
        sent = await desks.apps[0].submit(
            user_id="u", session_id=f"s{number}", message=f"note k{number} v"
        )
        found = await desks.at_once(*[lambda app: app.recover()] * 3)
        done = [one for outcomes in found for one in outcomes]
        assert {one.status for one in done} == {"completed"}
        assert (await desks.apps[0].executions.get(sent.id)).status == "completed"
        assert desks.ledger.count(("note", f"k{number}", "v")) == 1

    for number in rounds:
        await once(number)


async def test_one_id_from_ten_tasks_over_three_apps(desks: Desks, rounds: range) -> None:
    """S2."""

    async def once(number: int) -> None:
        given = {"user_id": "u", "session_id": f"s{number}", "execution_id": f"x{number}"}
        found = await desks.at_once(
            *[lambda app: app.invoke(**given, message=f"note k{number} v")] * 10,
            lambda app: app.invoke(**given, message="another"),
        )
        # Whichever input was first: the other one is the conflict.
        refused = [one for one in found if isinstance(one, InputConflict)]
        outs = [one for one in found if not isinstance(one, InputConflict)]
        assert len(refused) in (1, 10)
        assert {one.status for one in outs} == {"completed"}
        assert len({tuple(event.id for event in one.events) for one in outs}) == 1
        assert desks.ledger.count(("note", f"k{number}", "v")) == (len(refused) == 1)

    for number in rounds:
        await once(number)


async def test_an_answer_and_a_cancellation(desks: Desks, rounds: range) -> None:
    """One end, the same for everybody; what was paid is paid once, and told of."""

    async def once(number: int) -> None:
        out = await desks.begin(f"s{number}", "pay 5")
        answered, cancelled = await desks.at_once(
            lambda app: app.resume(out.execution_id, {out.waits[0].id: YES}),
            lambda app: app.cancel(out.execution_id, "enough"),
        )
        end = await desks.apps[2].executions.outcome(out.execution_id)
        if isinstance(answered, WaitClosed):
            assert (end.status, desks.paid(out.execution_id)) == ("cancelled", [])
        else:
            assert not isinstance(answered, Exception), (repr(answered), cancelled, end)
            assert answered.status == end.status, (answered, cancelled)
            assert end.status in ("completed", "cancelled")
            assert desks.paid(out.execution_id) in ([5], [5] * (end.status == "completed"))
        assert (await desks.begin(f"s{number}", "hello")).status == "completed"

    for number in rounds:
        await once(number)


async def test_a_fork_and_a_deletion(desks: Desks, rounds: range) -> None:
    """One of them is refused; a fork that was made has its whole past."""

    async def once(number: int) -> None:
        await desks.begin(f"s{number}", f"note k{number} v")
        key = f"f{number}"
        *forks, deleted, again = await desks.at_once(
            lambda app: app.sessions.fork("u", f"s{number}", idempotency_key=key),
            lambda app: app.sessions.fork("u", f"s{number}", idempotency_key=key),
            lambda app: app.sessions.delete("u", f"s{number}"),
            lambda app: app.sessions.delete("u", f"s{number}"),
        )
        made = {one.session_id for one in forks if not isinstance(one, Exception)}
        if made:
            assert isinstance(deleted, InputConflict)
            assert isinstance(again, InputConflict)
            assert len(made) == 1
            out = await desks.begin(made.pop(), "hello")
            assert f"k{number} is v" in (out.response or "")
        else:
            assert {type(one) for one in forks} <= {NotFound, Unavailable}
            assert {type(deleted), type(again)} <= {type(None), NotFound}

    for number in rounds:
        await once(number)


async def test_a_submission_and_a_call_on_one_session(desks: Desks, rounds: range) -> None:
    """Promise 4: one at a time, each once."""

    async def once(number: int) -> None:
        session = {"user_id": "u", "session_id": f"s{number}"}
        found = await desks.at_once(
            lambda app: app.submit(**session, message=f"note a{number} v"),
            lambda app: app.invoke(**session, message=f"note b{number} v"),
        )
        refused = [isinstance(one, SessionBusy) for one in found]
        assert not any(isinstance(one, Exception) for one in found if type(one) is not SessionBusy)
        assert sum(refused) < 2
        await desks.apps[2].recover()
        for name, is_refused in zip("ab", refused, strict=True):
            assert desks.ledger.count(("note", f"{name}{number}", "v")) == (not is_refused)

    for number in rounds:
        await once(number)


async def test_a_frontier_is_committed_beside_renewals(
    replica_set_uri: str, database: str, rounds: range
) -> None:
    """S13: the commit goes through, and no renewal moves what it has set."""
    client: Any = AsyncMongoClient(replica_set_uri)
    bench = Bench(client, database=database, clock=ServerClock(), is_real=True)
    await bench.store.open()
    for number in rounds:
        execution = await bench.begin(f"e{number}", f"s{number}")
        lease, step = lease_of(execution), step_of(execution)
        await bench.store.put_step(step)
        commit = bench.store.commit_frontier(
            lease, step=step, frontier=frontier_of(execution, [wait()])
        )
        renewals = [bench.store.renew(lease, ttl_ms=30_000) for _ in range(8)]
        *found, _ = await asyncio.gather(*renewals[:4], commit, *renewals[4:])
        stored = await bench.read(execution)
        assert (stored.status, stored.claim, stored.wake_at) == (Status.SUSPENDED, None, FAR)
        assert not (await bench.store.renew(lease, ttl_ms=30_000)).held
        assert found[4] is None
    await bench.store.close()
    await client.close()


def test_twenty_processes_use_an_empty_database_first(replica_set_uri: str, database: str) -> None:
    """Each opens the store, which makes the indexes, and begins one turn of the same session."""
    name = f"{database}_first"
    children = [_in_a_child(replica_set_uri, name, number) for number in range(20)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [0] + [1] * 19, "one began, the others found it busy"


def _in_a_child(uri: str, database: str, number: int) -> int:
    child = os.fork()
    if child:
        return child
    code = 9
    try:
        code = asyncio.run(_opens_and_begins(uri, database, number))
    finally:
        os._exit(code)


async def _opens_and_begins(uri: str, database: str, number: int) -> int:
    client: Any = AsyncMongoClient(uri)
    bench = Bench(client, database=database, clock=ServerClock(), is_real=True)
    bench.tenant = type(bench.tenant)("first", "app")
    await bench.store.open()
    begun = await bench.store.begin(bench.new(f"e{number}"))
    await client.close()
    return 0 if isinstance(begun, Begun) else 1
