"""Rows S of the case list: several owners, lost replies, paused processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from google.adk.workflow import START, JoinNode, Workflow

from durable_adk import App, InputConflict
from durable_adk.adk.scripted_model import calls, says
from durable_adk.engine.ports import NoFaults, Write
from tests.cases.conftest import approve
from tests.faults.catalogue import CASES, Tools, agent
from tests.support import forks
from tests.support.lives import Act, Child, Ledger, World, begin_fork, default_answer, warm


async def test_one_id_begun_twice_at_once_is_one_execution(make_app, ledger) -> None:
    """S2."""

    def root() -> Any:
        tools = Tools(ledger)
        script = [calls(("slow", {"q": "a"})), says("done")]
        return agent(ledger, "root", *script, tools=[tools.slow])

    apps = [make_app(root()) for _ in range(2)]
    outs = await asyncio.gather(
        *(app.invoke(user_id="u", session_id="s", message="go", execution_id="x") for app in apps)
    )
    assert [out.status for out in outs] == ["completed", "completed"]
    assert outs[0].events == outs[1].events
    assert ledger.rows().count(("tool", "slow", "a")) == 1
    with pytest.raises(InputConflict):
        await apps[0].invoke(user_id="u", session_id="s", message="other", execution_id="x")


async def test_parallel_branches_keep_both_of_their_state_keys(make_app, ledger) -> None:
    """S3."""

    def writes(key: str) -> Any:
        async def write(node_input: Any, ctx: Any) -> str:
            await asyncio.sleep(0)
            ctx.state[key] = key
            return key

        write.__name__ = f"write_{key}"
        return write

    parts = (writes("a"), writes("b"))
    join = JoinNode(name="join")
    app = make_app(Workflow(name="flow", edges=[(START, parts), (parts, join)]))
    await app.invoke(user_id="u", session_id="s", message="go")
    session = await app.sessions.get(user_id="u", session_id="s")
    assert (session.state["a"], session.state["b"]) == ("a", "b")


class LoseEveryReply(NoFaults):
    """Every write is stored, and its first reply is lost."""

    def __init__(self) -> None:
        self.lost: set[Write] = set()
        self._repeated: set[Write] = set()

    def after(self, write: Write) -> bool:
        if write in self._repeated:
            self._repeated.discard(write)
            return False
        self._repeated.add(write)
        self.lost.add(write)
        return True


@pytest.mark.parametrize("name", ["two confirmations and a question", "ten tools", "review loop"])
async def test_lost_replies_leave_no_duplicate_and_no_false_failure(make_app, ledger, name) -> None:
    """S12."""
    case = CASES[name]
    faults = LoseEveryReply()
    app = make_app(case.build(ledger), faults=faults)
    give = case.answer or default_answer
    out = await app.invoke(user_id="u", session_id="s", message="go")
    while out.status == "suspended":
        answers = {wait.id: give(wait.to_dict()) for wait in out.waits}
        out = await app.resume(out.execution_id, answers)
    assert out.status == "completed", out.error
    assert all(ledger.rows().count(row) == 1 for row in ledger.rows())
    assert {Write.BEGIN, Write.OUTCOMES, Write.STEP, Write.END} <= faults.lost


async def paused() -> None:
    """What the slow owner's process does; what it is to use is on its standard input."""
    given = json.load(sys.stdin)
    app = App(
        "cases",
        root_agent=paused_root(Ledger(Path(given["ledger"])), "slow owner"),
        config=given["config"],
        mongodb=given["uri"],
        database=given["database"],
    )
    async with app:
        out = await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
        print(json.dumps({"status": out.status, "response": out.response}))


def paused_root(ledger: Any, who: str) -> Any:
    async def work(q: str) -> dict[str, str]:
        """Work for a moment."""
        ledger.add("began", who, q)
        await asyncio.sleep(2 if who == "slow owner" else 0.05)
        ledger.add("worked", who, q)
        return {"by": "somebody"}

    script = [calls(("work", {"q": "1"})), calls(("work", {"q": "2"})), says("done")]
    return agent(ledger, "root", *script, tools=[work])


@pytest.mark.timeout(600)
async def test_a_paused_owner_that_wakes_commits_nothing_and_starts_nothing(
    make_app, ledger, replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    """S14 and S1: SIGSTOP inside a tool for more than a lease, real clocks, real processes."""
    config = {
        "features": {"durable_workflow": True},
        "namespace": f"n{os.urandom(6).hex()}",
        "lease": {"ttl": "3s"},
    }
    given = {"uri": replica_set_uri, "database": database, "config": config}
    given["ledger"] = str(ledger.path)
    slow = forks.begin(lambda: asyncio.run(paused()), json.dumps(given))
    while ("began", "slow owner", "1") not in ledger.rows():
        assert slow.poll() is None
        await asyncio.sleep(0.01)
    slow.send_signal(signal.SIGSTOP)
    app = make_app(
        paused_root(ledger, "next owner"),
        namespace=config["namespace"],
        config={"lease": {"ttl": "3s"}},
    )
    out = ()
    while not out:  # until its lease has run out
        await asyncio.sleep(0.2)
        out = await app.recover()
    assert (out[0].status, out[0].response) == ("completed", "done")
    events = [event.id for event in out[0].events]
    slow.send_signal(signal.SIGCONT)
    with slow.stdout as said, slow.stderr:
        text = await asyncio.to_thread(said.read)
    assert slow.wait() == 0
    assert json.loads(text) == {"status": "completed", "response": "done"}, "it sees the outcome"
    assert ("began", "slow owner", "2") not in ledger.rows()
    again = await app.invoke(user_id="u", session_id="s", message="go", execution_id="x")
    assert [event.id for event in again.events] == events


async def test_two_owners_resume_at_once_and_one_runs(make_app, ledger) -> None:
    """S1."""

    def root() -> Any:
        tools = Tools(ledger)
        script = [calls(("pay", {"amount": 1})), says("done")]
        return agent(ledger, "root", *script, tools=[tools.confirmed_pay])

    apps = [make_app(root()) for _ in range(4)]
    out = await apps[0].invoke(user_id="u", message="go")
    outs = await asyncio.gather(*(app.resume(out.execution_id, approve(out)) for app in apps))
    assert {o.status for o in outs} == {"completed"}
    assert ledger.rows().count(("tool", "pay", 1)) == 1
    assert ledger.rows().count(("model", "root", 1)) == 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize("agree", [True, False])
def test_answers_from_two_processes_at_once_are_one_answer_or_one_conflict(
    ledger: Ledger, replica_set_uri: str, database: str, tmp_path: Path, agree: bool
) -> None:
    """W3 and S1, with a process each."""
    warm()
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    named = {"execution_id": "x", "message": "go"}

    def process(act: Act) -> Child:
        case, name = CASES["nested workflow"], tmp_path.name
        return begin_fork(
            lambda: asyncio.run(world.perform(case, ledger.path, name, act, sigkill=False))
        )

    code, begun = process(Act(what="invoke", **named)).wait()
    assert (code, begun["status"]) == (0, "suspended")
    (wait,) = begun["waits"]
    both = [
        process(Act(what="resume", answers={wait["id"]: {"confirmed": confirmed}}, **named))
        for confirmed in (True, agree)
    ]
    ends = [child.wait() for child in both]
    codes = sorted(code for code, _ in ends)
    paid = ledger.rows().count(("tool", "pay", 1))
    if agree:
        assert codes == [0, 0]
        assert {found["status"] for _, found in ends} == {"completed"}
        assert paid == 1
    else:
        assert codes == [0, 1]
        (refused,) = (found["trace"] for code, found in ends if code)
        assert "AnswerConflict" in refused
        assert paid == (ends[0][0] == 0)
