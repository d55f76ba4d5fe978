"""What people are shown of a recorded value: plain JSON, whatever it was."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from durable_adk.errors import CorruptHistory
from durable_adk.model.codec import encode
from durable_adk.model.redaction import REDACTED, redacted_at
from durable_adk.model.shown import shown
from tests.support import sample_values as sample

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ({"a": [1, None, "x", 1.5, True]}, {"a": [1, None, "x", 1.5, True]}),
        ((1, {2}), [1, [2]]),
        ({(1, 2): "a", 3: "b", "c": 1}, {"[1, 2]": "a", "3": "b", "c": 1}),
        ({"$t": "bytes"}, {"$t": "bytes"}),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (b"\x00\xff", "AP8="),
        (2**70, 2**70),
        ("a\ud800", "a\\ud800"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (NOON, "2026-01-02T12:00:00+00:00"),
        (NOON.astimezone(ZoneInfo("Europe/Berlin")), "2026-01-02T13:00:00[Europe/Berlin]"),
        (date(2026, 1, 2), "2026-01-02"),
        (timedelta(hours=1), "1:00:00"),
        (sample.Colour.RED, 1),
        (sample.Colour.GREEN, "GREEN"),
        (sample.Level.LOW, "low"),
        (sample.Lenient("newer"), "newer"),
        (sample.Access.READ | sample.Access.WRITE, 3),
        (sample.Point(1, sample.Point(2)), {"x": 1, "y": {"x": 2, "y": 0}}),
        (sample.Inner(n=1), {"n": 1}),
        (sample.Open(more=[sample.Inner(n=1)]), {"a": 0, "more": [{"n": 1}]}),
    ],
    ids=repr,
)
def test_a_value_is_shown_as_plain_json(value: Any, seen: Any) -> None:
    found = shown(encode(value))
    assert found == seen
    assert json.loads(json.dumps(found)) == seen


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('{"$t":"gone:Order","card":"1","$default":{"cents":5}}', {"card": "1", "cents": 5}),
        ('{"$t":"gone:Kind","name":"DEBIT"}', {"name": "DEBIT"}),
        ('{"$t":"gone:Bill","$private":{"_card":"1"},"$set":[["a"]]}', {}),
        ('{"$t":"later","v":[1]}', [1]),
    ],
)
def test_no_class_and_no_later_form_hides_what_was_recorded(text: str, seen: Any) -> None:
    assert shown(text) == seen


@pytest.mark.parametrize("text", ["{", '{"$t":"int","v":"no"}', '{"$t":"later"}', '{"$t":1}'])
def test_a_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(CorruptHistory):
        shown(text)


@pytest.mark.parametrize(
    ("places", "seen"),
    [
        ((), [1, 2, 3]),
        (("a", "card"), [1, REDACTED, 3]),
        (("a", "*card"), [1, REDACTED, REDACTED]),
        (("card", "*rest"), [REDACTED, 2, 3]),
        (("a", "b", "c", "card"), [1, 2, 3]),
    ],
)
def test_values_are_redacted_by_the_names_of_their_places(
    places: tuple[str, ...], seen: list[Any]
) -> None:
    assert redacted_at([1, 2, 3], places, {"card"}) == seen
