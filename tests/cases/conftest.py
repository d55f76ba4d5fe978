"""Apps on a real mongod, each in a namespace of its own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from durable_adk import App
from durable_adk.store.clock import ServerClock
from tests.support.lives import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def clock() -> ServerClock:
    """One clock for all Apps of a test: moving it moves all of them."""
    return ServerClock()


@pytest.fixture
async def make_app(
    replica_set_uri: str, database: str, clock: ServerClock
) -> AsyncIterator[Callable[..., App]]:
    """``make_app(root, mode=..., namespace=..., **App arguments)``; closed at the end."""
    shared = f"n{os.urandom(6).hex()}"
    async with AsyncExitStack() as stack:

        def make(root: Any, *, mode: str = "restore", config: Any = None, **named: Any) -> App:
            settings = {
                "features": {"durable_workflow": True},
                "namespace": named.pop("namespace", shared),
                "replay": {"mode": mode},
                "shutdown": {"grace": "0s"},
                **(config or {}),
            }
            app = App(
                "cases",
                root_agent=root,
                config=settings,
                mongodb=replica_set_uri,
                database=database,
                clock=clock,
                **named,
            )
            stack.push_async_callback(app.close)
            return app

        yield make


def approve(out: Any) -> dict[str, Any]:
    """A resume map that agrees to everything and answers ``blue``."""
    return {
        wait.id: {"confirmed": True} if wait.kind == "adk_request_confirmation" else "blue"
        for wait in out.waits
    }
