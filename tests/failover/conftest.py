"""Three members behind proxies, whole again before each test, and Apps on them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from durable_adk import App
from tests.soak.programs import AGENTS, Bodies
from tests.support import mongo
from tests.support.lives import Ledger
from tests.support.members import Members

HOSTILE = "&w=1&readPreference=secondaryPreferred&retryWrites=false&journal=false"
"""What a client's connection string may say; the store's own settings win (S11)."""


@pytest.fixture(scope="session")
def proxied() -> Iterator[Members]:
    """The members; started for the tests that ask for them."""
    found = Members(f"{mongo.run_name()}.proxied-{os.getpid()}")
    try:
        found.start()
    except mongo.NoServer as error:
        found.stop()
        pytest.fail(f"{error}. {mongo.REMEDY}", pytrace=False)
    yield found
    found.stop()


@pytest.fixture
def members(proxied: Members) -> Members:
    """The members, all of them there."""
    proxied.wait_until_whole()
    return proxied


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture
async def make_app(members: Members, database: str, ledger: Ledger) -> AsyncIterator[Any]:
    """``make_app(kind, ...)``: an App with an agent of the soak, closed at the end."""
    namespace = f"n{os.urandom(6).hex()}"
    async with AsyncExitStack() as stack:

        def make(
            kind: str,
            *,
            longest_s: float = 0.0,
            lease: str = "30s",
            build: Callable[[Bodies], Any] | None = None,
            **named: Any,
        ) -> App:
            bodies = Bodies(ledger, longest_s)
            app = App(
                kind,
                root_agent=(build or AGENTS[kind])(bodies),
                config={
                    "features": {"durable_workflow": True},
                    "namespace": namespace,
                    "lease": {"ttl": lease},
                    "shutdown": {"grace": "0s"},
                },
                mongodb=members.uri + HOSTILE,
                database=database,
                **named,
            )
            stack.push_async_callback(app.close)
            return app

        yield make
