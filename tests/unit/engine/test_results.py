"""What of two results is compared, and what of a difference is shown."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
from pydantic import BaseModel

from durable_adk.engine.results import check_result
from durable_adk.errors import ReplayMismatch
from durable_adk.model import codec


class Order(BaseModel):
    card: str
    cents: int


def result(output: Any, response: str | None = None) -> str:
    return codec.encode({"response": response, "output": output})


def check(then: str, now: str, *redact: str, before: Any = (), after: Any = ()) -> None:
    names = frozenset(redact)
    check_result(1, then, now, texts=lambda: (set(before), set(after)), redact=names)


SAME = [
    (result({"a": 1, "b": 2}), result({"b": 2, "a": 1})),
    (result({1: "x", 2: "y"}), result({2: "y", 1: "x"})),
    (result({"a", "b"}, "said"), result({"b", "a"}, "said")),
]


@pytest.mark.parametrize(("then", "now"), SAME)
def test_the_order_in_which_an_output_was_put_together_is_no_change(then: str, now: str) -> None:
    check(then, now)


def test_the_last_text_has_to_be_one_that_came_on_either_side() -> None:
    then, now = result(1, "a"), result(1, "b")
    check(then, now, before="ab", after="ab")
    for before, after in (("a", "ab"), ("ab", "b"), ("a", "b")):
        with pytest.raises(ReplayMismatch):
            check(then, now, before=before, after=after)
    with pytest.raises(ReplayMismatch):
        check(result(1, "a"), result(2, "b"), before="ab", after="ab")
    with pytest.raises(ReplayMismatch):
        check(result(1), result(1, "b"), before="", after="b")


HOLDS = [
    Order(card="4111", cents=1),
    [{"deep": ({"card": "4111"},)}],
    {1: {"card": "4111"}},
    OrderedDict(card="4111", cents=1),
    {1: 2, "card": "4111"},
    '{"card": "4111", "cents": 1}',
    ['[{"order": "{\\"card\\": \\"4111\\"}"}]'],
]


@pytest.mark.parametrize("value", HOLDS, ids=lambda value: type(value).__name__)
def test_named_fields_are_shown_nowhere(value: Any) -> None:
    text = value if isinstance(value, str) else None
    then, now = result(value, text), result([value, 1], text)
    with pytest.raises(ReplayMismatch, match="4111"):
        check(then, now)
    with pytest.raises(ReplayMismatch) as told:
        check(then, now, "card")
    assert "4111" not in str(told.value) and "[redacted]" in told.value.recorded
    assert told.value.position == "the end of step 1"


def test_results_that_differ_in_what_is_not_shown_are_told_apart() -> None:
    with pytest.raises(ReplayMismatch) as told:
        check(result({"card": "4111"}), result({"card": "4222"}), "card")
    assert told.value.asked == f"{told.value.recorded}, which differs in what is not shown"
