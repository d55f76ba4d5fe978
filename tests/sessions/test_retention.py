"""Retention: what goes, what never goes, and that nobody notices but by what is gone."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.adk.artifacts import InMemoryArtifactService
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from pymongo import AsyncMongoClient

from durable_adk import App, ConfigError, CorruptHistory, NotFound, Pruned, Unavailable
from durable_adk.engine import retention
from durable_adk.model.identity import session_key
from durable_adk.model.store_results import Write
from durable_adk.store.clock import ServerClock
from durable_adk.testing import FaultPlan, ManualClock, memory_client
from tests.sessions.desk import Ledger, desk, documents

ON: dict[str, Any] = {
    "features": {"durable_workflow": True},
    "retry": {"backoff": "10ms", "backoff_max": "20ms"},
    "shutdown": {"grace": 0},
}
HOUR = 3_600_000
YES = {"confirmed": True}


class Place:
    """An App whose time a test moves, with its database."""

    def __init__(self, client: Any, database: str, clock: Any) -> None:
        self.client, self.name, self.clock = client, database, clock
        self.database = client[database]
        self.ledger: Ledger = []
        self.apps: list[App] = []
        self.app = self.make()

    def make(self, **given: Any) -> App:
        config = ON | ({"retention": given.pop("retention")} if "retention" in given else {})
        given = {"config": config, "mongodb": self.client, "database": self.name, **given}
        root = given.pop("root", None) or desk(self.ledger)
        self.apps.append(App("kept", root_agent=root, clock=self.clock, **given))
        return self.apps[-1]

    async def say(self, message: str, session_id: str = "s", **given: Any) -> Any:
        return await self.app.invoke(user_id="u", session_id=session_id, message=message, **given)

    async def talk(self, *messages: str, session_id: str = "s") -> list[Any]:
        return [await self.say(message, session_id) for message in messages]

    async def answer(self, outcome: Any, *values: Any) -> Any:
        waits = [wait.id for wait in outcome.waits]
        return await self.app.resume(outcome.execution_id, dict(zip(waits, values, strict=True)))

    async def prune(self, session_id: str = "s", **what: Any) -> Pruned:
        return await self.app.sessions.prune("u", session_id, **what)

    async def prune_now(self, session_id: str = "s", **what: Any) -> int:
        """Mark, let the hour pass, remove. Returns: how many turns are gone."""
        await self.prune(session_id, **what)
        self.clock.advance(HOUR + 1_000)
        return (await self.prune(session_id, **what)).removed

    async def turns(self, session_id: str = "s") -> list[int]:
        page = await self.app.sessions.turns("u", session_id)
        return sorted(record.turn for record in page)

    async def raw(self, name: str, found: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        docs: list[dict[str, Any]] = (
            await self.database[f"durable_{name}"].find(found or {}).to_list(None)
        )
        return docs

    async def session_doc(self, session_id: str = "s") -> dict[str, Any]:
        [doc] = await self.raw("sessions", {"session": session_id})
        return doc


@contextlib.asynccontextmanager
async def placed(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    if request.param == "mongod":
        client: Any = AsyncMongoClient(request.getfixturevalue("replica_set_uri"))
        name = f"{request.getfixturevalue('database')}_{uuid.uuid4().hex[:8]}"
        found = Place(client, name, ServerClock())
    else:
        client = memory_client()
        found = Place(client, "kept", ManualClock())
    yield found
    for app in found.apps:
        await app.close()
    if request.param == "mongod":
        await client.drop_database(found.name)
        await client.close()


@pytest.fixture(params=["memory", "mongod"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with placed(request) as found:
        yield found


@pytest.fixture(params=["memory"])
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with placed(request) as found:
        yield found


# ---------------------------------------------------------------- what goes


async def test_what_is_left_is_the_session_without_its_oldest_turns(place: Place) -> None:
    first, second, *_ = await place.talk(
        "note a 1", "note user:name Ada", "note b 2", "note a 3", "hello"
    )
    before = await documents(place.database)
    kept = (await place.app.sessions.get("u", "s")).state

    assert await place.prune(turns=2) == Pruned(sessions=1, removed=0, expiring=3)
    assert await place.turns() == [1, 2, 3, 4, 5]
    assert await place.prune(turns=2) == Pruned(sessions=1, removed=0, expiring=3)
    place.clock.advance(HOUR + 1_000)
    assert await place.prune(turns=2) == Pruned(sessions=1, removed=3, expiring=0)

    assert await place.turns() == [4, 5]
    assert (
        (await place.app.sessions.get("u", "s")).state
        == kept
        == {"a": "3", "b": "2", "user:name": "Ada"}
    )
    events = await place.app.sessions.events("u", "s")
    texts = [part.text for event in events for part in event.content.parts if part.text]
    assert texts[0] == "note a 3"
    # All that was recorded of them is gone, and nothing else.
    gone = set(before) - set(await documents(place.database))
    runs = {doc["run"] for doc in await place.raw("executions")}
    assert len({key for name, key in gone if name == "durable_executions"}) == 3
    left = [doc["_id"] for name in ("steps", "activities") for doc in await place.raw(name)]
    assert {key.partition(":")[0] for key in left} == runs
    for outcome in (first, second):
        with pytest.raises(NotFound, match="there is no such execution"):
            await place.app.executions.get(outcome.execution_id)
        with pytest.raises(NotFound):
            await place.app.resume(outcome.execution_id)
        with pytest.raises(NotFound):
            await place.app.sessions.fork("u", "s", before=outcome.execution_id)
        with pytest.raises(NotFound):
            await place.app.executions.activities(outcome.execution_id)

    # The next turn goes on: its number, and what its model hears.
    sixth = await place.say("again")
    assert await place.turns() == [4, 5, 6]
    heard = "heard note a 3 | {'result': 'a is 3'}"
    assert sixth.response.startswith(heard)
    record = await place.app.executions.get(sixth.execution_id)
    assert record.turn == 6


async def test_age_is_counted_from_the_end_of_a_turn_by_the_server(place: Place) -> None:
    await place.talk("one", "two")
    place.clock.advance(48 * HOUR)
    await place.talk("three")
    assert (await place.prune(age="3d")).expiring == 0
    assert (await place.prune(age=timedelta(days=1))).expiring == 2
    place.clock.advance(HOUR + 1_000)
    assert (await place.prune(age=24 * 3600)).removed == 2
    assert await place.turns() == [3]


async def test_a_session_without_any_turn_left_goes_on(place: Place) -> None:
    await place.talk("note a 1", "note b 2")
    place.clock.advance(3 * HOUR)
    assert await place.prune_now(age="1h") == 2
    assert await place.turns() == []
    assert await place.app.sessions.events("u", "s") == ()
    assert (await place.app.sessions.get("u", "s")).state == {"a": "1", "b": "2"}
    lines = [line async for line in place.app.sessions.export("u", "s")]
    assert len(lines) == 1
    third = await place.say("note a 3")
    assert third.response == "heard note a 3 | {'result': 'a is 3'}"
    assert await place.turns() == [3]
    assert (await place.app.sessions.get("u", "s")).state == {"a": "3", "b": "2"}


async def test_a_second_cut_replaces_the_first(place: Place) -> None:
    await place.app.sessions.create("u", "s", state={"first": "x" * 3000})
    await place.talk("note a 1", "note a 2")
    assert await place.prune_now(turns=1) == 1
    await place.talk("note a 3", "note a 4")
    assert await place.prune_now(turns=1) == 2
    assert await place.turns() == [4]
    assert (await place.session_doc())["base"]["upto"] == 3
    state = (await place.app.sessions.get("u", "s")).state
    assert state == {"first": "x" * 3000, "a": "4"}
    await place.say("note a 5")
    assert await place.turns() == [4, 5]


async def test_large_states_at_the_cut_leave_no_chunks_behind(memory: Place) -> None:
    small = {"payload": {"spill_above": "1KB"}}
    app = memory.app = memory.make(config=ON | small)
    await app.sessions.create("u", "s", state={"first": uuid.uuid4().hex * 100})
    await memory.talk("note a 1", "note a 2")
    assert await memory.prune_now(turns=1) == 1
    base = (await memory.session_doc())["base"]["state"]
    await memory.talk("note a 3")
    assert await memory.prune_now(turns=1) == 1
    key = session_key(app._lifecycle.tenant, "u", "s")
    chunks = [
        doc["_id"] for doc in await memory.raw("payloads", {"_id": {"$regex": f"^{key}:base"}})
    ]
    assert len(chunks) == 1
    assert not chunks[0].startswith(base["ref"])
    assert (await app.sessions.get("u", "s")).state["a"] == "3"
    await app.sessions.delete("u", "s")
    assert await memory.raw("payloads") == []


async def test_large_shared_state_that_is_overwritten_leaves_no_chunks_behind(
    place: Place,
) -> None:
    """By whoever comes by: a pass, ``recover()`` or a worker; no policy has to be set for it."""
    app = place.app = place.make(config=ON | {"payload": {"spill_above": "1KB"}})
    texts = [uuid.uuid4().hex * 40 for _ in range(3)]

    async def chunks() -> int:
        found = await place.raw("payloads")
        owners = {doc["_id"] for doc in await place.raw("scopes")}
        return sum(doc["_id"].partition(":")[0] in owners for doc in found)

    for number, text in enumerate(texts):
        await place.talk(f"note user:bio {text}", f"note app:bio {text}")
        place.clock.advance(1_000)
        assert await chunks() == 2 * (number + 1)
    for _ in range(2):  # the first mark was that of the second value
        place.clock.advance(HOUR)
        await app.recover()
    assert await chunks() == 2
    state = (await app.sessions.get("u", "s")).state
    assert (state["user:bio"], state["app:bio"]) == (texts[-1], texts[-1])
    await place.talk("note user:bio small", "note app:bio small")
    place.clock.advance(HOUR)
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    while await chunks():
        await asyncio.sleep(0.01)
    worker.stop()
    await running
    assert (await app.sessions.get("u", "s")).state["app:bio"] == "small"


async def test_a_removed_execution_id_begins_a_new_execution(place: Place) -> None:
    await place.say("one", execution_id="mine")
    await place.talk("two", "three")
    assert (await place.say("one", execution_id="mine")).response == "heard one"
    assert await place.prune_now(turns=1) == 2
    again = await place.say("one", execution_id="mine")
    assert await place.turns() == [3, 4]
    assert again.response.startswith("heard three |")


async def test_an_export_has_the_turns_that_are_left_and_can_be_imported(place: Place) -> None:
    await place.talk("note a 1", "note b 2", "note c 3")
    assert await place.prune_now(turns=2) == 1
    lines = [line async for line in place.app.sessions.export("u", "s")]
    info = await place.app.sessions.import_(lines, session_id="copy")
    assert info.state == (await place.app.sessions.get("u", "s")).state
    assert await place.turns("copy") == [1, 2]
    one, other = await place.say("hello"), await place.say("hello", "copy")
    assert one.response == other.response


async def test_a_replay_check_does_not_refuse_prompts_for_turns_that_are_gone(
    memory: Place,
) -> None:
    strict = ON | {"replay": {"input_mismatch": {"model": "error"}}}
    memory.app = memory.make(config=strict)
    await memory.talk("one", "two", "three")
    assert await memory.prune_now(turns=2) == 1
    newest, oldest = await memory.app.executions.replay_all()
    assert (newest.ok, oldest.ok, len(oldest.warnings)) == (True, True, 1)
    assert "contents" in oldest.warnings[0].recorded


async def test_artifacts_stay(memory: Place) -> None:
    service = InMemoryArtifactService()

    async def keep(value: str, tool_context: ToolContext) -> str:
        """Save a file."""
        await tool_context.save_artifact("f", types.Part(text=value))
        return "saved"

    given = {"root": desk(memory.ledger, keep), "artifact_service": service}
    memory.app = memory.make(**given)
    await memory.talk("do keep old", "do keep new", "three", "four")
    for turns in (2, 1):
        await memory.prune_now(turns=turns)
    where = {"app_name": "kept", "user_id": "u", "session_id": "s", "filename": "f"}
    assert await service.list_versions(**where) == [0, 1]
    await memory.say("do keep newer")
    assert (await service.load_artifact(**where)).text == "newer"
    # A fork knows the versions at its cut, although no turn that saved one is left.
    fork = await memory.app.sessions.fork("u", "s", before=(await memory.say("x")).execution_id)
    assert (await memory.session_doc(fork.session_id))["artifacts"] == '{"f":2}'


# ---------------------------------------------------------------- what never goes


async def test_nothing_goes_while_an_execution_is_active(place: Place) -> None:
    await place.talk("one", "two", "three")
    waiting = await place.say("pay 5")
    assert await place.prune_now(turns=1) == 0
    place.clock.advance(100 * HOUR)
    assert (await place.prune(turns=1)).removed == 0
    assert await place.turns() == [1, 2, 3, 4]
    outcome = await place.answer(waiting, YES)
    assert outcome.status == "completed"
    assert "one" in outcome.response
    assert (await place.prune(turns=1)).removed == 2  # what was marked then; turn 3 is marked now
    assert await place.prune_now(turns=1) == 1
    assert await place.turns() == [4]


async def test_what_is_kept_by_an_open_wait_is_said_to_be_blocked_by_it(place: Place) -> None:
    await place.talk("one", "two", "three")
    waiting = await place.say("pay 5")
    blocked = Pruned(
        sessions=1, removed=0, expiring=2, blocked=2, blocked_by=(waiting.execution_id,)
    )
    assert await place.prune(turns=1) == blocked
    place.clock.advance(100 * HOUR)
    for _ in range(2):
        assert await place.prune(turns=1) == blocked
    assert blocked.to_dict()["blocked_by"] == [waiting.execution_id]
    await place.answer(waiting, YES)
    assert (await place.prune(turns=1)).removed == 2


async def test_a_pass_names_some_of_the_executions_that_keep_turns(
    memory: Place, monkeypatch
) -> None:
    monkeypatch.setattr("durable_adk.engine.retention.NAMED_AT_MOST", 2)
    app = memory.app = memory.make(retention={"turns": 1})
    waiting = []
    for number in range(4):
        await memory.talk("one", "two", session_id=f"s{number}")
        if number:
            waiting.append((await memory.say("pay 5", f"s{number}")).execution_id)
    found = await app.retain()
    assert (found.expiring, found.blocked, len(found.blocked_by)) == (4, 3, 2)
    assert set(found.blocked_by) < set(waiting)


async def test_nothing_goes_that_a_fork_stands_on(place: Place) -> None:
    outcomes = await place.talk("note a 1", "note a 2", "note a 3", "note a 4")
    fork = await place.app.sessions.fork("u", "s", after=outcomes[1].execution_id)
    assert await place.prune(turns=1) == Pruned(sessions=1, removed=0, expiring=0, forked=3)
    assert await place.prune(turns=3) == Pruned(sessions=1, removed=0, expiring=0, forked=1)
    assert await place.prune_now(turns=1) == 0
    # The fork keeps what it stands on for as long as it has it; cut there, it lets go of it.
    await place.talk("note b 1", "note b 2", session_id=fork.session_id)
    assert await place.prune_now(turns=1) == 0
    assert await place.prune_now(fork.session_id, turns=1) == 1  # turn 3; 1 and 2 are not its own
    assert await place.turns(fork.session_id) == [4]
    assert await place.prune_now(turns=1) == 3
    assert await place.turns() == [4]
    assert (await place.app.sessions.get("u", fork.session_id)).state == {"a": "2", "b": "2"}
    said = await place.say("hello", fork.session_id)
    assert said.response.startswith("heard note b 2 | {'result': 'b is 2'} |")
    tree = await place.app.sessions.tree("u")
    assert [node.info.id for node in tree[0].walk()] == ["s", fork.session_id]


async def test_nothing_goes_that_a_fork_without_a_message_stands_on(memory: Place) -> None:
    outcomes = await memory.talk("one", "two", "three")
    fork = await memory.app.sessions.fork("u", "s", after=outcomes[0].execution_id)
    assert await memory.prune_now(turns=1) == 0
    assert await memory.prune_now(fork.session_id, turns=1) == 0
    assert (await memory.app.executions.get(fork.execution_id)).status == "pending"
    assert (await memory.say("hi", fork.session_id)).execution_id == fork.execution_id


async def test_a_fork_inside_an_execution_keeps_that_turn(place: Place) -> None:
    await place.say("one")
    waiting = await place.say("pay 5")
    await place.answer(waiting, YES)
    await place.talk("three", "four")
    fork = await place.app.sessions.fork("u", "s", before=waiting.waits[0].id)
    assert await place.prune_now(turns=1) == 0
    asked = await place.app.executions.outcome(fork.execution_id)
    done = await place.answer(asked, YES)
    assert done.status == "completed"
    # Its turn 2 rests on records of the session: cut behind turn 1 it still needs turn 2.
    await place.say("more", fork.session_id)
    assert await place.prune_now(fork.session_id, turns=2) == 0  # only turn 1, of the session
    assert (await place.session_doc(fork.session_id))["base"]["upto"] == 1
    assert await place.prune_now(turns=1) == 1
    assert await place.turns() == [2, 3, 4]
    assert [e.author for e in await place.app.executions.events(fork.execution_id)]
    assert await place.prune_now(fork.session_id, turns=1) == 1
    assert await place.prune_now(turns=1) == 2
    assert await place.turns() == [4]
    with pytest.raises(NotFound):
        await place.app.executions.get(fork.execution_id)
    with pytest.raises(NotFound):
        await place.app.resume(fork.execution_id)
    assert (await place.say("last", fork.session_id)).status == "completed"
    assert await place.turns(fork.session_id) == [3, 4]


async def test_a_fork_of_a_cut_session_begins_where_it_does(place: Place) -> None:
    outcomes = await place.talk("note a 1", "note a 2", "note a 3", "note a 4")
    await place.prune(turns=2)
    with pytest.raises(NotFound, match="about to be removed"):
        await place.app.sessions.fork("u", "s", after=outcomes[1].execution_id)
    place.clock.advance(HOUR + 1_000)
    assert (await place.prune(turns=2)).removed == 2
    at_cut = await place.app.sessions.fork("u", "s", before=outcomes[2].execution_id)
    assert (await place.app.sessions.get("u", at_cut.session_id)).state == {"a": "2"}
    later = await place.app.sessions.fork("u", "s", after=outcomes[2].execution_id)
    assert (await place.app.sessions.get("u", later.session_id)).state == {"a": "3"}
    one = await place.say("hello", at_cut.session_id)
    assert one.response == "heard hello"
    other = await place.say("hello", later.session_id)
    assert other.response.startswith("heard note a 3 |")
    assert await place.turns(later.session_id) == [3, 4]
    assert await place.prune_now(turns=1) == 0  # ``later`` has turn 3
    await place.app.sessions.delete("u", later.session_id)
    assert await place.prune_now(turns=1) == 1


# ---------------------------------------------------------------- workers and configuration


async def test_a_pass_applies_what_is_configured_to_every_session(memory: Place) -> None:
    app = memory.app = memory.make(retention={"turns": 1})
    for number in range(4):
        await memory.talk("one", "two", session_id=f"s{number}")
    assert await app.retain() == Pruned(sessions=4, removed=0, expiring=4)
    memory.clock.advance(HOUR + 1_000)
    assert await app.retain() == Pruned(sessions=4, removed=4, expiring=0)
    assert await app.retain() == Pruned(sessions=4, removed=0, expiring=0)
    with pytest.raises(ConfigError, match=r"retention\.turns"):
        await memory.apps[0].retain()
    with pytest.raises(ConfigError, match="turns"):
        await app.sessions.prune("u", "s0", turns=0)
    with pytest.raises(ConfigError, match="age"):
        await app.sessions.prune("u", "s0", age="1m")
    with pytest.raises(NotFound):
        await app.sessions.prune("u", "nobody", turns=1)


async def test_a_worker_removes_what_is_configured(memory: Place, monkeypatch) -> None:
    monkeypatch.setattr("durable_adk.engine.worker.RETENTION_EVERY_S", 0.01)
    monkeypatch.setattr("durable_adk.engine.worker.RETENTION_PAUSE_S", 0.01)
    memory.app = memory.make(retention={"turns": 1})
    await memory.talk("one", "two")
    worker = memory.app.worker()
    running = asyncio.create_task(worker.run())
    try:
        while (await memory.session_doc()).get("expiring") is None:
            await asyncio.sleep(0.01)
        memory.clock.advance(HOUR + 1_000)
        while len(await memory.raw("executions")) > 1:
            await asyncio.sleep(0.01)
    finally:
        worker.stop()
        await running


async def test_a_mark_is_taken_back_when_nothing_should_go_any_more(memory: Place) -> None:
    await memory.talk("one", "two", "three")
    assert (await memory.prune(turns=1)).expiring == 2
    assert (await memory.prune(turns=5)).expiring == 0
    memory.clock.advance(HOUR + 1_000)
    assert (await memory.prune(turns=1)).removed == 0  # marked anew


async def test_two_looks_at_once_remove_the_same_turns(memory: Place, monkeypatch) -> None:
    """The other one is done between what this one reads of a turn: its worker goes on."""
    await memory.talk("note user:name Ada", "two")
    assert (await memory.prune(turns=1)).expiring == 1
    memory.clock.advance(HOUR + 1_000)
    rival, steps_of = memory.make(retention={"turns": 1}), retention.committed_steps
    due = {"$set": {"scopes_due": True}}
    await memory.database["durable_executions"].update_one({"turn": 1}, due)

    async def removed_meanwhile(*given: Any) -> Any:
        monkeypatch.setattr(retention, "committed_steps", steps_of)
        assert (await rival.retain()).removed == 1
        return await steps_of(*given)

    monkeypatch.setattr(retention, "committed_steps", removed_meanwhile)
    await memory.prune(turns=1)
    assert await memory.turns() == [2]
    assert (await memory.app.sessions.get("u", "s")).state == {"user:name": "Ada"}


# ---------------------------------------------------------------- cut off anywhere


class Died(BaseException):
    """Nothing tidies up after it, as after a kill."""


_WRITES = {Write.EXPIRING, Write.CUTTING, Write.CUT, Write.REMOVED, Write.CHUNK, Write.SCOPES}


async def test_a_removal_that_is_cut_off_anywhere_is_finished_by_the_next(memory: Place) -> None:
    """At every write, before it and after it, and with its reply lost; by the next look."""
    await memory.talk("note a 1", "note user:name Ada", "note b 2")
    await memory.database["durable_executions"].update_one(
        {"turn": 2}, {"$set": {"scopes_due": True}}
    )
    await memory.database["durable_scopes"].delete_many({})
    names = ("sessions", "executions", "steps", "activities")
    prepared = {name: await memory.raw(name) for name in names}
    survived = 0
    for when in ("before", "after", "lost"):
        for number in itertools.count(1):
            place = Place(memory_client(), "kept", ManualClock())
            plan = _Nth(when, number)
            await place.app.open()
            for name, docs in prepared.items():
                await place.database[f"durable_{name}"].insert_many(copy.deepcopy(docs))
            dying = place.make(faults=plan)
            await _until_dead(dying, place.clock)
            await _finish(place)
            assert await place.turns() == [3]
            state = (await place.app.sessions.get("u", "s")).state
            assert state == {"a": "1", "b": "2", "user:name": "Ada"}
            assert len(await place.raw("executions")) == 1
            runs = {doc["run"] for doc in await place.raw("executions")}
            for name in ("steps", "activities", "payloads"):
                left = {doc["_id"].partition(":")[0] for doc in await place.raw(name)}
                assert left <= runs
            said = await place.say("hi")
            assert said.response.startswith("heard note b 2 |")
            for app in place.apps:
                await app.close()
            survived += 1
            if not plan.struck:
                break
    assert survived > 3 * 9


class _Nth(FaultPlan):
    """Strikes at the n-th write of retention."""

    def __init__(self, when: str, number: int) -> None:
        super().__init__()
        self.when, self.left, self.struck = when, number, False

    def before(self, write: Write) -> None:
        if write in _WRITES and self.when == "before":
            self._count()

    def after(self, write: Write) -> bool:
        if write in _WRITES and self.when == "after":
            self._count()
        if write in _WRITES and self.when == "lost" and not self.struck:
            self.left -= 1
            self.struck = not self.left
            return self.struck
        return False

    def _count(self) -> None:
        self.left -= 1
        if not self.left:
            self.struck = True
            raise Died


async def _until_dead(app: App, clock: ManualClock) -> None:
    with contextlib.suppress(Died):
        await app.sessions.prune("u", "s", turns=1)
        clock.advance(HOUR + 1_000)
        await app.sessions.prune("u", "s", turns=1)


async def _finish(place: Place) -> None:
    for _ in range(3):
        await place.prune(turns=1)
        place.clock.advance(HOUR + 1_000)


@pytest.mark.parametrize(("point", "at"), [("after cut", 1), ("before removed", 8)])
async def test_a_process_that_is_killed_while_it_removes_turns(
    replica_set_uri: str, database: str, point: str, at: int
) -> None:
    client: Any = AsyncMongoClient(replica_set_uri)
    clock = ServerClock()
    place = Place(client, f"{database}_{uuid.uuid4().hex[:8]}", clock)
    await place.talk("note a 1", "note a 2", "note a 3")
    await place.prune(turns=1)
    clock.advance(HOUR + 1_000)
    order = {
        "uri": replica_set_uri,
        "database": place.name,
        "offset": HOUR + 1_000,
        "point": point,
        "at": at,
    }
    died = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "ignore", "-m", "tests.sessions.one_prune"],
        input=json.dumps(order),
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert died.returncode == -signal.SIGKILL
    assert len(await place.raw("executions")) == 3
    assert await place.turns() == [3]
    assert (await place.app.sessions.get("u", "s")).state == {"a": "3"}
    assert (await place.prune(turns=1)).removed == 2
    assert len(await place.raw("executions")) == 1
    assert (await place.say("hi")).response.startswith("heard note a 3 |")
    for app in place.apps:
        await app.close()
    await client.drop_database(place.name)
    await client.close()


async def test_two_sweepers_at_once_remove_once(place: Place) -> None:
    await place.talk("note a 1", "note a 2", "note a 3")
    other = place.make()
    await other.open()
    for _ in range(2):
        await asyncio.gather(
            *(app.sessions.prune("u", "s", turns=1) for app in (place.app, other) * 3)
        )
        place.clock.advance(HOUR + 1_000)
    assert await place.turns() == [3]
    assert (await place.app.sessions.get("u", "s")).state == {"a": "3"}
    assert (await place.say("hi")).response.startswith("heard note a 3 |")


# ---------------------------------------------------------------- others at the same time


async def _hooked(memory: Place, monkeypatch, method: str, act: Any, *, after: bool) -> None:
    """Have ``act`` happen right before, or after, a call of the store."""
    store = (await memory.app._lifecycle.opened()).store
    original = getattr(store, method)
    done = []

    async def call(*args: Any, **given: Any) -> Any:
        first = not done
        done.append(method)
        if first and not after:
            await act()
        result = await original(*args, **given)
        if first and after:
            await act()
        return result

    monkeypatch.setattr(store, method, call)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["begin_cut", "forks_from", "load_history", "commit_cut"])
async def test_a_fork_that_comes_in_between_has_all_its_turns(
    memory: Place, monkeypatch, method: str, after: bool
) -> None:
    outcomes = await memory.talk("note a 1", "note a 2", "note a 3")
    await memory.prune(turns=2)  # turn 1 is marked
    memory.clock.advance(HOUR + 1_000)
    other = memory.make()
    forks: list[Any] = []

    async def fork() -> None:
        made = await other.sessions.fork("u", "s", after=outcomes[1].execution_id)
        forks.append(made.session_id)

    await _hooked(memory, monkeypatch, method, fork, after=after)
    removed = (await memory.prune(turns=2)).removed
    [forked] = forks
    is_cut = (method, after) == ("commit_cut", True)
    assert removed == is_cut
    assert await memory.turns(forked) == ([2] if is_cut else [1, 2])
    assert (await memory.say("hi", forked)).status == "completed"
    assert (await other.sessions.get("u", forked)).state == {"a": "2"}


async def test_a_fork_without_its_turns_that_its_maker_left_is_given_to_nobody(
    memory: Place, monkeypatch
) -> None:
    """They went between the look at the cut and the insert; then the maker died."""
    first, *_ = await memory.talk("note a 1", "note a 2", "note a 3")
    given = {"after": first.execution_id, "idempotency_key": "k"}
    store = (await memory.app._lifecycle.opened()).store
    other, create = memory.make(), store.create_session

    async def late_and_last(record: Any) -> None:
        await other.sessions.prune("u", "s", turns=1)
        memory.clock.advance(HOUR + 1_000)
        assert (await other.sessions.prune("u", "s", turns=1)).removed == 2
        assert await create(record) is not None
        raise asyncio.CancelledError

    monkeypatch.setattr(store, "create_session", late_and_last)
    with pytest.raises(asyncio.CancelledError):
        await memory.app.sessions.fork("u", "s", **given)
    assert len(await memory.raw("sessions")) == 2

    with pytest.raises(NotFound):
        await other.sessions.fork("u", "s", **given)
    assert len(await memory.raw("sessions")) == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("method", ["begin_cut", "forks_from", "load_history", "commit_cut"])
async def test_a_message_that_comes_in_between_stands_on_one_past(
    memory: Place, monkeypatch, method: str, after: bool
) -> None:
    await memory.talk("note a 1", "note a 2", "note a 3")
    await memory.prune(turns=1)
    memory.clock.advance(HOUR + 1_000)
    other = memory.make()
    begun: list[Any] = []

    async def begin() -> None:
        begun.append(await other.invoke(user_id="u", session_id="s", message="pay 5"))

    await _hooked(memory, monkeypatch, method, begin, after=after)
    removed = (await memory.prune(turns=1)).removed
    is_cut = (method, after) == ("commit_cut", True)
    assert removed == (2 if is_cut else 0)
    outcome = await memory.answer(begun[0], YES)
    first = "note a 3" if is_cut else "note a 1"
    assert outcome.response.startswith(f"heard {first} |")


async def test_a_session_that_was_deleted_and_made_again_loses_nothing(
    memory: Place, monkeypatch
) -> None:
    await memory.talk("one", "two", "three")
    await memory.prune(turns=1)
    memory.clock.advance(HOUR + 1_000)

    async def anew() -> None:
        other = memory.make()
        await other.sessions.delete("u", "s")
        for message in ("four", "five", "six"):
            await other.invoke(user_id="u", session_id="s", message=message)

    await _hooked(memory, monkeypatch, "turns_below", anew, after=False)
    assert (await memory.prune(turns=1)).removed == 0
    assert await memory.turns() == [1, 2, 3]
    assert (await memory.say("hi")).response.startswith("heard four |")


async def test_a_read_during_a_removal_sees_one_past(memory: Place, monkeypatch) -> None:
    await memory.talk("note a 1", "note a 2", "note a 3")
    await memory.prune(turns=1)
    memory.clock.advance(HOUR + 1_000)
    other = memory.make()

    async def remove() -> None:
        assert (await other.sessions.prune("u", "s", turns=1)).removed == 2

    await _hooked(memory, monkeypatch, "_turns", remove, after=False)
    events = await memory.app.sessions.events("u", "s")
    assert events[0].content.parts[0].text == "note a 3"


async def test_an_export_during_a_removal_says_so(memory: Place, monkeypatch) -> None:
    await memory.talk("note a 1", "note a 2", "note a 3")
    await memory.prune(turns=1)
    memory.clock.advance(HOUR + 1_000)
    other = memory.make()

    async def remove() -> None:
        await other.sessions.prune("u", "s", turns=1)

    await _hooked(memory, monkeypatch, "load_history", remove, after=False)
    with pytest.raises(Unavailable, match="Export it again"):
        [line async for line in memory.app.sessions.export("u", "s")]


async def test_an_execution_that_goes_while_it_is_read_is_not_found(
    memory: Place, monkeypatch
) -> None:
    first, *_ = await memory.talk("one", "two")
    await memory.prune(turns=1)
    memory.clock.advance(HOUR + 1_000)
    other = memory.make()

    async def remove() -> None:
        await other.sessions.prune("u", "s", turns=1)

    await _hooked(memory, monkeypatch, "load_steps", remove, after=False)
    with pytest.raises(NotFound, match="removed by retention"):
        await memory.app.executions.outcome(first.execution_id)


async def test_a_turn_that_is_missing_otherwise_is_corruption(memory: Place) -> None:
    await memory.talk("one", "two", "three", "four")
    assert await memory.prune_now(turns=3) == 1
    await memory.database["durable_executions"].delete_many({"turn": 2})
    with pytest.raises(CorruptHistory, match=r"turns \[2\] are missing"):
        await memory.app.sessions.events("u", "s")
    await memory.prune(turns=2)
    memory.clock.advance(HOUR + 1_000)
    with pytest.raises(CorruptHistory):
        await memory.prune(turns=2)
