"""Durable Apps over a MongoDB in memory or a real one, with agents that answer from a script."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from durable_adk import App
from durable_adk.testing import memory_client

ON: dict[str, Any] = {
    "features": {"durable_workflow": True},
    "retry": {"backoff": "10ms", "backoff_max": "20ms"},
    "shutdown": {"grace": 0},
}

MakeApp = Callable[..., App]


@pytest.fixture(params=["memory", "mongod"])
def place(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Where an App keeps its data: new and empty for each test."""
    if request.param == "memory":
        return {"mongodb": memory_client()}
    uri = request.getfixturevalue("replica_set_uri")
    database = request.getfixturevalue("database")
    return {"mongodb": uri, "database": f"{database}_{uuid.uuid4().hex[:8]}"}


@pytest.fixture
async def make_app() -> AsyncIterator[MakeApp]:
    """Make Apps over one MongoDB in memory (or ``place``); they are closed at the end."""
    client = memory_client()
    made: list[App] = []

    def make(root: object = None, *, name: str = "desk", **given: Any) -> App:
        given.setdefault("config", ON)
        given.setdefault("mongodb", client)
        made.append(App(name, root_agent=root, **given))
        return made[-1]

    yield make
    for app in made:
        with contextlib.suppress(Exception):
            await app.close()


@pytest.fixture
async def stored() -> Callable[[Any], Any]:
    """Count the documents of a MongoDB in memory, over all collections."""

    async def count(client: Any, database: str = "durable_adk") -> int:
        names = await client[database].list_collection_names()
        return sum([await client[database][name].count_documents({}) for name in names])

    return count
