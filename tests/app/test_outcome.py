"""The values that an App returns."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import uuid
from typing import Any

import pydantic
import pytest

from durable_adk import ErrorInfo, ExecutionFailed, Outcome, Page, StreamEvent, ToolCall, Wait
from durable_adk.app._json import jsonable


class Colour(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    when: dt.date


def outcome(status: Any = "completed", **fields: Any) -> Outcome:
    return Outcome(status=status, execution_id="e", user_id="u", session_id="s", **fields)


def wait(**fields: Any) -> Wait:
    given: dict[str, Any] = {
        "id": "e~0",
        "kind": "adk_request_input",
        "node_path": "a@1",
        "operation_path": "agent#1",
        "message": "which?",
        "payload": None,
        "tool_call": None,
        "response_schema": None,
        "execution_id": "e",
        "user_id": "u",
        "session_id": "s",
    }
    return Wait(**{**given, **fields})


@pytest.mark.parametrize(
    "value",
    [
        outcome(),
        wait(),
        ToolCall(id="1", name="n", args={}),
        Page(()),
        ErrorInfo(type="E", message=""),
        StreamEvent(kind="token", data=""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_frozen(value: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, dataclasses.fields(value)[0].name, 1)


def test_an_outcome_as_a_dict_is_json_and_has_every_field() -> None:
    shown = outcome(
        output={"price": decimal.Decimal("1.5"), "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)},
        waits=(wait(tool_call=ToolCall(id="c", name="pay", args={"n": 1})),),
        error=ErrorInfo(type="E", message="m"),
    ).to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert shown.keys() == {field.name for field in dataclasses.fields(Outcome)}
    assert shown["output"] == {"price": "1.5", "at": "2026-01-02T00:00:00+00:00"}
    assert shown["waits"][0]["tool_call"] == {"id": "c", "name": "pay", "args": {"n": 1}}
    assert shown["error"] == {"type": "E", "message": "m", "position": None, "remedy": None}


ODD: list[tuple[Any, Any]] = [
    (b"\xff", "/w=="),
    (Colour.RED, "red"),
    (Model(when=dt.date(2026, 1, 2)), {"when": "2026-01-02"}),
    ({1, 2}, [1, 2]),
    ((1, (2,)), [1, [2]]),
    ({1: 2, Colour.RED: 3}, {"1": 2, "red": 3}),
    (float("nan"), "nan"),
    (dt.timedelta(seconds=2), 2.0),
    (uuid.UUID(int=1), str(uuid.UUID(int=1))),
    (2**80, 2**80),
    (None, None),
    (True, True),
]


@pytest.mark.parametrize(("value", "shown"), ODD, ids=lambda value: repr(value)[:20])
def test_any_value_can_be_shown_as_json(value: Any, shown: Any) -> None:
    assert jsonable(value) == shown
    json.dumps(jsonable(value))


@pytest.mark.parametrize("status", ["failed", "cancelled", "stuck"])
def test_raise_for_status_raises_what_did_not_end_well(status: str) -> None:
    failed = outcome(status, error=ErrorInfo(type="ValueError", message="no", remedy="Do it."))
    with pytest.raises(ExecutionFailed, match=rf"'e': is {status}: ValueError: no\. Do it\."):
        failed.raise_for_status()
    with pytest.raises(ExecutionFailed, match=f"is {status}") as bare:
        outcome(status).raise_for_status()
    assert bare.value.remedy, "also where nobody said one"


@pytest.mark.parametrize("status", ["completed", "suspended", "queued"])
def test_raise_for_status_returns_the_outcome_otherwise(status: str) -> None:
    fine = outcome(status)
    assert fine.raise_for_status() is fine


def test_a_page_is_its_items() -> None:
    page = Page((1, 2), "next")
    assert list(page) == [1, 2]
    assert len(page) == 2
