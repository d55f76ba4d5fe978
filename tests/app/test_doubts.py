"""In-doubt waits as users meet them: every place a function runs, every way to answer, forks."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import jsonschema
import pytest
from google.adk.agents import LlmAgent
from google.adk.artifacts import InMemoryArtifactService
from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionResult
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow
from google.genai import types
from pydantic import BaseModel, PrivateAttr

from durable_adk import (
    AnswerConflict,
    App,
    ConfigError,
    Doubt,
    DurableRunner,
    InvalidAnswer,
    OutcomeUnknown,
    SessionBusy,
    WaitClosed,
    current_activity_id,
    durable_tool,
    step,
)
from durable_adk.model import codec
from durable_adk.store.clock import ManualClock
from durable_adk.testing import FaultPlan, calls, memory_client, says
from tests.app.agents import talker
from tests.app.conftest import ON

LEASE_PASSED_MS = 120_000
NOT_DONE = {"outcome": "not_done"}


def done(result: Any) -> dict[str, Any]:
    return {"outcome": "done", "result": result}


class Died(BaseException):
    """The process is gone."""


class Desk:
    """One MongoDB in memory, one clock, Apps that die and Apps that go on; and what was paid."""

    def __init__(self) -> None:
        self.client = memory_client()
        self.clock = ManualClock()
        self.files = InMemoryArtifactService()
        self.paid: list[Any] = []
        self.apps: list[Any] = []

    def app(self, root: Any, *, mode: str = "restore", faults: Any = None, **config: Any) -> App:
        app = App(
            "desk",
            root_agent=root,
            config={**ON, "replay": {"mode": mode}, **config},
            mongodb=self.client,
            clock=self.clock,
            faults=faults,
            artifact_service=self.files,
        )
        self.apps.append(app)
        return app

    async def die(self, root: Any, point: str, *, at: int = 1, **more: Any) -> None:
        """An invocation whose process dies there."""
        plan = FaultPlan().fail(point, Died(), at=at)
        app = self.app(root, faults=plan, **more)
        with pytest.raises(Died):
            await app.invoke(user_id="u", session_id="s", message="go", execution_id="e")
        plan.assert_all_struck()
        self.clock.advance(LEASE_PASSED_MS)

    async def die_again(self, root: Any, answers: Any, point: str) -> None:
        """The same while it goes on after answers."""
        app = self.app(root, faults=FaultPlan().fail(point, Died()))
        with pytest.raises(Died):
            await app.resume("e", answers)
        self.clock.advance(LEASE_PASSED_MS)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    for app in made.apps:
        with contextlib.suppress(Exception):
            await app.close()


def charging(desk: Desk, policy: Any = "ask", **more: Any) -> Any:
    @durable_tool(on_unknown_outcome=policy, **more)
    def charge(cents: int = 5) -> dict[str, Any]:
        """Charge a card."""
        desk.paid.append((current_activity_id(), cents))
        return {"charged": cents}

    return charge


def one_tool(desk: Desk) -> LlmAgent:
    return talker(calls(("charge", {"cents": 5})), says("done"), tools=[charging(desk)])


def a_function_node(desk: Desk) -> Workflow:
    node = FunctionNode(func=charging(desk), name="charge")
    return Workflow(name="flow", edges=[(START, node), (node, _show)])


def _show(node_input: Any) -> str:
    return json.dumps(node_input)


def a_tool_node(desk: Desk) -> Workflow:
    def first(node_input: Any) -> dict[str, int]:
        return {"cents": 5}

    tool = FunctionTool(charging(desk))
    return Workflow(name="flow", edges=[(START, first), (first, tool), (tool, _show)])


def a_child(desk: Desk) -> Workflow:
    async def runner(ctx: Any, node_input: Any) -> Any:
        yield await ctx.run_node(charging(desk), node_input=1)

    node = FunctionNode(func=runner, name="runner", rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, node)])


def a_step(desk: Desk) -> Workflow:
    async def runner(ctx: Any, node_input: Any) -> Any:
        yield await step("charge", charging(desk), 5)

    return Workflow(name="flow", edges=[(START, FunctionNode(func=runner, name="runner"))])


def below_a_tool(desk: Desk) -> LlmAgent:
    inner = talker(
        calls(("charge", {"cents": 5})), says("inner done"), name="inner", tools=[charging(desk)]
    )
    return talker(calls(("inner", {"request": "x"})), says("done"), tools=[AgentTool(inner)])


def a_later_step(desk: Desk) -> LlmAgent:
    tool = FunctionTool(charging(desk), require_confirmation=True)
    return talker(calls(("charge", {"cents": 5})), says("done"), tools=[tool])


SHAPES: dict[str, tuple[Callable[[Desk], Any], str]] = {
    "a tool": (one_tool, "tool:charge"),
    "a function node": (a_function_node, "node:charge"),
    "a tool node": (a_tool_node, "node:charge"),
    "run_node": (a_child, "node:charge"),
    "step": (a_step, "step:charge"),
    "below a tool": (below_a_tool, "tool:charge"),
}


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("told", ["done", "not_done"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_function_in_doubt_is_asked_about_wherever_it_runs(
    desk: Desk, shape: str, told: str, mode: str
) -> None:
    build, body = SHAPES[shape]
    undisturbed = Desk()
    plain = undisturbed.app(build(undisturbed))
    expected = await plain.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    await plain.close()
    await desk.die(build(desk), f"ran {body}", mode=mode)
    app = desk.app(build(desk), mode=mode)
    (asked,) = await app.recover()
    assert asked.status == "suspended", asked.error
    (wait,) = asked.waits
    assert (wait.kind, wait.tool_call.name) == ("in_doubt", "charge")
    assert (await app.waits.list(kind="in_doubt")).items == asked.waits
    ((key, cents),) = desk.paid
    assert wait.payload["activity_id"] == key
    answer = done({"charged": cents}) if told == "done" else NOT_DONE
    out = await app.resume("e", {wait.id: answer}, by="me")
    assert (out.status, out.response, out.output) == (
        "completed",
        expected.response,
        expected.output,
    )
    assert [e.id for e in out.events] == [e.id for e in expected.events]
    assert desk.paid == [(key, cents)] * (1 if told == "done" else 2)
    shown = [(a.kind, a.status) for a in await app.executions.activities("e") if a.name == "charge"]
    assert sorted(shown) == sorted([(wait.payload["kind"], "completed"), ("wait", "completed")])


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_doubt_in_a_step_after_a_confirmation(desk: Desk, mode: str) -> None:
    first = desk.app(a_later_step(desk), mode=mode)
    out = await first.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    await desk.die_again(
        a_later_step(desk), {out.waits[0].id: {"confirmed": True}}, "in tool:charge"
    )
    app = desk.app(a_later_step(desk), mode=mode)
    (asked,) = await app.recover()
    (wait,) = asked.waits
    assert wait.kind == "in_doubt"
    assert (await app.executions.get("e")).step == 2
    out = await app.resume("e", {wait.id: done({"charged": 5})})
    assert (out.status, out.response, desk.paid) == ("completed", "done", [])


async def test_parallel_doubts_are_answered_together_and_then_others_can_be_asked(
    desk: Desk,
) -> None:
    """One frontier of doubts, then the ordinary frontier of the same step."""

    def root() -> Workflow:
        parts = tuple(FunctionNode(func=charging(desk), name=name) for name in ("a", "b"))
        join = JoinNode(name="join")
        ask = FunctionTool(charging(desk), require_confirmation=True)
        payer = talker(calls(("charge", {"cents": 9})), says("done"), tools=[ask])
        return Workflow(name="flow", edges=[(START, parts), (parts, join), (join, payer)])

    await desk.die(root(), "ran node:b")
    app = desk.app(root())
    (asked,) = await app.recover()
    frontier = asked.waits
    assert [w.kind for w in frontier] == ["in_doubt"] * len(frontier)
    with pytest.raises(SessionBusy) as busy:
        await app.invoke(user_id="u", session_id="s", message="and now?")
    assert frontier[0].id in str(busy.value.waits)
    out = await app.resume("e", {w.id: done({"charged": 1}) for w in frontier})
    assert [w.kind for w in out.waits] == ["adk_request_confirmation"]
    again = await app.resume("e", {w.id: done({"charged": 1}) for w in frontier})
    assert again.waits == out.waits, "the same answers, the same outcome"
    with pytest.raises(AnswerConflict):
        await app.answer(frontier[0].id, NOT_DONE)
    out = await app.resume("e", {out.waits[0].id: {"confirmed": True}})
    assert out.status == "completed"


async def test_the_tool_is_run_once_more_for_each_not_done_and_asked_about_each_time(
    desk: Desk,
) -> None:
    await desk.die(one_tool(desk), "ran tool:charge")
    seen = set()
    for _ in range(2):
        app = desk.app(one_tool(desk))
        (asked,) = await app.recover()
        (wait,) = asked.waits
        seen.add(wait.id)
        await desk.die_again(one_tool(desk), {wait.id: NOT_DONE}, "ran tool:charge")
    app = desk.app(one_tool(desk))
    (asked,) = await app.recover()
    out = await app.resume("e", {asked.waits[0].id: done({"charged": 5})})
    assert out.status == "completed"
    assert len(seen) == 2
    assert len(desk.paid) == 3
    assert len(set(desk.paid)) == 1, "one idempotency key"
    kinds = [a.status for a in await app.executions.activities("e") if a.kind == "wait"]
    assert kinds == ["completed"] * 3


class Sandbox(BaseCodeExecutor):
    """Prints what it is given, and says that it ran."""

    ran: Any

    def execute_code(self, invocation_context: Any, code_execution_input: Any) -> Any:
        self.ran.append(code_execution_input.code)
        return CodeExecutionResult(stdout="FORTY-TWO")


@pytest.mark.parametrize(
    "result",
    ["FORTY-TWO", {"stdout": "FORTY-TWO"}, ["FORTY-TWO"], {"stderr": ["FORTY-TWO"]}],
    ids=repr,
)
async def test_code_in_doubt_is_told_by_what_it_printed(desk: Desk, result: Any) -> None:
    tools = {"Sandbox": {"on_unknown_outcome": "ask"}}

    def root() -> LlmAgent:
        def choose(request: Any, _turn: int) -> Any:
            has_run = "FORTY-TWO" in str(request.contents)
            return says("it is 42") if has_run else says("```tool_code\nprint(42)\n```")

        made = talker(code_executor=Sandbox(ran=desk.paid))
        made.model.script = choose
        return made

    await desk.die(root(), "ran tool:Sandbox", tools=tools)
    app = desk.app(root(), tools=tools)
    (asked,) = await app.recover()
    (wait,) = asked.waits
    assert wait.tool_call.args == {"code": "print(42)"}
    out = await app.resume("e", {wait.id: done(result)})
    assert (out.status, out.response, len(desk.paid)) == ("completed", "it is 42", 1)
    results = [p.code_execution_result for e in out.events for p in e.content.parts]
    assert ["FORTY-TWO" in one.output for one in results if one] == [True]


# ---------------------------------------------------------------------- what is accepted


async def test_the_map_is_checked_as_any_other(desk: Desk) -> None:
    await desk.die(one_tool(desk), "ran tool:charge")
    app = desk.app(one_tool(desk))
    (asked,) = await app.recover()
    (wait,) = asked.waits
    good: list[Any] = [done({}), done({"a": [1]}), NOT_DONE]
    bad: list[Any] = [None, "done", {}, {"outcome": "done"}, {**NOT_DONE, "result": 1}]
    for value in good:
        jsonschema.validate({wait.id: value}, asked.resume_schema)
        jsonschema.validate(value, wait.response_schema)
    for value in bad:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({wait.id: value}, asked.resume_schema)
        with pytest.raises(InvalidAnswer, match="outcome"):
            await app.resume("e", {wait.id: value})
        with pytest.raises(InvalidAnswer, match="outcome"):
            await app.answer(wait.id, value)
    assert (await app.waits.get(wait.id)) == wait, "nothing was stored"
    receipt = await app.answer(wait.id, done({"x": 1}))
    assert (receipt.open, receipt.runnable) == (0, True)
    (out,) = await app.recover()
    assert (out.status, desk.paid) == ("completed", desk.paid[:1])


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_what_did_not_happen_is_not_tried_again_with_other_arguments(
    desk: Desk, mode: str
) -> None:
    def root(cents: int) -> LlmAgent:
        def change(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
            args["cents"] = cents

        script, tools = (calls(("charge", {})), says("done")), [charging(desk)]
        return talker(*script, tools=tools, before_tool_callback=change)

    await desk.die(root(5), "ran tool:charge", mode=mode)
    app, changed = desk.app(root(5), mode=mode), desk.app(root(6), mode=mode)
    ((wait,),) = [out.waits for out in await app.recover()]
    for answered in (False, True):
        if answered:
            await app.answer(wait.id, NOT_DONE)
        assert (await app.executions.replay("e")).ok
        assert "with another input" in (await changed.executions.replay("e")).difference.recorded
    out = await changed.resume("e")
    assert (out.status, out.error and out.error.type) == ("stuck", "ReplayMismatch"), desk.paid
    await app.retry("e")
    (out,) = await app.recover()
    assert (out.status, [cents for _id, cents in desk.paid]) == ("completed", [5, 5])


@pytest.mark.parametrize("policy", ["ask", "fail"])
@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_what_ends_before_anybody_looked_still_says_what_is_in_doubt(
    desk: Desk, policy: str, how: str
) -> None:
    root = talker(calls(("charge", {})), says("done"), tools=[charging(desk, policy)])
    plan = FaultPlan().fail("ran tool:charge", Died())
    dying = desk.app(root, faults=plan)
    limit = "1m" if how == "deadline" else None
    with pytest.raises(Died):
        await dying.invoke(user_id="u", message="go", execution_id="e", deadline=limit)
    desk.clock.advance(LEASE_PASSED_MS)
    app = desk.app(root)
    if how == "cancel":
        await app.cancel("e")
    else:
        await app.recover()
    assert (await app.executions.get("e")).status in ("cancelled", "failed")
    found = [(a.name, a.status) for a in await app.executions.activities("e") if a.kind == "tool"]
    assert (found, len(desk.paid)) == ([("charge", "in_doubt")], 1)


async def test_a_person_is_not_shown_a_redacted_argument_and_reconcile_is(desk: Desk) -> None:
    told: list[Doubt] = []
    root = talker(
        calls(("charge", {"cents": 5})),
        says("done"),
        tools=[charging(desk, reconcile=lambda doubt: told.append(doubt))],
    )
    await desk.die(root, "ran tool:charge", redact=["cents"])
    (asked,) = await desk.app(root, redact=["cents"]).recover()
    (wait,) = asked.waits
    assert wait.tool_call.args == {"cents": "[redacted]"}
    assert 'charge({"cents": "[redacted]"})' in wait.message
    assert [doubt.args for doubt in told] == [{"cents": 5}]


CARD = "4111-1111"


class Kind(enum.Enum):
    DEBIT = "debit"


@dataclasses.dataclass
class Order:
    """Of a step(): what a person is shown of it is JSON."""

    card: str
    cents: int
    kind: Kind = Kind.DEBIT
    tags: tuple[str, ...] = ("a",)


class Bill(BaseModel):
    order: Order
    card: str = CARD
    _card: str = PrivateAttr(default=CARD + "!")


def stepping(desk: Desk, *args: Any, **kwargs: Any) -> Workflow:
    @durable_tool(on_unknown_outcome="ask")
    def pay(card: Any, *cards: Any, **more: Any) -> str:
        desk.paid.append((current_activity_id(), card))
        return "paid"

    async def runner(ctx: Any, node_input: Any) -> Any:
        yield await step("pay", pay, *args, **kwargs)

    return Workflow(name="flow", edges=[(START, FunctionNode(func=runner, name="runner"))])


ORDER = Order(CARD, 5)
HIDDEN = {"card": "[redacted]", "cents": 5, "kind": "debit", "tags": ["a"]}


@pytest.mark.parametrize(
    ("args", "kwargs", "seen"),
    [
        ((), {"card": CARD}, {"args": [], "kwargs": {"card": "[redacted]"}}),
        ((CARD,), {"cents": 5}, {"args": ["[redacted]"], "kwargs": {"cents": 5}}),
        ((1, CARD, CARD), {}, {"args": ["[redacted]"] * 3, "kwargs": {}}),
        (
            (),
            {"card": 1, "order": ORDER},
            {"args": [], "kwargs": {"card": "[redacted]", "order": HIDDEN}},
        ),
        (
            (),
            {"card": 1, "bill": Bill(order=ORDER)},
            {
                "args": [],
                "kwargs": {"card": "[redacted]", "bill": {"order": HIDDEN, "card": "[redacted]"}},
            },
        ),
    ],
    ids=["by name", "by place", "the rest", "a dataclass", "a model"],
)
async def test_what_is_redacted_is_so_inside_objects_and_by_place(
    desk: Desk, args: tuple[Any, ...], kwargs: dict[str, Any], seen: dict[str, Any]
) -> None:
    redact = ["card", "cards"]
    await desk.die(stepping(desk, *args, **kwargs), "ran step:pay", redact=redact)
    (asked,) = await desk.app(stepping(desk, *args, **kwargs), redact=redact).recover()
    (wait,) = asked.waits
    assert wait.tool_call.args == seen
    assert json.loads(json.dumps(wait.tool_call.args)) == seen
    assert CARD not in repr(wait)


@pytest.mark.parametrize("stored", ["now", "typed, as before"])
async def test_a_doubt_about_an_object_is_listed_and_answered_where_its_class_is_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    root = stepping(desk, ORDER, bill=Bill(order=ORDER))
    if stored != "now":
        monkeypatch.setattr("durable_adk.engine.indoubt.shown", codec.decode)
    await desk.die(root, "ran step:pay")
    (asked,) = await desk.app(root).recover()
    (wait,) = asked.waits
    with monkeypatch.context() as other:  # a program that has no such classes
        for name in ("Order", "Bill", "Kind"):
            other.delattr(f"{__name__}.{name}")
        away = desk.app(None)
        (listed,) = (await away.waits.list()).items
        assert listed.id == wait.id
        order = {"card": CARD, "cents": 5, "tags": ["a"]}
        (given,) = listed.tool_call.args["args"]
        assert given | {"kind": ""} == order | {"kind": ""}
        assert listed.tool_call.args["kwargs"]["bill"]["card"] == CARD
        assert [one.id for one in (await away.executions.list()).items] == ["e"]
        assert (await away.executions.get("e")).open_waits == 1
        assert "in_doubt" in [one.status for one in await away.executions.activities("e")]
        assert (await away.answer(wait.id, done("paid"))).execution_id == "e"
    (out,) = await desk.app(root).recover()
    assert (out.status, len(desk.paid)) == ("completed", 1)


@pytest.mark.parametrize("how", ["cancel", "give_up"])
@pytest.mark.parametrize("answered", [False, True])
async def test_an_execution_that_is_in_doubt_can_be_ended(
    desk: Desk, how: str, answered: bool
) -> None:
    await desk.die(one_tool(desk), "ran tool:charge")
    app = desk.app(one_tool(desk))
    (asked,) = await app.recover()
    (wait,) = asked.waits
    if answered:
        await app.answer(wait.id, done({"charged": 5}))
    record = await getattr(app, how)("e", "no more")
    assert record.status == ("cancelled" if how == "cancel" else "failed")
    assert (await app.waits.list()).items == ()
    events = await app.executions.events("e")
    (response,) = [r for e in events for r in e.get_function_responses()]
    if answered:
        assert response.response == {"charged": 5}
    else:
        assert response.response == {"status": "closed", "reason": "no more"}
        with pytest.raises(WaitClosed):
            await app.answer(wait.id, NOT_DONE)
    out = await app.invoke(user_id="u", session_id="s", message="next")
    assert out.status == "completed"


async def test_fail_beside_ask_is_the_end(desk: Desk) -> None:
    def root() -> Workflow:
        async def both(ctx: Any, node_input: Any) -> Any:
            await asyncio.gather(step("a", charging(desk), 1), step("b", charging(desk, "fail"), 2))
            yield "ok"

        return Workflow(name="flow", edges=[(START, FunctionNode(func=both, name="both"))])

    await desk.die(root(), "ran step:b")
    (out,) = await desk.app(root()).recover()
    assert (out.status, out.error.type) == ("failed", "OutcomeUnknown")


# ---------------------------------------------------------------------- reconcile


async def test_a_callback_finds_out(desk: Desk) -> None:
    seen: list[Doubt] = []

    async def look(doubt: Doubt) -> Any:
        seen.append(doubt)
        return done({"charged": doubt.args["cents"]})

    def root() -> LlmAgent:
        tool = charging(desk, reconcile=look)
        return talker(calls(("charge", {"cents": 5})), says("done"), tools=[tool])

    await desk.die(root(), "ran tool:charge")
    (out,) = await desk.app(root()).recover()
    assert (out.status, out.response) == ("completed", "done")
    (doubt,) = seen
    assert (doubt.activity_id, doubt.args) == (desk.paid[0][0], {"cents": 5})
    assert (doubt.execution_id, doubt.user_id, doubt.session_id) == ("e", "u", "s")
    (response,) = [r for e in out.events for r in e.get_function_responses()]
    assert response.response == {"charged": 5}
    (wait,) = [a for a in await desk.apps[-1].executions.activities("e") if a.kind == "wait"]
    assert wait.details["by"] == "reconcile"


@pytest.mark.parametrize("gives", ["raises", "malformed"])
async def test_a_callback_that_fails_in_the_last_attempt_does_not_know(
    desk: Desk, gives: str
) -> None:
    asked: list[Doubt] = []

    def look(doubt: Doubt) -> Any:
        asked.append(doubt)
        if gives == "raises":
            raise RuntimeError("the bank is down")
        return "not_done"

    def root() -> LlmAgent:
        tool = charging(desk, reconcile=look)
        return talker(calls(("charge", {"cents": 5})), says("done"), tools=[tool])

    await desk.die(root(), "ran tool:charge")
    app = desk.app(root(), retry={"max_attempts": 2})
    (out,) = await app.recover()
    assert out.status == "queued"
    expected = "the bank is down" if gives == "raises" else "what reconcile of charge returned"
    assert expected in out.error.message
    desk.clock.advance(LEASE_PASSED_MS)
    (out,) = await app.recover()
    assert (out.status, [wait.kind for wait in out.waits]) == ("suspended", ["in_doubt"])
    out = await app.resume("e", {out.waits[0].id: done({"charged": 5})})
    assert (out.status, len(asked), len(desk.paid)) == ("completed", 2, 1)


async def test_a_callback_that_hangs_does_not_outlive_a_cancellation(desk: Desk) -> None:
    asked = asyncio.Event()

    async def look(doubt: Doubt) -> Any:
        asked.set()
        await asyncio.Event().wait()

    def root() -> LlmAgent:
        tool = charging(desk, reconcile=look)
        return talker(calls(("charge", {"cents": 5})), says("done"), tools=[tool])

    await desk.die(root(), "ran tool:charge")
    app = desk.app(root())
    going_on = asyncio.ensure_future(app.recover())
    await asked.wait()
    assert (await app.cancel("e", "no more")).status == "cancelled"
    await going_on
    assert len(desk.paid) == 1


def _noted(doubt: Doubt) -> Any:
    return done(f"found {doubt.name}")


@durable_tool(on_unknown_outcome="fail", reconcile=_noted)
def note(text: str) -> str:
    """Note something."""
    return text


def noting() -> Workflow:
    async def runner(ctx: Any, node_input: Any) -> Any:
        yield await step("note_it", note, "x")

    return Workflow(name="flow", edges=[(START, FunctionNode(func=runner, name="runner"))])


def noting_in_a_node() -> Workflow:
    return Workflow(name="flow", edges=[(START, FunctionNode(func=note, name="note_it"))])


@pytest.mark.parametrize(
    ("build", "body"),
    [(noting, "step:note_it"), (noting_in_a_node, "node:note_it")],
    ids=["step", "node"],
)
async def test_the_callback_of_a_step_and_of_a_node_is_found(
    desk: Desk, build: Any, body: str
) -> None:
    plan = FaultPlan().fail(f"in {body}", Died())
    app = desk.app(build(), faults=plan)
    with pytest.raises(Died):
        await app.invoke(
            user_id="u", session_id="s", message="x", execution_id="e", state_delta={"text": "x"}
        )
    desk.clock.advance(LEASE_PASSED_MS)
    (out,) = await desk.app(build()).recover()
    assert (out.status, out.output) == ("completed", "found note_it")


async def test_a_registered_tool_brings_its_callback_and_the_file_its_policy(desk: Desk) -> None:
    def app(faults: Any = None) -> App:
        made = desk.app(None, faults=faults, tools={"charge": {"on_unknown_outcome": "ask"}})

        @made.tool(on_unknown_outcome="ask", reconcile=lambda doubt: done({"found": 1}))
        def charge(cents: int) -> dict[str, Any]:
            """Charge a card."""
            desk.paid.append(cents)
            return {"charged": cents}

        made.entrypoint(
            lambda: talker(calls(("charge", {"cents": 5})), says("done"), tools=made.tools())
        )
        return made

    with pytest.raises(Died):
        await app(FaultPlan().fail("ran tool:charge", Died())).invoke(
            user_id="u", session_id="s", message="go", execution_id="e"
        )
    desk.clock.advance(LEASE_PASSED_MS)
    (out,) = await app().recover()
    assert out.status == "completed"
    assert desk.paid == [5]


async def test_a_policy_of_the_file_asks(desk: Desk) -> None:
    def root() -> LlmAgent:
        return talker(
            calls(("charge", {"cents": 5})), says("done"), tools=[charging(desk, "rerun")]
        )

    tools = {"charge": {"on_unknown_outcome": "ask"}}
    await desk.die(root(), "ran tool:charge", tools=tools)
    (out,) = await desk.app(root(), tools=tools).recover()
    assert [w.kind for w in out.waits] == ["in_doubt"]


# ---------------------------------------------------------------------- streams, the runner


async def test_a_stream_ends_with_the_wait(desk: Desk) -> None:
    await desk.die(one_tool(desk), "ran tool:charge")
    app = desk.app(one_tool(desk))
    again = app.stream(user_id="u", session_id="s", message="go", execution_id="e")
    *_, last = [item async for item in again]
    assert (last.kind, [w.kind for w in last.data.waits]) == ("suspend", ["in_doubt"])
    found = [
        item async for item in app.resume_stream("e", {last.data.waits[0].id: done({"charged": 5})})
    ]
    assert found[-1].kind == "result"


async def test_the_runner_says_which_wait_and_takes_the_answer_as_a_response(desk: Desk) -> None:
    await desk.die(one_tool(desk), "ran tool:charge")
    runner = DurableRunner(
        agent=one_tool(desk), app_name="desk", mongodb=desk.client, clock=desk.clock
    )
    desk.apps.append(runner)

    async def run(**given: Any) -> list[Any]:
        return [e async for e in runner.run_async(user_id="u", session_id="s", **given)]

    with pytest.raises(OutcomeUnknown) as caught:
        await run(invocation_id="e", new_message=_user(types.Part(text="go")))
    (wait,) = (await desk.app(one_tool(desk)).waits.list()).items
    assert wait.id in str(caught.value)
    with pytest.raises(SessionBusy):
        await run(new_message=_user(types.Part(text="and now?")))
    response = types.FunctionResponse(id=wait.id, name="in_doubt", response=done({"charged": 5}))
    with pytest.raises(ConfigError, match="state_delta"):  # no event would set it
        await run(
            new_message=_user(types.Part(function_response=response)), state_delta={"by": "me"}
        )
    events = await run(new_message=_user(types.Part(function_response=response)))
    assert events[-1].content.parts[0].text == "done"
    assert len(desk.paid) == 1


def _user(part: types.Part) -> types.Content:
    return types.Content(role="user", parts=[part])


# ---------------------------------------------------------------------- cancelled bodies


async def test_a_body_that_runs_out_of_time_is_asked_about_before_its_retry(desk: Desk) -> None:
    """E2, ``ask``: ADK's retry would charge again, under another key."""
    from google.adk.workflow import RetryConfig

    def root() -> Workflow:
        @durable_tool(on_unknown_outcome="ask")
        async def charge(cents: int) -> dict[str, Any]:
            """Charge a card, slowly."""
            desk.paid.append(current_activity_id())
            await asyncio.sleep(60 if len(desk.paid) == 1 else 0)
            return {"charged": cents}

        async def runner(ctx: Any, node_input: Any) -> Any:
            yield await step("charge", charge, 5)

        node = FunctionNode(
            func=runner,
            name="runner",
            timeout=1.5,
            retry_config=RetryConfig(max_attempts=3, initial_delay=0.0, jitter=0.0),
        )
        return Workflow(name="flow", edges=[(START, node)])

    app = desk.app(root())
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    (wait,) = out.waits
    assert (wait.kind, len(desk.paid)) == ("in_doubt", 1)
    assert "cancelled" in wait.message
    out = await app.resume("e", {wait.id: NOT_DONE})
    assert (out.status, out.output) == ("completed", {"charged": 5})
    assert desk.paid == [desk.paid[0]] * 2


@pytest.mark.parametrize("told", ["done", "not_done"])
@pytest.mark.parametrize("place", ["a node", "a tool"])
async def test_what_a_body_made_of_a_call_in_doubt_is_no_outcome(
    desk: Desk, place: str, told: str
) -> None:
    """It gave up on the call; then somebody says whether it happened, and that decides."""

    @durable_tool(on_unknown_outcome="ask")
    async def charge(cents: int) -> str:
        desk.paid.append(current_activity_id())
        if len(desk.paid) == 1:
            patience[0].reschedule(0)  # from here on, however long it took to get here
            await asyncio.sleep(60)
        return "charged"

    patience: list[asyncio.Timeout] = []

    async def give_up_soon() -> str:
        """Charge a card, unless it takes too long."""
        try:
            async with asyncio.timeout(None) as limit:
                patience.append(limit)
                return str(await step("charge", charge, 5))
        except TimeoutError:
            return "gave up"

    async def runner(ctx: Any, node_input: Any) -> str:
        return await give_up_soon()

    node = FunctionNode(func=runner, name="runner")
    flow = Workflow(name="flow", edges=[(START, node), (node, _show)])
    agent = talker(calls(("give_up_soon", {})), says("done"), tools=[give_up_soon])
    app = desk.app(flow if place == "a node" else agent)
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    assert [wait.kind for wait in out.waits] == ["in_doubt"]
    answer = done("charged") if told == "done" else NOT_DONE
    out = await app.resume("e", {out.waits[0].id: answer})
    assert out.status == "completed"
    made = out.output if place == "a node" else str(out.events[2].get_function_responses())
    assert "charged" in made
    assert len(desk.paid) == (1 if told == "done" else 2)


async def test_a_cancelled_execution_leaves_its_body_in_doubt_and_asks_nobody(desk: Desk) -> None:
    entered = asyncio.Event()

    @durable_tool(on_unknown_outcome="ask")
    async def charge(cents: int) -> str:
        """Charge a card, slowly."""
        entered.set()
        await asyncio.sleep(60)
        return "charged"

    app = desk.app(talker(calls(("charge", {"cents": 5})), says("done"), tools=[charge]))
    running = asyncio.ensure_future(
        app.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    )
    await entered.wait()
    assert (await app.cancel("e")).status == "cancelled"
    assert (await running).status == "cancelled"
    statuses = {a.name: a.status for a in await app.executions.activities("e")}
    assert statuses["charge"] == "in_doubt"


# ---------------------------------------------------------------------- forks


@pytest.mark.parametrize("told", ["done", "not_done"])
async def test_a_fork_before_the_answer_asks_again_under_its_own_ids(desk: Desk, told: str) -> None:
    await desk.die(one_tool(desk), "ran tool:charge")
    app = desk.app(one_tool(desk))
    (asked,) = await app.recover()
    (wait,) = asked.waits
    first = await app.sessions.fork("u", "s", before=wait.id)
    await app.resume("e", {wait.id: done({"charged": 5})})
    for fork in (first, await app.sessions.fork("u", "s", before=wait.id)):
        out = await app.executions.outcome(fork.execution_id)
        (again,) = out.waits
        assert again.id.startswith(fork.execution_id)
        assert again.payload["activity_id"].startswith(fork.execution_id)
        assert again.payload["activity_id"] in again.message
        answer = done({"charged": 5}) if told == "done" else NOT_DONE
        out = await app.resume(fork.execution_id, {again.id: answer})
        assert (out.status, out.response) == ("completed", "done"), out.error
    keys = [key.split("~")[0] for key, _cents in desk.paid]
    assert len(set(keys)) == len(keys) == (1 if told == "done" else 3)


async def test_a_fork_after_the_answer_keeps_it(desk: Desk) -> None:
    await desk.die(one_tool(desk), "ran tool:charge")
    app = desk.app(one_tool(desk))
    (asked,) = await app.recover()
    (wait,) = asked.waits
    await app.resume("e", {wait.id: done({"charged": 5})})
    fork = await app.sessions.fork("u", "s", after=wait.id)
    (out,) = await app.recover()
    assert (out.execution_id, out.status) == (fork.execution_id, "completed")
    assert len(desk.paid) == 1


@pytest.mark.parametrize("told", ["done", "not_done"])
async def test_a_fork_behind_a_settled_call_keeps_its_outcome(desk: Desk, told: str) -> None:
    await desk.die(one_tool(desk), "ran tool:charge")
    app = desk.app(one_tool(desk))
    (asked,) = await app.recover()
    await app.resume("e", {asked.waits[0].id: done({"charged": 5}) if told == "done" else NOT_DONE})
    paid = len(desk.paid)
    tool = next(a for a in await app.executions.activities("e") if a.kind == "tool")
    for side in ("after", "before"):
        fork = await app.sessions.fork("u", "s", **{side: tool.id})
        (out,) = await app.recover()
        assert (out.execution_id, out.status) == (fork.execution_id, "completed"), out.error
        paid += side == "before"  # made anew, under a key of the fork
        assert len(desk.paid) == paid
    assert desk.paid[-1][0].startswith(fork.execution_id)
