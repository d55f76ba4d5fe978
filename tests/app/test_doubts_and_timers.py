"""One step in which something sleeps, people are asked, and a call is in doubt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, Workflow

import durable_adk
from durable_adk import durable_tool, step
from durable_adk.testing import FaultPlan, calls, says
from tests.app.agents import talker
from tests.app.test_doubts import (
    LEASE_PASSED_MS,
    NOT_DONE,
    Desk,
    Died,
    a_later_step,
    charging,
    desk,
    done,
    one_tool,
)

__all__ = ["desk"]

MINUTE_MS = 60_000


async def nap(seconds: int = 60) -> str:
    """Nap."""
    await durable_adk.sleep(seconds)
    return "slept"


def naps_around(desk: Desk) -> LlmAgent:
    turns = [calls(("nap", {})), calls(("charge", {"cents": 5})), calls(("nap", {})), says("done")]
    return talker(*turns, tools=[nap, charging(desk)])


async def in_doubt_after_a_nap(desk: Desk) -> Any:
    """The App that asks about the call between two naps, and its outcome."""
    await desk.app(naps_around(desk)).invoke(
        user_id="u", session_id="s", message="go", execution_id="e"
    )
    desk.clock.advance(MINUTE_MS + 1)
    plan = FaultPlan().fail("ran tool:charge", Died())
    with pytest.raises(Died):
        await desk.app(naps_around(desk), faults=plan).resume("e")
    desk.clock.advance(LEASE_PASSED_MS)
    app = desk.app(naps_around(desk))
    (asked,) = await app.recover()
    assert [wait.kind for wait in asked.waits] == ["in_doubt"]
    return app, asked


@pytest.mark.parametrize("told", ["done", "not_done"])
async def test_a_fork_at_a_timer_keeps_what_was_settled_before_it(desk: Desk, told: str) -> None:
    app, asked = await in_doubt_after_a_nap(desk)
    answer = done({"charged": 5}) if told == "done" else NOT_DONE
    out = await app.resume("e", {asked.waits[0].id: answer})
    assert [wait.kind for wait in out.waits] == ["timer"]
    paid = list(desk.paid)
    fork = await app.sessions.fork("u", "s", before=out.waits[0].id)
    (out,) = await app.recover()
    assert (out.execution_id, [w.kind for w in out.waits]) == (fork.execution_id, ["timer"])
    desk.clock.advance(MINUTE_MS + 1)
    assert {out.status for out in await app.recover()} == {"completed"}
    assert desk.paid == paid


async def test_a_step_in_which_a_doubt_was_settled_still_fits_its_history(desk: Desk) -> None:
    """The answer to a doubt ends no step: what it had asked is all that a walk has to ask."""

    def root() -> LlmAgent:
        made = a_later_step(desk)
        made.model.script = [calls(("buy", {})), *one_tool(desk).model.script]
        made.tools.append(FunctionTool(buy))
        return made

    def buy() -> str:
        """Buy."""
        return "bought"

    config = {"tools": {"buy": {"on_unknown_outcome": "ask"}}}
    await desk.die(root(), "ran tool:buy", **config)
    app = desk.app(root(), **config)
    (asked,) = await app.recover()
    out = await app.resume("e", {asked.waits[0].id: done("bought")})
    assert [wait.kind for wait in out.waits] == ["adk_request_confirmation"]
    for status in ("completed", ""):
        found = await app.executions.replay("e")
        assert found.ok, found.difference or found.error
        if status:
            out = await app.resume("e", {out.waits[0].id: {"confirmed": True}})
            assert out.status == status


@pytest.mark.parametrize("how", ["cancel", "give_up"])
async def test_what_was_ended_after_a_doubt_was_settled_still_fits_its_history(
    desk: Desk, how: str
) -> None:
    app, asked = await in_doubt_after_a_nap(desk)
    await app.resume("e", {asked.waits[0].id: done({"charged": 5})})
    await getattr(app, how)("e")
    found = await app.executions.replay("e")
    assert found.ok, found.difference or found.error
    assert found.matched == found.recorded


async def test_a_body_that_runs_out_of_time_beside_a_sleep_is_asked_about(desk: Desk) -> None:
    begun: list[int] = []

    @durable_tool(on_unknown_outcome="ask")
    async def slow() -> str:
        begun.append(1)
        await asyncio.sleep(30 if len(begun) == 1 else 0)
        return "late"

    async def soon() -> str:
        try:
            async with asyncio.timeout(0.05):
                return await step("slow", slow)
        except TimeoutError:
            return "gave up"

    async def lead(node_input: Any) -> Any:
        return (await asyncio.gather(soon(), nap()))[0]

    app = desk.app(Workflow(name="flow", edges=[(START, FunctionNode(func=lead, name="lead"))]))
    out = await app.invoke(user_id="u", message="go", execution_id="e")
    assert ([wait.kind for wait in out.waits], out.error) == (["in_doubt"], None)
    out = await app.resume("e", {out.waits[0].id: done("in time")})
    assert [wait.kind for wait in out.waits] == ["timer"]
    desk.clock.advance(MINUTE_MS + 1)
    (out,) = await app.recover()
    assert out.output == "in time"
