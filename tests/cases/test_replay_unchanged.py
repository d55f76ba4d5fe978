"""Code that did not change never differs from its history, whatever that went through."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.events import RequestInput
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow
from google.genai import types
from pydantic import BaseModel

from durable_adk import step
from durable_adk.adk.scripted_model import calls, says
from durable_adk.testing import FaultPlan
from tests.cases.conftest import approve
from tests.cases.test_left_over import ASK, Died
from tests.faults.catalogue import agent
from tests.support.lives import LEASE_PASSED_MS, Ledger

TWICE = {"retry": {"max_attempts": 2}}


def fits(report: Any) -> bool:
    """Whether nothing differs, and all that could be asked for was."""
    assert (report.ok, report.error) == (True, None), report
    assert report.matched + len(report.unchecked) == report.recorded, report
    return report.matched > 0


class Fails:
    """A tool that fails the first few times."""

    def __init__(self, ledger: Ledger, times: int) -> None:
        self.ledger, self.times = ledger, times

    def build(self) -> Any:
        def bad() -> dict[str, int]:
            """Fail."""
            self.ledger.add("bad")
            if self.ledger.rows().count(("bad",)) <= self.times:
                raise ValueError("down")
            return {"done": 1}

        def good() -> dict[str, int]:
            """Succeed."""
            return {"done": 2}

        def pay() -> dict[str, int]:
            """Pay."""
            return {"done": 3}

        return [bad, good, FunctionTool(pay, require_confirmation=True)]


def desk(ledger: Ledger, *script: Any, times: int) -> LlmAgent:
    return agent(ledger, "root", *script, says("done"), tools=Fails(ledger, times).build())


TOGETHER = (calls(("bad", {}), ("good", {})),)
ONE_AFTER_THE_OTHER = (calls(("good", {})), calls(("bad", {})))


@pytest.mark.parametrize("script", [TOGETHER, ONE_AFTER_THE_OTHER], ids=["together", "in a row"])
async def test_one_that_failed_after_two_attempts_and_its_forks(
    make_app, ledger, clock, script
) -> None:
    app = make_app(desk(ledger, *script, times=100), config=TWICE)

    async def to_its_end(execution_id: str) -> None:
        while (await app.executions.get(execution_id)).status != "failed":
            clock.advance(60_000)
            await app.recover()
        assert fits(await app.executions.replay(execution_id))

    await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    await to_its_end("x")
    assert ledger.rows().count(("bad",)) == 2
    done = [a for a in await app.executions.activities("x") if a.status != "abandoned"]
    assert len(done) >= 2
    for one in done:
        fork = await app.sessions.fork("u", "s", after=one.id)
        await to_its_end(fork.execution_id)


@pytest.mark.parametrize("end", ["cancel", "give_up", "answered"])
async def test_one_that_was_retried_and_suspended_and_ended_early(
    make_app, ledger, clock, end
) -> None:
    script = (calls(("good", {}), ("bad", {})), calls(("pay", {})))
    app = make_app(desk(ledger, *script, times=1))
    await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    clock.advance(60_000)
    (out,) = await app.recover()
    assert (out.status, ledger.rows().count(("bad",))) == ("suspended", 2)
    assert fits(await app.executions.replay("x"))
    fork = await app.sessions.fork("u", "s", before=out.waits[0].id)
    if end == "answered":
        assert (await app.resume("x", approve(out))).status == "completed"
        end = "cancel"
    else:
        await getattr(app, end)("x")
    assert fits(await app.executions.replay("x"))
    await getattr(app, end)(fork.execution_id)
    assert fits(await app.executions.replay(fork.execution_id))


async def test_one_that_was_ended_where_it_had_caught_what_failed_before(
    make_app, ledger, clock
) -> None:
    """The voided try of a call has no later one: the second attempt takes another way."""
    tries: list[int] = []

    async def lead(ctx: Any, node_input: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            await step("look", ledger.add, "look")
            await step("broken", lambda: 1 / 0)
        await step("other", ledger.add, "other")
        yield RequestInput(interrupt_id="q", message="?")

    leader = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    app = make_app(Workflow(name="flow", edges=[(START, leader)]))
    await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    clock.advance(60_000)
    (out,) = await app.recover()
    assert out.status == "suspended", out.error
    fork = await app.sessions.fork("u", "s", before=out.waits[0].id)
    for name in ("x", fork.execution_id):
        await app.cancel(name)
        assert fits(await app.executions.replay(name))


def falls_back(ledger: Ledger, within: float, *, hangs: bool, then: str) -> Workflow:
    """Nodes below a node that does not come to its end: it asks, or another one fails."""
    passed = asyncio.Event()

    async def look(node_input: Any) -> None:
        if hangs:
            await asyncio.Event().wait()
        ledger.add("look")

    def other(node_input: Any) -> None:
        ledger.add("other")

    async def broken(node_input: Any) -> None:
        await passed.wait()
        raise ValueError("down")

    async def lead(ctx: Any, node_input: Any) -> Any:
        try:
            async with asyncio.timeout(within):
                await ctx.run_node(FunctionNode(func=look, name="look"))
        except TimeoutError:
            await ctx.run_node(FunctionNode(func=other, name="fallback"))
        await ctx.run_node(FunctionNode(func=other, name="next"))
        if then == "fails":
            passed.set()
            await asyncio.Event().wait()
        yield await ctx.run_node(ASK)

    edges: Any = [(START, FunctionNode(func=lead, name="lead", rerun_on_resume=True))]
    if then == "fails":
        edges.append((START, FunctionNode(func=broken, name="broken")))
    return Workflow(name="flow", edges=edges)


FALLBACK = "1|agent#1/lead#1/fallback#1|1|node|1"


@pytest.mark.parametrize("end", ["queued", "failed", "cancel", "give_up"])
async def test_a_fallback_that_a_later_attempt_did_without(make_app, ledger, clock, end) -> None:
    then = "asks" if end in ("cancel", "give_up") else "fails"
    dies = FaultPlan().fail("in node:next", Died())
    with pytest.raises(Died):
        await make_app(falls_back(ledger, 0.2, hangs=True, then=then), faults=dies).invoke(
            user_id="u", message="go", execution_id="x"
        )
    clock.advance(LEASE_PASSED_MS)
    app = make_app(falls_back(ledger, 60, hangs=False, then=then), config=TWICE)
    await app.recover()
    if end == "failed":
        clock.advance(60_000)
        await app.recover()
    elif then == "asks":
        await getattr(app, end)("x")
    report = await app.executions.replay("x")
    assert report.status == {"cancel": "cancelled", "give_up": "failed"}.get(end, end)
    assert fits(report)
    # A committed step says what it did without; else the log does.
    assert report.unchecked == ((FALLBACK,) if then == "fails" else ())


async def test_a_fallback_behind_a_call_that_was_cut_off(make_app, ledger) -> None:
    """A check does not wait for the timeout of the program, which may be long."""
    once = {"retry": {"max_attempts": 1}}
    app = make_app(falls_back(ledger, 0.2, hangs=True, then="fails"), config=once)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert out.status == "failed"
    assert fits(await app.executions.replay("x"))
    slower = make_app(falls_back(ledger, 60, hangs=True, then="fails"), config=once)
    report = await slower.executions.replay("x")
    assert fits(report)
    assert FALLBACK in report.unchecked


# ---------------------------------------------------------------------------- results


def parallel(ledger: Ledger) -> Workflow:
    """One agent ends within a node that works on until the other one has ended, too."""
    ended = {"first": asyncio.Event(), "second": asyncio.Event()}

    async def look() -> str:
        """Look."""
        await ended["first"].wait()
        return "seen"

    def over(callback_context: Any) -> None:
        ended["second"].set()

    first = agent(ledger, "first", says("first said"), mode="single_turn")
    script = (calls(("look", {})), says("second said"))
    second = agent(ledger, "second", *script, mode="single_turn", tools=[look])
    second.after_agent_callback = over

    async def lead(ctx: Any, node_input: Any) -> Any:
        found = await ctx.run_node(first, node_input="x")
        ended["first"].set()
        await ended["second"].wait()
        return found

    join = JoinNode(name="join")
    leader = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    last = FunctionNode(func=lambda node_input: "out", name="last")
    edges: Any = [(START, leader), (START, second), (leader, join), (second, join), (join, last)]
    return Workflow(name="flow", edges=edges)


async def test_which_of_parallel_branches_said_the_last_word_is_an_order(make_app, ledger) -> None:
    out = await make_app(parallel(ledger)).invoke(user_id="u", message="go", execution_id="x")
    assert (out.status, out.response) == ("completed", "second said"), out.error
    assert fits(await make_app(parallel(ledger)).executions.replay("x"))


@pytest.mark.parametrize(("before", "after"), [("", "more"), ("more", ""), ("more", "other")])
async def test_a_response_that_nobody_gave_is_a_change(make_app, ledger, before, after) -> None:
    def line(more: str) -> SequentialAgent:
        def over(callback_context: Any) -> types.Content | None:
            return types.Content(role="model", parts=[types.Part(text=more)]) if more else None

        parts = [agent(ledger, "desk", says("said"))]
        return SequentialAgent(name="line", sub_agents=parts, after_agent_callback=over)

    out = await make_app(line(before)).invoke(user_id="u", message="go", execution_id="x")
    assert (out.status, out.response) == ("completed", before or "said")
    assert fits(await make_app(line(before)).executions.replay("x"))
    report = await make_app(line(after)).executions.replay("x")
    assert report.difference is not None
    assert report.difference.recorded.startswith(f'the result {{"response":"{before or "said"}"')
    assert report.difference.asked.startswith(f'the result {{"response":"{after or "said"}"')


class Order(BaseModel):
    card: str
    cents: int


SECRET = "4111-1111"


def order(ledger: Ledger, cents: int, card: str = SECRET) -> Workflow:
    def told(callback_context: Any, llm_response: Any) -> LlmResponse:
        return says(json.dumps({"card": card, "cents": cents}))

    llm = agent(ledger, "desk", says("x"), after_model_callback=told, output_schema=Order)
    return Workflow(name="flow", edges=[(START, llm)])


@pytest.mark.parametrize("redacted", [False, True])
async def test_a_result_that_differs_is_shown_without_what_is_not_shown(
    make_app, ledger, redacted
) -> None:
    config = {"redact": ["card"] if redacted else []}
    out = await make_app(order(ledger, 1), config=config).invoke(
        user_id="u", message="go", execution_id="x"
    )
    assert out.status == "completed" and SECRET in out.response
    report = await make_app(order(ledger, 2), config=config).executions.replay("x")
    assert report.difference is not None and report.difference.position == "the end of step 1"
    assert '"cents":1' in report.difference.recorded and '"cents":2' in report.difference.asked
    assert (SECRET in str(report)) is not redacted
    other = make_app(order(ledger, 1, card="4222"), config=config)
    report = await other.executions.replay("x")
    assert report.difference is not None
    assert report.difference.recorded != report.difference.asked
    assert ("4222" in str(report)) is not redacted
