"""What is recorded comes back: equal, of the same types, and nothing but that."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from durable_adk.model.codec import decode, digest, digest_of, encode
from tests.support import sample_values as sample

FIXED_ZONES = st.timedeltas(min_value=timedelta(hours=-23), max_value=timedelta(hours=23)).map(
    timezone
) | st.just(timezone(timedelta(hours=2), "here"))
ZONES = (
    st.none()
    | st.just(UTC)
    | FIXED_ZONES
    | st.sampled_from(["Europe/Berlin", "America/New_York"]).map(ZoneInfo)
)
MEMBERS = st.sampled_from(
    [
        *sample.Colour,
        *sample.Level,
        sample.Size.SMALL,
        sample.Access.READ,
        sample.Access.READ | sample.Access.WRITE,
        sample.Access(0),
        sample.Mode.A | sample.Mode.B,
        sample.Lenient.KNOWN,
        sample.Lenient("newer"),
        sample.Outer.Inner.ONE,
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(2**65), max_value=2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(), max_size=8),
    st.binary(max_size=8),
    st.datetimes(timezones=ZONES, allow_imaginary=False),
    st.dates(),
    st.times(timezones=st.none() | FIXED_ZONES),
    st.timedeltas(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.uuids(),
    MEMBERS,
)


def _names_a_field(key: str) -> bool:
    """Pydantic takes no lone surrogate as a name."""
    return not any(0xD800 <= ord(letter) < 0xE000 for letter in key)


KEYS = st.text(st.characters(), max_size=4) | st.sampled_from(["$t", "v", "$more", ""])
HASHABLE = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.tuples(inner, inner),
        st.frozensets(inner, max_size=3),
        st.builds(sample.Frozen, inner),
        st.builds(sample.Point, inner, inner),
    ),
    max_leaves=4,
)


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
        st.dictionaries(KEYS, inner, max_size=3).map(lambda items: defaultdict(list, items)),
        st.dictionaries(KEYS, st.integers(), max_size=3).map(Counter),
        st.tuples(inner, inner),
        st.sets(HASHABLE, max_size=3),
        st.frozensets(HASHABLE, max_size=3),
        st.binary(max_size=3).map(bytearray),
        st.builds(sample.Plain, inner, b=inner),
        st.builds(sample.Frozen, inner),
        st.builds(sample.Box, inner),
        st.builds(sample.Point, inner, inner),
        st.builds(sample.OldPoint, inner, inner),
        st.builds(_model, st.integers(), inner),
        st.builds(
            lambda extra: sample.Open(**extra),
            st.dictionaries(KEYS.filter(_names_a_field), inner, max_size=2),
        ),
    )


def _model(n: int, anything: object) -> sample.Model:
    return sample.Model(inner=sample.Inner(n=n), many=[sample.Inner(n=1)], anything=anything)


VALUES = st.recursive(SCALARS, _containers, max_leaves=8)


def same(a: Any, b: Any) -> bool:
    """Whether two values cannot be told apart: types, order of dicts, zones, signs of zero."""
    if type(a) is not type(b):
        return False
    match a:
        case float():
            return a == b and math.copysign(1, a) == math.copysign(1, b)
        case Decimal():
            return a.as_tuple() == b.as_tuple()
        case datetime() | time():
            return repr(a) == repr(b) and a.fold == b.fold
        case dict():
            factories = getattr(a, "default_factory", None), getattr(b, "default_factory", None)
            return factories[0] is factories[1] and same(list(a.items()), list(b.items()))
        case list() | tuple():
            return len(a) == len(b) and all(map(same, a, b))
        case set() | frozenset():
            return a == b and sorted(map(repr_of_type, a)) == sorted(map(repr_of_type, b))
        case BaseModel():
            state = [x.__getstate__() for x in (a, b)]
            for each in state:
                each["__dict__"] = {k: v for k, v in each["__dict__"].items() if k != "twice"}
            return all(same(state[0][key], state[1][key]) for key in state[0])
        case _ if dataclasses.is_dataclass(a):
            names = [f.name for f in dataclasses.fields(a)]
            return all(same(getattr(a, name), getattr(b, name)) for name in names)
    return bool(a == b)


def repr_of_type(item: object) -> str:
    return type(item).__qualname__


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_a_value_comes_back_with_its_types_order_and_text(value: Any) -> None:
    text = encode(value)
    text.encode()  # valid UTF-8, which is all that BSON takes
    again = decode(text)
    assert same(again, value)
    assert encode(again) == text


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_the_digest_of_a_value_is_the_digest_of_its_text(value: Any) -> None:
    assert digest_of(value) == digest(encode(value))


@given(st.dictionaries(HASHABLE, VALUES, min_size=2, max_size=4), st.randoms())
@settings(max_examples=100, deadline=None)
def test_the_digest_does_not_depend_on_the_order_in_which_a_dict_was_filled(
    value: dict[Any, Any], random: Any
) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert digest(encode(dict(items))) == digest(encode(value))


@given(st.sets(HASHABLE, max_size=5))
@settings(max_examples=100, deadline=None)
def test_the_text_of_a_set_does_not_depend_on_how_it_was_filled(value: set[Any]) -> None:
    other: set[Any] = set()
    for item in sorted(value, key=repr, reverse=True):
        other.add(item)
    assert encode(other) == encode(value)


def test_the_text_of_a_set_is_the_same_in_every_process() -> None:
    program = (
        "from durable_adk.model.codec import encode;"
        "print(encode({'a', 'b', 'c', ('d', 1), frozenset({'e', 'f'})}))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_plain_json_is_stored_as_itself_with_its_order() -> None:
    value = {"b": [1, 2.5, None, True, "é"], "a": {"": -1}}
    assert encode(value) == '{"b":[1,2.5,null,true,"é"],"a":{"":-1}}'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, 2), '{"$t":"tuple","v":[1,2]}'),
        ({1: 2}, '{"$t":"map","v":[[1,2]]}'),
        ({"$t": "set", "v": [1]}, '{"$t":"map","v":[["$t","set"],["v",[1]]]}'),
        ({2, 1}, '{"$t":"set","v":[1,2]}'),
        (b"\xff\x00", '{"$t":"bytes","v":"/wA="}'),
        (2**64, '{"$t":"int","v":"0x10000000000000000"}'),
        ("\ud800", '{"$t":"str","v":"7aCA"}'),
        (
            datetime(2024, 1, 2, 3, 4, 5, 6, UTC),
            '{"$t":"datetime","v":"2024-01-02T03:04:05.000006+00:00"}',
        ),
        (
            datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")),
            '{"$t":"datetime","fold":1,"zone":"Europe/Berlin","v":"2024-10-27T02:30:00"}',
        ),
        (date(2024, 1, 2), '{"$t":"date","v":"2024-01-02"}'),
        (time(1, 2), '{"$t":"time","v":"01:02:00"}'),
        (timedelta(days=-1, microseconds=1), '{"$t":"timedelta","v":[-1,0,1]}'),
        (Decimal("1.10"), '{"$t":"decimal","v":"1.10"}'),
        (UUID(int=1), '{"$t":"uuid","v":"00000000-0000-0000-0000-000000000001"}'),
        (sample.Colour.SCARLET, '{"$t":"tests.support.sample_values:Colour","name":"RED"}'),
        (sample.Outer.Inner.ONE, '{"$t":"tests.support.sample_values:Outer.Inner","name":"ONE"}'),
        (sample.Point(1), '{"$t":"tests.support.sample_values:Point","x":1,"y":0}'),
        (sample.Inner(n=1), '{"$t":"tests.support.sample_values:Inner","n":1}'),
    ],
)
def test_the_text_of_each_form_is_pinned_because_stored_histories_have_it(
    value: Any, text: str
) -> None:
    assert encode(value) == text
    assert same(decode(text), value)


def test_bytes_and_an_image_part_of_a_message_come_back_exactly() -> None:
    image = types.Part(inline_data=types.Blob(data=bytes(range(256)), mime_type="image/png"))
    content = types.Content(role="user", parts=[types.Part(text="look"), image])
    again = decode(encode({"message": content, "state": {"raw": b"\xff\xfe\x00"}}))
    assert same(again["message"], content)
    assert again["message"].parts[1].inline_data.data == bytes(range(256))
    assert again["state"] == {"raw": b"\xff\xfe\x00"}
    assert again["message"].model_dump(exclude_unset=True) == content.model_dump(exclude_unset=True)


def test_each_read_gives_a_fresh_object() -> None:
    for value in ([{"a": [1]}], sample.Plain([1]), _model(1, {"a": []}), types.Content(parts=[])):
        text = encode(value)
        first, second = decode(text), decode(text)
        assert first is not second
        assert first is not value
        _mutate(first)
        assert same(second, value)
        assert same(decode(text), value)


def _mutate(value: Any) -> None:
    match value:
        case list():
            value[0]["a"].append(2)
        case sample.Plain():
            value.a.append(2)
        case sample.Model():
            value.anything["a"].append(2)
            value.many.clear()
            value.empty["x"] = 1
        case types.Content():
            value.parts.append(types.Part(text="x"))


# ------------------------------------------------------------------------------- classes


def test_no_constructor_runs_when_an_instance_is_rebuilt() -> None:
    texts = [encode(sample.Plain(1)), encode(sample.Private())]
    sample.constructed.clear()
    for text in texts:
        decode(text)
    assert sample.constructed == []


def test_attributes_of_a_dataclass_that_are_no_fields_come_back() -> None:
    again = decode(encode(sample.Extended(1)))
    assert (again.a, again.seen) == (1, [1])
    boxed = decode(encode(sample.Box[int](3)))
    assert same(boxed, sample.Box(3))


def test_private_slots_of_a_base_class_come_back() -> None:
    value = sample.OnSlots(1)
    value.open = 2
    value.hide(3)
    again = decode(encode(value))
    assert (again.a, again.open, again.hidden()) == (1, 2, 3)


def test_a_dataclass_field_that_was_never_set_stays_unset() -> None:
    again = decode(encode(sample.Unset()))
    assert not hasattr(again, "late")


def test_a_model_keeps_which_fields_were_set() -> None:
    for value in (
        sample.Model(inner=sample.Inner(n=1)),
        sample.Model(inner=sample.Inner(n=1, note=None, text=""), anything=None, made=[]),
        sample.Model.model_construct(anything=3),
        sample.Model.model_construct(_fields_set={"mode"}, inner=sample.Inner(n=1)),
        sample.Open(a=1, b=[2]),
        sample.Open.model_validate({"$t": "x", "$ref": "#/a"}),
        sample.Tags(["a"]),
        sample.FrozenModel(a=1),
    ):
        again = decode(encode(value))
        assert same(again, value)
        assert again.model_fields_set == value.model_fields_set
        assert again.model_dump() == value.model_dump()


def test_a_model_keeps_its_private_attributes_and_not_its_cached_ones() -> None:
    value = sample.Private(a=1)
    value._count = 7
    again = decode(encode(value))
    assert (again._count, again._note) == (7, None)
    with pytest.raises(AttributeError):
        _ = again._late
    value._late = 3
    assert decode(encode(value))._late == 3
    model = _model(2, None)
    assert model.twice == 4
    assert "twice" not in vars(decode(encode(model)))


def test_a_field_that_a_newer_class_has_gets_its_default() -> None:
    text = encode(sample.Plain(1)).replace(',"b":null', "").replace(',"tags":[]', "")
    again = decode(text)
    assert same(again, sample.Plain(1))
    model = decode('{"$t":"tests.support.sample_values:Model","inner":null}')
    assert (model.mode, model.made, model.empty, model.many) == (sample.Level.LOW, [1], {}, [])


def test_a_zone_of_another_library_becomes_an_equal_fixed_offset() -> None:
    parsed = TypeAdapter(datetime).validate_json('"2024-01-01T00:00:00+02:00"')
    again = decode(encode(parsed))
    assert again == parsed
    assert again.tzinfo == timezone(timedelta(hours=2))
    assert type(again.tzinfo) is timezone


def test_a_class_of_the_main_program_is_named_as_an_import_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``python -m package.program`` runs ``__main__``, but another process imports its name."""
    monkeypatch.setattr(sample.Inner, "__module__", "__main__")
    monkeypatch.setitem(sys.modules, "__main__", sys.modules[sample.__name__])
    text = encode(sample.Inner(n=1))
    assert text == '{"$t":"tests.support.sample_values:Inner","n":1}'
    assert same(decode(text), sample.Inner(n=1))
