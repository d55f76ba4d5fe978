from __future__ import annotations

import asyncio
import subprocess
import sys
import traceback

import pymongo
import pytest
from mongomock_motor import AsyncMongoMockClient
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient, MongoClient, ReadPreference, WriteConcern
from pymongo.read_concern import ReadConcern

from durable_adk.errors import ConfigError
from durable_adk.store.drivers import Driver, Link, database_in, recognised
from durable_adk.store.mongo import MongoStore

SOMEWHERE = "mongodb://127.0.0.1:1"


def link(given: object) -> Link:
    return Link(given, database="d", prefix="p_", timeout_ms=500)


async def closed(client) -> None:
    closing = client.close()
    if closing is not None:
        await closing


@pytest.mark.parametrize(
    ("make", "driver"),
    [
        (lambda: SOMEWHERE, Driver.URI),
        (lambda: AsyncMongoClient(SOMEWHERE), Driver.PYMONGO),
        (lambda: AsyncIOMotorClient(SOMEWHERE), Driver.MOTOR),
        (AsyncMongoMockClient, Driver.MOCK),
    ],
    ids=lambda value: value.name if isinstance(value, Driver) else "",
)
async def test_a_client_is_recognised(make, driver: Driver) -> None:
    given = make()
    assert recognised(given) is driver
    assert MongoStore(given).needs_own_loop == (driver is not Driver.MOCK)
    if driver in (Driver.PYMONGO, Driver.MOTOR):
        await closed(given)


async def test_a_subclass_of_a_client_is_recognised() -> None:
    class Mine(AsyncIOMotorClient):
        pass

    client = Mine(SOMEWHERE)
    assert recognised(client) is Driver.MOTOR
    client.close()


def test_a_synchronous_client_is_refused_with_the_one_to_use() -> None:
    client = MongoClient(SOMEWHERE, connect=False)
    with pytest.raises(ConfigError, match=r"pass pymongo\.AsyncMongoClient"):
        recognised(client)
    client.close()


@pytest.mark.parametrize("given", [None, 7, object(), b"mongodb://x"])
def test_anything_else_is_refused_with_what_to_pass(given: object) -> None:
    with pytest.raises(ConfigError, match="Pass a connection string"):
        recognised(given)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a.b", "$x", "x" * 64])
def test_a_name_that_is_no_database_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"mongodb\.database"):
        Link(SOMEWHERE, database=name, prefix="", timeout_ms=1)


@pytest.mark.parametrize("prefix", ["a.b", "$", "ä", "x" * 65])
def test_a_prefix_that_is_none_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="collection_prefix"):
        Link(SOMEWHERE, database="d", prefix=prefix, timeout_ms=1)


# ---------------------------------------------------------------------- S11


WEAK = "w=1&journal=false&readConcernLevel=local&readPreference=secondaryPreferred"


@pytest.mark.parametrize("kind", ["uri", "pymongo", "motor"])
@pytest.mark.parametrize("options", [WEAK, "w=0", "retryWrites=false", ""])
async def test_our_settings_hold_whatever_the_connection_string_says(
    kind: str, options: str
) -> None:
    uri = f"{SOMEWHERE}/?{options}"
    makes = {"uri": str, "pymongo": AsyncMongoClient, "motor": AsyncIOMotorClient}
    given = makes[kind](uri)
    ours = link(given)
    ours.connect()
    collection = ours.collection("x")
    assert collection.name == "p_x"
    assert collection.write_concern == WriteConcern("majority", j=True)
    assert collection.read_concern == ReadConcern("majority")
    assert collection.read_preference == ReadPreference.PRIMARY
    async with ours.twin("x") as twin:
        twin = getattr(twin, "_collection", twin)
        assert twin.write_concern == WriteConcern("majority", j=True)
        assert twin.read_preference == ReadPreference.PRIMARY
    await ours.close()
    if kind != "uri":
        await closed(given)


@pytest.mark.parametrize("kind", ["uri", "pymongo", "motor", "keyword"])
async def test_wtimeout_is_refused(kind: str) -> None:
    uri = f"{SOMEWHERE}/?wtimeoutMS=500"
    makes = {
        "uri": lambda: uri,
        "pymongo": lambda: AsyncMongoClient(uri),
        "motor": lambda: AsyncIOMotorClient(uri),
        "keyword": lambda: AsyncMongoClient(SOMEWHERE, wTimeoutMS=500),
    }
    given = makes[kind]()
    store = MongoStore(given)
    with pytest.raises(ConfigError, match="wtimeout"):
        await store.open()
    if kind != "uri":
        await closed(given)


async def test_the_users_codec_does_not_reach_our_documents() -> None:
    client = AsyncMongoClient(SOMEWHERE, document_class=MyDict, tz_aware=True)
    ours = link(client)
    ours.connect()
    assert ours.collection("x").codec_options.document_class is dict
    await client.close()


class MyDict(dict):
    pass


# ---------------------------------------------------------------------- secrets, loops, twins


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://user:hunter2@host:port/",
        "mongodb://user:hunt/er2@host/",
        "mongodb://user:p@hunter2@host/",
        "hunter2",
        "mongodb://user:hunter2@host/?w=x&authSource=",
    ],
)
async def test_a_connection_string_that_cannot_be_read_is_never_shown(uri: str) -> None:
    store = MongoStore(uri)
    with pytest.raises(ConfigError, match=r"mongodb\.uri") as caught:
        await store.open()
    shown = "".join(traceback.format_exception(caught.value))
    shown = "\n".join(line for line in shown.splitlines() if line.strip().startswith("durable"))
    for text in (shown, str(caught.value), repr(store), repr(vars(store))):
        assert "hunter2" not in text


def test_no_repr_shows_a_password() -> None:
    store = MongoStore("mongodb://user:hunter2@host/")
    assert "hunter2" not in f"{store!r}{store._core.link!r}"


async def test_a_pymongo_that_cannot_duplicate_a_client_says_to_pass_the_uri(monkeypatch) -> None:
    client = AsyncMongoClient(SOMEWHERE)
    monkeypatch.delattr(AsyncMongoClient, "_duplicate")
    ours = link(client)
    with pytest.raises(ConfigError, match="Pass the connection string"):
        ours.connect()
    await client.close()


async def test_the_private_name_of_pymongo_still_makes_a_second_client() -> None:
    client = AsyncMongoClient(SOMEWHERE, appname="mine", serverSelectionTimeoutMS=77)
    second = client._duplicate(maxPoolSize=3)
    assert second is not client
    assert isinstance(second, AsyncMongoClient)
    assert second.options.pool_options.appname == "mine"
    assert second.options.pool_options.max_pool_size == 3
    assert second.options.server_selection_timeout == pytest.approx(0.077)
    await second.close()
    await client.close()


def test_a_motor_client_of_another_loop_is_refused() -> None:
    async def make():
        client = AsyncIOMotorClient(SOMEWHERE)
        client.get_io_loop()
        return client

    client = asyncio.run(make())
    with pytest.raises(ConfigError, match="another event loop"):
        asyncio.run(MongoStore(client).open())
    client.close()


def test_what_is_not_open_says_so() -> None:
    with pytest.raises(ConfigError, match="is not open"):
        link(SOMEWHERE).collection("x")


def test_motor_and_mongomock_are_not_imported() -> None:
    program = (
        "import sys; from durable_adk.store.mongo import MongoStore; "
        "MongoStore('mongodb://127.0.0.1:1'); "
        "sys.exit(any(n.split('.')[0] in ('motor', 'mongomock', 'mongomock_motor') "
        "for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_an_operation_is_bounded_below_a_third_of_the_lease() -> None:
    assert MongoStore(SOMEWHERE, lease_ttl_ms=30_000)._core.link._timeout_s == 9.0
    with pytest.raises(ConfigError, match="a third of the lease"):
        MongoStore(SOMEWHERE, lease_ttl_ms=30_000, operation_timeout_ms=10_000)


# ---------------------------------------------------------------------- the connection string


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("mongodb://h/shop", "shop"),
        ("mongodb://u:p@h1,h2:2/shop?replicaSet=rs0", "shop"),
        ("mongodb+srv://u:p@h/shop", "shop"),
        ("mongodb://h/my%2Dshop", "my-shop"),
        ("mongodb://h/shop.orders", "shop"),
        ("mongodb://%2Ftmp%2Fmongodb-27017.sock/shop", "shop"),
        ("mongodb://h", None),
        ("mongodb://h/", None),
        ("mongodb://h/?appName=a/b", None),
        ("mongodb://u:p@h/admin", None),
        ("mongodb://h/local", None),
        ("mongodb://h/config", None),
        (7, None),
    ],
)
def test_the_path_of_a_connection_string_names_the_database(
    given: object, name: str | None
) -> None:
    assert database_in(given) == name


@pytest.mark.parametrize("kind", ["uri", "pymongo", "motor"])
async def test_the_hosts_are_known_without_the_credentials(kind: str) -> None:
    uri = "mongodb://u:secret@h2:5,h1/shop?replicaSet=rs0"
    makes = {
        "uri": str,
        "pymongo": AsyncMongoClient,
        "motor": lambda text: AsyncIOMotorClient(text, connect=False),
    }
    given = makes[kind](uri)
    ours = link(given)
    assert ours.hosts == ""
    ours.connect()
    assert ours.hosts == "h1:27017, h2:5"
    await ours.close()
    if kind != "uri":
        await closed(given)


@pytest.mark.parametrize(
    ("options", "timeout_ms", "seconds"),
    [
        ("", 9_000, 5.0),
        ("", 900, 1.8),
        ("serverSelectionTimeoutMS=200", 9_000, 0.2),
        ("SERVERSELECTIONTIMEOUTMS=30000", 9_000, 30.0),
    ],
)
async def test_the_first_answer_is_waited_for_as_long_as_the_connection_string_says_or_5_s(
    monkeypatch: pytest.MonkeyPatch, options: str, timeout_ms: int, seconds: float
) -> None:
    bounds: list[float] = []
    monkeypatch.setattr(pymongo, "timeout", bounds.append)
    ours = Link(f"{SOMEWHERE}/?{options}", database="d", prefix="p_", timeout_ms=timeout_ms)
    ours.connect()
    ours.patience()
    await ours.close()
    assert bounds == [seconds]
