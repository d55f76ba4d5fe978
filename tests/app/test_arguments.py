"""Bad input: one clear error each, and nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.genai import types

from durable_adk import App, ConfigError, DurableError, InvalidAnswer, NotFound
from durable_adk.app.checks import MAX_BY, MAX_REASON
from durable_adk.errors import NotStorable
from durable_adk.testing import memory_client
from tests.app import agents
from tests.app.conftest import MakeApp
from tests.support.ids import shown

OPERATOR = {"$gt": ""}
BAD_IDS = [OPERATOR, 5, b"u", ["u"], "", "a~b", "a\nb", "x" * 257, "\ud800"]


class Nothing:
    """What a value that cannot be recorded looks like."""


BAD_CALLS: dict[str, dict[str, Any]] = {
    "user_id": {"user_id": BAD_IDS + [None]},
    "session_id": {"session_id": BAD_IDS},
    "execution_id": {"execution_id": BAD_IDS},
    "message": {
        "message": [
            "",
            "  \n",
            None,
            5,
            b"hi",
            ["hi"],
            {"text": "hi"},
            types.Content,
            types.Content(role="user", parts=[]),
            types.Content(role="user"),
            types.Content(role="user", parts=[types.Part(text=" ")]),
            types.Content(role="user", parts=[types.Part()]),
            types.Content(
                role="user",
                parts=[types.Part(function_call=types.FunctionCall(name="f", args={}))],
            ),
            types.Content(
                role="user",
                parts=[
                    types.Part(
                        function_response=types.FunctionResponse(id="1", name="f", response={})
                    )
                ],
            ),
        ]
    },
    "state_delta": {"state_delta": [5, "a", [("a", 1)], {1: 2}, {"": 1}]},
    "run_config": {"run_config": [5, "fast", {"max_llm_calls": 1}]},
    "timeout": {"timeout": [0, -1, "1", True, float("nan"), float("inf")]},
}
CASES = [
    (name, value)
    for _, given in BAD_CALLS.items()
    for name, all_ in given.items()
    for value in all_
]


def call(app: App, **changed: Any) -> Any:
    return app.invoke(**{"user_id": "u", "session_id": "s", "message": "hi", **changed})


@pytest.mark.parametrize(("name", "value"), CASES, ids=lambda value: repr(value)[:30])
async def test_a_bad_argument_is_one_config_error_and_stores_nothing(
    make_app: MakeApp, stored: Callable[[Any], Any], name: str, value: Any
) -> None:
    client = memory_client()
    app = make_app(agents.talker(), mongodb=client)
    with pytest.raises(ConfigError) as caught:
        await call(app, **{name: value})
    assert name in caught.value.subject
    assert caught.value.reason
    with pytest.raises(ConfigError):
        await app.submit(**{"user_id": "u", "session_id": "s", "message": "hi", name: value})
    stream = app.stream(**{"user_id": "u", "session_id": "s", "message": "hi", name: value})
    with pytest.raises(ConfigError):
        await anext(stream)
    assert await stored(client) == 0


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"state_delta": {"a": [1, {"b": Nothing()}]}}, "a"),
        ({"state_delta": {"f": lambda: None}}, "f"),
        ({"state_delta": {"n": float("nan")}}, "n"),
    ],
)
async def test_what_cannot_be_recorded_is_refused_with_its_path(
    make_app: MakeApp, stored: Callable[[Any], Any], given: dict[str, Any], path: str
) -> None:
    client = memory_client()
    with pytest.raises(NotStorable) as caught:
        await call(make_app(agents.talker(), mongodb=client), **given)
    assert path in caught.value.path
    assert await stored(client) == 0


BY_ID: dict[str, Callable[[App, Any], Any]] = {
    "resume": lambda app, given: app.resume(given),
    "cancel": lambda app, given: app.cancel(given),
    "retry": lambda app, given: app.retry(given),
    "give_up": lambda app, given: app.give_up(given),
    "executions.get": lambda app, given: app.executions.get(given),
    "executions.activities": lambda app, given: app.executions.activities(given),
    "executions.events": lambda app, given: app.executions.events(given),
    "sessions.get": lambda app, given: app.sessions.get("u", given),
    "sessions.events": lambda app, given: app.sessions.events("u", given),
}


@pytest.mark.parametrize("name", BY_ID)
async def test_an_unknown_id_is_not_found(make_app: MakeApp, name: str) -> None:
    app = make_app(agents.talker())
    with pytest.raises(NotFound, match="nobody"):
        await BY_ID[name](app, "nobody")


@pytest.mark.parametrize("name", BY_ID)
async def test_an_id_that_is_no_text_is_a_config_error(make_app: MakeApp, name: str) -> None:
    app = make_app(agents.talker())
    for given in (OPERATOR, 5, None, b"x", ""):
        with pytest.raises(ConfigError):
            await BY_ID[name](app, given)


@pytest.mark.parametrize("given", ["nobody", "nobody~", "x~" + "0" * 20, "", "~" + "0" * 20])
async def test_an_unknown_wait_is_not_found(make_app: MakeApp, given: str) -> None:
    app = make_app(agents.talker())
    with pytest.raises(NotFound):
        await app.answer(given, "yes")
    with pytest.raises(NotFound):
        await app.waits.get(given)


@pytest.mark.parametrize("given", [OPERATOR, 5, None, b"x"], ids=shown)
async def test_a_wait_id_that_is_no_text_is_a_config_error(make_app: MakeApp, given: Any) -> None:
    app = make_app(agents.talker())
    with pytest.raises(ConfigError, match="wait_id"):
        await app.answer(given, "yes")
    with pytest.raises(ConfigError, match="wait_id"):
        await app.waits.get(given)


@pytest.mark.parametrize("answers", [None, 5, "yes", ["yes"], [("a", 1)]], ids=shown)
async def test_answers_are_a_mapping(make_app: MakeApp, answers: Any) -> None:
    with pytest.raises(ConfigError, match="answers"):
        await make_app(agents.talker()).resume("e", answers)


@pytest.mark.parametrize("by", [5, OPERATOR, ["me"]], ids=shown)
async def test_who_answers_is_text(make_app: MakeApp, by: Any) -> None:
    app = make_app(agents.talker())
    with pytest.raises(ConfigError, match="by"):
        await app.resume("e", {}, by=by)
    with pytest.raises(ConfigError, match="by"):
        await app.answer("e~" + "0" * 20, 1, by=by)


BAD_ANSWERS: list[Any] = [
    None,
    True,
    "yes",
    {},
    {"confirmed": "yes"},
    {"confirmed": True, "more": 1},
    {"confirmed": {"$ne": False}},
]


async def test_texts_for_people_have_a_limit_that_names_their_argument(make_app: MakeApp) -> None:
    """MongoDB's own, of 16 MB, would be met by the write, which knows no argument."""
    app = make_app(agents.payer([]))
    out = await app.invoke(user_id="u", message="hi", execution_id="e")
    (wait,) = out.waits
    long, yes = "x" * 17_000_000, {"confirmed": True}
    refused: dict[str, list[Callable[[], Any]]] = {
        "by: has 17000000 characters": [
            lambda: app.answer(wait.id, yes, by=long),
            lambda: app.resume("e", {wait.id: yes}, by=long),
        ],
        "reason: has 17000000 characters": [
            lambda: app.cancel("e", long),
            lambda: app.give_up("e", long),
            lambda: app.retry("e", long),
        ],
    }
    for said, calls in refused.items():
        for call in calls:
            with pytest.raises(ConfigError, match=said) as caught:
                await call()
            assert "nothing was done" in caught.value.remedy
    assert (await app.executions.outcome("e")).waits == out.waits
    await app.answer(wait.id, yes, by="y" * MAX_BY)
    await app.cancel("e", "z" * MAX_REASON)
    assert (await app.executions.get("e")).status == "cancelled"


@pytest.mark.parametrize("value", [*BAD_ANSWERS, Nothing(), b"yes", (1,)], ids=shown)
async def test_an_answer_that_does_not_fit_is_invalid_and_stores_nothing(
    make_app: MakeApp, value: Any
) -> None:
    log: agents.Log = []
    app = make_app(agents.payer(log))
    out = await call(app)
    (wait,) = out.waits
    with pytest.raises(InvalidAnswer) as caught:
        await app.resume(out.execution_id, {wait.id: value})
    assert wait.id in caught.value.problems
    with pytest.raises(InvalidAnswer) as single:
        await app.answer(wait.id, value)
    assert list(single.value.problems) == [wait.id]
    assert str(single.value).count(wait.id) == 1
    assert "Send a value that the wait accepts" in single.value.remedy
    assert "'missing'" not in str(single.value)
    assert (await app.waits.list()).items == (wait,)
    assert log == []


LISTS: list[dict[str, Any]] = [
    {"limit": 0},
    {"limit": 1001},
    {"limit": "5"},
    {"limit": True},
    {"cursor": 5},
    {"cursor": "zzz"},
    {"user_id": OPERATOR},
]


@pytest.mark.parametrize("given", LISTS, ids=shown)
@pytest.mark.parametrize("reads", ["executions", "waits", "sessions"])
async def test_a_bad_page_request_is_a_config_error(
    make_app: MakeApp, reads: str, given: dict[str, Any]
) -> None:
    app = make_app(agents.talker())
    with pytest.raises(ConfigError):
        await getattr(app, reads).list(**given)


async def test_an_unknown_status_or_kind_names_the_known_ones(make_app: MakeApp) -> None:
    app = make_app(agents.talker())
    with pytest.raises(ConfigError, match="suspended"):
        await app.executions.list(status="waiting")
    for reads in (app.executions, app.waits):
        with pytest.raises(ConfigError, match="adk_request_input"):
            await reads.list(kind="question")


@pytest.mark.parametrize("name", BAD_IDS, ids=shown)
def test_an_app_needs_a_name_that_can_be_a_key(name: Any) -> None:
    with pytest.raises(ConfigError, match="App"):
        App(name)


@pytest.mark.parametrize("database", ["", "a b", "a.b", 5, "$x", "x" * 64], ids=shown)
def test_a_bad_database_name_is_a_config_error(database: Any) -> None:
    with pytest.raises(ConfigError, match="database"):
        App("desk", database=database)


@pytest.mark.parametrize("limit", [0, -1, "all", None, 1.5], ids=shown)
async def test_recover_takes_a_whole_number(make_app: MakeApp, limit: Any) -> None:
    with pytest.raises(ConfigError, match="limit"):
        await make_app(agents.talker()).recover(limit)


async def test_every_refusal_carries_subject_and_reason(make_app: MakeApp) -> None:
    app = make_app(agents.talker())
    for refused in (call(app, message=""), app.resume("nobody"), app.answer("x", 1)):
        with pytest.raises(DurableError) as caught:
            await refused
        assert caught.value.subject
        assert caught.value.reason
