"""Every test here runs on every driver and every kind of server, but for listed exclusions."""

from __future__ import annotations

import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mongomock_motor import AsyncMongoMockClient
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import AsyncMongoClient

from durable_adk.store.clock import LocalClock, ServerClock
from tests.conformance.bench import Bench

HERE = Path(__file__).parent
BENCHES = (
    "mongomock",
    "mongomock-encrypted",
    "pymongo-standalone",
    "pymongo-replica-set",
    "motor-standalone",
    "motor-replica-set",
)


def exclusions() -> list[dict[str, str]]:
    return tomllib.loads((HERE / "exclusions.toml").read_text())["exclusion"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bench" in metafunc.fixturenames:
        metafunc.parametrize("bench", BENCHES, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what is listed, with its reason; nothing finds out by itself what it cannot do."""
    for item in items:
        name = getattr(item, "originalname", item.name)
        bench = getattr(item, "callspec", None) and item.callspec.params.get("bench")
        driver = (bench or "").removesuffix("-encrypted")
        for listed in exclusions():
            if HERE in item.path.parents and (listed["test"], listed["bench"]) == (name, driver):
                item.add_marker(pytest.mark.skip(reason=listed["reason"]))


@pytest.fixture
async def bench(request: pytest.FixtureRequest, database: str) -> AsyncIterator[Bench]:
    driver, _, server = request.param.partition("-")
    if driver == "mongomock":
        made = Bench(
            AsyncMongoMockClient(),
            database=database,
            clock=LocalClock(),
            is_real=False,
            keys={"k1": bytes(range(32))} if server == "encrypted" else None,
        )
        await made.store.open()
        yield made
        return
    uri = request.getfixturevalue(f"{server.replace('-', '_')}_uri")
    client = AsyncMongoClient(uri) if driver == "pymongo" else AsyncIOMotorClient(uri)
    made = Bench(client, database=database, clock=ServerClock(), is_real=True)
    await made.store.open()
    yield made
    await made.store.close()
    closing = client.close()
    if closing is not None:
        await closing
