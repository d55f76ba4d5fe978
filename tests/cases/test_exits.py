"""``sys.exit()`` in user code fails the attempt; a signal still ends the process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from google.adk.agents import ParallelAgent
from google.adk.workflow import START, FunctionNode, Workflow
from google.genai import types
from pymongo import MongoClient

from durable_adk import durable_tool, step
from durable_adk.engine.exits import Exited, kept_inside
from durable_adk.testing import FaultPlan, calls, says
from tests.faults.catalogue import agent


def leave(*_: Any, **__: Any) -> None:
    sys.exit(3)


def poisoned(ledger: Any, where: str) -> Any:
    def boom() -> None:
        """Do something."""
        ledger.add("boom")
        leave()

    async def stepping(ctx: Any, node_input: Any) -> Any:
        yield await step("boom", leave)

    if where == "node":
        return Workflow(name="flow", edges=[(START, FunctionNode(func=boom, name="boom"))])
    if where == "step":
        return Workflow(name="flow", edges=[(START, FunctionNode(func=stepping, name="boom"))])
    made = agent(ledger, "root", calls(("boom", {}), ("boom", {})), says("done"), tools=[boom])
    if where == "model":
        made.model.script = leave
    if where == "callback":
        made.before_tool_callback = leave
    if where == "branch":
        other = agent(ledger, "other", says("hello"))
        return ParallelAgent(name="both", sub_agents=[made, other])
    return made


@pytest.mark.parametrize("where", ["model", "tool", "branch", "callback", "node", "step"])
async def test_a_body_that_exits_is_a_failed_attempt_like_any_other(
    make_app, ledger, clock, where: str
) -> None:
    app = make_app(poisoned(ledger, where), config={"retry": {"max_attempts": 2}})
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert (out.status, out.error.type) == ("queued", "SystemExit")
    clock.advance(120_000)
    (out,) = await app.recover()
    assert (out.status, out.error.type, out.error.message) == ("failed", "SystemExit", "3")
    with pytest.raises(SystemExit):
        async for _ in app.runner.run_async(
            user_id="u", session_id="s", new_message=types.UserContent("go")
        ):
            pass


async def test_a_worker_outlives_a_tool_that_exits(make_app, ledger, clock) -> None:
    app = make_app(poisoned(ledger, "tool"), config={"retry": {"max_attempts": 2}})
    for n in range(2):
        await app.submit(user_id="u", session_id=f"s{n}", message="go", execution_id=f"e{n}")
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    while len(await app.executions.list(status="failed")) < 2:
        assert not running.done()
        if not list(await app.executions.list(status="running")):
            clock.advance(60_000)
        await asyncio.sleep(0.02)
    worker.stop()
    await running


def _raised_by(handler: Any) -> SystemExit:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(SystemExit) as caught:
            signal.raise_signal(signal.SIGUSR1)
        assert kept_inside(caught.value) is caught.value, "it is not the body's"
    finally:
        signal.signal(signal.SIGUSR1, before)
    return caught.value


class Stopping:
    def __call__(self, *_: Any) -> None:
        sys.exit("stop")

    def method(self, *_: Any) -> None:
        self()


def test_what_a_handler_of_a_signal_raises_goes_on_up() -> None:
    for handler in (leave, lambda *_: sys.exit(), Stopping(), Stopping().method):
        error = _raised_by(handler)
        kept = kept_inside(error)  # nobody handles that signal so any more
        assert isinstance(kept, Exited) and kept.exit is error


PROCESS = """
import asyncio, os, signal, sys
from durable_adk import App
from durable_adk.testing import ScriptedModel, calls, says
from google.adk.agents import LlmAgent

signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))

def stopped() -> dict:
    "Is hit by the signal that stops the worker."
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1_000_000):
        pass
    return {"stopped": False}

async def main():
    model = ScriptedModel(script=[calls(("stopped", {})), says("done")])
    root = LlmAgent(name="root", model=model, tools=[stopped])
    config = {"features": {"durable_workflow": True}}
    app = App("exits", root_agent=root, config=config, mongodb=sys.argv[1], database=sys.argv[2])
    await app.submit(user_id="u", message="go", execution_id="e")
    await app.worker().run()

asyncio.run(main())
"""


def test_a_signal_that_hits_a_body_ends_the_process_and_is_not_counted(
    replica_set_uri: str, database: str
) -> None:
    name = f"{database}_exits"
    ended = subprocess.run(
        [sys.executable, "-c", PROCESS, replica_set_uri, name],
        env=os.environ | {"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    with MongoClient(replica_set_uri) as client:
        found = client[name]["durable_executions"].find_one({"eid": "e"})
        client.drop_database(name)
    assert ended.returncode == 7, ended.stderr[-2000:]
    assert found is not None
    assert found["status"] in ("queued", "running")
    assert found["failures"] == 0


class Died(BaseException):
    """The process is gone."""


def _exits(_doubt: Any) -> None:
    leave()


async def _cut_off(_doubt: Any) -> None:
    inner = asyncio.ensure_future(asyncio.Event().wait())
    await asyncio.sleep(0)
    inner.cancel()
    await inner


@pytest.mark.parametrize("reconcile", [_exits, _cut_off])
async def test_a_worker_outlives_a_reconcile_callback_that_exits_or_is_cut_off(
    make_app, ledger, clock, reconcile: Any
) -> None:
    def paying() -> Any:
        @durable_tool(on_unknown_outcome="ask", reconcile=reconcile)
        def pay() -> dict[str, bool]:
            """Pay."""
            ledger.add("paid")
            return {"paid": True}

        return agent(ledger, "root", calls(("pay", {})), says("done"), tools=[pay])

    dying = make_app(paying(), faults=FaultPlan().fail("ran tool:pay", Died()))
    with pytest.raises(Died):
        await dying.invoke(user_id="u", message="go", execution_id="x")
    clock.advance(120_000)
    app = make_app(paying(), config={"retry": {"max_attempts": 2}})
    (out,) = await app.recover()
    assert (out.status, out.error.type) == (
        "queued",
        "SystemExit" if reconcile is _exits else "RunCancelled",
    )
    assert not list(await app.recover()), "not before its back-off is over"
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    while not list(await app.executions.list(status="suspended")):
        assert not running.done()
        clock.advance(60_000)
        await asyncio.sleep(0.02)
    worker.stop()
    await running
    (wait,) = (await app.waits.list()).items
    assert wait.kind == "in_doubt", "a callback that fails in the last attempt does not know"
    out = await app.resume("x", {wait.id: {"outcome": "done", "result": {"paid": True}}})
    assert (out.status, out.response) == ("completed", "done")
    assert [row[0] for row in ledger.rows()].count("paid") == 1
