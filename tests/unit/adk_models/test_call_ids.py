"""Ids of calls without one: the same in partials and in the final response, by place."""

from __future__ import annotations

import copy
import itertools
import uuid
from typing import Any

import pytest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from durable_adk.adk.call_ids import CallIds, Fit, fit_of
from durable_adk.adk.scope import derived_uuid

Args = dict[str, Any]


def call(name: str | None, args: Args | None = None, **fields: Any) -> types.FunctionCall:
    return types.FunctionCall(name=name, args=args, **fields)


def piece(text: str, path: str = "$.q") -> types.PartialArg:
    return types.PartialArg(json_path=path, string_value=text)


def said(*calls: types.FunctionCall, partial: bool | None = True) -> LlmResponse:
    parts = [types.Part(text="so"), *(types.Part(function_call=one) for one in calls)]
    return LlmResponse(content=types.Content(role="model", parts=parts), partial=partial)


def whole(*calls: types.FunctionCall) -> LlmResponse:
    return said(*calls, partial=None)


def ids_of(*responses: LlmResponse) -> list[list[str | None]]:
    ids = CallIds(lambda n: f"adk-{n}")
    for response in responses:
        ids.fill(response)
    return [[one.id for one in response.get_function_calls()] for response in responses]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ([said(call("f", {"n": 1})), whole(call("f", {"n": 1}))], ["0", "0"]),
        (
            [
                said(call("f", {"n": 1})),
                said(call("f", {"n": 2})),
                whole(call("f", {"n": 1}), call("f", {"n": 2})),
            ],
            ["0", "1", "0 1"],
        ),
        (
            [
                said(call("f", {"n": 1})),
                said(call("f", {"n": 1})),
                whole(call("f", {"n": 1}), call("f", {"n": 1})),
            ],
            ["0", "1", "0 1"],
        ),
        (
            [said(call("f", {}), call("f", {})), whole(call("f", {}), call("f", {}))],
            ["0 1", "0 1"],
        ),
        (
            [
                said(call("f", {"n": 1})),
                said(call("f", {"n": 1}), call("g", {})),
                said(call("f", {"n": 1}), call("g", {"q": "a"})),
                whole(call("f", {"n": 1}), call("g", {"q": "ab"})),
            ],
            ["0", "0 1", "0 1", "0 1"],
        ),
        (
            [
                said(call("f", {})),
                said(call("f", {"q": "a"})),
                said(call("f", {"q": "ab", "n": 1})),
                whole(call("f", {"q": "ab", "n": 1})),
            ],
            ["0", "0", "0", "0"],
        ),
        (
            [
                said(call("f", will_continue=True)),
                said(call(None, partial_args=[piece("a")], will_continue=True)),
                said(call(None)),
                said(call("f", will_continue=True)),
                said(call("f", partial_args=[piece("a")])),
                whole(call("f", {"q": "a"}), call("f", {"q": "a"})),
            ],
            ["0", "0", "0", "1", "1", "0 1"],
        ),
        (
            [
                said(call("f", {}, will_continue=True)),
                said(call("f", {"q": "a"}, will_continue=True)),
                said(call("f", {"q": "a"}, will_continue=True)),
                said(call("g", {"q": "a"}, will_continue=True)),
                whole(call("f", {"q": "a"}), call("g", {"q": "a"})),
            ],
            ["0", "0", "0", "1", "0 1"],
        ),
        (  # two responses that are whole: two calls
            [whole(call("f", {"n": 1})), whole(call("f", {"n": 1}))],
            ["0", "1"],
        ),
        (  # the final response has another order
            [
                said(call("f", {"n": 1})),
                said(call("g", {"n": 1})),
                whole(call("g", {"n": 1}), call("f", {"n": 1})),
            ],
            ["0", "1", "1 0"],
        ),
        (  # and arguments that no partial had
            [said(call("f", {"n": 1})), whole(call("f", {"n": 2}))],
            ["0", "0"],
        ),
        (
            [said(call("f", {"n": 2})), whole(call("f", {"n": 1}), call("f", {"n": 2}))],
            ["0", "1 0"],
        ),
    ],
)
def test_a_call_has_one_id_in_partials_and_in_the_final_response(
    stream: list[LlmResponse], expected: list[str]
) -> None:
    found = ids_of(*stream)
    assert [" ".join(str(one)[4:] for one in ids) for ids in found] == expected


def test_what_the_model_gave_as_id_stays() -> None:
    stream = [
        said(call("f", {"n": 1}, id="x")),
        said(call("f", {"n": 1}, id="y")),
        said(call("f", {"n": 1})),
        whole(call("f", {"n": 1}, id="x"), call("f", {"n": 1}, id="y"), call("f", {"n": 1})),
    ]
    assert ids_of(*stream) == [["x"], ["y"], ["adk-2"], ["x", "y", "adk-2"]]


def test_an_id_of_a_partial_is_the_one_of_a_final_response_that_left_it_out() -> None:
    stream = [said(call("f", {"n": 1}, id="x")), whole(call("f", {"n": 1}))]
    assert ids_of(*stream) == [["x"], ["x"]]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {}, Fit.SAME),
        ({}, {"q": "a"}, Fit.GROWN),
        ({"q": "a"}, {"q": "ab"}, Fit.GROWN),
        ({"q": "a"}, {"q": "ab", "n": 1}, Fit.GROWN),
        ({"q": "a", "n": 1}, {"q": "ab", "n": 1}, Fit.NOT),  # text has come after q
        ({"q": "ab"}, {"q": "a"}, Fit.NOT),
        ({"n": 1}, {"n": 10}, Fit.NOT),
        ({"n": None}, {"n": 10}, Fit.GROWN),
        ({"n": 1}, {"m": 1}, Fit.NOT),
        ({"l": ["a"]}, {"l": ["ab", "c"]}, Fit.GROWN),
        ({"l": ["a", "b"]}, {"l": ["ab", "b"]}, Fit.NOT),
        ({"d": {"x": {}}}, {"d": {"x": {"y": 1}}}, Fit.GROWN),
        ({"q": "1"}, {"q": 1}, Fit.NOT),
    ],
)
def test_arguments_grow_at_their_end_only(old: Args, new: Args, expected: Fit) -> None:
    assert fit_of(old, new) is expected


WORDS = st.text("xyz", min_size=2, max_size=2)
ARGS = st.fixed_dictionaries({"q": WORDS}, optional={"r": WORDS, "s": st.lists(WORDS, max_size=2)})
CALLS = st.lists(st.tuples(st.sampled_from("fg"), ARGS), min_size=1, max_size=4)


def grown(args: Args) -> list[Args]:
    """What a reader of unfinished JSON sees on the way to the arguments."""
    steps: list[Args] = [{}]
    for key, value in args.items():
        before = dict(steps[-1])
        ends = [value[:n] for n in range(len(value) + 1)]
        steps += [{**before, key: end} for end in ends]
    return steps


def streamed(name: str, args: Args, how: str) -> list[types.FunctionCall]:
    if how == "at once":
        return [call(name, args)]
    if how == "growing":
        steps = grown(args)
        return [
            call(name, copy.deepcopy(step), will_continue=None if step is steps[-1] else True)
            for step in steps
        ]
    first = call(name, will_continue=True)
    pieces = [call(None, partial_args=[piece("x")], will_continue=True) for _ in args]
    return [first, *pieces, call(None)]


def follow_each_other(calls: list[tuple[str, Args]]) -> bool:
    """None of two calls in a row looks like more of the one before it."""
    return all(
        one[0] != next_[0] or fit_of(one[1], next_[1]) is not Fit.GROWN
        for one, next_ in itertools.combinations(calls, 2)
    )


@given(
    CALLS.filter(follow_each_other),
    st.lists(st.sampled_from(["at once", "growing", "in pieces"]), min_size=4, max_size=4),
)
def test_ids_are_by_place_however_a_call_is_streamed(
    calls: list[tuple[str, Args]], ways: list[str]
) -> None:
    chunks = [
        (place, one)
        for place, ((name, args), how) in enumerate(zip(calls, ways, strict=False))
        for one in streamed(name, args, how)
    ]
    final = whole(*(call(name, args) for name, args in calls))
    found = ids_of(*(said(one) for _place, one in chunks), final)
    assert found[-1] == [f"adk-{n}" for n in range(len(calls))]
    assert found[:-1] == [[f"adk-{place}"] for place, _one in chunks]


@given(CALLS.filter(follow_each_other))
def test_ids_are_by_place_when_each_partial_repeats_all_before_it(
    calls: list[tuple[str, Args]],
) -> None:
    def first(count: int, **fields: Any) -> LlmResponse:
        return said(*(call(name, args) for name, args in calls[:count]), **fields)

    found = ids_of(*(first(n + 1) for n in range(len(calls))), first(len(calls), partial=False))
    assert all(ids == [f"adk-{n}" for n in range(len(ids))] for ids in found)


@given(CALLS)
def test_without_partials_ids_are_by_place(calls: list[tuple[str, Args]]) -> None:
    found = ids_of(whole(*(call(name, args) for name, args in calls)))
    assert found == [[f"adk-{n}" for n in range(len(calls))]]


def test_what_the_model_gave_is_left_as_it_is() -> None:
    given, named = whole(call("f", {"n": 1}), call("g", id="own")), whole(call("g", id="own"))
    before = given.model_copy(deep=True)
    ids = CallIds(lambda n: f"adk-{n}")
    filled = ids.filled(given)
    assert [one.id for one in filled.get_function_calls()] == ["adk-0", "own"]
    assert given == before
    assert ids.filled(named) is named  # nothing was missing
    partial = said(call("f", {"n": 2}))
    copied = ids.filled(partial)
    copied.get_function_calls()[0].args["n"] = 3  # type: ignore[index]  # a caller's to change
    assert [one.args for one in partial.get_function_calls()] == [{"n": 2}]


@given(parts=st.lists(st.text(st.characters(codec="utf-8")), max_size=5))
def test_derived_ids_are_those_of_uuid5(parts: list[str]) -> None:
    """They are on record, in events and in arguments: another text would be another run."""
    assert derived_uuid(*parts) == str(uuid.uuid5(uuid.NAMESPACE_OID, "|".join(parts)))
