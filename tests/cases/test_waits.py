"""Rows W of the case list: waits, frontiers, answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.events import RequestInput
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, JoinNode, Workflow, node

from durable_adk import AnswerConflict, InvalidAnswer, SessionBusy
from durable_adk.adk.scripted_model import calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import (
    Tools,
    agent,
    by_own_turns,
    review_loop,
    two_confirmations_and_a_question,
)


def asking(ledger: Any, got: list[Any] | None = None, schema: Any = None) -> Workflow:
    """A node that asks, beside a node with an effect, then an end."""

    async def ask(ctx: Any, node_input: Any) -> Any:
        if "q" in ctx.resume_inputs:
            if got is not None:
                got.append(ctx.resume_inputs["q"])
            yield "answered"
            return
        yield RequestInput(interrupt_id="q", message="?", response_schema=schema)

    def effect(node_input: Any) -> None:
        ledger.add("effect")

    def end(node_input: Any) -> str:
        ledger.add("end")
        return "the end"

    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    join = JoinNode(name="join")
    parts = (asker, effect)
    return Workflow(name="flow", edges=[(START, parts), (parts, join), (join, end)])


def _alone(both: ParallelAgent, _ledger: Any) -> ParallelAgent:
    return both


def _in_a_sequence(both: ParallelAgent, ledger: Any) -> SequentialAgent:
    tail = agent(
        ledger, "tail", says("the end"), before_agent_callback=lambda *_, **__: ledger.add("end")
    )
    return SequentialAgent(name="all", sub_agents=[both, tail])


def _in_a_workflow(both: ParallelAgent, ledger: Any) -> Workflow:
    def end(node_input: Any) -> None:
        ledger.add("end")

    return Workflow(name="flow", edges=[(START, both), (both, end)])


class TestFrontier:
    """W1: what waits in parallel is one frontier, in a fixed order."""

    async def test_two_agents_and_a_question_run_once_each_after_their_answers(
        self, make_app, ledger
    ) -> None:
        app = make_app(two_confirmations_and_a_question(ledger))
        out = await app.invoke(user_id="u", session_id="s", message="go")
        assert [wait.operation_path for wait in out.waits] == [
            "agent#1/a#1",
            "agent#1/ask#1",
            "agent#1/b#1",
        ]
        assert [wait.node_path for wait in out.waits] == [
            "flow@1/a@1",
            "flow@1/ask@1",
            "flow@1/b@1",
        ]
        assert ("tool", "pay", 1) not in ledger.rows()
        out = await app.resume(out.execution_id, approve(out))
        assert out.status == "completed"
        rows = ledger.rows()
        assert sorted(row for row in rows if row[:2] == ("tool", "pay")) == [
            ("tool", "pay", 1),
            ("tool", "pay", 2),
        ]
        assert rows.count(("node", "plain")) == rows.count(("node", "end")) == 1
        assert rows[-1] == ("node", "end")

    @pytest.mark.parametrize("branches", [2, 3])
    async def test_what_is_declined_never_runs(self, make_app, ledger, branches) -> None:
        tools = Tools(ledger)
        payers = tuple(
            agent(
                ledger,
                f"p{n}",
                calls(("pay", {"amount": n})),
                says(f"{n} done"),
                tools=[tools.confirmed_pay],
            )
            for n in range(branches)
        )
        join = JoinNode(name="join")

        def end(node_input: Any) -> str:
            ledger.add("end")
            return json.dumps(node_input)

        flow = Workflow(name="flow", edges=[(START, payers), (payers, join), (join, end)])
        app = make_app(flow)
        out = await app.invoke(user_id="u", session_id="s", message="go")
        answers = {wait.id: {"confirmed": wait.tool_call.args["amount"] == 0} for wait in out.waits}
        out = await app.resume(out.execution_id, answers)
        assert out.status == "completed"
        paid = [row for row in ledger.rows() if row[:2] == ("tool", "pay")]
        assert paid == [("tool", "pay", 0)]
        assert ledger.rows().count(("end",)) == 1

    async def test_nested_parallel_parts_are_one_frontier(self, make_app, ledger) -> None:
        tools = Tools(ledger)

        def payer(name: str, amount: int) -> Any:
            return agent(
                ledger,
                name,
                calls(("pay", {"amount": amount})),
                says(f"{name} done"),
                tools=[tools.confirmed_pay],
            )

        a, b, c = payer("a", 1), payer("b", 2), payer("c", 3)
        inner_join, join = JoinNode(name="inner_join"), JoinNode(name="join")
        inner = Workflow(name="inner", edges=[(START, (a, b)), ((a, b), inner_join)])
        flow = Workflow(name="outer", edges=[(START, (inner, c)), ((inner, c), join)])
        app = make_app(flow)
        out = await app.invoke(user_id="u", session_id="s", message="go")
        assert [wait.operation_path for wait in out.waits] == [
            "agent#1/c#1",
            "agent#1/inner#1/a#1",
            "agent#1/inner#1/b#1",
        ]
        out = await app.resume(out.execution_id, approve(out))
        assert out.status == "completed"
        assert sorted(row[2] for row in ledger.rows() if row[:2] == ("tool", "pay")) == [1, 2, 3]


class TestAnswers:
    async def test_half_a_frontier_is_refused_and_nothing_is_stored(self, make_app, ledger) -> None:
        """W2, with ``resume``."""
        app = make_app(two_confirmations_and_a_question(ledger))
        out = await app.invoke(user_id="u", session_id="s", message="go")
        first, *others = out.waits
        with pytest.raises(InvalidAnswer) as refused:
            await app.resume(out.execution_id, {first.id: {"confirmed": True}})
        assert set(refused.value.problems) == {wait.id for wait in others}
        page = await app.waits.list(session_id="s")
        assert {wait.id for wait in page.items} == {wait.id for wait in out.waits}

    async def test_single_answers_are_stored_and_nothing_runs_until_the_last(
        self, make_app, ledger
    ) -> None:
        """W2, with ``answer``."""
        app = make_app(two_confirmations_and_a_question(ledger))
        out = await app.invoke(user_id="u", session_id="s", message="go")
        before = ledger.rows()
        answers = approve(out)
        *early, last = out.waits
        for wait in early:
            receipt = await app.answer(wait.id, answers[wait.id], by="ada")
            assert not receipt.runnable
        assert await app.recover() == ()
        assert ledger.rows() == before
        receipt = await app.answer(last.id, answers[last.id])
        assert (receipt.open, receipt.runnable) == (0, True)
        (out,) = await app.recover()
        assert out.status == "completed"

    async def test_the_same_answer_twice_at_once_is_one_answer(self, make_app, ledger) -> None:
        """W3, from two Apps at once."""
        one, two = (make_app(two_confirmations_and_a_question(ledger)) for _ in range(2))
        out = await one.invoke(user_id="u", session_id="s", message="go")
        answers = approve(out)
        both = await asyncio.gather(
            one.resume(out.execution_id, answers), two.resume(out.execution_id, answers)
        )
        assert [o.status for o in both] == ["completed", "completed"]
        assert both[0].output == both[1].output
        assert sorted(row[2] for row in ledger.rows() if row[:2] == ("tool", "pay")) == [1, 2]

    async def test_approve_against_deny_is_one_conflict_and_one_effect_at_most(
        self, make_app, ledger
    ) -> None:
        """W3."""
        tools = Tools(ledger)

        def root() -> Any:
            script = [calls(("pay", {"amount": 1})), says("done")]
            return agent(ledger, "root", *script, tools=[tools.confirmed_pay])

        one, two = make_app(root()), make_app(root())
        out = await one.invoke(user_id="u", session_id="s", message="go")
        (wait,) = out.waits
        results = await asyncio.gather(
            one.resume(out.execution_id, {wait.id: {"confirmed": True}}),
            two.resume(out.execution_id, {wait.id: {"confirmed": False}}),
            return_exceptions=True,
        )
        kinds = sorted(type(result).__name__ for result in results)
        assert kinds == ["AnswerConflict", "Outcome"]
        approved = not isinstance(results[0], AnswerConflict)
        assert ledger.rows().count(("tool", "pay", 1)) == approved

    async def test_an_answer_is_kept_when_the_next_model_call_fails(
        self, make_app, ledger, clock
    ) -> None:
        """W4."""
        tools = Tools(ledger)
        fails = [RuntimeError("the model is down")]

        def script(_request: Any, turn: int) -> Any:
            if turn == 0:
                return calls(("pay", {"amount": 1}))
            return fails.pop() if fails else says("done")

        root = agent(ledger, "root", tools=[tools.confirmed_pay])
        root.model.script = script
        app = make_app(root)
        out = await app.invoke(user_id="u", session_id="s", message="go")
        answers = approve(out)
        out = await app.resume(out.execution_id, answers)
        assert (out.status, out.error.type) == ("queued", "RuntimeError")
        assert out.waits == ()
        clock.advance(60_000)
        (out,) = await app.recover()
        assert out.status == "completed"
        assert (await app.resume(out.execution_id, answers)).status == "completed"
        assert ledger.rows().count(("tool", "pay", 1)) == 1

    @pytest.mark.parametrize(
        "value", [False, 0, "", [], {}, "42", "null", '"x"', 3.5, {"result": 1}, [None, "a"]]
    )
    async def test_a_node_gets_the_answer_that_was_sent(self, make_app, ledger, value) -> None:
        """W10."""
        got: list[Any] = []
        app = make_app(asking(ledger, got))
        out = await app.invoke(user_id="u", session_id="s", message="go")
        out = await app.resume(out.execution_id, {out.waits[0].id: value})
        assert out.status == "completed"
        assert got == [value]
        assert type(got[0]) is type(value)

    @pytest.mark.parametrize(
        ("schema", "good", "bad"), [(int, 3, "3"), (bool, True, 1), (str, "42", 42)]
    )
    async def test_an_answer_that_breaks_its_schema_is_refused_before_it_is_stored(
        self, make_app, ledger, schema, good, bad
    ) -> None:
        """W10."""
        got: list[Any] = []
        app = make_app(asking(ledger, got, schema))
        out = await app.invoke(user_id="u", session_id="s", message="go")
        (wait,) = out.waits
        for refused in (bad, None):
            with pytest.raises(InvalidAnswer):
                await app.resume(out.execution_id, {wait.id: refused})
        out = await app.resume(out.execution_id, {wait.id: good})
        assert (out.status, got) == ("completed", [good])

    async def test_a_message_to_a_waiting_session_is_refused_with_what_is_open(
        self, make_app, ledger
    ) -> None:
        """W11."""
        app = make_app(asking(ledger))
        out = await app.invoke(user_id="u", session_id="s", message="go")
        with pytest.raises(SessionBusy) as busy:
            await app.invoke(user_id="u", session_id="s", message="hello?")
        assert busy.value.waits == (out.waits[0].id,)
        await app.resume(out.execution_id, approve(out))
        assert ledger.rows() == [("effect",), ("end",)]


class TestTools:
    async def test_each_answer_of_three_rounds_leads_to_one_model_call(
        self, make_app, ledger
    ) -> None:
        """W5, by transfer."""
        tools = Tools(ledger)
        worker = by_own_turns(
            agent(ledger, "worker", description="worker", tools=[tools.later]),
            *(calls(("later", {"q": str(n)})) for n in range(3)),
            says("all three"),
        )
        root = agent(
            ledger,
            "root",
            calls(("transfer_to_agent", {"agent_name": "worker"})),
            sub_agents=[worker],
        )
        app = make_app(root)
        out = await app.invoke(user_id="u", session_id="s", message="go")
        for _ in range(3):
            before = sum(row[0] == "model" for row in ledger.rows())
            out = await app.resume(out.execution_id, approve(out))
            assert sum(row[0] == "model" for row in ledger.rows()) == before + 1
        assert (out.status, out.response) == ("completed", "all three")

    @pytest.mark.parametrize("mode", ["restore", "walk"])
    async def test_parallel_calls_of_one_tool_are_known_by_their_place(
        self, make_app, ledger, mode
    ) -> None:
        """W7: five calls that finish in reverse order, then a new attempt."""

        async def echo(n: int) -> dict[str, int]:
            """Echo."""
            ledger.add("echo", n)
            for _ in range(5 - n):
                await asyncio.sleep(0)
            return {"n": n}

        tools = Tools(ledger)
        root = agent(
            ledger,
            "root",
            calls(*(("echo", {"n": n}) for n in range(5))),
            calls(("pay", {"amount": 1})),
            says("done"),
            tools=[echo, tools.confirmed_pay],
        )
        out = await make_app(root).invoke(user_id="u", session_id="s", message="go")
        out = await make_app(root, mode=mode).resume(out.execution_id, approve(out))
        assert out.status == "completed"
        assert sorted(row[1] for row in ledger.rows() if row[0] == "echo") == list(range(5))
        responses = [r for event in out.events for r in event.get_function_responses()]
        assert [r.response["n"] for r in responses if r.name == "echo"] == list(range(5))

    @pytest.mark.parametrize("mode", ["restore", "walk"])
    @pytest.mark.parametrize("around", [_alone, _in_a_sequence, _in_a_workflow])
    async def test_agent_tools_of_parallel_branches_ask_at_once(
        self, make_app, ledger, around, mode
    ) -> None:
        """W12, W1: two interrupts leave the parallel agent in one group."""

        def branch(n: int) -> LlmAgent:
            script = [calls(("pay", {"amount": n})), says("paid")]
            tools = [Tools(ledger).confirmed_pay]
            inner = agent(ledger, f"inner{n}", *script, description="inner", tools=tools)
            asked = calls((inner.name, {"request": "x"}))
            return agent(ledger, f"outer{n}", asked, says("done"), tools=[AgentTool(inner)])

        def root() -> Any:
            return around(ParallelAgent(name="both", sub_agents=[branch(1), branch(2)]), ledger)

        out = await make_app(root(), mode=mode).invoke(user_id="u", session_id="s", message="go")
        assert sorted(wait.tool_call.args["amount"] for wait in out.waits) == [1, 2]
        out = await make_app(root(), mode=mode).resume(out.execution_id, approve(out))
        assert out.status == "completed"
        assert sorted(row[2] for row in ledger.rows() if row[:2] == ("tool", "pay")) == [1, 2]
        assert [row for row in ledger.rows() if row[0] == "end"] == (
            [("end",)] if around is not _alone else []
        )

    async def test_the_body_of_a_declined_custom_tool_never_runs(self, make_app, ledger) -> None:
        """W14."""

        class Custom(BaseTool):
            def __init__(self) -> None:
                super().__init__(name="custom", description="custom")

            def _get_declaration(self) -> Any:
                return (
                    FunctionTool(Tools(ledger).look)
                    ._get_declaration()
                    .model_copy(update={"name": "custom"})
                )

            async def check_require_confirmation(self, args: Any, tool_context: Any) -> bool:
                return True

            async def run_async(self, *, args: Any, tool_context: Any) -> Any:
                ledger.add("custom")
                return "ran"

        root = agent(ledger, "root", calls(("custom", {"q": "x"})), says("ok"), tools=[Custom()])
        app = make_app(root)
        out = await app.invoke(user_id="u", session_id="s", message="go")
        out = await app.resume(out.execution_id, {out.waits[0].id: {"confirmed": False}})
        assert out.status == "completed"
        assert ("custom",) not in ledger.rows()
        activities = await app.executions.activities(out.execution_id)
        assert "tool" not in {activity.kind for activity in activities}

    @pytest.mark.parametrize("mode", ["restore", "walk"])
    async def test_other_arguments_than_were_shown_are_refused(
        self, make_app, ledger, mode
    ) -> None:
        """W15: a callback of newer code changes what was approved."""
        tools = Tools(ledger)

        def root(**fields: Any) -> Any:
            script = [calls(("pay", {"amount": 1})), says("done")]
            return agent(ledger, "root", *script, tools=[tools.confirmed_pay], **fields)

        def raises_the_amount(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
            args["amount"] = 1000

        out = await make_app(root()).invoke(user_id="u", session_id="s", message="go")
        newer = make_app(root(before_tool_callback=raises_the_amount), mode=mode)
        out = await newer.resume(out.execution_id, approve(out))
        assert (out.status, out.error.type) == ("stuck", "ReplayMismatch")
        assert "amount" in out.error.message
        assert not [row for row in ledger.rows() if row[:2] == ("tool", "pay")]

    @pytest.mark.parametrize("mode", ["restore", "walk"])
    async def test_arguments_that_a_callback_always_changes_are_shown_as_they_run(
        self, make_app, ledger, mode
    ) -> None:
        """W15, the other way round: a person sees what will run, and that is what runs."""
        tools = Tools(ledger)

        def in_cents(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
            args["amount"] *= 100

        script = [calls(("pay", {"amount": 1})), says("done")]
        root = agent(
            ledger, "root", *script, tools=[tools.confirmed_pay], before_tool_callback=in_cents
        )
        out = await make_app(root).invoke(user_id="u", session_id="s", message="go")
        assert out.waits[0].tool_call.args == {"amount": 100}
        out = await make_app(root, mode=mode).resume(out.execution_id, approve(out))
        assert out.status == "completed"
        assert ledger.rows().count(("tool", "pay", 100)) == 1

    async def test_two_open_waits_with_one_id_fail_at_once_and_say_why(
        self, make_app, ledger
    ) -> None:
        """Plain ADK hangs: it cannot tell whose answer it is. No attempt can change that."""

        def asks(name: str) -> Any:
            async def ask(ctx: Any, node_input: Any) -> Any:
                ledger.add(name)
                yield RequestInput(interrupt_id="same", message=name)

            return FunctionNode(func=ask, name=name, rerun_on_resume=True)

        parts = (asks("one"), asks("two"))
        app = make_app(Workflow(name="flow", edges=[(START, parts)]))
        out = await app.invoke(user_id="u", message="go")
        assert (out.status, out.error.type) == ("failed", "UnsupportedNode")
        assert "interrupt_id" in out.error.remedy
        assert len(ledger.rows()) == 2


class TestLoops:
    @pytest.mark.parametrize("rejections", [3, 4, 10])
    async def test_a_review_loop_runs_again_in_a_second_turn(
        self, make_app, ledger, rejections
    ) -> None:
        """W8."""
        app = make_app(review_loop(ledger))
        for turn in (1, 2):
            out = await app.invoke(user_id="u", session_id="s", message=f"turn {turn}")
            for _ in range(rejections):
                out = await app.resume(out.execution_id, {out.waits[0].id: {"ok": False}})
                assert out.status == "suspended"
            out = await app.resume(out.execution_id, {out.waits[0].id: {"ok": True}})
            assert (out.status, out.output) == ("completed", "published")
        drafts = [row[2] for row in ledger.rows() if row[:2] == ("node", "draft")]
        assert drafts == list(range(1, 2 * (rejections + 1) + 1))


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_items_that_no_worker_was_free_for_are_not_begun_by_a_replay(
    make_app, ledger, mode
) -> None:
    """W17 with ``max_parallel_workers``: once an item asks ADK begins no other; over its records
    a replay has a worker free sooner."""

    async def item(ctx: Any, node_input: int) -> Any:
        if node_input in (1, 3, 4) and not ctx.resume_inputs:
            yield RequestInput(message=f"{node_input}?")
            return
        ledger.add("item", node_input)
        yield node_input

    def root() -> Workflow:
        source = FunctionNode(func=lambda node_input: list(range(6)), name="source")
        worker = node(
            item,
            name="item",
            parallel_worker=True,
            max_parallel_workers=2,
            rerun_on_resume=True,
        )
        return Workflow(name="flow", edges=[(START, source), (source, worker)])

    out = await make_app(root(), mode=mode).invoke(user_id="u", message="go")
    rounds = 0
    while out.status == "suspended":
        rounds += 1
        out = await make_app(root(), mode=mode).resume(out.execution_id, approve(out))
    assert (out.status, out.output) == ("completed", list(range(6)))
    assert rounds in (2, 3)  # which item a free worker takes is up to the event loop
    assert sorted(ledger.rows()) == [("item", n) for n in range(6)]
    found = await make_app(root(), mode=mode).executions.replay(out.execution_id)
    assert found.ok, found.difference
