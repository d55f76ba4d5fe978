"""Opening and closing against real servers; indexes; what a bad server or client is told."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from durable_adk.errors import ConfigError, Unavailable
from durable_adk.model.execution import Status
from durable_adk.model.identity import Tenant, execution_key
from durable_adk.model.store_results import Begun, Selection
from durable_adk.store import (
    expiry_filters,
    filters,
    indexes,
    scope_filters,
    session_filters,
)
from durable_adk.store.indexes import INDEXES
from durable_adk.store.listing import executions_of
from durable_adk.store.mongo import MongoStore
from tests.conformance.bench import Bench


@pytest.fixture
def fresh(database: str) -> str:
    """A database of this test alone; names that begin like the run's are dropped with it."""
    return f"{database}_{secrets.token_hex(3)}"


async def test_opening_makes_every_index_and_opening_again_makes_none(
    bench: Bench, fresh: str
) -> None:
    store = await bench.rival(database=fresh)
    await store.open()
    found = {
        (index.collection, name)
        for index in INDEXES
        for name in await bench.client[fresh][f"durable_{index.collection}"].index_information()
    }
    assert {(index.collection, index.name) for index in INDEXES} <= found
    assert await bench.rival(database=fresh, create_indexes=False)


async def test_20_processes_may_open_at_once(bench: Bench, fresh: str) -> None:
    stores = [bench.make_store(database=fresh) for _ in range(20)]
    await asyncio.gather(*(store.open() for store in stores))
    results = await asyncio.gather(*(store.begin(bench.new()) for store in stores))
    assert [isinstance(r, Begun) for r in results].count(True) == 1


async def test_with_create_indexes_off_a_missing_index_is_named_with_its_command(
    bench: Bench, fresh: str
) -> None:
    await bench.rival(database=fresh)
    await bench.client[fresh]["durable_executions"].drop_index("turns")
    store = bench.make_store(database=fresh, create_indexes=False)
    with pytest.raises(ConfigError) as caught:
        await store.open()
    assert "durable_executions.turns is missing" in str(caught.value)
    assert "db.durable_executions.createIndex(" in str(caught.value)
    assert "inbox" not in str(caught.value)


async def test_an_index_of_our_name_with_other_keys_is_refused_by_name(
    bench: Bench, fresh: str
) -> None:
    await bench.rival(database=fresh)
    executions = bench.client[fresh]["durable_executions"]
    await executions.drop_index("turns")
    await executions.create_index([("sk", 1)], name="turns")
    with pytest.raises(ConfigError, match="index turns of durable_executions"):
        await bench.rival(database=fresh)


async def test_the_prefix_keeps_us_out_of_the_way(bench: Bench, fresh: str) -> None:
    await bench.client[fresh]["sessions"].insert_one({"_id": "theirs"})
    store = await bench.rival(database=fresh, prefix="x_")
    await store.begin(bench.new())
    names = set(await bench.client[fresh].list_collection_names())
    assert all(name.startswith("x_") for name in names - {"sessions"})
    assert await bench.client[fresh]["sessions"].find({}).to_list(None) == [{"_id": "theirs"}]


def wanted(bench: Bench, **narrowed: Any) -> Any:
    return executions_of(Selection(bench.tenant, **narrowed))[0]


@pytest.mark.parametrize(
    ("collection", "index", "found", "sort"),
    [
        ("executions", "wake", lambda b, now: filters.due_of(b.tenant, now, None), "wake_at"),
        ("executions", "wake", lambda b, now: filters.waking(b.tenant), "wake_at"),
        (
            "executions",
            "inbox",
            lambda b, now: filters.waiting(Selection(b.tenant)),
            "waiting_since",
        ),
        ("executions", "created", lambda b, now: wanted(b), "created_at"),
        ("executions", "status", lambda b, now: wanted(b, status=Status.STUCK), "created_at"),
        ("executions", "turns", lambda b, now: wanted(b, user_id="u", session_id="s"), "turn"),
        ("executions", "turns", lambda b, now: session_filters.turns_between("sk", 0, 3), "turn"),
        (
            "sessions",
            "users",
            lambda b, now: filters.sessions_of(Selection(b.tenant, user_id="u")),
            "created_at",
        ),
        ("executions", "wake", lambda b, now: filters.due_of(b.tenant, now, "v"), "wake_at"),
        (
            "executions",
            "wake",
            lambda b, now: expiry_filters.expired_elsewhere(b.tenant, "v", now),
            "wake_at",
        ),
        ("scopes", "left", lambda b, now: scope_filters.left_over(b.tenant, now, 9), "left.since"),
        ("scopes", "users", lambda b, now: filters.scopes_of(b.tenant, "u"), None),
        ("activities", "_id_", lambda b, now: filters.records_from("run", 1), "_id"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_query_reads_its_index_and_nothing_is_sorted_in_memory(
    bench: Bench, collection: str, index: str, found, sort: str | None
) -> None:
    await bench.begin()
    await bench.collection("activities").insert_one({"_id": secrets.token_hex(8)})
    command = {
        "find": f"durable_{collection}",
        "filter": found(bench, bench.clock.now()),
    }
    if sort is not None:
        direction = -1 if index in ("created", "status", "turns") else 1
        command["sort"] = {sort: direction}
        if index in ("created", "status", "inbox", "users"):
            command["sort"]["_id"] = direction
    explained = await bench.client[bench.database].command("explain", command)
    plan = explained["queryPlanner"]["winningPlan"]
    stages = list(_stages(plan.get("queryPlan", plan)))
    assert "SORT" not in [stage["stage"] for stage in stages]
    assert "COLLSCAN" not in [stage["stage"] for stage in stages]
    assert {s["indexName"] for s in stages if s["stage"] == "IXSCAN"} == {index}
    if sort == "wake_at":
        (scan,) = [stage for stage in stages if stage["stage"] == "IXSCAN"]
        assert "MaxKey" not in scan["indexBounds"]["wake_at"][0]  # the time is a bound of the scan


def _stages(plan):
    yield plan
    for child in [plan["inputStage"]] if "inputStage" in plan else plan.get("inputStages", []):
        yield from _stages(child)


# ---------------------------------------------------------------------- clients and servers


async def test_a_store_with_a_uri_opens_closes_and_opens_again(
    replica_set_uri: str, bench: Bench
) -> None:
    store = MongoStore(replica_set_uri, database=bench.database, clock=bench.clock)
    for number in (1, 2):
        await store.open()
        begun = await store.begin(bench.new(f"e{number}", f"s{number}"))
        assert begun.execution.status is Status.RUNNING
        await store.close()
        await store.close()


def test_a_store_with_a_uri_may_be_opened_again_on_another_loop(
    standalone_uri: str, database: str
) -> None:
    store = MongoStore(standalone_uri, database=database)

    async def once() -> None:
        await store.open()
        async with store.keeper_link():
            pass
        await store.close()

    asyncio.run(once())
    asyncio.run(once())


async def test_a_client_that_was_given_is_not_closed(bench: Bench) -> None:
    store = await bench.rival()
    await store.close()
    assert (await bench.begin()).turn == 1


async def test_a_pymongo_client_of_another_loop_is_refused(
    standalone_uri: str, database: str
) -> None:
    client = AsyncMongoClient(standalone_uri)
    await client.admin.command("ping")
    store = MongoStore(client, database=database)
    with pytest.raises(ConfigError, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(store.open()))
    await client.close()


async def test_weak_settings_of_a_connection_string_change_nothing(
    replica_set_uri: str, bench: Bench
) -> None:
    separator = "&" if "?" in replica_set_uri else "?"
    weak = "w=1&readPreference=secondaryPreferred&retryWrites=false&readConcernLevel=local"
    store = MongoStore(f"{replica_set_uri}{separator}{weak}", database=bench.database)
    await store.open()
    assert isinstance(await store.begin(bench.new()), Begun)
    await store.close()


async def test_refused_credentials_are_a_setting_that_can_be_fixed(
    standalone_uri: str, database: str
) -> None:
    uri = standalone_uri.replace("mongodb://", "mongodb://nobody:hunter2@", 1)
    store = MongoStore(uri, database=database)
    with pytest.raises(ConfigError, match="refused the credentials") as caught:
        await store.open()
    assert "hunter2" not in "".join(traceback.format_exception(caught.value)).replace(uri, "")


@pytest.fixture
def silent_uri() -> Iterator[str]:
    """A server that accepts and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"mongodb://127.0.0.1:{server.getsockname()[1]}/?directConnection=true"


async def test_a_server_that_does_not_answer_is_unavailable_within_a_bounded_time(
    silent_uri: str,
) -> None:
    store = MongoStore(silent_uri, lease_ttl_ms=3_000)
    started = time.monotonic()
    with pytest.raises(Unavailable, match="no MongoDB server answered"):
        await store.open()
    assert time.monotonic() - started < 5
    await store.close()


async def test_a_server_that_is_down_is_named_and_waited_for_as_long_as_the_string_says() -> None:
    store = MongoStore("mongodb://u:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=200")
    started = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"no MongoDB server answered at 127\.0\.0\.1:1 "
    ) as caught:
        await store.open()
    assert time.monotonic() - started < 3
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("step", ["command", "indexes"])
async def test_an_election_is_waited_for_also_with_short_leases(
    replica_set_uri: str, database: str, monkeypatch, step: str
) -> None:
    store = MongoStore(replica_set_uri, database=database, lease_ttl_ms=3_000)
    tries = 0

    def once_elected(real):
        async def call(*given):
            nonlocal tries
            tries += 1
            if tries < 6:
                raise ServerSelectionTimeoutError("No primary available for writes")
            return await real(*given)

        return call

    if step == "command":
        link = store._core.link
        monkeypatch.setattr(link, "command", once_elected(link.command))
    else:
        monkeypatch.setattr(indexes, "missing", once_elected(indexes.missing))
    await store.open()
    assert tries >= 6
    await store.close()


async def test_an_election_that_does_not_end_is_unavailable(
    replica_set_uri: str, database: str, monkeypatch
) -> None:
    monkeypatch.setattr("durable_adk.store.mongo.ELECTION_S", 0.05)
    store = MongoStore(replica_set_uri, database=database)

    async def none(*_given):
        raise ServerSelectionTimeoutError("No primary available for writes")

    monkeypatch.setattr(store._core.link, "command", none)
    with pytest.raises(Unavailable, match="the replica set has no primary now"):
        await store.open()
    assert not store._core.link.is_open


async def test_another_name_of_the_replica_set_is_said_to_be_wrong(
    replica_set_uri: str, database: str
) -> None:
    uri = re.sub("replicaSet=[^&]+", "replicaSet=other", replica_set_uri)
    assert uri != replica_set_uri
    store = MongoStore(f"{uri}&serverSelectionTimeoutMS=500", database=database)
    with pytest.raises(Unavailable, match=r"replicaSet= names answered at .+rs\.conf\(\)\._id"):
        await store.open()


async def test_a_host_name_that_leads_nowhere_is_said_to_be_so() -> None:
    store = MongoStore("mongodb://no-such-host.invalid/?serverSelectionTimeoutMS=500")
    with pytest.raises(Unavailable, match=r"not resolved among no-such-host\.invalid:27017"):
        await store.open()


async def test_a_write_that_no_server_takes_is_unavailable_and_not_unknown(
    monkeypatch, silent_uri: str
) -> None:
    store = MongoStore(silent_uri, lease_ttl_ms=1_000)
    store._core.link.connect()
    monkeypatch.setattr(store._core, "_deadline_s", 0.1)
    key = execution_key(Tenant("ns", "app"), "e1")
    with pytest.raises(Unavailable):
        await store.retry(key)
    with pytest.raises(Unavailable):
        await store.get_execution(key)
    await store.close()


async def test_an_old_server_is_refused(monkeypatch, bench: Bench) -> None:
    store = bench.make_store()

    async def old(name: str, value: object = 1) -> dict[str, object]:
        return {"version": "4.4.29", "versionArray": [4, 4, 29, 0]}

    monkeypatch.setattr(store._core.link, "command", old)
    with pytest.raises(ConfigError, match=r"4\.4\.29"):
        await store.open()


async def test_a_server_without_now_in_expressions_is_refused_by_the_names_it_may_have(
    monkeypatch, bench: Bench
) -> None:
    store = bench.make_store()

    class Refusing:
        async def find_one(self, found: object) -> None:
            raise OperationFailure("Use of undefined variable: NOW", 17276)

    monkeypatch.setattr(store._core, "collection", lambda name: Refusing())
    with pytest.raises(ConfigError, match=r"DocumentDB.*Cosmos.*FerretDB"):
        await store.open()


@pytest.mark.parametrize("name", ["executions", "sessions", "scopes"])
async def test_a_sharded_collection_that_must_not_be_is_refused(
    monkeypatch, bench: Bench, name: str
) -> None:
    store = bench.make_store()
    real = store._core.link.command

    async def mongos(command: str, value: object = 1) -> dict[str, object]:
        if command == "hello":
            return {"msg": "isdbgrid"}
        if command == "collStats":
            return {"sharded": value == f"durable_{name}"}
        return await real(command, value)

    monkeypatch.setattr(store._core.link, "command", mongos)
    with pytest.raises(ConfigError, match=f"durable_{name}.*is sharded"):
        await store.open()
