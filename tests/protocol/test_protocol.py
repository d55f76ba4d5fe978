"""No order of moves breaks a promise; and without any one of the rules, some order does.

The explorer would be worth nothing if it could not find what it looks for: every rule is
switched off once, and the promise that it protects must break.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.protocol import programs
from tests.protocol.explore import AS_WRITTEN, Promise, explore
from tests.protocol.world import Program, Rules

# A whole exploration takes seconds; the limit is for slow machines.
pytestmark = pytest.mark.timeout(600)


def _variant(program: Program, **changes: object) -> Program:
    return dataclasses.replace(program, **changes)  # type: ignore[arg-type]


PROGRAMS = [
    pytest.param(programs.ONE_BRANCH, id="one branch, replies lost"),
    pytest.param(programs.TWO_BRANCHES, id="two branches"),
    pytest.param(_variant(programs.TWO_BRANCHES, good_clocks=True), id="good clocks"),
    pytest.param(programs.FAIL_TOOL, id="a tool that must not run twice, replies lost"),
    pytest.param(
        _variant(programs.FAIL_TOOL, owners=3), id="the same with three owners, replies lost"
    ),
    pytest.param(programs.FAIL_TOOL_BESIDE, id="the same, cancelled by a sibling's failure"),
    pytest.param(programs.RIVALS, id="two steps, rival answers, replies lost"),
    pytest.param(programs.TWO_FRONTIERS, id="two frontiers, late answers"),
    pytest.param(programs.CANCELLED, id="cancelled at any point"),
    pytest.param(programs.FAILING, id="failures in one branch"),
    pytest.param(programs.BOTH_FAIL, id="failures in two branches"),
    pytest.param(_variant(programs.BOTH_FAIL, owners=1, max_attempts=4), id="and one owner"),
    pytest.param(programs.HANDLED_BESIDE, id="a handled failure beside one that is not"),
    pytest.param(programs.ASKED, id="a call in doubt, asked about twice, three owners"),
    pytest.param(programs.ASKED_BESIDE, id="two calls in doubt, good clocks"),
    pytest.param(programs.FOUND_OUT, id="found out while somebody answers, three owners"),
    pytest.param(programs.ASKED_AND_WAITS, id="doubts, then waits, cancelled at any point"),
    pytest.param(programs.RELEASED, id="given back at any point, good clocks"),
    pytest.param(programs.RELEASED_AND_CLOSED, id="given back, stuck, retried and cancelled"),
    pytest.param(programs.EXPIRING, id="answers and the expiry of their waits"),
]

DEEP = [
    pytest.param(_variant(programs.ASKED, lost_replies=True), id="asked twice, replies lost"),
    pytest.param(_variant(programs.ASKED_AND_WAITS, owners=3), id="doubts, waits, three owners"),
    pytest.param(_variant(programs.RELEASED, owners=3, releases=2), id="given back twice"),
    pytest.param(_variant(programs.CANCELLED, owners=3), id="cancelled, three owners"),
    pytest.param(_variant(programs.EXPIRING, owners=3), id="expiry, three owners"),
]
"""What takes minutes: with ``--all-points``."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "program" in metafunc.fixturenames and "broken" not in metafunc.fixturenames:
        deep = metafunc.config.getoption("--all-points")
        metafunc.parametrize("program", [*PROGRAMS, *(DEEP if deep else [])])


def test_no_order_of_moves_breaks_a_promise(program: Program) -> None:
    findings = explore(program, limit=3_000_000)
    assert findings.broken == {}
    assert findings.complete
    assert findings.worlds > 500, "the program does not reach what it is there for"


MUTATIONS = [
    pytest.param(
        AS_WRITTEN._replace(barrier=False),
        programs.TWO_BRANCHES,
        Promise.SAME_INPUTS,
        id="no barrier before a body with effects",
    ),
    pytest.param(
        AS_WRITTEN._replace(ordered_log=False, barrier=False),
        programs.TWO_BRANCHES,
        Promise.RESTS,
        id="outcomes become durable in any order",
    ),
    pytest.param(
        AS_WRITTEN._replace(nonce=False),
        programs.FAIL_TOOL,
        Promise.FAIL_ONCE,
        id="equal content instead of the nonce",
    ),
    pytest.param(
        AS_WRITTEN._replace(doubt_takes_slot=False),
        programs.FAIL_TOOL,
        Promise.DOUBT_IS_FINAL,
        id="a verdict that takes no slot",
    ),
    pytest.param(
        AS_WRITTEN._replace(token_in_step_key=False),
        programs.TWO_BRANCHES,
        Promise.CAN_END,
        id="one key for every owner's step document",
    ),
    pytest.param(
        AS_WRITTEN._replace(token_filter=False),
        programs.ONE_BRANCH,
        Promise.CURRENT_TOKEN,
        id="commits without the token in their filter",
    ),
    pytest.param(
        AS_WRITTEN._replace(insert_only=False),
        programs.TWO_BRANCHES,
        Promise.ONLY_INSERTS,
        id="outcomes that overwrite",
    ),
    pytest.param(
        AS_WRITTEN._replace(insert_only=False),
        programs.TWO_BRANCHES,
        Promise.COMMITTED_KEPT,
        id="outcomes that overwrite committed ones",
    ),
    pytest.param(
        AS_WRITTEN._replace(rev_guard=False),
        programs.RIVALS,
        Promise.ANSWER_KEPT,
        id="answers without the revision in their filter",
    ),
    pytest.param(
        AS_WRITTEN._replace(frontier_guard=False),
        programs.TWO_FRONTIERS,
        Promise.ANSWER_KEPT,
        id="answers without the frontier in their filter",
    ),
    pytest.param(
        AS_WRITTEN._replace(whole_frontier=False),
        programs.RIVALS,
        Promise.WHOLE,
        id="a frontier in several writes",
    ),
    pytest.param(
        AS_WRITTEN._replace(voids="all"),
        programs.FAILING,
        Promise.RESTS,
        id="a failed attempt voids every failure",
    ),
    pytest.param(
        AS_WRITTEN._replace(voids="unfollowed"),
        programs.HANDLED_BESIDE,
        Promise.SAME_INPUTS,
        id="a failed attempt voids what nothing recorded follows yet",
    ),
    pytest.param(
        AS_WRITTEN._replace(voids="unfollowed"),
        programs.HANDLED_BESIDE,
        Promise.RESTS,
        id="and what a late record follows",
    ),
    pytest.param(
        AS_WRITTEN._replace(whole_map=False),
        programs.RIVALS,
        Promise.MAP_WHOLE,
        id="a resume map in several writes",
    ),
    pytest.param(
        AS_WRITTEN._replace(closing_mark=False),
        programs.CANCELLED,
        Promise.CLOSED_STAYS,
        id="taken in order to end it, without a mark",
    ),
    pytest.param(
        AS_WRITTEN._replace(nonce=False),
        programs.ASKED,
        Promise.ASKED,
        id="equal content instead of the nonce, of a call that is asked about",
    ),
    pytest.param(
        AS_WRITTEN._replace(doubt_ordinal=False),
        programs.ASKED,
        Promise.ITS_QUESTION,
        id="doubts of one step under one frontier id",
    ),
    pytest.param(
        AS_WRITTEN._replace(doubt_keeps_step=False),
        programs.ASKED_AND_WAITS,
        Promise.COMMITTED_KEPT,
        id="a frontier of doubts that ends its step",
    ),
    pytest.param(
        AS_WRITTEN._replace(doubt_records_first=False),
        programs.ASKED,
        Promise.TOLD_KEPT,
        id="a frontier of doubts that goes before its answers are records",
    ),
    pytest.param(
        AS_WRITTEN._replace(next_try=False),
        programs.ASKED,
        Promise.TOLD_KEPT,
        id="what was not done, tried again in the same slot",
    ),
    pytest.param(
        AS_WRITTEN._replace(done_takes_slot=False),
        programs.ASKED,
        Promise.RESTS,
        id="the result of what was done, left where it was answered",
    ),
    pytest.param(
        AS_WRITTEN._replace(reconcile_fenced=False),
        programs.FOUND_OUT,
        Promise.TOLD_KEPT,
        id="what an owner found out, recorded outside the fence",
    ),
    pytest.param(
        AS_WRITTEN._replace(may_start=False),
        programs.RELEASED,
        Promise.HELD,
        id="bodies started after the lease is over",
    ),
    pytest.param(
        AS_WRITTEN._replace(release_stops=False),
        programs.RELEASED,
        Promise.HELD,
        id="a lease given back while the bodies go on",
    ),
    pytest.param(
        AS_WRITTEN._replace(expiry_by_server=False),
        programs.EXPIRING,
        Promise.EXPIRY,
        id="expiry by the clock of whoever answers",
    ),
]


@pytest.mark.parametrize(("rules", "program", "broken"), MUTATIONS)
def test_without_the_rule_some_order_breaks_the_promise(
    rules: Rules, program: Program, broken: Promise
) -> None:
    way = explore(program, rules, until=broken).broken.get(broken)
    assert way, f"not found: {broken.value}"
    print("\n".join(["", broken.value, *(f"    {move}" for move in way)]))


def test_every_promise_can_be_seen_to_break_but_for_those_that_cannot() -> None:
    """One filter of one update, or the shape of a key, makes these hold in this model."""
    by_construction = {
        Promise.ONE_OUTCOME,
        Promise.ENDS_ONCE,
        Promise.TOKEN_GROWS,
        Promise.COMMITS_ONCE,
    }
    assert {case.values[2] for case in MUTATIONS} | by_construction == set(Promise)
