"""A workflow that sleeps looks well in a log; one that is ended for another reason is told of."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow

import durable_adk
from durable_adk import durable_tool
from tests.adapter.stock import Stock, user


async def nap(node_input: Any) -> str:
    await durable_adk.sleep("1h")
    return "slept"


async def runs_one(ctx: Any, node_input: Any) -> Any:
    yield await ctx.run_node(FunctionNode(func=nap, name="inner"), node_input="go")


def flow(**bodies: Any) -> Workflow:
    nodes = [
        FunctionNode(func=body, name=name, rerun_on_resume=body is runs_one)
        for name, body in bodies.items()
    ]
    return Workflow(name="flow", edges=[(START, tuple(nodes)), (tuple(nodes), JoinNode(name="j"))])


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_sleeping_is_no_warning(make_app: Any, clock: Any, caplog: Any, mode: str) -> None:
    app = make_app(flow(one=nap, two=runs_one), mode=mode)
    with caplog.at_level(logging.WARNING):
        out = await app.invoke(user_id="u", message="go")
        assert [wait.kind for wait in out.waits] == ["timer", "timer"], out.error
        clock.advance(3_700_000)
        (out,) = await app.recover()
        assert (out.status, out.output) == ("completed", {"one": "slept", "two": "slept"})
    assert warned(caplog) == []


async def test_a_workflow_that_is_ended_otherwise_is_told_of(make_app: Any, caplog: Any) -> None:
    @durable_tool(on_unknown_outcome="fail")
    async def once(node_input: Any) -> str:
        await durable_adk.sleep("1h")  # is refused there, and ends the attempt
        return "never"

    async def works(node_input: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    with caplog.at_level(logging.WARNING):
        out = await make_app(flow(once=once, works=works)).invoke(user_id="u", message="go")
    assert out.status == "failed"
    assert any("leftover tasks" in text for text in warned(caplog))


async def test_nor_does_plain_adk_warn_of_a_sleep(caplog: Any) -> None:
    async def short(node_input: Any) -> str:
        await durable_adk.sleep(0.01)
        return "slept"

    stock = Stock(flow(one=short, two=short))
    with caplog.at_level(logging.WARNING):
        await stock.run(user("go"))
    assert stock.events[-1].output == {"one": "slept", "two": "slept"}
    assert warned(caplog) == []
