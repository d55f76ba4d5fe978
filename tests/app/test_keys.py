"""A worker that was left behind while keys are rotated goes on with all that it can read."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from google.adk.workflow import START, Workflow

from durable_adk import App, Pruned
from durable_adk.store.clock import ManualClock
from durable_adk.testing import FaultPlan, memory_client
from tests.app.conftest import ON

HOUR_MS = 3_600_000
OLD, NEW = ({name: base64.b64encode(name[:1].encode() * 32).decode()} for name in ("old", "new"))


class Died(BaseException):
    """The process is gone."""


def remember(ctx: Any, node_input: Any) -> str:
    ctx.state["user:name"] = "Ada"
    return "done"


@pytest.fixture
def make() -> Any:
    given = {"mongodb": memory_client(), "clock": ManualClock()}

    def make(keys: dict[str, str], faults: Any = None) -> App:
        root = Workflow(name="w", edges=[(START, remember)])
        config = {**ON, "encryption": {"keys": keys}, "retention": {"turns": 1}}
        return App("keys", root_agent=root, config=config, faults=faults, **given)

    make.clock = given["clock"]  # type: ignore[attr-defined]
    return make


async def test_shared_state_under_another_key_is_left_to_those_that_have_it(make: Any) -> None:
    plan = FaultPlan().fail("before scopes", Died())
    with pytest.raises(Died):
        async with make({**NEW, **OLD}, plan) as dying:
            await dying.invoke(user_id="u", message="go")
    async with make(OLD) as behind:
        await behind.submit(user_id="v", message="go", execution_id="mine")
        worker = asyncio.create_task(behind.worker().run())
        while (await behind.executions.get("mine")).status != "completed":
            assert not worker.done()
            await asyncio.sleep(0.01)
        worker.cancel()
        assert await behind.recover() == ()


async def test_turns_under_another_key_are_left_to_those_that_have_it(make: Any) -> None:
    async with make({**NEW, **OLD}) as app, make(OLD) as behind:
        for one, user in ((app, "new"), (behind, "old")):
            for _ in range(2):
                await one.invoke(user_id=user, session_id="s", message="go")
        assert await app.retain() == Pruned(sessions=2, removed=0, expiring=2)
        make.clock.advance(HOUR_MS + 1_000)
        assert (await behind.retain()).removed == 1
        assert (await app.retain()).removed == 1
