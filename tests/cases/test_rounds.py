"""Rows W5, W8 and W9 of the case list: questions that come round after round, each answer given to
a new process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, FunctionNode, Workflow

from durable_adk.adk.scripted_model import calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import agent
from tests.support.lives import Case, Ledger, Life, World

pytestmark = pytest.mark.timeout(600)

MODES = pytest.mark.parametrize("mode", ["restore", "walk"])


@pytest.fixture
def world(replica_set_uri: str, database: str, tmp_path: Path) -> Callable[[str], World]:
    return lambda mode: World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)


def bodies(life: Life, kind: str) -> dict[Any, int]:
    return {row[1:]: count for row, count in life.ledger.items() if row[0] == kind}


# ---------------------------------------------------------------- W5


def two_tickets(ledger: Ledger, name: str, **fields: Any) -> LlmAgent:
    """Asks for two tickets, one after the other, by tools that are answered later."""

    async def first(q: str) -> None:
        """Ask for the first ticket."""
        await asyncio.sleep(0.002)
        ledger.add("tool", "first", q)

    async def second(q: str) -> None:
        """Ask for the second ticket."""
        await asyncio.sleep(0.002)
        ledger.add("tool", "second", q)

    tools = [LongRunningFunctionTool(first), LongRunningFunctionTool(second)]
    return agent(ledger, name, tools=tools, description=name, **fields)


def noted(ledger: Ledger, llm: LlmAgent, choose: Callable[[Any], Any]) -> LlmAgent:
    """Let ``choose`` answer, and note each call by how much of the conversation it saw."""
    model: Any = llm.model
    model.on_call = None

    def script(request: Any, _turn: int) -> Any:
        ledger.add("model", llm.name, len(request.contents))
        return choose(request)

    model.script = script
    return llm


def by_transfer(ledger: Ledger) -> LlmAgent:
    """The child keeps the conversation after the first message."""
    rounds = [
        reply
        for n in range(3)
        for reply in (
            calls(("first", {"q": f"a{n}"})),
            calls(("second", {"q": f"b{n}"})),
            says(f"round {n} done"),
        )
    ]
    child = two_tickets(ledger, "child")
    move = calls(("transfer_to_agent", {"agent_name": "child"}))
    root = noted(ledger, agent(ledger, "root", sub_agents=[child]), lambda request: move)

    def own(request: Any) -> Any:
        said = sum(1 for content in request.contents if content.role == "model")
        return rounds[min(said, len(rounds) - 1)]

    noted(ledger, child, own)
    return root


def by_tool(ledger: Ledger) -> LlmAgent:
    """The child is asked anew for each message."""
    replies = [calls(("first", {"q": "a"})), calls(("second", {"q": "b"})), says("child done")]

    def answered(request: Any) -> Any:
        done = sum(bool(p.function_response) for c in request.contents for p in c.parts or ())
        return replies[min(done, 2)]

    child = noted(ledger, two_tickets(ledger, "child"), answered)

    def ask(request: Any) -> Any:
        last = request.contents[-1].parts or []
        has_answer = any(part.function_response for part in last)
        return says("done") if has_answer else calls(("child", {"request": "x"}))

    return noted(ledger, agent(ledger, "root", tools=[AgentTool(child)]), ask)


@MODES
@pytest.mark.parametrize("build", [by_transfer, by_tool])
def test_each_answer_of_a_sub_agent_leads_to_one_model_call(
    build: Any, mode: str, world: Callable[[str], World]
) -> None:
    """W5: three messages, two answers in each: one call that asks for the second ticket, one that
    ends the round; what the orchestrator asks is not asked again."""
    life = world(mode).live(Case(build=build, messages=("one", "two", "three")))
    assert life.status == ["completed"] * 3
    assert [len(waits) for waits in life.waits] == [1] * 6
    tools = bodies(life, "tool")
    assert {name: sum(n for row, n in tools.items() if row[0] == name) for name, _q in tools} == {
        "first": 3,
        "second": 3,
    }
    models = bodies(life, "model")
    calls_of = {name: sum(n for row, n in models.items() if row[0] == name) for name, _n in models}
    assert calls_of == {"child": 9, "root": 1 if build is by_transfer else 6}
    events = [event for event in life.events if event.get("author") == "child"]
    assert len({event["id"] for event in events}) == len(events)


# ---------------------------------------------------------------- W8


def reviewed(rejections: int) -> Any:
    """A draft that a person rejects so many times, in each message."""

    def build(ledger: Ledger) -> Workflow:
        def draft(node_input: Any, ctx: Any) -> int:
            n = int(ctx.state.get("n", 0)) + 1
            ctx.state["n"] = n
            ledger.add("node", "draft", n)
            return n

        async def review(ctx: Any, node_input: Any) -> Any:
            key = f"r{node_input}"
            ledger.add("node", "review", node_input, key in ctx.resume_inputs)
            if key in ctx.resume_inputs:
                ctx.route = "ok" if ctx.resume_inputs[key]["ok"] else "again"
                yield "reviewed"
                return
            yield RequestInput(interrupt_id=key, message=f"review {node_input}")

        def publish(node_input: Any, ctx: Any) -> str:
            ledger.add("node", "publish", ctx.state["n"])
            return f"published {ctx.state['n']}"

        reviewer = FunctionNode(func=review, name="review", rerun_on_resume=True)
        edges = [(START, draft), (draft, reviewer), (reviewer, {"again": draft, "ok": publish})]
        return Workflow(name="flow", edges=edges)

    return build


@pytest.mark.parametrize(
    ("rejections", "mode"), [(3, "walk"), (3, "restore"), (4, "walk"), (10, "restore")]
)
def test_a_review_loop_runs_as_often_as_it_is_rejected_in_each_message(
    rejections: int, mode: str, world: Callable[[str], World]
) -> None:
    """W8: then a second message runs the same loop, on records of its own only."""
    drafts = rejections + 1

    def answer(wait: Any) -> Any:
        return {"ok": int(wait["message"].split()[-1]) % drafts == 0}

    case = Case(build=reviewed(rejections), messages=("one", "two"), answer=answer)
    life = world(mode).live(case)
    assert life.status == ["completed"] * 2
    assert [len(waits) for waits in life.waits] == [1] * (2 * drafts)
    assert life.output == [f"published {drafts}", f"published {2 * drafts}"]
    expected = {("draft", n): 1 for n in range(1, 2 * drafts + 1)}
    expected |= {("review", n, seen): 1 for n in range(1, 2 * drafts + 1) for seen in (False, True)}
    expected |= {("publish", n): 1 for n in (drafts, 2 * drafts)}
    assert bodies(life, "node") == expected


# ---------------------------------------------------------------- W9


def children_without_ids(ledger: Ledger) -> Workflow:
    """An orchestrator over two children that ask, neither of which names its question."""

    async def ask(ctx: Any, node_input: Any) -> Any:
        ledger.add("node", "ask", str(node_input), len(ctx.resume_inputs))
        if ctx.resume_inputs:
            yield next(iter(ctx.resume_inputs.values()))
            return
        yield RequestInput(message=f"which {node_input}?")

    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)

    async def runner(ctx: Any, node_input: Any) -> Any:
        ledger.add("orchestrator")
        first = await ctx.run_node(asker, node_input="a")
        second = await ctx.run_node(asker, node_input="b")
        yield f"{first} {second}"

    node = FunctionNode(func=runner, name="runner", rerun_on_resume=True)
    return Workflow(name="flow", edges=[(START, node)])


@MODES
def test_a_child_that_names_no_question_has_one_wait_however_often_it_is_tried(
    mode: str, world: Callable[[str], World]
) -> None:
    """W9: killed at every point of the first attempt: its wait never becomes two."""
    case = Case(build=children_without_ids)
    undisturbed = world(mode).live(case)
    assert undisturbed.status == ["completed"]
    assert undisturbed.output == ["blue blue"]
    assert [len(waits) for waits in undisturbed.waits] == [1, 1]
    for name in dict.fromkeys(undisturbed.reached[0]):
        life = world(mode).live(case, kill=(1, (name, 1)))
        assert (life.status, life.output) == (undisturbed.status, undisturbed.output), name
        assert [len(waits) for waits in life.waits] == [1, 1], name


@MODES
async def test_a_wait_of_a_dynamic_child_has_the_same_id_on_each_attempt(
    mode: str, make_app: Any, ledger: Ledger
) -> None:
    """W9: an attempt that fails after the question was asked, then one that does not."""
    fails = [True]
    flow = children_without_ids(ledger)

    def sibling(node_input: Any) -> None:
        if fails:
            fails.pop()
            raise ConnectionError("cut off")

    parts = (next(node for node in flow.graph.nodes if node.name == "runner"), sibling)
    root = Workflow(name="flow", edges=[(START, parts)])
    app = make_app(root, mode=mode)
    named = {"user_id": "u", "session_id": "s", "execution_id": "x", "message": "go"}
    failed = await app.invoke(**named)
    asked = await app.invoke(**named)
    again = await app.invoke(**named)
    assert (failed.status, asked.status) == ("queued", "suspended")
    assert [wait.id for wait in again.waits] == [wait.id for wait in asked.waits]
    assert [wait.message for wait in asked.waits] == ["which a?"]
    second = await app.resume("x", approve(asked))
    assert [wait.message for wait in second.waits] == ["which b?"]
    assert {wait.id for wait in second.waits}.isdisjoint(wait.id for wait in asked.waits)
    done = await app.resume("x", approve(second))
    assert done.status == "completed", done.error
