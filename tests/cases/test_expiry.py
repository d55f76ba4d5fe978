"""Waits that nobody answers in time: W16, and what promise 3 says of expiry."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow

from durable_adk import App, ConfigError, InvalidAnswer, WaitClosed, durable_tool, expiring
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.store.clock import ServerClock
from tests.support.lives import Ledger

HOUR_MS = 3_600_000
YES = {"confirmed": True}


def desk(ledger: Ledger, **mark: Any) -> LlmAgent:
    """One tool that is confirmed, marked as given."""

    def pay(cents: int) -> str:
        """Pay."""
        ledger.add("pay", cents)
        return "paid"

    tool = FunctionTool(durable_tool(**mark)(pay) if mark else pay, require_confirmation=True)
    script = [calls(("pay", {"cents": 7})), says("done")]
    return LlmAgent(name="desk", model=ScriptedModel(script=script), tools=[tool])


def two_questions(ledger: Ledger, *, first: str = "1h", second: str | None = None) -> Workflow:
    """Two nodes that ask; the first one's question expires, and the second's if ``second``."""

    def ask_a(node_input: Any) -> Any:
        yield expiring(RequestInput(message="a?", response_schema=int), first, -1)

    def ask_b(node_input: Any) -> Any:
        request = RequestInput(message="b?")
        yield request if second is None else expiring(request, second, {"by": "default"})

    def end(node_input: Any) -> Any:
        ledger.add("end", node_input)
        return node_input

    a, b = FunctionNode(func=ask_a, name="a"), FunctionNode(func=ask_b, name="b")
    join = JoinNode(name="join")
    return Workflow(name="w", edges=[(START, (a, b), join, end)])


async def suspended(app: App) -> Any:
    out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    assert out.status == "suspended"
    return out


# ---------------------------------------------------------------- W16


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_an_answer_after_the_expiry_is_refused_before_any_sweeper_ran(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, mode: str
) -> None:
    app = make_app(desk(ledger, expires_after="1h"), mode=mode)
    out = await suspended(app)
    (wait,) = out.waits
    assert wait.expires_at is not None
    assert wait.to_dict()["expires_at"] == wait.expires_at.isoformat()
    (listed,) = (await app.waits.list()).items
    assert listed.expires_at == wait.expires_at
    clock.advance(HOUR_MS + 1)
    with pytest.raises(WaitClosed, match="expired"):
        await app.resume("x", {wait.id: YES})
    with pytest.raises(WaitClosed, match="expired"):
        await app.answer(wait.id, YES)
    out = await app.resume("x", {wait.id: {"confirmed": False}})  # the same answer is the same
    assert (out.status, out.response) == ("completed", "done")
    assert ledger.rows() == []
    with pytest.raises(WaitClosed, match="expired"):
        await app.resume("x", {wait.id: YES})
    (record,) = [a for a in await app.executions.activities("x") if a.kind == "wait"]
    assert (record.status, record.details["by"]) == ("denied", "expiry")
    assert record.ended_at == wait.expires_at


async def test_an_answer_in_time_counts(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    app = make_app(desk(ledger, expires_after="1h"))
    out = await suspended(app)
    clock.advance(HOUR_MS - 60_000)
    assert await app.recover() == ()
    out = await app.resume("x", {out.waits[0].id: YES})
    assert out.status == "completed"
    assert ledger.rows() == [("pay", 7)]


@pytest.mark.parametrize("way", ["recover", "worker", "resume", "the same call", "next message"])
async def test_whoever_comes_by_applies_the_expiry_and_goes_on(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, way: str
) -> None:
    app = make_app(desk(ledger, expires_after=3600))
    await suspended(app)
    clock.advance(HOUR_MS + 1)
    if way == "recover":
        (out,) = await app.recover()
        assert out.status == "completed"
    elif way == "worker":
        worker = app.worker()
        running = asyncio.create_task(worker.run())
        while (await app.executions.get("x")).status != "completed":
            await asyncio.sleep(0.02)
        worker.stop()
        await running
    elif way == "resume":
        assert (await app.resume("x")).status == "completed"
    elif way == "the same call":
        same = await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
        assert same.status == "completed"
    else:
        await app.invoke(user_id="u", session_id="s", message="next")
    assert (await app.executions.get("x")).status == "completed"
    assert ledger.rows() == []


# ---------------------------------------------------------------- several in one frontier


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_an_expired_place_is_answered_and_the_others_stay_open(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, mode: str
) -> None:
    app = make_app(two_questions(ledger), mode=mode)
    out = await suspended(app)
    a, b = sorted(out.waits, key=lambda wait: wait.message)
    clock.advance(HOUR_MS + 1)
    assert await app.recover() == ()
    (left,) = (await app.waits.list()).items
    assert left.id == b.id
    assert await app.recover() == ()
    assert (await app.executions.get("x")).status == "suspended"
    with pytest.raises(WaitClosed, match="expired"):  # half of a map is never stored
        await app.resume("x", {a.id: 1, b.id: "late"})
    out = await app.executions.outcome("x")
    schema = jsonschema.Draft202012Validator(out.resume_schema)
    assert schema.is_valid({b.id: "yes"})
    assert schema.is_valid({a.id: -1, b.id: "yes"})
    assert not schema.is_valid({a.id: 1, b.id: "yes"})
    out = await app.resume("x", {b.id: "yes"})
    assert out.output == {"a": -1, "b": "yes"}
    assert ledger.rows() == [("end", {"a": -1, "b": "yes"})]


async def test_expiries_follow_one_another_and_the_last_one_goes_on(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    app = make_app(two_questions(ledger, first="1h", second="2h"))
    await suspended(app)
    clock.advance(HOUR_MS + 1)
    assert await app.recover() == ()
    clock.advance(HOUR_MS)
    (out,) = await app.recover()
    assert out.output == {"a": -1, "b": {"by": "default"}}


@pytest.mark.parametrize("round_", range(4))
async def test_a_map_races_an_expiry_and_one_of_them_wins(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock, round_: int
) -> None:
    apps = [make_app(two_questions(ledger, second="1h")) for _ in range(3)]
    out = await suspended(apps[0])
    answers = {wait.id: 1 if wait.message == "a?" else "mine" for wait in out.waits}
    clock.advance(HOUR_MS - 20)

    async def expire() -> None:
        await asyncio.sleep(0.005 * round_)
        clock.advance(20 if round_ % 2 else 40)
        await apps[1].recover()

    got = await asyncio.gather(
        apps[2].resume("x", answers), expire(), apps[0].recover(), return_exceptions=True
    )
    assert not isinstance(got[1], BaseException)
    assert isinstance(got[0], WaitClosed) or not isinstance(got[0], BaseException)
    await apps[0].recover()
    await apps[0].recover()
    assert (await apps[0].executions.get("x")).status == "completed"
    ((_, end),) = ledger.rows()
    assert end in ({"a": 1, "b": "mine"}, {"a": -1, "b": {"by": "default"}})
    assert (end["a"] == 1) is not isinstance(got[0], WaitClosed)


async def test_a_confirmation_races_its_expiry_and_the_tool_runs_at_most_once(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    apps = [make_app(desk(ledger, expires_after="1h")) for _ in range(3)]
    (wait,) = (await suspended(apps[0])).waits
    clock.advance(HOUR_MS + 1)
    got = await asyncio.gather(
        *(app.resume("x", {wait.id: YES}) for app in apps),
        *(app.recover() for app in apps),
        return_exceptions=True,
    )
    assert all(isinstance(one, WaitClosed) for one in got[:3])
    assert not any(isinstance(one, BaseException) for one in got[3:])
    assert (await apps[0].resume("x")).status == "completed"
    assert ledger.rows() == []


# ---------------------------------------------------------------- where it is said


async def test_the_configuration_says_it_for_a_tool_by_name(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    config = {"tools": {"pay": {"expires_after": "1h", "on_expiry": YES}}}
    app = make_app(desk(ledger), config=config)
    await suspended(app)
    clock.advance(HOUR_MS + 1)
    (out,) = await app.recover()
    assert out.status == "completed"
    assert ledger.rows() == [("pay", 7)]


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_tool_that_runs_long_gets_its_expiry_answer(
    make_app: Callable[..., App], clock: ServerClock, mode: str
) -> None:
    @durable_tool(expires_after=dt.timedelta(hours=1), on_expiry={"status": "nobody came"})
    def ticket(text: str) -> None:
        """Open a ticket."""

    seen: list[Any] = []

    def reply(request: Any, _turn: int) -> Any:
        parts = request.contents[-1].parts
        got = [part.function_response.response for part in parts if part.function_response]
        seen.extend(got)
        return says("done") if got else calls(("ticket", {"text": "help"}))

    tools = [LongRunningFunctionTool(ticket)]
    model = ScriptedModel(script=reply)
    app = make_app(LlmAgent(name="desk", model=model, tools=tools), mode=mode)
    out = await suspended(app)
    assert out.waits[0].expires_at is not None
    clock.advance(HOUR_MS + 1)
    (out,) = await app.recover()
    assert (out.status, out.response) == ("completed", "done")
    assert seen == [{"status": "nobody came"}]


async def test_a_tool_node_is_denied_when_its_confirmation_expires(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    @durable_tool(expires_after="1h")
    def pay(cents: int) -> str:
        """Pay."""
        ledger.add("pay", cents)
        return "paid"

    node = FunctionTool(pay, require_confirmation=True)

    def first(node_input: Any) -> Any:
        return {"cents": 7}

    app = make_app(Workflow(name="w", edges=[(START, first, node)]))
    out = await suspended(app)
    assert out.waits[0].expires_at is not None
    clock.advance(HOUR_MS + 1)
    await app.recover()
    assert (await app.executions.get("x")).status == "completed"
    assert ledger.rows() == []


async def test_a_bad_expiry_answer_is_refused_before_any_call(
    make_app: Callable[..., App], ledger: Ledger
) -> None:
    app = make_app(desk(ledger, expires_after="1h", on_expiry="no"))
    with pytest.raises(ConfigError, match="expected"):
        await app.invoke(user_id="u", message="go")

    def ticket() -> None:
        """Open a ticket."""

    long = LongRunningFunctionTool(durable_tool(expires_after="1h")(ticket))
    agent = LlmAgent(name="a", model=ScriptedModel(script=[says("x")]), tools=[long])
    with pytest.raises(ConfigError, match="on_expiry"):
        await make_app(agent).invoke(user_id="u", message="go")


BAD: dict[str, Callable[[], Any]] = {
    "no request": lambda: expiring("?", "1h", 1),
    "no duration": lambda: expiring(RequestInput(message="?"), "soon", 1),
    "at once": lambda: expiring(RequestInput(message="?"), 0, 1),
    "null": lambda: expiring(RequestInput(message="?"), "1h", None),
    "not the schema": lambda: expiring(RequestInput(response_schema=int), "1h", "one"),
    "not JSON": lambda: expiring(RequestInput(message="?"), "1h", {1, 2}),
    "too large": lambda: expiring(RequestInput(message="?"), "1h", "x" * 20_000),
    "answer only": lambda: durable_tool(on_expiry={"confirmed": False}),
    "bad duration": lambda: durable_tool(expires_after="1 fortnight"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_expiry_is_refused_where_it_is_said(what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BAD[what]()
    assert caught.value.remedy


def test_a_request_stays_what_it_was() -> None:
    request = RequestInput(message="?", payload={"k": 1}, response_schema=int)
    made = expiring(request, "1h", 5)
    assert isinstance(made, RequestInput)
    assert (made.interrupt_id, made.message) == (request.interrupt_id, request.message)
    assert not hasattr(request, "expires")


async def test_two_sayings_that_differ_are_refused(
    make_app: Callable[..., App], ledger: Ledger
) -> None:
    app = make_app(None, config={"tools": {"pay": {"expires_after": "1h"}}})

    @app.tool(expires_after="2h")
    def pay(cents: int) -> str:
        """Pay."""
        return "paid"

    @app.entrypoint
    def build() -> LlmAgent:
        return LlmAgent(name="a", model=ScriptedModel(script=[says("x")]), tools=app.tools())

    with pytest.raises(ConfigError, match="one place"):
        await app.open()


# ---------------------------------------------------------------- forks


async def test_a_fork_before_the_answer_has_all_its_time_again(
    make_app: Callable[..., App], ledger: Ledger, clock: ServerClock
) -> None:
    app = make_app(desk(ledger, expires_after="1h"))
    (wait,) = (await suspended(app)).waits
    clock.advance(HOUR_MS // 2)
    fork = await app.sessions.fork(user_id="u", session_id="s", before=wait.id)
    assert fork.execution_id is not None
    (again,) = (await app.executions.outcome(fork.execution_id)).waits
    assert again.expires_at is not None
    assert wait.expires_at is not None
    assert again.expires_at - wait.expires_at >= dt.timedelta(minutes=29)
    clock.advance(HOUR_MS // 2 + 1_000)
    (out,) = await app.recover()  # the source has expired, the fork has not
    assert out.execution_id == "x"
    out = await app.resume(fork.execution_id, {again.id: YES})
    assert out.status == "completed"
    assert ledger.rows() == [("pay", 7)]


async def test_an_input_answer_is_still_checked_in_time(
    make_app: Callable[..., App], ledger: Ledger
) -> None:
    app = make_app(two_questions(ledger))
    out = await suspended(app)
    a, b = sorted(out.waits, key=lambda wait: wait.message)
    with pytest.raises(InvalidAnswer):
        await app.resume("x", {a.id: "no number", b.id: 1})
