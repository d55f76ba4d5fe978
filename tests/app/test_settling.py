"""What settles a call in doubt: what is accepted, who is asked, and about which call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any

import jsonschema
import pytest
from google.adk.agents import LlmAgent
from google.adk.events import Event, RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, Workflow
from pydantic import BaseModel

from durable_adk import Doubt, InvalidAnswer, current_activity_id, durable_tool, step
from durable_adk.adk.returned import schema_of
from durable_adk.testing import calls, says
from tests.app.agents import talker
from tests.app.test_doubts import NOT_DONE, SHAPES, Desk, charging, desk, done, one_tool

__all__ = ["desk"]

ASKS = {"tools": {"charge": {"on_unknown_outcome": "ask"}}}


# ---------------------------------------------------------------------- generators


def streaming(desk: Desk, policy: Any = "ask", **more: Any) -> Any:
    @durable_tool(on_unknown_outcome=policy, **more)
    async def charge(cents: int) -> Any:
        """Charge a card, and show how."""
        desk.paid.append((current_activity_id(), cents))
        yield Event(message="charging")
        yield {"charged": cents}

    return charge


def show(node_input: Any) -> str:
    return str(node_input)


def of_an_agent(desk: Desk, policy: str = "ask", **more: Any) -> LlmAgent:
    tool = streaming(desk, policy, **more)
    return talker(calls(("charge", {"cents": 5})), says("done"), tools=[tool])


def of_a_node(desk: Desk, policy: str = "ask") -> Workflow:
    def first(node_input: Any) -> dict[str, int]:
        return {"cents": 5}

    tool = FunctionTool(streaming(desk, policy))
    return Workflow(name="flow", edges=[(START, first), (first, tool), (tool, show)])


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("told", ["done", "not_done"])
@pytest.mark.parametrize("build", [of_an_agent, of_a_node])
async def test_a_generator_that_dies_in_its_body_is_asked_about_once(
    desk: Desk, build: Callable[[Desk], Any], told: str, mode: str
) -> None:
    await desk.die(build(desk), "ran node:charge")
    app = desk.app(build(desk), mode=mode)
    (asked,) = await app.recover()
    (wait,) = asked.waits
    assert wait.payload["kind"] == ("tool" if build is of_an_agent else "node")
    out = await app.resume("e", {wait.id: done({"charged": 5}) if told == "done" else NOT_DONE})
    assert out.status == "completed", out.error
    assert "charged" in str(out.events)
    assert desk.paid == [(wait.payload["activity_id"], 5)] * (1 if told == "done" else 2)


@pytest.mark.parametrize("policy", ["rerun", "ask"])
async def test_a_generator_is_a_tool_node_too(desk: Desk, policy: str) -> None:
    app = desk.app(of_a_node(desk, policy))
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    assert (out.status, out.output) == ("completed", "{'charged': 5}"), out.error
    assert (await app.executions.replay("e")).ok


async def test_a_generator_whose_policy_is_in_the_file_has_the_key_of_its_question(
    desk: Desk,
) -> None:
    await desk.die(of_an_agent(desk, policy="rerun"), "ran node:charge", **ASKS)
    app = desk.app(of_an_agent(desk, policy="rerun"), **ASKS)
    (asked,) = await app.recover()
    ((key, _cents),) = desk.paid
    assert [wait.payload["activity_id"] for wait in asked.waits] == [key]
    out = await app.resume("e", {asked.waits[0].id: NOT_DONE})
    assert (out.status, desk.paid) == ("completed", [(key, 5)] * 2)


async def test_the_callback_of_a_generator_is_asked_about_the_call(desk: Desk) -> None:
    told: list[Doubt] = []

    def look(doubt: Doubt) -> Any:
        told.append(doubt)
        return done({"charged": 5})

    await desk.die(of_an_agent(desk, reconcile=look), "ran node:charge")
    (out,) = await desk.app(of_an_agent(desk, reconcile=look)).recover()
    assert (out.status, len(desk.paid)) == ("completed", 1)
    (doubt,) = told
    assert (doubt.kind, doubt.args, doubt.activity_id) == ("tool", {"cents": 5}, desk.paid[0][0])


async def test_what_a_generator_that_must_not_run_twice_made_of_a_call_in_doubt_stays(
    desk: Desk,
) -> None:
    """As with any other such body: only the call inside is asked about."""

    @durable_tool(on_unknown_outcome="ask")
    async def charge(cents: int) -> str:
        desk.paid.append(cents)
        limits[0].reschedule(0)
        await asyncio.sleep(60)
        return "never"

    @durable_tool(on_unknown_outcome="ask")
    async def pay() -> Any:
        """Charge a card, unless it takes too long."""
        try:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                await step("charge", charge, 5)
        except TimeoutError:
            yield {"paid": "gave up"}

    limits: list[asyncio.Timeout] = []
    app = desk.app(talker(calls(("pay", {})), says("done"), tools=[pay]))
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="e")
    (wait,) = out.waits
    assert wait.tool_call.name == "charge"
    out = await app.resume("e", {wait.id: done("charged")})
    assert (out.status, desk.paid) == ("completed", [5]), out.error
    assert "gave up" in str(out.events)


# ---------------------------------------------------------------------- answers


class Receipt(BaseModel):
    number: int
    lines: list[Receipt] = []


def returning(hint: Any) -> Any:
    """A function that says that it returns this."""

    def charge(node_input: Any = None, cents: int = 5) -> Any:
        """Charge a card."""
        return None

    charge.__annotations__["return"] = hint
    return durable_tool(on_unknown_outcome="ask")(charge)


def in_a_tool(hint: Any) -> LlmAgent:
    return talker(calls(("charge", {})), says("done"), tools=[returning(hint)])


def in_a_node(hint: Any) -> Workflow:
    node = FunctionNode(func=returning(hint), name="charge")
    return Workflow(name="flow", edges=[(START, node), (node, show)])


def in_a_step(hint: Any) -> Workflow:
    async def runner(ctx: Any, node_input: Any) -> Any:
        yield str(await step("charge", returning(hint)))

    return Workflow(name="flow", edges=[(START, FunctionNode(func=runner, name="runner"))])


@pytest.mark.parametrize(
    ("build", "hint", "bad", "good"),
    [
        (in_a_tool, dict[str, int], "charged", {"cents": 5}),
        (in_a_tool, dict[str, int], {"cents": "5 cents"}, {}),
        (in_a_tool, str, None, "charged"),
        (in_a_node, Receipt, {"number": 1, "lines": [{}]}, {"number": 1, "lines": []}),
        (in_a_node, "list[int]", [1, "two"], [1, 2]),
        (in_a_step, int | None, "five", None),
        (in_a_step, "int", 5.5, 5),
    ],
)
async def test_a_result_that_the_function_does_not_return_is_refused_at_the_answer(
    desk: Desk, build: Callable[[Any], Any], hint: Any, bad: Any, good: Any
) -> None:
    kind = build.__name__.removeprefix("in_a_")
    await desk.die(build(hint), f"in {kind}:charge")
    app = desk.app(build(hint))
    (asked,) = await app.recover()
    (wait,) = asked.waits
    beside = desk.app(None)  # it has the wait, and not the code
    for answer in (
        lambda: beside.answer(wait.id, done(bad)),
        lambda: app.resume("e", {wait.id: done(bad)}),
    ):
        with pytest.raises(InvalidAnswer, match="charge returns") as refused:
            await answer()
        assert list(refused.value.problems) == [wait.id]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({wait.id: done(bad)}, asked.resume_schema)
    for value in (done(good), NOT_DONE):
        jsonschema.validate({wait.id: value}, asked.resume_schema)
    assert (await app.waits.get(wait.id)) == wait, "nothing was stored"
    out = await app.resume("e", {wait.id: done(good)})
    assert out.status == "completed", out.error


@dataclass
class Slip:
    at: datetime
    cents: tuple[int, ...]


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize(
    ("hint", "given", "made"),
    [
        (Receipt, {"number": 1}, Receipt(number=1)),
        (
            Slip,
            {"at": "2030-01-01T00:00:00Z", "cents": [5]},
            Slip(datetime(2030, 1, 1, tzinfo=UTC), (5,)),
        ),
        (set[int], [1, 2], {1, 2}),
        (dict[str, Any], {"a": [1]}, {"a": [1]}),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
)
async def test_a_step_gives_its_caller_what_its_function_returns(
    desk: Desk, hint: Any, given: Any, made: Any, mode: str
) -> None:
    """Whoever answers sends JSON, and the body goes on with an object."""
    seen: list[Any] = []

    def root() -> Workflow:
        async def runner(ctx: Any, node_input: Any) -> Any:
            seen.append(await step("charge", returning(hint)))
            yield "ok"

        async def ask(ctx: Any, node_input: Any) -> Any:
            yield RequestInput(interrupt_id="q", message="?")

        first = FunctionNode(func=runner, name="runner")
        return Workflow(name="flow", edges=[(START, first), (first, FunctionNode(func=ask))])

    await desk.die(root(), "in step:charge", mode=mode)
    app = desk.app(root(), mode=mode)
    (asked,) = await app.recover()
    out = await app.resume("e", {asked.waits[0].id: done(given)})
    assert out.status == "suspended", out.error
    assert seen == [made]
    assert type(seen[0]) is type(made)
    out = await app.resume("e", {out.waits[0].id: "yes"})
    assert out.status == "completed", out.error


class Opaque:
    """Of this nobody can make a JSON schema."""


class Called:
    def __call__(self) -> int:
        return 1


def number(_more: Opaque | None = None) -> int:
    return 1


async def soon() -> int:
    return 1


def numbers() -> Iterator[int]:
    yield 1


def either() -> int | Opaque:
    return 1


@pytest.mark.parametrize(
    "says", [number, soon, partial(number, None), Called(), wraps(number)(lambda: 1)]
)
def test_what_a_function_says_that_it_returns(says: Any) -> None:
    assert schema_of(says) == schema_of(says) == {"type": "integer"}


@pytest.mark.parametrize("silent", [numbers, either, abs, Opaque(), None, charging])
def test_what_says_nothing_of_that(silent: Any) -> None:
    assert schema_of(silent) is None


@pytest.mark.parametrize("hint", [None, Any, Event, "Nowhere", Callable[[], int], object], ids=str)
async def test_a_hint_that_says_nothing_refuses_nothing(desk: Desk, hint: Any) -> None:
    def root() -> LlmAgent:
        made = in_a_tool(hint)
        if hint is None:
            del made.tools[0].__annotations__["return"]
        return made

    await desk.die(root(), "in tool:charge")
    app = desk.app(root())
    (asked,) = await app.recover()
    out = await app.resume("e", {asked.waits[0].id: done({"a": [1]})})
    assert out.status == "completed", out.error


async def test_an_answer_above_payload_max_is_refused_and_another_one_counts(desk: Desk) -> None:
    small = {"payload": {"max": "1KB"}}
    await desk.die(one_tool(desk), "ran tool:charge", **small)
    app = desk.app(one_tool(desk), **small)
    (asked,) = await app.recover()
    (wait,) = asked.waits
    large = done({"charged": "x" * 1_100})
    for answer in (
        lambda: app.answer(wait.id, large),
        lambda: app.resume("e", {wait.id: large}),
    ):
        with pytest.raises(InvalidAnswer, match=r"has 11\d\d bytes, and payload\.max is 1024"):
            await answer()
    out = await app.resume("e", {wait.id: done({"charged": 5})})
    assert out.status == "completed", out.error


# ---------------------------------------------------------------------- reconcile


@pytest.mark.parametrize("attempts", [1, 5])
async def test_a_callback_that_gives_too_much_ends_it_as_such_a_result_does(
    desk: Desk, attempts: int
) -> None:
    small: dict[str, Any] = {"payload": {"max": "1KB"}, "retry": {"max_attempts": attempts}}
    asked: list[Doubt] = []

    def look(doubt: Doubt) -> Any:
        asked.append(doubt)
        return done({"charged": "x" * 1_100})

    def root() -> LlmAgent:
        tool = charging(desk, reconcile=look)
        return talker(calls(("charge", {"cents": 5})), says("done"), tools=[tool])

    await desk.die(root(), "ran tool:charge", **small)
    (out,) = await desk.app(root(), **small).recover()
    assert (out.status, out.error.type, len(asked)) == ("failed", "NotStorable", 1)
    assert "what reconcile of charge returned: has 11" in out.error.message
    assert "payload.max" in out.error.remedy


class Bank:
    """Somebody who knows what was paid, and tools that are its own."""

    def __init__(self, desk: Desk) -> None:
        self.charge = charging(desk, reconcile=self.look)
        self.asked: list[Doubt] = []

    def look(self, doubt: Doubt) -> Any:
        self.asked.append(doubt)
        return done({"charged": doubt.kind})


def a_closure_in_a_step(bank: Bank) -> Workflow:
    charge = bank.charge

    async def pay() -> Any:
        return await step("pay", charge, 5)

    async def runner(ctx: Any, node_input: Any) -> Any:
        yield await pay()

    return Workflow(name="flow", edges=[(START, FunctionNode(func=runner, name="runner"))])


def a_closure_in_a_node(bank: Bank) -> Workflow:
    async def runner(ctx: Any, node_input: Any) -> Any:
        yield await ctx.run_node(bank.charge, node_input=1)

    node = FunctionNode(func=runner, name="runner", rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, node)])


def a_closure_in_a_callback(bank: Bank) -> LlmAgent:
    async def before(callback_context: Any) -> None:
        await step("pay", bank.charge, 5)

    return talker(says("done"), before_agent_callback=before)


def a_closure_that_is_held_further_off(bank: Bank) -> Workflow:
    class Runner:
        async def run(self, ways: Any, node_input: Any) -> str:
            return str(await step("pay", ways["card"][0].func, 5))

    runner, ways = Runner(), {"card": [partial(bank.charge)]}

    async def run(node_input: Any, *, _ways: Any = None) -> str:
        return await runner.run(ways, node_input)

    return Workflow(name="flow", edges=[(START, FunctionNode(func=run, name="runner"))])


@pytest.mark.parametrize(
    ("build", "body"),
    [
        (a_closure_in_a_step, "step:pay"),
        (a_closure_in_a_node, "node:charge"),
        (a_closure_in_a_callback, "step:pay"),
        (a_closure_that_is_held_further_off, "step:pay"),
    ],
)
async def test_the_callback_of_a_closure_is_found_in_the_code_that_holds_it(
    desk: Desk, build: Callable[[Bank], Any], body: str
) -> None:
    await desk.die(build(Bank(desk)), f"ran {body}")
    bank, other = Bank(desk), Bank(desk)
    desk.app(build(other))
    (out,) = await desk.app(build(bank)).recover()
    assert (out.status, len(bank.asked), other.asked) == ("completed", 1, []), out.error
    assert len(desk.paid) == 1


async def test_of_two_closures_of_one_place_nobody_is_asked(desk: Desk) -> None:
    """Whose callback knows is not known: a person is asked."""

    def root(one: Bank, other: Bank) -> Workflow:
        async def runner(ctx: Any, node_input: Any) -> Any:
            yield [await step("a", one.charge, 1), await step("b", other.charge, 2)]

        return Workflow(name="flow", edges=[(START, FunctionNode(func=runner, name="runner"))])

    banks = [Bank(desk), Bank(desk)]
    await desk.die(root(*banks), "ran step:b")
    (out,) = await desk.app(root(*banks)).recover()
    assert [wait.kind for wait in out.waits] == ["in_doubt"]
    assert [bank.asked for bank in banks] == [[], []]


async def test_the_callback_of_a_closure_that_was_cancelled_here_is_the_one_at_hand(
    desk: Desk,
) -> None:
    """It is made while the program runs: nothing that is there before holds it."""
    asked: list[Doubt] = []

    def look(doubt: Doubt) -> Any:
        asked.append(doubt)
        return done("charged")

    async def runner(ctx: Any, node_input: Any) -> str:
        @durable_tool(on_unknown_outcome="ask", reconcile=look)
        async def charge(cents: int) -> str:
            desk.paid.append(cents)
            limit.reschedule(0)
            await asyncio.sleep(60)
            return "never"

        try:
            async with asyncio.timeout(None) as limit:
                return await step("charge", charge, 5)
        except TimeoutError:
            return "gave up"

    node = FunctionNode(func=runner, name="runner")
    app = desk.app(Workflow(name="flow", edges=[(START, node)]), retry={"max_attempts": 2})
    out = await app.invoke(user_id="u", message="go", execution_id="e")
    if out.status == "queued":
        desk.clock.advance(120_000)
        (out,) = await app.recover()
    assert (out.status, out.output, desk.paid, len(asked)) == ("completed", "charged", [5], 1)


# ---------------------------------------------------------------------- forks


@pytest.mark.parametrize("side", ["before", "after"])
async def test_in_a_fork_too_it_is_not_tried_again_with_other_arguments(
    desk: Desk, side: str
) -> None:
    def root(cents: int) -> LlmAgent:
        def change(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
            args["cents"] = cents

        script, tools = (calls(("charge", {})), says("done")), [charging(desk)]
        return talker(*script, tools=tools, before_tool_callback=change)

    await desk.die(root(5), "ran tool:charge")
    app, changed = desk.app(root(5)), desk.app(root(6))
    ((wait,),) = [out.waits for out in await app.recover()]
    await app.resume("e", {wait.id: NOT_DONE})
    fork = await app.sessions.fork("u", "s", **{side: wait.id})
    if side == "before":
        (again,) = (await app.executions.outcome(fork.execution_id)).waits
        await app.answer(again.id, NOT_DONE)
    found = await changed.executions.replay(fork.execution_id)
    assert "with another input" in found.difference.recorded
    assert (await app.executions.replay(fork.execution_id)).ok
    (out,) = await changed.recover()
    assert (out.status, out.error and out.error.type) == ("stuck", "ReplayMismatch"), desk.paid
    await app.retry(fork.execution_id)
    (out,) = await app.recover()
    assert (out.status, [cents for _id, cents in desk.paid]) == ("completed", [5, 5, 5])


# ---------------------------------------------------------------------- what is shown


@pytest.mark.parametrize("shape", ["a tool", "below a tool", "a tool node", "step"])
async def test_a_wait_names_the_call_of_the_model_if_there_is_one(desk: Desk, shape: str) -> None:
    build, body = SHAPES[shape]
    await desk.die(build(desk), f"ran {body}")
    app = desk.app(build(desk))
    (asked,) = await app.recover()
    (wait,) = asked.waits
    out = await app.resume("e", {wait.id: done({"charged": 5})})
    ids = {call.id for e in out.events for call in e.get_function_calls() if call.name == "charge"}
    if shape == "below a tool":  # its call is in a private session
        assert wait.tool_call.id.startswith("adk-")
    else:
        assert {wait.tool_call.id} == (ids or {""})
        assert bool(ids) == (shape == "a tool")
