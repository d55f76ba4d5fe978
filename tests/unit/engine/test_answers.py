"""Which values a wait accepts, what a whole resume map is, and its schema."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal

import jsonschema
import pytest

from durable_adk.engine.answers import (
    missing_answers,
    open_wait_ids,
    problem_with,
    resume_schema,
    stored_answers,
    wait_id,
)
from durable_adk.errors import AnswerConflict, ConfigError, InvalidAnswer
from durable_adk.model.codec import decode, encode
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import (
    FencingToken,
    RunId,
    Tenant,
    execution_key,
    session_key,
)
from durable_adk.model.wait import Frontier, StoredAnswer, WaitKind, WaitRequest

TENANT = Tenant("tests", "answers")
NOTHING = object()


def wait(
    digest: str = "a" * 20, kind: WaitKind = WaitKind.INPUT, schema: object = None
) -> WaitRequest:
    return WaitRequest(
        digest=digest,
        position=f"1|agent#1|1|wait|{digest[:1]}",
        kind=kind,
        call_name=kind.value,
        call_id="c",
        node_path="agent@1",
        operation_path="agent#1",
        branch=None,
        isolation_scope=None,
        author="agent",
        content=encode({"message": "?", "response_schema": schema}),
    )


def suspended(*waits: WaitRequest, answers: dict[int, object] | None = None) -> Execution:
    given = answers or {}
    stored = {
        place: stored_answers("e", {"x": value}, by=None, at=1)["x"]
        for place, value in given.items()
    }
    return Execution(
        key=execution_key(TENANT, "e"),
        execution_id="e",
        tenant=TENANT,
        user_id="u",
        session_id="s",
        session_key=session_key(TENANT, "u", "s"),
        turn=1,
        run=RunId("0" * 24),
        invocation_id="e",
        input="{}",
        input_digest="",
        status=Status.SUSPENDED,
        token=FencingToken(1),
        claim=None,
        attempt=1,
        step=1,
        frontier=Frontier(
            id="f",
            step=1,
            step_token=FencingToken(1),
            waits=waits,
            open=len(waits) - len(given),
            rev=len(given),
            answers=stored,
        ),
    )


def three() -> tuple[Execution, str, str, str]:
    execution = suspended(
        wait("a" * 20, WaitKind.CONFIRMATION),
        wait("b" * 20),
        wait("c" * 20, schema={"type": "integer"}),
    )
    first, second, third = open_wait_ids(execution)
    return execution, first, second, third


def given(answers: object) -> dict[str, StoredAnswer]:
    return stored_answers("e", answers, by=None, at=1)


def added(execution: Execution, answers: object) -> dict[int, object]:
    assert execution.frontier is not None
    found = missing_answers(execution, execution.frontier, given(answers))
    return {place: decode(answer.value) for place, answer in found.items()}


# ---------------------------------------------------------------- one value


@pytest.mark.parametrize(
    "value",
    [False, 0, "", [], {}, "42", "null", '"x"', 1.5, -(2**70), {"a": [None, {"b": "ü\n"}]}],
)
def test_an_input_gets_any_json_value_as_it_was_sent(value: object) -> None:
    assert problem_with(wait(), value) is None
    stored = given({"w": value})["w"]
    assert decode(stored.value) == value
    assert type(decode(stored.value)) is type(value)


def test_null_is_no_answer_to_an_input_whatever_its_schema_says() -> None:
    assert problem_with(wait(), None) == "null is no answer"
    assert problem_with(wait(schema={"type": ["null", "string"]}), None) == "null is no answer"


def test_values_that_look_alike_are_different_answers() -> None:
    values = [42, "42", 42.5, True, "true", 1, [], {}, "", None, "null", 0, False]
    digests = [given({"w": value})["w"].digest for value in values]
    assert len(set(digests)) == len(values)


def test_the_order_of_an_objects_keys_does_not_make_another_answer() -> None:
    one, other = given({"w": {"a": 1, "b": 2}})["w"], given({"w": {"b": 2, "a": 1}})["w"]
    assert one.digest == other.digest


def endless() -> list[object]:
    items: list[object] = []
    items.append(items)
    return items


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (b"x", "answer"),
        ({"a": [1, (2,)]}, "answer.a[1]"),
        ({"a": {"b": float("nan")}}, "answer.a.b"),
        ([float("inf")], "answer[0]"),
        ({1: "x"}, "answer"),
        (Decimal(1), "answer"),
        ({"a": {2, 3}}, "answer.a"),
        (WaitKind.INPUT, "answer"),
        (NOTHING, "answer"),
        (endless(), "answer"),
    ],
)
def test_what_is_not_json_is_refused_with_its_path(value: object, path: str) -> None:
    with pytest.raises(InvalidAnswer) as refused:
        given({"w": value, "fine": 1})
    assert list(refused.value.problems) == ["w"]
    assert path in refused.value.problems["w"]


@pytest.mark.parametrize("value", [{"confirmed": True}, {"confirmed": False, "payload": [None]}])
def test_a_confirmation_is_an_object_with_confirmed(value: object) -> None:
    assert problem_with(wait(kind=WaitKind.CONFIRMATION), value) is None


@pytest.mark.parametrize(
    "value",
    [
        True,
        None,
        "yes",
        [],
        {},
        {"confirmed": "true"},
        {"confirmed": 1},
        {"confirmed": None},
        {"payload": {}},
        {"confirmed": True, "hint": "x"},
    ],
)
def test_a_confirmation_of_another_form_is_refused(value: object) -> None:
    problem = problem_with(wait(kind=WaitKind.CONFIRMATION), value)
    assert problem is not None
    assert '{"confirmed": true or false}' in problem


@pytest.mark.parametrize("kind", [WaitKind.CREDENTIAL, WaitKind.IN_DOUBT, WaitKind.TIMER])
def test_a_wait_of_a_kind_that_takes_no_answer_yet_says_so(kind: WaitKind) -> None:
    assert problem_with(wait(kind=kind), {"any": "thing"}) is not None


def test_a_value_that_breaks_the_response_schema_is_refused_with_its_place() -> None:
    asked = wait(schema={"properties": {"n": {"type": "array", "items": {"type": "integer"}}}})
    assert problem_with(asked, {"n": [1, 2]}) is None
    problem = problem_with(asked, {"n": [1, "2"]})
    assert problem == "at answer['n'][1]: '2' is not of type 'integer'"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "STRING"},
        {"pattern": "["},
        {"$ref": "#/$defs/none"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "#"},
    ],
)
def test_a_schema_that_cannot_be_used_refuses_instead_of_breaking_or_fetching(
    schema: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetched(*_: object, **__: object) -> None:
        pytest.fail("a schema made this process fetch something")

    monkeypatch.setattr("urllib.request.urlopen", fetched)
    problem = problem_with(wait(schema=schema), "x")
    assert problem is not None
    assert problem.startswith("its response schema")


# ---------------------------------------------------------------- the map


def test_a_whole_map_adds_every_answer_at_its_place() -> None:
    execution, first, second, third = three()
    assert added(execution, {third: 3, first: {"confirmed": True}, second: "x"}) == {
        0: {"confirmed": True},
        1: "x",
        2: 3,
    }


def test_everything_that_is_wrong_with_a_map_is_listed_at_once() -> None:
    execution, first, second, third = three()
    with pytest.raises(InvalidAnswer) as refused:
        added(execution, {third: "3", "e~" + "d" * 20: 1, "other": 2, first: True})
    problems = refused.value.problems
    assert problems.keys() == {first, second, third, "e~" + "d" * 20, "other"}
    assert problems[second] == "is missing"
    assert problems["other"] == "is not a wait of this frontier"
    assert "integer" in problems[third]


def test_a_wait_of_another_execution_is_unknown() -> None:
    execution, first, _, _ = three()
    foreign = first.replace("e~", "ee~")
    with pytest.raises(InvalidAnswer) as refused:
        added(execution, {foreign: {"confirmed": True}})
    assert refused.value.problems[foreign] == "is not a wait of this frontier"


def test_an_answered_wait_may_be_left_out_or_repeated_but_not_changed() -> None:
    execution = suspended(wait("a" * 20), wait("b" * 20), answers={0: "yes"})
    first, second = (wait_id(execution, w) for w in execution.frontier.waits)
    assert added(execution, {second: 1}) == {1: 1}
    assert added(execution, {first: "yes", second: 1}) == {1: 1}
    with pytest.raises(AnswerConflict) as conflict:
        added(execution, {first: "no", second: 1})
    assert first in str(conflict.value)
    assert second not in str(conflict.value)


@pytest.mark.parametrize("answers", [None, [], "x", 3, {"a"}])
def test_a_resume_map_that_is_no_mapping_is_an_argument_error(answers: object) -> None:
    with pytest.raises(ConfigError, match="expected a mapping"):
        given(answers)


def test_a_wait_id_that_is_no_text_is_listed() -> None:
    with pytest.raises(InvalidAnswer) as refused:
        given({7: "x", None: "y"})
    assert refused.value.problems == {"7": "is not a wait id", "None": "is not a wait id"}


# ---------------------------------------------------------------- its schema


def accepts(schema: dict[str, object], value: object) -> bool:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema).is_valid(value)


TREE = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "default": {"$ref": "#/$defs/Leaf"},
                "next": {"$ref": "#/$defs/Node", "default": {"$ref": "#/a"}},
            },
            "required": ["default"],
        },
        "Leaf": {"enum": ["$ref", {"$ref": "#/$defs/Node"}]},
    },
}
VALUES: list[object] = [
    {"confirmed": True},
    {"confirmed": 1},
    None,
    "x",
    3,
    {"default": "$ref"},
    {"default": {"$ref": "#/$defs/Node"}, "next": {"default": "$ref"}},
    {"default": "$ref", "next": {}},
    {"default": 3},
]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (WaitKind.INPUT, None),
        (WaitKind.INPUT, {"type": "integer"}),
        (WaitKind.INPUT, {"type": ["null", "string"]}),
        (WaitKind.INPUT, {"not": {"type": "string"}}),
        (WaitKind.INPUT, TREE),
        (WaitKind.INPUT, True),
        (WaitKind.CONFIRMATION, None),
        (WaitKind.CONFIRMATION, {"required": ["payload"]}),
    ],
)
@pytest.mark.parametrize("execution_id", ["e", "odd/ one %ü"])
def test_the_schema_accepts_a_map_exactly_when_the_wait_accepts_the_value(
    kind: WaitKind, schema: object, execution_id: str
) -> None:
    asked = wait(kind=kind, schema=schema)
    execution = replace(suspended(asked), execution_id=execution_id)
    whole = resume_schema(execution)
    for value in VALUES:
        expected = problem_with(asked, value) is None
        assert accepts(whole, {wait_id(execution, asked): value}) is expected, value


def test_the_schema_requires_open_waits_allows_answered_ones_and_nothing_else() -> None:
    execution = suspended(wait("a" * 20), wait("b" * 20), answers={0: "yes"})
    first, second = (wait_id(execution, w) for w in execution.frontier.waits)
    schema = resume_schema(execution)
    assert schema["required"] == [second]
    for first_value, second_value, extra in itertools.product(
        [NOTHING, "yes", "no"], [NOTHING, "x"], [{}, {"other": 1}]
    ):
        answers = {first: first_value, second: second_value, **extra}
        answers = {k: v for k, v in answers.items() if v is not NOTHING}
        expected = first_value != "no" and second_value == "x" and not extra
        assert accepts(schema, answers) is expected, answers


def test_nothing_open_takes_the_empty_map_only() -> None:
    schema = resume_schema(suspended(wait(), answers={0: 1}))
    assert accepts(schema, {})
    assert not accepts(schema, {wait_id(suspended(), wait()): 1})
