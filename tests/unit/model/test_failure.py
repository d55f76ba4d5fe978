"""The exception made from a record is handled as the one that was raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pydantic
import pytest
from google.genai import errors as genai_errors
from hypothesis import given
from hypothesis import strategies as st

from durable_adk.errors import CorruptHistory, NotStorable
from durable_adk.model.codec import encode
from durable_adk.model.failure import RecordedFailure, decode_failure, encode_failure
from durable_adk.model.lengths import cut
from tests.support import sample_failures as sample

HERE = "tests.support.sample_failures"


def _again(error: BaseException) -> Exception:
    sample.constructed.clear()
    again = decode_failure(encode_failure(error))
    assert sample.constructed == [], "a constructor ran"
    assert again.__traceback__ is again.__cause__ is again.__context__ is None
    return again


def _raised_by(act: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - whatever it is
        act()
    return raised.value


def _names(error: BaseException) -> list[str]:
    return [base.__name__ for base in type(error).__mro__]


class _Form(pydantic.BaseModel):
    count: int


def test_an_exception_with_its_own_constructor_comes_back_with_its_attributes() -> None:
    again = _again(sample.Declined(7, status="declined"))
    assert type(again) is sample.Declined
    assert str(again) == "order 7: declined"
    assert again.args == ("order 7: declined",)
    assert (again.order, again.status) == (7, "declined")
    assert not hasattr(again, "connection")


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (_raised_by(lambda: {}["a"]), {}),
        (_raised_by(lambda: int("x")), {}),
        (_raised_by(Path("/no/file").read_text), {"errno": 2, "filename": "/no/file"}),
        (
            _raised_by(lambda: b"a\xff".decode()),
            {"object": b"a\xff", "start": 1, "reason": "invalid start byte"},
        ),
        (_raised_by("\ud800".encode), {"object": "\ud800", "encoding": "utf-8"}),
        (_raised_by(lambda: __import__("no.such")), {"name": "no"}),
        (_raised_by(lambda: None.nothing), {"name": "nothing"}),  # type: ignore[attr-defined]
        (_raised_by(lambda: compile("(", "file", "exec")), {"lineno": 1, "filename": "file"}),
        (TimeoutError(), {}),
        (OSError(13, "no", "a", None, "b"), {"errno": 13, "filename2": "b"}),
        (sample.Disk("sda"), {"errno": 5, "strerror": "broken", "device": "sda"}),
        (sample.OnSlots(3), {"order": 3}),
        (sample.Both("x"), {}),
        (StopIteration(4), {"value": 4}),
        (NotStorable("result.a", "no"), {"path": "result.a", "reason": "no"}),
        (
            genai_errors.ClientError(404, {"error": {"message": "m", "status": "NOT_FOUND"}}),
            {"code": 404, "status": "NOT_FOUND", "message": "m"},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_failure_is_the_same_class_text_and_attributes(
    error: Exception, attributes: dict[str, Any]
) -> None:
    again = _again(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert repr(again) == repr(error)
    assert again.args == error.args
    for name, value in attributes.items():
        assert getattr(again, name) == value, name


def test_notes_are_kept() -> None:
    error = ValueError("x")
    error.add_note("while counting")
    assert _again(error).__notes__ == ["while counting"]


def test_exceptions_within_an_exception_come_back_as_exceptions() -> None:
    again = _again(sample.Wrapping(sample.ToolFailed(1, status="lost")))
    assert type(again.inner) is sample.ToolFailed
    assert again.args[0].order == 1
    assert str(again) == "order 1: lost"


def test_an_argument_that_cannot_be_stored_is_replaced_by_its_text() -> None:
    class Response:
        def __str__(self) -> str:
            return "<Response 500>"

    again = _again(ValueError(Response()))
    assert type(again) is ValueError
    assert again.args == ("<Response 500>",)


def test_a_group_comes_back_as_a_group_of_its_members() -> None:
    inner = ExceptionGroup("inner", [KeyError("k")])
    again = _again(ExceptionGroup("outer", [sample.ToolFailed(1, status="lost"), inner]))
    assert isinstance(again, ExceptionGroup)
    assert str(again) == "outer (2 sub-exceptions)"
    failed, nested = again.exceptions
    assert (type(failed), failed.order) == (sample.ToolFailed, 1)  # type: ignore[attr-defined]
    assert isinstance(nested, ExceptionGroup)
    assert repr(nested.exceptions) == repr(inner.exceptions)
    matched, _ = again.split(KeyError)
    assert matched is not None


def test_a_group_of_a_class_of_its_own_comes_back_as_that_class() -> None:
    again = _again(sample.Batch("b", [ValueError("v")]))
    assert type(again) is sample.Batch
    assert again.size == 1
    assert again.derive([TypeError("t")]).message == "b"


# ------------------------------------------------------------------------------- stand-ins


def test_a_validation_error_comes_back_under_its_name_and_is_still_a_value_error() -> None:
    error = _raised_by(lambda: _Form(count="many"))  # type: ignore[arg-type]
    again = _again(error)
    assert isinstance(again, RecordedFailure)
    assert isinstance(again, ValueError)
    assert type(again).__name__ == "ValidationError"
    assert str(again) == str(error)
    assert again.recorded_class == "pydantic_core._pydantic_core.ValidationError"


def test_a_local_class_comes_back_with_the_names_that_retry_rules_match() -> None:
    class Flaky(sample.ToolFailed, ConnectionError):
        pass

    class VeryFlaky(Flaky):
        pass

    again = _again(VeryFlaky(1, status="lost"))
    for name in ("VeryFlaky", "Flaky", "ToolFailed", "ConnectionError", "OSError", "Exception"):
        assert name in _names(again)
    assert isinstance(again, ConnectionError)
    assert str(again) == "order 1: lost"
    assert (again.order, again.status) == (1, "lost")  # type: ignore[attr-defined]


def test_names_of_every_built_in_base_are_kept() -> None:
    class Local(sample.Both):
        pass

    again = _again(Local("x"))
    assert {"Local", "Both", "KeyError", "AttributeError", "LookupError"} <= set(_names(again))
    assert isinstance(again, KeyError)


def test_a_stand_in_that_is_recorded_again_stays_what_it_is() -> None:
    class Local(sample.ToolFailed):
        pass

    once = _again(Local(1, status="lost"))
    twice = _again(once)
    assert _names(twice) == _names(once)
    assert type(twice) is type(once)
    assert (str(twice), vars(twice)) == (str(once), vars(once))


def test_status_and_code_are_kept_even_where_they_were_properties() -> None:
    again = _again(sample.WithProperties(object()))
    assert isinstance(again, RecordedFailure)
    assert str(again) == "response object"
    assert again.status_code == 503
    assert not hasattr(again, "code")


def test_a_text_that_cannot_be_made_is_no_obstacle() -> None:
    again = _again(sample.Unprintable("x"))
    assert type(again) is sample.Unprintable
    text = str(_again(ExceptionGroup("g", [sample.Unprintable("x")])))
    assert text == "g (1 sub-exception)"

    class Local(sample.Unprintable):
        pass

    assert "text raised RuntimeError" in str(_again(Local()))


def test_a_class_that_resists_being_made_comes_back_anyway() -> None:
    again = _again(sample.Odd("x"))
    assert "Odd" in _names(again)
    assert str(again) == "x"


@pytest.mark.parametrize("error", [KeyboardInterrupt("stop"), SystemExit(3), BaseException("b")])
def test_what_ends_a_program_comes_back_as_a_mere_failure(error: BaseException) -> None:
    again = _again(error)
    assert isinstance(again, RecordedFailure)
    assert type(again).__name__ == type(error).__name__
    assert str(again) == str(error)
    group = _again(BaseExceptionGroup("g", [error]))
    assert isinstance(group, ExceptionGroup)


def test_exceptions_that_hold_each_other_are_followed_only_so_far() -> None:
    left, right = sample.Wrapping(ValueError("x")), sample.Wrapping(ValueError("y"))
    left.inner, right.inner = right, left
    assert type(_again(left).inner.inner) is sample.Wrapping  # type: ignore[attr-defined]


def test_each_read_gives_a_fresh_exception() -> None:
    text = encode_failure(sample.ToolFailed(1, status="lost"))
    assert decode_failure(text) is not decode_failure(text)


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_is_kept(message: str, attribute: str) -> None:
    error = ValueError(message)
    error.note = attribute  # type: ignore[attr-defined]
    again = decode_failure(encode_failure(error))
    assert str(again) == message
    assert again.note == attribute  # type: ignore[attr-defined]


# ------------------------------------------------------------------------- damaged records


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "builtins:eval",
        "builtins:SystemExit",
        "builtins:object",
        f"{HERE}:NotAnException",
        f"{HERE}:Missing",
        "no.such.module:Error",
        "nonsense",
    ],
)
def test_a_record_that_names_anything_but_an_exception_gives_a_mere_failure(name: str) -> None:
    sample.constructed.clear()
    recorded = json.loads(encode_failure(sample.ToolFailed(1, status="lost")))
    recorded["class"] = name
    sample.constructed.clear()
    again = decode_failure(encode(recorded))
    assert isinstance(again, RecordedFailure)
    assert (type(again).__name__, str(again)) == ("ToolFailed", "order 1: lost")
    assert sample.constructed == []


_STAND_IN = {"class": "", "name": "m.E", "names": ["E"], "text": "", "args": [], "attributes": {}}


@pytest.mark.parametrize(
    "recorded",
    [
        None,
        [],
        "x",
        {},
        {"class": ""},
        {**_STAND_IN, "names": []},
        {**_STAND_IN, "names": ["a\0b"]},
        {**_STAND_IN, "names": [[]]},
        {**_STAND_IN, "args": 1},
        {**_STAND_IN, "args": [{}]},
        {**_STAND_IN, "attributes": []},
        {**_STAND_IN, "members": [1]},
    ],
)
def test_a_damaged_record_is_refused(recorded: Any) -> None:
    with pytest.raises(CorruptHistory):
        decode_failure(encode(recorded))
    assert str(decode_failure(encode(_STAND_IN))) == ""


HUGE = "x" * 300_000
CUT = f"{'x' * 9_940}... (290060 more characters are left out)"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError(HUGE), CUT),
        (sample.Wrapping(ValueError(HUGE)), CUT),
        (sample.ToolFailed(1, status=HUGE), f"order 1: {CUT[:9_931]}"),
        (_raised_by(lambda: compile("(", HUGE, "exec")), "'(' was never closed"),
        (ExceptionGroup(HUGE, [KeyError(1)]), CUT),
        (ExceptionGroup("many", [ValueError(str(n)) for n in range(5_000)]), "many (5000 sub-exc"),
        (ValueError([HUGE]), "['xx"),
        (sample.Declined(7, status=HUGE), f"order 7: {CUT[:9_931]}"),
    ],
    ids=lambda one: "",
)
def test_a_failure_that_is_too_large_is_cut_and_keeps_its_names(
    error: Exception, text: str
) -> None:
    recorded = encode_failure(error, most=65_536)
    assert len(recorded) <= 65_536
    again = decode_failure(recorded)
    assert str(again).startswith(text[:9_000])
    assert set(_names(error)) - {"BaseExceptionGroup"} <= set(_names(again))
    assert str(_again(again)) == str(again) == cut(str(again)), "it is cut once"
    small = ValueError("small")
    assert encode_failure(small, most=65_536) == encode_failure(small)


def test_what_a_failed_body_left_counts_too() -> None:
    with pytest.raises(NotStorable, match=r"failure: has \d+ bytes, and payload\.max is 65536"):
        encode_failure(ValueError("x"), {"log": HUGE}, most=65_536)
    assert "left" in encode_failure(ValueError("x"), {"log": "y"}, most=65_536)
