"""Rows of the case list for all kinds of what they name: W4, W7, W10, R1 and R10."""

from __future__ import annotations

import asyncio
import functools
import random
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.workflow import START, JoinNode, Workflow
from pymongo import MongoClient

from durable_adk import durable_tool
from durable_adk.adk.scripted_model import calls, says
from durable_adk.testing import FaultPlan
from tests.faults.catalogue import agent
from tests.faults.differences import differences
from tests.support.lives import Case, Ledger, World

GO: dict[str, Any] = {"user_id": "u", "session_id": "s", "message": "go", "execution_id": "x"}


class Died(BaseException):
    """The process is gone."""


# ---------------------------------------------------------------- W4 and W10: each kind of wait


def paying(ledger: Ledger, kind: str, result: Any = "paid") -> Any:
    """A tool that waits in that way, or runs at once."""

    def pay(cents: int) -> Any:
        """Pay."""
        ledger.add("pay", cents)
        return None if kind == "long-running" else result

    if kind == "in doubt":
        return durable_tool(on_unknown_outcome="ask")(pay)
    if kind == "confirmation":
        return FunctionTool(pay, require_confirmation=True)
    return LongRunningFunctionTool(pay) if kind == "long-running" else pay


async def asked(make_app: Any, clock: Any, root: Any, kind: str) -> Any:
    """The outcome with the wait of that kind."""
    if kind != "in doubt":
        return await make_app(root).invoke(**GO)
    dying = make_app(root, faults=FaultPlan().fail("ran tool:pay", Died()))
    with pytest.raises(Died):
        await dying.invoke(**GO)
    clock.advance(120_000)
    (out,) = await make_app(root).recover()
    return out


ANSWERS: dict[str, Any] = {
    "confirmation": {"confirmed": True},
    "long-running": {"paid": 5},
    "in doubt": {"outcome": "done", "result": "paid"},
}


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("kind", ANSWERS)
async def test_an_answer_is_kept_when_what_follows_fails(
    make_app: Any, ledger: Ledger, clock: Any, kind: str, mode: str
) -> None:
    """W4: the next model call raises; the same answer again, then whoever recovers."""
    fails = [RuntimeError("the model is down")]

    def script(request: Any, _turn: int) -> Any:
        has_paid = any(p.function_response for c in request.contents for p in c.parts or ())
        if not has_paid:
            return calls(("pay", {"cents": 5}))
        return fails.pop() if fails else says("done")

    root = agent(ledger, "root", tools=[paying(ledger, kind)])
    root.model.script = script
    out = await asked(make_app, clock, root, kind)
    (wait,) = out.waits
    given = {wait.id: ANSWERS[kind]}
    app = make_app(root, mode=mode)
    out = await app.resume("x", given)
    assert (out.status, out.error.type, out.waits) == ("queued", "RuntimeError", ())
    again = await app.resume("x", given)
    assert again.status in ("queued", "completed")
    clock.advance(60_000)
    await app.recover()
    out = await app.resume("x", given)
    assert (out.status, out.response) == ("completed", "done")
    assert ledger.rows().count(("pay", 5)) == 1


@pytest.mark.parametrize(
    "value", [False, 0, "", [], {}, "42", "null", '"x"', None, {"result": 1}], ids=repr
)
async def test_a_result_that_was_told_is_the_one_that_it_would_have_been(
    make_app: Any, ledger: Ledger, clock: Any, value: Any
) -> None:
    """W10 for a call in doubt: the model sees what a run would have shown it."""
    seen: dict[str, Any] = {}
    for kind in ("at once", "in doubt"):

        def script(request: Any, _turn: int, kind: str = kind) -> Any:
            found = [p.function_response for c in request.contents for p in c.parts or ()]
            told = [one.response for one in found if one]
            seen[kind] = told
            return says("done") if told else calls(("pay", {"cents": 5}))

        root = agent(ledger, "root", tools=[paying(ledger, kind, value)])
        root.model.script = script
        place = {"namespace": f"{kind}{random.random()}"}
        if kind == "at once":
            out = await make_app(root, **place).invoke(**GO)
        else:
            here = functools.partial(make_app, **place)
            out = await asked(here, clock, root, kind)
            given = {out.waits[0].id: {"outcome": "done", "result": value}}
            out = await make_app(root, **place).resume("x", given)
        assert out.status == "completed", out.error
    assert seen["in doubt"] == seen["at once"]
    assert ledger.rows().count(("pay", 5)) == 2


# ---------------------------------------------------------------- W7 and R1


def echoing(ledger: Ledger, name: str, count: int) -> LlmAgent:
    """Calls of one tool that end in reverse order, but for a little chance."""

    async def echo(n: int) -> dict[str, int]:
        """Echo."""
        ledger.add("echo", name, n)
        await asyncio.sleep((count - n + random.random()) * 0.002)
        return {"n": n}

    asked = calls(*(("echo", {"n": n}) for n in range(count)))
    return agent(ledger, name, asked, says(f"{name} done"), tools=[echo])


def five_calls(ledger: Ledger) -> LlmAgent:
    return echoing(ledger, "five", 5)


def three_branches(ledger: Ledger) -> Workflow:
    branches = tuple(echoing(ledger, name, 3) for name in "abc")
    return Workflow(name="flow", edges=[(START, branches, JoinNode(name="join"))])


@pytest.mark.parametrize(
    ("build", "at_once", "mode"), [(five_calls, 5, "walk"), (three_branches, 9, "restore")]
)
def test_a_kill_among_parallel_calls_leaves_each_outcome_at_its_call(
    replica_set_uri: str, database: str, tmp_path: Path, build: Any, at_once: int, mode: str
) -> None:
    """W7, R1: identity by position, results in order, whatever had ended when it died."""
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    case = Case(build=build, in_flight=at_once)
    undisturbed = world.live(case)
    for ended in random.sample(range(1, at_once + 1), 3):
        life = world.live(case, kill=(1, ("ran: tool echo", ended)))
        assert life.killed_at is not None
        assert differences(case, undisturbed, life, f"after {ended} had ended") == []


async def test_parallel_calls_run_at_once_in_every_attempt(
    make_app: Any, ledger: Ledger, clock: Any
) -> None:
    """R1: nine calls wait for one another; one branch fails, and a new attempt does it again."""
    meeting = asyncio.Barrier(9)
    is_down = [True]

    async def meet(n: int) -> int:
        """Meet."""
        ledger.add("meet", n)
        async with asyncio.timeout(30):
            await meeting.wait()
        return n

    def branch(name: str) -> LlmAgent:
        def script(request: Any, _turn: int) -> Any:
            told = sum(c.role == "model" for c in request.contents)
            if told == 1 and is_down and name == "a":
                return RuntimeError("down")
            return says("done") if told == 2 else calls(*(("meet", {"n": n}) for n in range(3)))

        made = agent(ledger, name, tools=[meet])
        made.model.script = script
        return made

    branches = tuple(branch(name) for name in "abc")
    flow = Workflow(name="flow", edges=[(START, branches, JoinNode(name="join"))])
    out = await make_app(flow).invoke(**GO)
    assert (out.status, out.error.type) == ("queued", "RuntimeError")
    is_down.clear()
    clock.advance(120_000)
    (out,) = await make_app(flow, mode="walk").recover()
    assert out.status == "completed", out.error
    assert len([row for row in ledger.rows() if row[0] == "meet"]) >= 18


# ---------------------------------------------------------------- R10


async def test_stored_bytes_grow_with_the_calls_and_not_with_what_was_said_before(
    make_app: Any, ledger: Ledger, replica_set_uri: str, database: str
) -> None:
    """R10: each prompt holds a conversation of 100 KB and all calls before it."""
    sizes = []
    for count in (5, 10, 20):
        script = [calls(("look", {"q": f"{n:03}"})) for n in range(count)]
        root = agent(ledger, "root", *script, says("done"), tools=[looking])
        prefix = f"r10_{count}_"
        app = make_app(root, config={"mongodb": {"collection_prefix": prefix}})
        out = await app.invoke(user_id="u", message="x" * 100_000)
        assert out.status == "completed", out.error
        sizes.append(_bytes(replica_set_uri, database, prefix))
    small, large = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert 1.8 * small < large < 2.2 * small, sizes
    assert large < 10 * 5_000, "nothing of the conversation is stored with a call"


def looking(q: str) -> str:
    """Look."""
    return "y" * 500


looking.__name__ = "look"


def _bytes(uri: str, database: str, prefix: str) -> int:
    total = [{"$group": {"_id": 1, "b": {"$sum": {"$bsonSize": "$$ROOT"}}}}]
    with MongoClient(uri) as client:
        names = client[database].list_collection_names()
        mine = [name for name in names if name.startswith(prefix)]
        found = [row["b"] for name in mine for row in client[database][name].aggregate(total)]
    return sum(found)
