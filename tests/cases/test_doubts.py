"""E1, S12 and the table of promises: killed around a tool under each policy, then asked about."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.adk.events import Event

from durable_adk import Doubt, current_activity_id, durable_tool
from durable_adk.adk.scripted_model import calls, says
from durable_adk.model.store_results import Write
from durable_adk.testing import FaultPlan
from tests.faults.catalogue import agent
from tests.faults.test_kills import differences
from tests.support.lives import Case, Ledger, Life, World, default_answer

_NAMES = itertools.count(1)


@dataclass
class Desk:
    """Lives of one program, each with a list of its own of what was really paid."""

    world: World
    policy: Any
    more: Callable[[Ledger], Mapping[str, Any]] = lambda _paid: {}
    outcome: Callable[[Ledger], Mapping[str, Any]] = field(default_factory=lambda: truth)
    paid: Ledger = field(init=False)

    def live(self, point: tuple[str, int] | None = None) -> Life:
        paid = self.paid = Ledger(self.world.folder / f"paid{next(_NAMES)}")

        def build(ledger: Ledger) -> Any:
            return payer(ledger, paid, self.policy, **self.more(paid))

        def answer(wait: Mapping[str, Any]) -> Any:
            is_doubt = wait["kind"] == "in_doubt"
            return dict(self.outcome(paid)) if is_doubt else default_answer(wait)

        return self.world.live(Case(build=build, answer=answer), kill=point and (1, point))


def payer(ledger: Ledger, paid: Ledger, policy: Any, **more: Any) -> Any:
    @durable_tool(on_unknown_outcome=policy, **more)
    def pay_once(amount: int) -> dict[str, Any]:
        """Pay."""
        ledger.add("tool", "pay_once", amount)
        paid.add(current_activity_id(), amount)
        return {"paid": amount}

    return agent(
        ledger,
        "root",
        calls(("pay_once", {"amount": 1})),
        says("done"),
        tools=[pay_once],
    )


def truth(paid: Ledger) -> Mapping[str, Any]:
    """What somebody says who looks it up."""
    done = {"outcome": "done", "result": {"paid": 1}}
    return done if paid.rows() else {"outcome": "not_done"}


def not_done(_paid: Ledger) -> Mapping[str, Any]:
    return {"outcome": "not_done"}


COMPARED = Case(build=lambda _: None, settle=lambda ledger, wait: None)
"""As which lives are compared: one call in doubt may be asked about for each death."""

BEFORE = (f"before: {Write.INTENT.value}", 1)
ENTERED = (f"after: {Write.INTENT.value}", 1)
IN, RAN = ("in: tool pay_once", 1), ("ran: tool pay_once", 1)
UNRECORDED, RECORDED = (f"before: {Write.OUTCOMES.value}", 2), (f"after: {Write.OUTCOMES.value}", 2)


@pytest.fixture
def world(replica_set_uri: str, database: str, tmp_path: Path) -> World:
    return World(uri=replica_set_uri, database=database, folder=tmp_path)


@pytest.mark.parametrize("by", ["a person", "a callback"])
def test_a_killed_ask_tool_ends_as_undisturbed_when_it_is_told_the_truth(
    world: World, by: str
) -> None:
    """E1: the same ledger, events, state and output; asked only where nobody can know."""
    desk = Desk(world, "ask")
    undisturbed = desk.live()
    doubtful, clear = (ENTERED, IN, RAN, UNRECORDED), (BEFORE, RECORDED)
    if by == "a callback":
        desk.more = lambda paid: {"reconcile": lambda doubt: truth(paid)}
        doubtful, clear = (ENTERED, RAN), ()
    for point in (*doubtful, *clear):
        life = desk.live(point)
        assert life.killed_at is not None, point
        assert differences(COMPARED, undisturbed, life, point[0]) == []
        assert len(desk.paid.rows()) == 1, point
        assert life.ledger == undisturbed.ledger, point
        is_asked = point in doubtful and by == "a person"
        assert life.waits == ([["in_doubt"]] if is_asked else []), point


@pytest.mark.parametrize("point", [ENTERED, RAN])
def test_the_same_in_a_walk(world: World, point: tuple[str, int]) -> None:
    desk = Desk(
        World(uri=world.uri, database=world.database, folder=world.folder, mode="walk"), "ask"
    )
    undisturbed, life = desk.live(), desk.live(point)
    assert life.waits == [["in_doubt"]]
    assert differences(COMPARED, undisturbed, life, point[0]) == []


def test_told_that_it_was_not_done_it_runs_again_under_the_same_key(world: World) -> None:
    desk = Desk(world, "ask", outcome=not_done)
    life = desk.live(RAN)
    assert (life.status, life.waits) == (["completed"], [["in_doubt"]])
    assert desk.paid.rows() == [desk.paid.rows()[0]] * 2


def test_a_killed_generator_is_asked_about_once(
    replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    """ADK runs it as a node below its tool: one call, one question, one key."""
    paid = Ledger(tmp_path / "paid")

    def build(ledger: Ledger) -> Any:
        @durable_tool(on_unknown_outcome="ask")
        async def pay_once(amount: int) -> Any:
            """Pay, and show how."""
            paid.add(current_activity_id(), amount)
            yield Event(message="paying")
            yield {"paid": amount}

        script = [calls(("pay_once", {"amount": 1})), says("done")]
        return agent(ledger, "root", *script, tools=[pay_once])

    case = Case(build=build, answer=lambda _wait: {"outcome": "not_done"})
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    life = world.live(case, kill=(1, ("ran: node pay_once", 1)))
    assert (life.killed_at is not None, life.status) == (True, ["completed"])
    assert life.waits == [["in_doubt"]]
    assert paid.rows() == [paid.rows()[0]] * 2


@pytest.mark.parametrize(
    ("policy", "point", "ran", "status"),
    [
        ("rerun", IN, 1, "completed"),
        ("rerun", RAN, 2, "completed"),
        ("rerun", RECORDED, 1, "completed"),
        ("fail", BEFORE, 1, "completed"),
        ("fail", ENTERED, 0, "failed"),
        ("fail", RAN, 1, "failed"),
        ("fail", RECORDED, 1, "completed"),
    ],
)
def test_the_table_of_promises(
    world: World, policy: str, point: tuple[str, int], ran: int, status: str
) -> None:
    """How often a body runs, and what becomes of the execution; ``ask`` is above."""
    desk = Desk(world, policy)
    life = desk.live(point)
    assert life.killed_at is not None
    assert life.status == [status]
    rows = desk.paid.rows()
    assert len(rows) == ran
    assert len(set(rows)) <= 1, "the same idempotency key and arguments"
    if status == "failed":
        assert life.error is not None
        assert life.error["type"] == "OutcomeUnknown"


def _pays(ledger: Ledger, reconcile: Callable[[Doubt], Any] | None) -> Any:
    return payer(ledger, ledger, "ask", reconcile=reconcile)


@pytest.mark.parametrize("answered_by", ["a person", "a callback"])
async def test_no_lost_reply_asks_twice_or_runs_twice(
    make_app: Any, ledger: Ledger, clock: Any, answered_by: str
) -> None:
    """S12 for the writes of a doubt."""
    asked: list[Doubt] = []

    def look(doubt: Doubt) -> Any:
        asked.append(doubt)
        return truth(ledger)

    reconcile = look if answered_by == "a callback" else None

    class Died(BaseException):
        """The process is gone."""

    dying = make_app(_pays(ledger, reconcile), faults=FaultPlan().fail("ran tool:pay_once", Died()))
    with pytest.raises(Died):
        await dying.invoke(user_id="u", message="go", execution_id="e")
    clock.advance(120_000)
    plan = FaultPlan()
    writes = [Write.CLAIM, Write.VERDICT, Write.DOUBTS, Write.WAITS, Write.CONTINUE, Write.OUTCOMES]
    for write in writes:
        plan.lose_reply(write)
    app = make_app(_pays(ledger, reconcile), faults=plan.lose_reply(Write.END))
    (out,) = await app.recover()
    if reconcile is None:
        plan.lose_reply(Write.ANSWER)
        out = await app.resume("e", {w.id: truth(ledger) for w in out.waits})
    plan.assert_all_struck()
    assert (out.status, out.response) == ("completed", "done")
    assert len([row for row in ledger.rows() if row[:2] == ("tool", "pay_once")]) == 1
    assert len(asked) == (reconcile is not None)
