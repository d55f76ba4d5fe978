"""A tool that needs more than a call of it has, which somebody was asked about before it did.

ADK would answer the approved call with an error, without a word that nothing was done.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

from durable_adk.adk.parameters import Fit
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from tests.cases.conftest import approve
from tests.support.lives import Ledger

SHOWN = 'shown pay({"cents": 5})'
NEEDS = "pay, which needs reason"


def old(ledger: Ledger) -> Any:
    def pay(cents: int) -> str:
        """Pay."""
        ledger.add("pay", cents)
        return "paid"

    return pay


def needs_more(ledger: Ledger) -> Any:
    def pay(cents: int, reason: str) -> str:
        """Pay."""
        ledger.add("pay", cents, reason)
        return "paid"

    return pay


def may_have_more(ledger: Ledger) -> Any:
    def pay(cents: int, context: ToolContext, reason: str = "") -> str:
        """Pay."""
        ledger.add("pay", cents)
        return "paid"

    return pay


def desk(pay: Any, *, asks: str = "gate", model: Any = None) -> LlmAgent:
    tools = [FunctionTool(pay, require_confirmation=asks == "gate")]
    script = [calls(("pay", {"cents": 5})), says("done")]
    return LlmAgent(name="desk", model=model or ScriptedModel(script=script), tools=tools)


async def asked(app: Any) -> Any:
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert out.status == "suspended", out.error
    return out


async def test_the_check_tells_of_it_before_anybody_answers(make_app, ledger) -> None:
    app = make_app(desk(old(ledger)))
    await asked(app)
    report = await make_app(desk(needs_more(ledger))).executions.replay("x")
    found = report.difference
    assert found is not None and not report.ok
    assert (found.recorded, found.asked) == (SHOWN, NEEDS)
    assert found.position == "1|agent#1|1|wait|1"
    assert f"recorded {SHOWN}, asked {NEEDS}" in report.error.message
    for fits in (old, may_have_more):
        assert (await make_app(desk(fits(ledger))).executions.replay("x")).ok


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_an_approved_call_is_not_answered_with_an_error(make_app, ledger, mode) -> None:
    app = make_app(desk(old(ledger)), mode=mode)
    answers = approve(await asked(app))
    changed = make_app(desk(needs_more(ledger)), mode=mode)
    out = await changed.resume("x", answers)
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
    assert f"recorded {SHOWN}, asked {NEEDS}" in out.error.message
    assert out.error.position == "2|agent#1/:m1.0.s1|1|tool|1"
    report = await changed.executions.replay("x")
    assert (report.difference.recorded, report.difference.asked) == (SHOWN, NEEDS)
    assert ledger.rows() == []
    await app.retry("x")
    (out,) = await app.recover()
    assert (out.status, ledger.rows()) == ("completed", [("pay", 5)])
    # What has run depends on no parameter that came later.
    assert (await changed.executions.replay("x")).ok


async def test_a_tool_that_asked_in_its_body_is_compared_too(make_app, ledger) -> None:
    def asking(cents: int, tool_context: ToolContext) -> str:
        """Pay."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="pay?")
            return "asked"
        ledger.add("pay", cents)
        return "paid"

    def more(cents: int, reason: str, tool_context: ToolContext) -> str:
        """Pay."""
        raise AssertionError("never called")

    asking.__name__ = more.__name__ = "pay"
    app = make_app(desk(asking, asks="itself"))
    answers = approve(await asked(app))
    out = await make_app(desk(more, asks="itself")).resume("x", answers)
    assert (out.status, out.error.type) == ("stuck", "ReplayMismatch"), out
    assert NEEDS in out.error.message
    await app.retry("x")
    (out,) = await app.recover()
    assert (out.status, ledger.rows()) == ("completed", [("pay", 5)])


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_what_a_model_left_out_is_no_changed_code(make_app, ledger, mode) -> None:
    app = make_app(desk(needs_more(ledger)), mode=mode)
    answers = approve(await asked(app))
    assert (await app.executions.replay("x")).ok
    out = await app.resume("x", answers)
    assert (out.status, ledger.rows()) == ("completed", [])
    told = [r.response for e in out.events for r in e.get_function_responses()]
    assert "mandatory input parameters are not present" in str(told)


def test_nothing_is_said_of_a_wait_that_does_not_know_what_its_tool_needed() -> None:
    now = Fit(True, ("reason",))
    assert now.is_worse_than(Fit(True, ()))
    assert not now.is_worse_than(Fit(True, ("reason",)))
    assert not now.is_worse_than(Fit(True, None))


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_declined_call_may_need_whatever_it_likes(make_app, ledger, mode) -> None:
    out = await asked(make_app(desk(old(ledger)), mode=mode))
    declined = {out.waits[0].id: {"confirmed": False}}
    out = await make_app(desk(needs_more(ledger)), mode=mode).resume("x", declined)
    assert (out.status, ledger.rows()) == ("completed", [])
