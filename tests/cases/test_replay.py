"""Rows R of the case list: what a later attempt sees is what the first one saw."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from typing import Any

import pydantic
import pytest
from google.adk.models.llm_response import LlmResponse
from google.adk.workflow import START, FunctionNode, JoinNode, RetryConfig, Workflow

from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import Tools, agent, by_own_turns


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_each_outcome_comes_back_at_its_own_call_whatever_finishes_first(
    make_app, ledger, mode
) -> None:
    """R1: three branches of three parallel tools, in random orders, ten times."""
    tools = Tools(ledger)

    async def echo(n: int) -> dict[str, int]:
        """Echo."""
        ledger.add("echo", n)
        await asyncio.sleep(random.random() * 0.004)
        return {"n": n}

    def branch(b: int) -> Any:
        return agent(
            ledger,
            f"b{b}",
            calls(*(("echo", {"n": 10 * b + n}) for n in range(3))),
            calls(("pay", {"amount": b})),
            says(f"b{b} done"),
            tools=[echo, tools.confirmed_pay],
        )

    branches = tuple(branch(b) for b in (1, 2, 3))
    join = JoinNode(name="join")
    flow = Workflow(name="flow", edges=[(START, branches), (branches, join)])
    for _ in range(10):
        out = await make_app(flow).invoke(user_id="u", message="go")
        out = await make_app(flow, mode=mode).resume(out.execution_id, approve(out))
        assert out.status == "completed"
        for event in out.events:
            got = [r.response["n"] for r in event.get_function_responses() if r.name == "echo"]
            assert got == sorted(got)
    ran = [row[1] for row in ledger.rows() if row[0] == "echo"]
    assert sorted(ran) == sorted(10 * b + n for b in (1, 2, 3) for n in range(3)) * 1 or all(
        ran.count(n) == 10 for n in set(ran)
    )


def talks_of_the_clock(_context: Any) -> str:
    return f"It is {uuid.uuid4()}."


async def test_a_prompt_that_differs_uses_the_recorded_response_and_warns(
    make_app, ledger, caplog
) -> None:
    """R2: an instruction that is never the same twice."""
    tools = Tools(ledger)
    script = [calls(("pay", {"amount": 1})), says("done")]
    root = agent(
        ledger, "root", *script, tools=[tools.confirmed_pay], instruction=talks_of_the_clock
    )
    out = await make_app(root).invoke(user_id="u", message="go")
    with caplog.at_level(logging.WARNING, "durable_adk"):
        out = await make_app(root, mode="walk").resume(out.execution_id, approve(out))
    assert out.status == "completed"
    assert ledger.rows().count(("model", "root", 0)) == 1
    assert "another input" in caplog.text


async def test_a_prompt_that_differs_is_a_mismatch_where_that_is_asked_for(
    make_app, ledger
) -> None:
    """R2, strict."""
    tools = Tools(ledger)
    script = [calls(("pay", {"amount": 1})), says("done")]
    root = agent(
        ledger, "root", *script, tools=[tools.confirmed_pay], instruction=talks_of_the_clock
    )
    strict = {"replay": {"mode": "walk", "input_mismatch": {"model": "error"}}}
    out = await make_app(root).invoke(user_id="u", message="go")
    out = await make_app(root, config=strict).resume(out.execution_id, approve(out))
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
    assert out.error.position.endswith("|model|1")
    assert out.error.message.count("a system instruction of") == 2, "which part differs"
    assert "contents" not in out.error.message


async def test_two_executions_of_one_session_share_nothing(make_app, ledger) -> None:
    """R3: the same text twice."""
    tools = Tools(ledger)
    root = by_own_turns(
        agent(ledger, "root", tools=[tools.look]),
        calls(("look", {"q": "same"}, "call_0")),
        says("first"),
        calls(("look", {"q": "same"}, "call_0")),
        says("second"),
    )
    app = make_app(root)
    outs = [
        await app.invoke(user_id="u", session_id="s", message="the same text") for _ in range(2)
    ]
    assert [out.response for out in outs] == ["first", "second"]
    assert ledger.rows().count(("tool", "look", "same")) == 2
    ids = [event.id for out in outs for event in out.events]
    assert len(set(ids)) == len(ids)


class Refused(Exception):
    """An error with a constructor of its own."""

    def __init__(self, code: int, *, why: str) -> None:
        super().__init__(f"refused with {code}: {why}")
        self.code = code
        self.why = why


class Form(pydantic.BaseModel):
    number: int


def broken(kind: str) -> dict[str, Any]:
    """Raise."""
    if kind == "own":
        raise Refused(7, why="no")
    if kind == "pydantic":
        Form(number="x")  # type: ignore[arg-type]
    raise ExceptionGroup("several", [ValueError("one"), Refused(8, why="two")])


@pytest.mark.parametrize("kind", ["own", "pydantic", "group"])
@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_an_error_is_handled_alike_live_and_on_replay(make_app, ledger, kind, mode) -> None:
    """R5: the callback reads the class and its attributes."""
    tools = Tools(ledger)
    seen: list[tuple[str, Any]] = []

    def tell(tool: Any, args: Any, tool_context: Any, error: Exception) -> dict[str, Any]:
        parts = getattr(error, "exceptions", ())
        attributes = (getattr(error, "code", None), getattr(error, "why", None), str(error))
        seen.append(([c.__name__ for c in type(error).__mro__], attributes, len(parts)))
        return {"told": str(error)}

    root = agent(
        ledger,
        "root",
        calls(("broken", {"kind": kind})),
        calls(("pay", {"amount": 1})),
        says("done"),
        tools=[broken, tools.confirmed_pay],
        on_tool_error_callback=tell,
    )
    out = await make_app(root).invoke(user_id="u", message="go")
    out = await make_app(root, mode=mode).resume(out.execution_id, approve(out))
    assert out.status == "completed"
    assert len(seen) == (2 if mode == "walk" else 1)
    assert all(one == seen[0] for one in seen)
    if kind == "own":
        assert seen[0][1] == (7, "no", "refused with 7: no")


async def test_a_response_object_that_is_reused_does_not_change_the_record(
    make_app, ledger
) -> None:
    """R8."""
    tools = Tools(ledger)

    class Reuses(ScriptedModel):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            async for response in super().generate_content_async(llm_request, stream):
                kept.content = response.content
                yield kept
                kept.content = None

    kept = LlmResponse()
    root = agent(ledger, "root", tools=[tools.look, tools.confirmed_pay])
    root.model = Reuses(
        script=[calls(("look", {"q": "a"})), calls(("pay", {"amount": 1})), says("done")]
    )
    out = await make_app(root).invoke(user_id="u", message="go")
    out = await make_app(root, mode="walk").resume(out.execution_id, approve(out))
    assert (out.status, out.response) == ("completed", "done")


async def test_a_first_call_that_fails_leaves_one_user_message(make_app, ledger, clock) -> None:
    """R9."""
    fails = [RuntimeError("down")]
    root = agent(ledger, "root")
    root.model.script = lambda request, turn: fails.pop() if fails else says("hello")
    app = make_app(root)
    out = await app.invoke(user_id="u", session_id="s", message="go")
    assert (out.status, out.error.type, out.error.message) == ("queued", "RuntimeError", "down")
    clock.advance(60_000)
    (out,) = await app.recover()
    assert (out.status, out.response) == ("completed", "hello")
    events = await app.sessions.events(user_id="u", session_id="s")
    assert [event.author for event in events] == ["user", "root"]


async def test_a_node_retry_is_counted_once_and_its_failure_is_an_outcome(make_app, ledger) -> None:
    """E7: fails twice, then works; a later attempt runs nothing of it again."""
    tools = Tools(ledger)

    def flaky(node_input: Any) -> str:
        ledger.add("flaky")
        if ledger.rows().count(("flaky",)) < 3:
            raise ValueError("not yet")
        return "worked"

    retried = FunctionNode(
        func=flaky,
        name="flaky",
        retry_config=RetryConfig(max_attempts=3, initial_delay=0.0, jitter=0.0),
    )
    payer = agent(
        ledger, "payer", calls(("pay", {"amount": 1})), says("done"), tools=[tools.confirmed_pay]
    )
    flow = Workflow(name="flow", edges=[(START, retried), (retried, payer)])
    out = await make_app(flow).invoke(user_id="u", message="go")
    out = await make_app(flow, mode="walk").resume(out.execution_id, approve(out))
    assert out.status == "completed"
    assert ledger.rows().count(("flaky",)) == 3
