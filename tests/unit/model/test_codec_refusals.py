"""What cannot be recorded is refused with its path, and damaged records are no door."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections import defaultdict, deque
from dataclasses import dataclass
from datetime import datetime, tzinfo
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from durable_adk.errors import CorruptHistory, NotStorable
from durable_adk.model.codec import decode, digest, digest_of, encode, plain
from tests.support import sample_values as sample

HERE = "tests.support.sample_values"


class _Seasonal(tzinfo):
    def utcoffset(self, moment: datetime | None) -> None:
        return None


def _cycle() -> list[Any]:
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    return cycle


def _local_dataclass() -> object:
    @dataclass
    class Local:
        a: int = 1

    return Local()


def _local_model() -> object:
    class Local(BaseModel):
        a: int = 1

    return Local()


def _renamed() -> object:
    """Its name leads to another class."""
    other = type("Inner", (sample.Inner,), {"__module__": HERE})
    return other(n=1)


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (math.nan, "result", "finite"),
        ({"items": [1, {"price": math.inf}]}, "result.items[1].price", "finite"),
        ({"a": (1, Decimal("NaN"))}, "result.a[1]", "finite"),
        ([Decimal("-Infinity")], "result[0]", "finite"),
        ({"a b": {1: {"x": print}}}, 'result["a b"][1].x', "function (print)"),
        ({(1, 2): object()}, "result[a key of type tuple]", "builtins.object"),
        ({object(): 1}, "result[a key of type object]", "builtins.object"),
        ({sample.Ordinary}, "result[item]", "is a class"),
        ([lambda: 1], "result[0]", "is a function"),
        ([sample.Ordinary()], "result[0]", f"{HERE}.Ordinary"),
        ([functools.partial(print)], "result[0]", "functools.partial"),
        ([complex(1, 2)], "result[0]", "complex"),
        ([Path("x")], "result[0]", "Path"),
        ([SimpleNamespace()], "result[0]", "SimpleNamespace"),
        ([deque()], "result[0]", "deque"),
        ([ValueError("x")], "result[0]", "ValueError"),
        ([(i for i in ())], "result[0]", "generator"),
        ([sample.Text("x")], "result[0]", "subclass of str"),
        ([sample.Number(1)], "result[0]", "subclass of int"),
        ([sample.Mapping2()], "result[0]", "subclass of dict"),
        ([defaultdict(lambda: 1)], "result[0]", "factory"),
        ([datetime(2024, 1, 1, tzinfo=_Seasonal())], "result[0]", "_Seasonal"),
        ([sample.ListData()], "result[0]", "subclass of list"),
        ([_local_dataclass()], "result[0]", "local class"),
        ([_local_model()], "result[0]", "local class"),
        ([_renamed()], "result[0]", "another class"),
        (sample.Plain(a=[object()]), "result.a[0]", "builtins.object"),
        (sample.Point(x=1, y=object()), "result.y", "builtins.object"),
        (sample.Callback(run=print), "result.run", "is a function"),
        (sample.Open.model_validate({"z": print}), "result.z", "is a function"),
        (sample.Model(inner=sample.Inner(n=1), anything={"q": print}), "result.anything.q", "is a"),
        (sample.Unreadable(), "result", "RuntimeError: no"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_with_its_path(
    value: Any, path: str, reason: str
) -> None:
    for refusing in (encode, digest_of):
        with pytest.raises(NotStorable) as refused:
            refusing(value, where="result")
        assert refused.value.path == path
        assert reason in str(refused.value)


def test_a_value_that_contains_itself_is_refused_with_a_readable_path() -> None:
    with pytest.raises(NotStorable, match="contains itself") as refused:
        encode(_cycle(), where="state")
    assert refused.value.path.startswith("state[0].again[0].again")
    assert len(refused.value.path) < 200
    model = sample.Model(inner=sample.Inner(n=1))
    model.anything = model
    with pytest.raises(NotStorable, match="contains itself"):
        encode(model)


def test_a_value_is_stored_down_to_a_hundred_levels() -> None:
    value: Any = 1
    for _ in range(100):
        value = (value,)
    assert decode(encode(value)) == value
    with pytest.raises(NotStorable, match="deeper than 100"):
        encode((value,))


def test_odd_keys_deep_down_cost_no_more_than_plain_ones() -> None:
    value: Any = 1
    for _ in range(60):
        value = {"a": value, 1: 2}
    assert decode(encode(value)) == value


# ------------------------------------------------------------------------- damaged records


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of dangerous things that were called."""
    called: list[str] = []
    for name in ("os.system", "subprocess.Popen", "builtins.eval"):
        module, _, attribute = name.rpartition(".")
        monkeypatch.setattr(
            sys.modules[module], attribute, lambda *a, n=name, **k: called.append(n)
        )
    return called


@pytest.mark.parametrize(
    "structure",
    [
        {"$t": "os:system", "v": "true"},
        {"$t": "os:system", "command": "true"},
        {"$t": "os.path:join", "v": []},
        {"$t": "subprocess:Popen", "args": "true"},
        {"$t": "builtins:eval", "v": "1"},
        {"$t": "builtins:object"},
        {"$t": "builtins:dict", "v": {}},
        {"$t": "enum:Enum", "name": "x"},
        {"$t": "pydantic:BaseModel"},
        {"$t": "pathlib:Path", "v": "x"},
        {"$t": f"{HERE}:Ordinary"},
        {"$t": f"{HERE}:ListData", "a": 1},
        {"$t": f"{HERE}:Missing"},
        {"$t": f"{HERE}:constructed"},
        {"$t": f"{HERE}:Colour.RED", "name": "RED"},
        {"$t": f"{HERE}:Colour", "name": "BLACK"},
        {"$t": f"{HERE}:Colour", "name": "mro"},
        {"$t": f"{HERE}:Colour"},
        {"$t": f"{HERE}:Colour", "value": 77},
        {"$t": f"{HERE}:Plain", "a": 1, "__class__": 2},
        {"$t": f"{HERE}:Plain", "b": 1},
        {"$t": f"{HERE}:Inner"},
        {"$t": f"{HERE}:Inner", "n": 1, "unknown": 2},
        {"$t": f"{HERE}:Point", "x": 1},
        {"$t": "no.such.module:Thing"},
        {"$t": "..os:system"},
        {"$t": "os"},
        {"$t": ":x"},
        {"$t": "x:"},
        {"$t": "this:<locals>.x"},
        {"$t": None},
        {"$t": []},
        {"$t": 5},
        {"$t": "newer", "v": 1},
        {"$t": "tuple"},
        {"$t": "tuple", "v": 1},
        {"$t": "bytes", "v": "not base64!"},
        {"$t": "bytes", "v": 1},
        {"$t": "int", "v": "zz"},
        {"$t": "decimal", "v": "x"},
        {"$t": "datetime", "v": "yesterday"},
        {"$t": "datetime", "v": "2024-01-01", "zone": "../../etc/passwd"},
        {"$t": "set", "v": [[]]},
        {"$t": "map", "v": [[{}, 1]]},
        {"$t": "map", "v": [[1]]},
        {"$t": "defaultdict", "v": [], "of": "eval"},
        {"$t": "uuid", "v": "x"},
    ],
)
def test_a_damaged_or_hostile_record_is_refused_and_runs_nothing(
    structure: dict[str, Any], forbidden: list[str]
) -> None:
    sample.constructed.clear()
    for text in (json.dumps(structure), json.dumps({"deep": [structure]})):
        with pytest.raises(CorruptHistory):
            decode(text.replace(" ", ""))
    assert forbidden == []
    assert sample.constructed == []


@pytest.mark.parametrize(
    "text", ["", "{", "nope", "[1,]", "NaN", '{"a":Infinity}', '"\x01"', "[" * 100_000]
)
def test_text_that_is_not_json_is_refused(text: str) -> None:
    for reading in (decode, digest):
        with pytest.raises(CorruptHistory):
            reading(text)


# ----------------------------------------------------------------------------- only JSON


def test_plain_copies_json_of_any_shape() -> None:
    value = {"a": [1, 2.5, None, True, {"$t": "set"}, 2**70, "\ud800"]}
    copy = plain(value)
    assert copy == value
    assert copy["a"] is not value["a"]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ((1,), "answer"),
        ({"a": [(1,)]}, "answer.a[0]"),
        ({"a": {1: 2}}, "answer.a[1]"),
        ({"a": b""}, "answer.a"),
        ([sample.Level.LOW], "answer[0]"),
        ([math.nan], "answer[0]"),
        ([sample.Text("x")], "answer[0]"),
        (_cycle(), None),
    ],
)
def test_plain_refuses_everything_else_with_its_path(value: Any, path: str | None) -> None:
    with pytest.raises(NotStorable) as refused:
        plain(value, where="answer")
    assert path is None or refused.value.path == path
