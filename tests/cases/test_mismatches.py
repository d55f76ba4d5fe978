"""What another input is to a record of each kind, and what ends an attempt for good (row R6)."""

from __future__ import annotations

import os
from typing import Any

import pytest
from google.adk.events import RequestInput
from google.adk.workflow import START, FunctionNode, Workflow
from google.genai import types
from pymongo import AsyncMongoClient

from durable_adk import App, ConfigError, step
from durable_adk.adk.scripted_model import calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import Tools, agent


def fails_once(ledger: Any, fails: list[Exception], **fields: Any) -> Any:
    """Its second model call fails in the first attempt; its first one looks something up."""

    def reply(_request: Any, turn: int) -> Any:
        if turn:
            return fails.pop() if fails else says("done")
        return calls(("look", {"q": "a"}))

    root = agent(ledger, "root", tools=[Tools(ledger).look], **fields)
    root.model.script = reply
    return root


def of_tool(ledger: Any, given: list[int], fails: list[Exception]) -> Any:
    def changes(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
        args["q"] = f"a{given.pop(0)}"

    return fails_once(ledger, fails, before_tool_callback=changes)


def of_step(ledger: Any, given: list[int], fails: list[Exception]) -> Any:
    async def charges(callback_context: Any) -> None:
        await step("charge", lambda amount: ledger.add("charge", amount), given.pop(0))

    return fails_once(ledger, fails, before_agent_callback=charges)


def of_node(ledger: Any, given: list[int], fails: list[Exception]) -> Any:
    def effect(node_input: Any) -> str:
        ledger.add("effect", node_input)
        return "done"

    child = FunctionNode(func=effect, name="child")

    async def lead(ctx: Any, node_input: Any) -> Any:
        yield await ctx.run_node(child, node_input=given.pop(0))
        if fails:
            raise fails.pop()

    leader = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, leader)])


KINDS = {"tool": of_tool, "step": of_step, "node": of_node}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_recorded_result_is_never_given_to_another_input(
    make_app, ledger, clock, kind
) -> None:
    """Also where a changed prompt is only a warning, which is the default."""
    app = make_app(KINDS[kind](ledger, [1, 2], [RuntimeError("down")]))
    out = await app.invoke(user_id="u", message="go")
    assert out.status == "queued", out
    ran = ledger.rows()
    clock.advance(60_000)
    (out,) = await app.recover()
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
    assert f"|{kind}|1" in out.error.position or f"|{kind}:charge|1" in out.error.position
    assert "with another input" in out.error.message
    assert ledger.rows() == ran


async def test_an_answer_is_never_given_to_another_question(make_app, ledger) -> None:
    def root(amount: int) -> Any:
        script = [calls(("pay", {"amount": amount})), says("done")]

        def sets(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
            args["amount"] = amount

        tools = [Tools(ledger).confirmed_pay]
        return agent(ledger, "root", *script, tools=tools, before_tool_callback=sets)

    out = await make_app(root(1)).invoke(user_id="u", message="go")
    out = await make_app(root(1000)).resume(out.execution_id, approve(out))
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
    assert 'shown pay({"amount": 1})' in out.error.message
    assert not [row for row in ledger.rows() if row[:2] == ("tool", "pay")]


@pytest.mark.parametrize("kind", ["tool", "wait"])
def test_what_would_break_that_promise_cannot_be_configured(kind) -> None:
    config = {
        "features": {"durable_workflow": True},
        "replay": {"input_mismatch": {kind: "warn"}},
    }
    with pytest.raises(ConfigError, match="never attached to other arguments"):
        App("x", config=config)
    config["replay"] = {"input_mismatch": {kind: "error"}}
    App("x", config=config)


@pytest.mark.parametrize("kind", ["node", "step"])
def test_nodes_and_steps_have_no_key_of_their_own(kind) -> None:
    config = {
        "features": {"durable_workflow": True},
        "replay": {"input_mismatch": {kind: "warn"}},
    }
    with pytest.raises(ConfigError, match=f"input_mismatch.{kind}"):
        App("x", config=config)


# ------------------------------------------------------------------ R6


async def test_attempts_are_bounded_and_the_list_has_the_cause(make_app, ledger, clock) -> None:
    root = agent(ledger, "root")
    root.model.script = lambda request, turn: RuntimeError("always down")
    app = make_app(root, config={"retry": {"max_attempts": 3}})
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    seen = [out.status]
    for _ in range(6):
        clock.advance(120_000)
        seen += [out.status for out in await app.recover()]
    assert seen == ["queued", "queued", "failed"]
    (listed,) = await app.executions.list(status="failed")
    assert (listed.attempt, listed.error.type, listed.error.message) == (
        3,
        "RuntimeError",
        "always down",
    )
    assert len(ledger.rows()) == 3


async def test_a_body_that_fails_where_it_asked_before_is_tried_again_and_not_ended(
    make_app, ledger, clock
) -> None:
    """A walk enters it again, up to the question; what it meets outside may fail there."""
    fails: list[Exception] = []

    async def asks(ctx: Any, node_input: Any) -> Any:
        if not ctx.resume_inputs:
            yield RequestInput(interrupt_id="colour", message="?")
            return
        yield ctx.resume_inputs["colour"]

    async def lead(ctx: Any, node_input: Any) -> Any:
        ledger.add("lead")
        if fails:
            raise fails.pop()
        yield await ctx.run_node(FunctionNode(func=asks, name="asks", rerun_on_resume=True))

    leader = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    flow = Workflow(name="flow", edges=[(START, leader)])
    app = make_app(flow, mode="walk", config={"retry": {"max_attempts": 3}})
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    fails.append(ConnectionError("no route"))
    out = await app.resume("x", approve(out))
    assert (out.status, out.error.type, out.error.message) == (
        "queued",
        "ConnectionError",
        "no route",
    )
    clock.advance(120_000)
    (out,) = await app.recover()
    assert (out.status, out.output) == ("completed", "blue")

    out = await app.invoke(user_id="u", message="go", execution_id="y")
    fails += [ConnectionError("no route")] * 3
    seen = [(await app.resume("y", approve(out))).status]
    for _ in range(4):
        clock.advance(120_000)
        seen += [out.status for out in await app.recover()]
    assert seen == ["queued", "queued", "stuck"]
    (listed,) = await app.executions.list(status="stuck")
    assert "recorded a wait in it, asked a failure (no route)" in listed.error.message
    await app.retry("y")
    (out,) = await app.recover()
    assert (out.status, out.output) == ("completed", "blue")


class Panic(BaseException):
    """What extensions written in Rust raise."""


@pytest.mark.parametrize("where", ["model", "tool", "node"])
async def test_a_panic_is_a_failed_attempt_like_any_other(
    make_app, ledger, clock, where: str
) -> None:
    def panic(*_: Any, **__: Any) -> None:
        raise Panic("index out of bounds")

    def boom() -> None:
        """Do something."""
        panic()

    def root() -> Any:
        if where == "node":
            return Workflow(name="flow", edges=[(START, FunctionNode(func=boom, name="boom"))])
        made = agent(ledger, "root", calls(("boom", {})), says("done"), tools=[boom])
        if where == "model":
            made.model.script = panic
        return made

    app = make_app(root(), config={"retry": {"max_attempts": 2}})
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert (out.status, out.error.type) == ("queued", "Panic")
    clock.advance(120_000)
    (out,) = await app.recover()
    assert (out.status, out.error.message) == ("failed", "index out of bounds")
    with pytest.raises(Panic):
        async for _ in app.runner.run_async(
            user_id="u", session_id="s", new_message=types.UserContent("go")
        ):
            pass


async def test_a_result_that_can_never_be_stored_is_tried_once_and_listed(
    make_app, ledger, clock
) -> None:
    def give() -> Any:
        """Give something."""
        ledger.add("give")
        return {"x": object()}

    app = make_app(agent(ledger, "root", calls(("give", {})), says("done"), tools=[give]))
    out = await app.invoke(user_id="u", message="go")
    clock.advance(120_000)
    assert await app.recover() == ()
    (listed,) = await app.executions.list(status="failed")
    assert listed.id == out.execution_id
    assert (listed.attempt, listed.error.type) == (1, "NotStorable")
    assert "x" in listed.error.message and listed.error.remedy
    assert ledger.rows().count(("give",)) == 1


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_record_of_another_version_is_stuck_once_and_goes_on_with_the_right_code(
    make_app, ledger, clock, mode, replica_set_uri, database
) -> None:
    tools = Tools(ledger)
    script = [calls(("look", {"q": "a"})), calls(("pay", {"amount": 1})), says("done")]
    root = agent(ledger, "root", *script, tools=[tools.look, tools.confirmed_pay])
    namespace = f"n{os.urandom(6).hex()}"
    app = make_app(root, mode=mode, namespace=namespace)
    out = await app.invoke(user_id="u", message="go")
    answers = approve(out)
    async with AsyncMongoClient(replica_set_uri) as client:
        found = await client[database]["durable_executions"].find_one({"ns": namespace})
        records = client[database]["durable_activities"]
        of_tool = {"_id": {"$regex": f"^{found['run']}:"}, "name": "look"}
        await records.update_one(of_tool, {"$set": {"v": 99}})
        out = await app.resume(out.execution_id, answers)
        assert (out.status, out.error.type) == ("stuck", "CorruptHistory")
        assert "schema version 99" in out.error.message
        clock.advance(120_000)
        assert await app.recover() == ()
        (listed,) = await app.executions.list(status="stuck")
        assert (listed.attempt, listed.error.remedy) == (2, out.error.remedy)
        await records.update_one(of_tool, {"$set": {"v": 1}})
    await app.retry(out.execution_id)
    (out,) = await app.recover()
    assert out.status == "completed"
    assert ledger.rows().count(("tool", "look", "a")) == 1


async def test_an_execution_of_another_version_is_left_to_its_code_and_hides_nothing(
    make_app, ledger, clock, replica_set_uri, database
) -> None:
    """A claim would take a lease, fail, and be made again for ever."""
    namespace = f"n{os.urandom(6).hex()}"
    tools = Tools(ledger)
    root = agent(ledger, "root", calls(("pay", {"amount": 1})), tools=[tools.confirmed_pay])
    app = make_app(root, namespace=namespace)
    queued = await app.submit(user_id="u", session_id="queued", message="go")
    asking = await app.invoke(user_id="u", session_id="asks", message="go")
    await app.invoke(user_id="u", session_id="fine", message="go")
    async with AsyncMongoClient(replica_set_uri) as client:
        executions = client[database]["durable_executions"]
        of_these = {"ns": namespace, "session": {"$in": ["queued", "asks"]}}
        await executions.update_many(of_these, {"$set": {"v": 99}})
        for _ in range(2):
            clock.advance(120_000)
            assert await app.recover() == ()
        found = {one.id: one for one in await app.executions.list()}
        assert len(found) == 3
        for one in (queued.id, asking.execution_id):
            assert found[one].error.type == "CorruptHistory"
            assert "schema version 99" in found[one].error.message
        assert (found[queued.id].status, found[queued.id].attempt) == ("queued", 0)
        (open_wait,) = await app.waits.list()
        assert open_wait.session_id == "fine"
        await executions.update_many(of_these, {"$set": {"v": 1}})
    (out,) = await app.recover()
    assert out.status == "suspended"
