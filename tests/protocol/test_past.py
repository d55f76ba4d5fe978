"""Forks, deletion and retention, and turns that go on meanwhile: no order breaks a promise.

As in ``test_protocol.py``, every rule is switched off once, and the promise that it protects must
break.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.protocol.past_promises import AS_DECIDED, Promise, explore
from tests.protocol.past_world import Actor, Rules, Scene

pytestmark = pytest.mark.timeout(600)

FORK, DELETE, TURN = Actor("fork", upto=2), Actor("delete"), Actor("turn")
SWEEP = Actor("sweep", upto=1)
INSIDE = Actor("fork inside", upto=2)
OTHER_FORK = Actor("fork", key=1, upto=1)

TWO_DELETE = Scene((FORK, DELETE, DELETE))
TWO_DELETE_A_TURN = Scene((TURN, DELETE, DELETE))
TWO_SWEEP = Scene((FORK, SWEEP, SWEEP))
TWO_SWEEP_A_TURN = Scene((TURN, SWEEP, SWEEP))
FORKED_TWICE = Scene((FORK, FORK, DELETE))
FORKED_TWICE_SWEPT = Scene((FORK, FORK, SWEEP))
SWEPT_AND_DELETED = Scene((FORK, SWEEP, DELETE))
FORKED_INSIDE = Scene((INSIDE, Actor("source"), DELETE, SWEEP), last_is_active=True)
GOING_ON = Scene((FORK, TURN, SWEEP))
GOING_ON_DELETED = Scene((FORK, TURN, DELETE))
FOUR = Scene((FORK, TURN, SWEEP, SWEEP))
TWO_FORKS = Scene((FORK, OTHER_FORK, SWEEP, DELETE))
FOUR_ON_ONE_FORK = Scene((FORK, FORK, SWEEP, SWEEP))
FOUR_DELETE = Scene((FORK, FORK, DELETE, DELETE))

SCENES = [
    pytest.param(TWO_DELETE, id="a fork, two deletions"),
    pytest.param(TWO_DELETE_A_TURN, id="a new turn, two deletions"),
    pytest.param(TWO_SWEEP, id="a fork, two sweeps"),
    pytest.param(TWO_SWEEP_A_TURN, id="a new turn, two sweeps"),
    pytest.param(FORKED_TWICE, id="one fork made by two calls, a deletion"),
    pytest.param(FORKED_TWICE_SWEPT, id="one fork made by two calls, a sweep"),
    pytest.param(SWEPT_AND_DELETED, id="a fork, a sweep, a deletion"),
    pytest.param(FORKED_INSIDE, id="a fork inside what is under way, a deletion, a sweep"),
    pytest.param(GOING_ON, id="a fork, a new turn, a sweep"),
    pytest.param(GOING_ON_DELETED, id="a fork, a new turn, a deletion"),
]

LARGE = [
    pytest.param(FOUR, id="a fork, a new turn, two sweeps"),
    pytest.param(TWO_FORKS, id="two forks, a sweep, a deletion"),
    pytest.param(FOUR_ON_ONE_FORK, id="one fork made by two calls, two sweeps"),
    pytest.param(FOUR_DELETE, id="one fork made by two calls, two deletions"),
    pytest.param(dataclasses.replace(TWO_SWEEP_A_TURN, rounds=2), id="three attempts, two sweeps"),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With ``--all-points`` also what takes minutes."""
    if "scene" in metafunc.fixturenames and "broken" not in metafunc.fixturenames:
        deep = metafunc.config.getoption("--all-points")
        metafunc.parametrize("scene", [*SCENES, *(LARGE if deep else [])])


def test_no_order_of_moves_breaks_a_promise(scene: Scene) -> None:
    findings = explore(scene, limit=3_000_000)
    assert findings.broken == {}
    assert findings.complete
    assert findings.worlds > 500, "the scene does not reach what it is there for"


MUTATIONS = [
    ("a removal that does not look for forks", {"check_forks": False}, TWO_SWEEP, "FORK_WHOLE"),
    ("nor for what runs", {"check_active": False}, TWO_DELETE_A_TURN, "RUNNING_KEPT"),
    ("what runs while a sweep begins", {"check_active": False}, TWO_SWEEP_A_TURN, "SAME_PAST"),
    ("a fork that does not read again", {"read_again": False}, TWO_DELETE, "FORK_WHOLE"),
    (
        "a fork that another call made, not read again",
        {"rivals_read_again": False},
        FORKED_TWICE,
        "FORK_KEPT",
    ),
    ("a fork made under a mark", {"fork_minds_mark": False}, TWO_SWEEP, "FORK_WHOLE"),
    (
        "a fork taken back by its id",
        {"take_back_by_nonce": False},
        FORKED_TWICE_SWEPT,
        "FORK_KEPT",
    ),
    ("removed without its mark (fork)", {"decide_by_mark": False}, TWO_DELETE, "FORK_WHOLE"),
    ("removed without its mark (swept)", {"decide_by_mark": False}, TWO_SWEEP, "FORK_WHOLE"),
    ("removed without its mark", {"decide_by_mark": False}, TWO_DELETE_A_TURN, "RUNNING_KEPT"),
    ("a past loaded under a mark", {"load_minds_mark": False}, TWO_SWEEP_A_TURN, "SAME_PAST"),
    ("a base set at the end", {"base_with_decision": False}, TWO_SWEEP_A_TURN, "NO_HOLE"),
    ("the execution first", {"execution_last": False}, TWO_SWEEP, "REMOVED_WHOLE"),
    ("the last turn read again only", {"whole_prefix": False}, TWO_SWEEP, "FORK_WHOLE"),
    ("a log without a cut", {"prefix_cut": False}, FORKED_INSIDE, "PREFIX"),
    ("answers left with the source", {"answers_copied": False}, FORKED_INSIDE, "PREFIX"),
]


@pytest.mark.parametrize(
    ("changes", "scene", "broken"), [pytest.param(*case[1:], id=case[0]) for case in MUTATIONS]
)
def test_without_the_rule_some_order_breaks_the_promise(
    changes: dict[str, bool], scene: Scene, broken: str
) -> None:
    promise = Promise[broken]
    way = explore(scene, AS_DECIDED._replace(**changes), until=promise).broken.get(promise)
    assert way, f"not found: {promise.value}"
    print("\n".join(["", promise.value, *(f"    {move}" for move in way)]))


def test_every_rule_is_switched_off_and_every_promise_breaks() -> None:
    assert {name for case in MUTATIONS for name in case[1]} == set(Rules._fields)
    assert {case[3] for case in MUTATIONS} == {promise.name for promise in Promise}
