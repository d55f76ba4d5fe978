from __future__ import annotations

import itertools

import pytest

from durable_adk.errors import CorruptHistory
from durable_adk.model.execution import FAR, MAY_BECOME, Status, StepRef, check_transition
from durable_adk.model.identity import FencingToken

LEGAL = {
    ("queued", "running"),
    ("running", "suspended"),
    ("running", "queued"),
    ("running", "stuck"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("suspended", "running"),
    ("stuck", "queued"),
    ("stuck", "running"),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Status, Status)))
def test_exactly_the_listed_transitions_are_legal(before: Status, after: Status) -> None:
    if (before.value, after.value) in LEGAL:
        check_transition(before, after)
    else:
        with pytest.raises(CorruptHistory, match=f"{before.value} may not become {after.value}"):
            check_transition(before, after)


def test_every_status_has_a_row_and_three_are_final() -> None:
    assert set(MAY_BECOME) == set(Status)
    assert {status.value for status in Status if status.is_final} == {
        "completed",
        "failed",
        "cancelled",
    }


def test_every_active_status_can_reach_every_end() -> None:
    ends = {status for status in Status if status.is_final}
    for status in set(Status) - ends:
        reached = {status}
        while more := {after for one in reached for after in MAY_BECOME[one]} - reached:
            reached |= more
        assert ends <= reached


def test_never_is_a_number_that_every_driver_keeps_exactly() -> None:
    assert float(FAR) == FAR
    assert FAR < 2**63


def test_a_step_document_is_named_by_its_token_too() -> None:
    assert StepRef(1, FencingToken(1)) != StepRef(1, FencingToken(2))
