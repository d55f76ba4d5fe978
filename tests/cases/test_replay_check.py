"""The replay check: does this code fit what is recorded? Nothing runs, nothing is written."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk import ConfigError, NotFound, durable_tool, sleep, step
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.engine.ports import Write
from tests.cases.conftest import approve
from tests.cases.test_changed_code import REFUSED, graph, one, payer
from tests.faults.catalogue import Tools, agent, two_confirmations_and_a_question


class Writes:
    """Faults that only count what is written, and the bodies that are entered."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def before(self, write: Write) -> None:
        self.seen[write.value] += write is not Write.RENEW

    def after(self, write: Write) -> bool:
        return False

    def body(self, kind: str, name: str, *, ran: bool) -> None:
        self.seen[f"{kind} {name}"] += 1


async def test_every_status_is_checked_without_a_write_and_without_a_body(
    make_app, ledger, clock
) -> None:
    writes = Writes()
    app = make_app(two_confirmations_and_a_question(ledger))
    checker = make_app(two_confirmations_and_a_question(ledger), faults=writes)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert out.status == "suspended"
    ran = ledger.rows()
    report = await checker.executions.replay("x")
    assert (report.ok, report.status, report.error) == (True, "suspended", None)
    assert report.matched == report.recorded > 5
    out = await app.resume("x", approve(out))
    assert out.status == "completed"
    ran = ledger.rows()
    report = await checker.executions.replay("x")
    assert (report.ok, report.status, report.warnings) == (True, "completed", ())
    assert report.matched == report.recorded > 10
    assert ledger.rows() == ran
    assert +writes.seen == Counter()
    assert (await app.executions.get("x")).attempt == 2
    assert report.to_dict()["ok"] is True


async def test_the_first_difference_is_told_with_what_was_recorded_and_asked(
    make_app, ledger
) -> None:
    """In the words of the attempt that meets it."""
    for name, (before, after, _named) in [*list(REFUSED.items())[::3], *_TOLD.items()]:
        namespace = f"n{os.urandom(6).hex()}"
        app = make_app(before(ledger), namespace=namespace)
        out = await app.invoke(user_id="u", message="go", execution_id="x")
        ran = ledger.rows()
        changed = make_app(after(ledger), namespace=namespace)
        report = await changed.executions.replay("x")
        assert not report.ok, name
        assert report.difference is not None, (name, report)
        assert report.difference.recorded != report.difference.asked
        assert report.error is not None and report.error.type == "ReplayMismatch"
        assert ledger.rows() == ran, name
        assert (await app.executions.replay("x")).ok, name
        assert (await app.executions.get("x")).status == out.status == "suspended"
        out = await changed.resume("x", approve(out))
        assert out.error is not None, name
        said = f"recorded {report.difference.recorded}, asked {report.difference.asked}"
        assert out.error.message.endswith(said), name
        again = await changed.executions.replay("x")
        assert again.difference == report.difference, name


_TOLD = {name: REFUSED[name] for name in ("tool removed", "asked tool removed", "worker renamed")}


@pytest.mark.parametrize("redacted", [False, True])
@pytest.mark.parametrize("change", ["renamed parameter", "callback"])
async def test_what_a_person_was_shown_is_compared_before_anybody_answers(
    make_app, change, redacted
) -> None:
    def desk(changed: bool) -> LlmAgent:
        def pay(cents: int, to: str) -> str:
            """Pay."""
            return "paid"

        def pay_amount(to: str, amount: int = 5) -> str:
            """Pay."""
            return "paid"

        def doubled(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
            args["cents"] *= 2

        pay_amount.__name__ = "pay"
        renamed = changed and change == "renamed parameter"
        return LlmAgent(
            name="desk",
            model=ScriptedModel(script=[calls(("pay", {"cents": 5, "to": "ann"})), says("done")]),
            tools=[FunctionTool(pay_amount if renamed else pay, require_confirmation=True)],
            before_tool_callback=doubled if changed and not renamed else None,
        )

    shows = 'pay({"cents": 5, "to": "ann"})'
    told = {"callback": 'pay({"cents": 10, "to": "ann"})'}
    if redacted:
        shows = 'pay({"cents": "[redacted]", "to": "ann"})'
        told = {"callback": f"{shows}, which differs in what is not shown"}
    settings = {"redact": ["cents"] if redacted else []}
    app = make_app(desk(changed=False), config=settings)
    newer = make_app(desk(changed=True), config=settings)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert (await app.executions.replay("x")).ok
    report = await newer.executions.replay("x")
    assert report.difference is not None, report
    assert report.difference.recorded == f"shown {shows}"
    assert report.difference.asked == told.get(change, "pay without cents")
    out = await newer.resume("x", approve(out))
    assert out.error is not None  # as the check said
    assert f"asked {report.difference.asked}" in out.error.message


async def test_a_stuck_execution_says_why_and_is_right_again_with_the_old_code(
    make_app, ledger
) -> None:
    out = await make_app(graph("charge", "ask")(ledger)).invoke(
        user_id="u", message="go", execution_id="x"
    )
    changed = make_app(graph("bill", "ask")(ledger))
    out = await changed.resume("x", approve(out))
    assert out.status == "stuck"
    report = await changed.executions.replay("x")
    assert (report.ok, report.status) == (False, "stuck")
    assert report.error.remedy == out.error.remedy
    assert (await make_app(graph("charge", "ask")(ledger)).executions.replay("x")).ok


async def test_the_open_step_is_checked_as_far_as_its_record_goes(make_app, ledger, clock) -> None:
    """Its owner failed in the second model call; what it recorded before still has to fit."""
    tools = Tools(ledger)

    def root(**fields: Any) -> Any:
        root = agent(ledger, "root", tools=[tools.look], **fields)
        fails = RuntimeError("down")
        root.model.script = [calls(("look", {"q": "a"})), fails, says("done")]
        return root

    out = await make_app(root()).invoke(user_id="u", message="go", execution_id="x")
    assert out.status == "queued"
    ran = ledger.rows()
    report = await make_app(root()).executions.replay("x")
    assert (report.ok, report.matched, report.recorded) == (True, 2, 2)
    renamed = root()
    renamed.tools = [tools.slow]
    report = await make_app(renamed).executions.replay("x")
    assert report.difference is not None
    assert "look" in report.difference.recorded
    assert ledger.rows() == ran


@pytest.mark.parametrize("end", ["cancel", "give_up"])
async def test_a_turn_that_was_closed_is_checked_as_far_as_it_ran(make_app, ledger, end) -> None:
    app = make_app(one()(ledger))
    await app.invoke(user_id="u", message="go", execution_id="x")
    await getattr(app, end)("x", "enough")
    report = await app.executions.replay("x")
    assert (report.ok, report.error) == (True, None)
    assert report.status in ("cancelled", "failed")
    assert report.matched == report.recorded


async def test_a_node_that_ran_others_is_entered_and_its_steps_are_not(make_app, ledger) -> None:
    @durable_tool(on_unknown_outcome="fail")
    def charge(amount: int) -> str:
        """Charge."""
        ledger.add("charge", amount)
        return "charged"

    async def note() -> str:
        ledger.add("noted")
        return "noted"

    async def ask(ctx: Any, node_input: Any) -> Any:
        if "q" in ctx.resume_inputs:
            yield "answered"
            return
        yield RequestInput(interrupt_id="q", message="?")

    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    child = agent(ledger, "child", calls(("charge", {"amount": 1})), says("done"), tools=[charge])

    async def lead(ctx: Any, node_input: Any) -> Any:
        ledger.add("lead")
        await step("note", note)
        await ctx.run_node(child, node_input="x")
        yield await ctx.run_node(asker, node_input="y")

    leader = FunctionNode(func=lead, name="lead", rerun_on_resume=True)
    writes = Writes()
    flow = Workflow(name="flow", edges=[(START, leader)])
    app, checker = make_app(flow), make_app(flow, faults=writes)
    out = await app.invoke(user_id="u", message="go", execution_id="x")
    assert out.status == "suspended", out.error
    before = Counter(ledger.rows())
    report = await checker.executions.replay("x")
    assert report.ok, report
    assert Counter(ledger.rows()) - before == Counter({("lead",): 1})
    assert not [name for name in +writes.seen if name != "node lead"]
    out = await app.resume("x", approve(out))
    assert (await checker.executions.replay("x")).ok


async def test_what_a_body_did_before_it_slept_is_told_as_not_looked_at(make_app, ledger) -> None:
    """Only an attempt enters it: what it does before its sleep may be more than steps."""

    def flow(name: str) -> Workflow:
        async def nap(node_input: Any) -> None:
            ledger.add("entered")
            await step(name, ledger.add, name)
            await sleep(3600)

        return Workflow(name="flow", edges=[(START, nap)])

    out = await make_app(flow("pay")).invoke(user_id="u", message="go", execution_id="x")
    assert (out.status, [wait.kind for wait in out.waits]) == ("suspended", ["timer"])
    ran = ledger.rows()
    for name in ("pay", "charge"):
        report = await make_app(flow(name)).executions.replay("x")
        assert (report.ok, report.matched, report.recorded) == (True, 0, 1)
        assert report.unchecked == ("1|agent#1/nap#1|1|step|1|pay",)
    assert ledger.rows() == ran
    report = await make_app(graph("nap2")(ledger)).executions.replay("x")
    assert not report.ok and report.error.type == "ReplayMismatch"


async def test_a_prompt_that_differs_is_a_warning_and_a_difference_where_that_is_asked_for(
    make_app, ledger
) -> None:
    await make_app(one(instruction="be kind")(ledger)).invoke(
        user_id="u", message="go", execution_id="x"
    )
    changed = one(instruction="be very kind")
    report = await make_app(changed(ledger)).executions.replay("x")
    assert report.ok and len(report.warnings) == 2
    assert "system instruction of" in report.warnings[0].recorded
    strict = {"replay": {"input_mismatch": {"model": "error"}}}
    report = await make_app(changed(ledger), config=strict).executions.replay("x")
    assert not report.ok and report.difference.position.endswith("|model|1")


async def test_a_page_of_executions_is_checked_one_after_the_other(make_app, ledger) -> None:
    app = make_app(payer(ledger, "root"))
    for number in range(3):
        await app.invoke(user_id="u", session_id=f"s{number}", message="go")
    page = await app.executions.replay_all(status="suspended", limit=2)
    assert [report.ok for report in page] == [True, True]
    (last,) = await app.executions.replay_all(limit=2, cursor=page.cursor)
    assert last.ok


async def test_what_cannot_be_checked_is_refused(make_app, ledger) -> None:
    with pytest.raises(NotFound):
        await make_app(payer(ledger, "root")).executions.replay("nobody")
    with pytest.raises(ConfigError, match="no root agent"):
        await make_app(None).executions.replay("nobody")
