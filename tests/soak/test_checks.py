"""The checks of a soak see what they are for: each is shown a planted fault."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from tests.soak import checks
from tests.soak.plans import families

RIGHT: dict[str, Any] = {
    "executions": ["s1.t0"],
    "drawn": None,
    "status": ["completed"],
    "error": [None],
    "output": ["out"],
    "attempts": [1],
    "events": [
        {"id": "e1", "invocation_id": "s1.t0", "author": "desk", "timestamp": 1.0},
        {"id": "e2", "invocation_id": "s1.t0", "author": "desk", "timestamp": 2.0},
    ],
    "state": {"a": 1},
}


def row(seconds: float, pid: int, key: str, policy: str, activity: str = "a") -> tuple[Any, ...]:
    return (seconds, pid, "began", key, policy, activity)


ROWS = [row(10, 1, "s1.t0.desk0.0", "rerun"), row(11, 1, "s1.t0.desk1.0", "fail")]
KILLED = [(10.5, 10.5, "kill", 1)]


def found(
    ours: Any = RIGHT, rows: Any = ROWS, trouble: Any = (), twin: Any = RIGHT
) -> checks.Found:
    return checks.check({"s1": ours}, {"s1": twin}, rows, ROWS, trouble)


def changed(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RIGHT), **fields}


def test_what_is_equal_is_right() -> None:
    later = changed(events=[{**event, "timestamp": 9.0} for event in RIGHT["events"]])
    assert found(later).is_right


@pytest.mark.parametrize("status", ["queued", "running", "suspended", "stuck"])
def test_an_execution_that_has_not_ended_is_lost(status: str) -> None:
    assert found(changed(status=[status])).lost


@pytest.mark.parametrize("policy", ["fail", "ask"])
def test_a_body_that_must_not_run_twice_and_did_is_doubled(policy: str) -> None:
    twice = [*ROWS[:1], row(11, 1, "s1.t0.desk1.0", policy), row(12, 2, "s1.t0.desk1.0", policy)]
    wrong = found(rows=twice, trouble=[(11, 11, "kill", 1)])
    assert wrong.doubled
    assert not wrong.is_right


@pytest.mark.parametrize(
    ("trouble", "is_right"),
    [
        (KILLED, True),
        ([(9.0, 30.0, "pause", 1)], True),
        ([(9.0, 12.0, "kill", None)], True),  # the servers failed over
        ([], False),
        ([(10.5, 10.5, "kill", 2)], False),  # another process
        ([(1.0, 1.0, "kill", 1)], False),  # long before
        ([(21.0, 21.0, "kill", 1)], False),  # after the second entry
    ],
)
def test_a_repeat_needs_a_reason(trouble: Any, is_right: bool) -> None:
    again = [*ROWS, row(20, 2, "s1.t0.desk0.0", "rerun")]
    assert found(rows=again, trouble=trouble).is_right == is_right
    assert checks.repeated(again) == 1


@pytest.mark.parametrize(
    ("key", "trouble", "is_right"),
    [
        ("s1.t0.desk0.0", [(9.0, 12.0, "pause", 3)], True),
        ("s1.t0.desk0.0", [(9.0, 12.0, "kill", 3)], False),  # the dead record nothing
        ("s1.t0.desk0.0", [(9.0, 22.0, "pause", 3)], False),  # it still slept
        ("s1.t1.desk0.0", [(9.0, 12.0, "pause", 3)], False),  # the owner of another turn
    ],
)
def test_an_earlier_owner_that_wakes_up_is_a_reason(key: str, trouble: Any, is_right: bool) -> None:
    earlier = row(8, 3, key, "rerun")
    again = [earlier, row(10, 1, "s1.t0.desk5.0", "rerun"), row(20, 2, "s1.t0.desk5.0", "rerun")]
    assert (checks.unexplained(again, trouble) == []) == is_right


def test_a_repeat_under_another_idempotency_key_is_wrong() -> None:
    again = [*ROWS, row(20, 2, "s1.t0.desk0.0", "rerun", "b")]
    assert found(rows=again, trouble=KILLED).unexplained


@pytest.mark.parametrize(
    "fields",
    [
        {"status": ["failed"]},
        {"output": ["other"]},
        {"state": {}},
        {"events": RIGHT["events"][:1]},
        {"events": [*RIGHT["events"], RIGHT["events"][1]]},
        {"events": [RIGHT["events"][0], {**RIGHT["events"][1], "author": "b"}]},
        {"events": [RIGHT["events"][0], {**RIGHT["events"][1], "id": "e3"}]},
        {"error": ["ValueError"]},
    ],
)
def test_a_session_that_differs_from_its_twin_is_seen(fields: dict[str, Any]) -> None:
    assert found(changed(**fields)).differences


def test_ids_that_come_of_a_drawn_id_are_only_numbered() -> None:
    def drawn(by: str, *, second: str = "2") -> dict[str, Any]:
        events = [
            {"id": f"{by}-1", "invocation_id": by, "author": "desk"},
            {"id": f"{by}-{second}", "invocation_id": by, "author": "desk"},
        ]
        return changed(executions=[by], drawn=by, events=events)

    assert found(drawn("x"), twin=drawn("y")).is_right
    assert found(drawn("x", second="1"), twin=drawn("y")).differences


def test_a_body_that_ran_in_one_of_the_worlds_only_is_seen() -> None:
    assert found(rows=ROWS[:1]).differences
    assert found(rows=[*ROWS, row(12, 1, "s1.t0.desk2.0", "rerun")]).differences


def unknown(key: str) -> dict[str, Any]:
    call = {"function_call": {"name": "pay", "args": {"key": key}}}
    event = {"id": "e1", "invocation_id": "s1.t0", "author": "desk", "content": {"parts": [call]}}
    return changed(status=["failed"], error=["OutcomeUnknown"], events=[event])


def test_an_unknown_outcome_needs_a_reason_and_a_twin_of_the_same_fate() -> None:
    ours, trouble = unknown("s1.t0.desk1.0"), [(11.2, 11.2, "kill", 1)]
    assert checks.doubts(ours) == {"s1.t0": "s1.t0.desk1.0"}
    assert found(ours, twin=ours, trouble=trouble).is_right
    assert found(ours, twin=ours, trouble=trouble, rows=ROWS[:1]).is_right, "died before the body"
    assert found(ours, twin=ours).unexplained
    assert found(ours, twin=ours, trouble=[(11.2, 11.2, "kill", 2)]).unexplained
    assert found(ours, trouble=trouble).differences
    assert found(trouble=trouble, rows=ROWS[:1]).differences, "nothing is in doubt"


def test_a_session_that_one_world_does_not_know_is_seen() -> None:
    assert checks.check({}, {"s1": RIGHT}, ROWS, ROWS, ()).lost
    assert checks.check({"s1": RIGHT}, {}, ROWS, ROWS, ()).differences


def test_the_same_seed_draws_the_same_conversations_of_every_kind() -> None:
    drawn, again = (list(itertools.islice(families(7), 60)) for _ in range(2))
    assert drawn == again
    assert {family.app for family in drawn} == {"desk", "flow"}
    assert any(family.fork for family in drawn)
    text = " ".join(turn.message for family in drawn for turn in family.turns)
    assert all(tool in text for tool in ("pay", "pay_confirmed", "look_confirmed", "later"))
