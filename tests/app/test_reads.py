"""``app.executions``, ``app.waits`` and ``app.sessions``."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
from typing import Any

import pytest
from google.adk.agents import SequentialAgent
from google.adk.workflow import START, Workflow
from google.genai import types

import durable_adk
from durable_adk import App, ConfigError, InputConflict, NotFound, Page
from durable_adk.testing import ManualClock, ServerClock, calls, memory_client, says
from tests.app import agents
from tests.app.agents import yes
from tests.app.conftest import ON, MakeApp

Place = dict[str, Any]


async def pages(reads: Any, limit: int, **given: Any) -> list[Any]:
    """All items, page by page; no page is too long, none but the last has no cursor."""
    found: list[Any] = []
    cursor = None
    while True:
        page: Page[Any] = await reads.list(limit=limit, cursor=cursor, **given)
        assert len(page) <= limit
        found.extend(page)
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.fixture
def clock(place: Place) -> ManualClock | ServerClock:
    return ManualClock() if not isinstance(place["mongodb"], str) else ServerClock()


@pytest.fixture
async def five(place: Place, clock: Any) -> Any:
    """Five suspended executions of two users, a second apart."""
    app = App("desk", root_agent=agents.two_and_a_question([]), config=ON, clock=clock, **place)
    async with app:
        outs = []
        for number in range(5):
            outs.append(
                await app.invoke(
                    user_id=f"u{number % 2}",
                    session_id=f"s{number}",
                    execution_id=f"e{number}",
                    message="go",
                )
            )
            clock.advance(1_000)
        yield app, outs


async def test_executions_are_listed_newest_first_page_by_page(five: Any) -> None:
    app, _outs = five
    for limit in (1, 2, 5, 50):
        assert [r.id for r in await pages(app.executions, limit)] == [
            f"e{n}" for n in (4, 3, 2, 1, 0)
        ]


async def test_executions_are_filtered(five: Any) -> None:
    app, outs = five
    await app.resume("e1", yes(*outs[1].waits))
    found = {
        key: [r.id for r in await pages(app.executions, 2, **given)]
        for key, given in {
            "user": {"user_id": "u1"},
            "session": {"user_id": "u0", "session_id": "s2"},
            "done": {"status": "completed"},
            "both": {"user_id": "u0", "status": "suspended"},
            "kind": {"kind": "adk_request_input"},
            "none": {"status": "stuck"},
        }.items()
    }
    assert found == {
        "user": ["e3", "e1"],
        "session": ["e2"],
        "done": ["e1"],
        "both": ["e4", "e2", "e0"],
        "kind": ["e4", "e3", "e2", "e0"],
        "none": [],
    }


async def test_open_waits_are_listed_oldest_first_in_frontier_order(five: Any) -> None:
    app, outs = five
    ids = [wait.id for out in outs for wait in out.waits]
    for limit in (1, 2, 3, 4, 15, 50):
        assert [wait.id for wait in await pages(app.waits, limit)] == ids


async def test_waits_are_filtered(five: Any) -> None:
    app, outs = five
    questions = await pages(app.waits, 2, kind="adk_request_input")
    assert [wait.execution_id for wait in questions] == [f"e{n}" for n in range(5)]
    mine = await pages(app.waits, 4, user_id="u1")
    assert [wait.id for wait in mine] == [w.id for n in (1, 3) for w in outs[n].waits]
    assert len(await pages(app.waits, 4, user_id="u0", session_id="s2")) == 3


async def test_waits_answered_between_two_pages_hide_and_repeat_nothing(five: Any) -> None:
    app, outs = five
    first = await app.waits.list(limit=4)
    for wait in (first.items[0], first.items[3]):
        await app.answer(wait.id, yes(wait)[wait.id])
    rest = await app.waits.list(limit=50, cursor=first.cursor)
    ids = [wait.id for out in outs for wait in out.waits]
    assert [wait.id for wait in rest] == ids[4:]


async def test_a_wait_is_found_by_its_id_while_it_is_open(five: Any) -> None:
    app, outs = five
    wait = outs[0].waits[1]
    assert await app.waits.get(wait.id) == wait
    await app.answer(wait.id, yes(wait)[wait.id])
    with pytest.raises(NotFound, match="is not open"):
        await app.waits.get(wait.id)
    assert wait.id not in {each.id for each in await pages(app.waits, 5)}


async def test_an_execution_record_says_how_it_stands(five: Any) -> None:
    app, _outs = five
    record = await app.executions.get("e0")
    assert (record.id, record.user_id, record.session_id, record.status) == (
        "e0",
        "u0",
        "s0",
        "suspended",
    )
    assert (record.turn, record.step, record.attempt, record.open_waits) == (1, 1, 1, 3)
    assert (record.error, record.ended_at) == (None, None)
    assert record.created_at is not None
    assert record.created_at.tzinfo is dt.UTC
    assert record.to_dict()["id"] == "e0"


async def test_an_outcome_is_read_as_the_call_returned_it_and_nothing_runs(place: Place) -> None:
    log: agents.Log = []
    async with App("desk", root_agent=agents.payer(log), config=ON, **place) as app:
        out = await app.invoke(user_id="u", session_id="s", message="pay")
        assert await app.executions.outcome(out.execution_id) == out
        assert log == []
        done = await app.resume(out.execution_id, yes(*out.waits))
        assert await app.executions.outcome(out.execution_id) == done
        with pytest.raises(NotFound):
            await app.executions.outcome("nowhere")
    assert len(log) == 1


async def test_the_outcome_of_what_runs_says_so(make_app: MakeApp) -> None:
    entered, leave = asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait."""
        entered.set()
        await leave.wait()
        return "waited"

    app = make_app(agents.talker(calls(("wait", {})), says("done"), tools=[wait]))
    running = asyncio.create_task(app.invoke(user_id="u", execution_id="e", message="hi"))
    await entered.wait()
    out = await app.executions.outcome("e")
    assert (out.status, out.response, out.events, out.waits) == ("running", None, (), ())
    assert out.raise_for_status() is out
    leave.set()
    assert await running == await app.executions.outcome("e")


async def test_timers_are_listed_as_what_they_are(make_app: MakeApp) -> None:
    async def nap(node_input: str) -> None:
        await durable_adk.sleep(3600)

    app = make_app(Workflow(name="w", edges=[(START, nap)]))
    out = await app.invoke(user_id="u", message="hi")
    for kind, listed in (("timer", True), ("adk_request_credential", False)):
        waits = [wait.id for wait in await app.waits.list(kind=kind)]
        ids = [record.id for record in await app.executions.list(kind=kind)]
        assert (waits, ids) == ([out.waits[0].id] * listed, [out.execution_id] * listed)


@pytest.mark.parametrize("kind", ["Timer", "input", 5])
async def test_a_kind_that_no_wait_has_is_refused_with_those_that_there_are(
    make_app: MakeApp, kind: Any
) -> None:
    app = make_app()
    for reads in (app.waits, app.executions):
        with pytest.raises(ConfigError) as caught:
            await reads.list(kind=kind)
        assert caught.value.remedy == (
            "Use one of: adk_request_input, adk_request_confirmation, adk_request_credential,"
            " in_doubt, timer."
        )


async def test_ending_and_retrying_what_has_ended_changes_nothing_and_returns_it(
    make_app: MakeApp,
) -> None:
    app = make_app(agents.talker())
    await app.invoke(user_id="u", execution_id="e", message="hi")
    record = await app.executions.get("e")
    for call in (app.cancel, app.give_up, app.retry):
        shown = await call("e")
        assert dataclasses.replace(record, usage=None, usage_by_model=None) == shown


async def test_usage_is_the_sum_over_the_model_calls(make_app: MakeApp) -> None:
    counted = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=10, candidates_token_count=3, total_token_count=13
    )
    app = make_app(agents.talker(says("hello", usage_metadata=counted)))
    out = await app.invoke(user_id="u", message="hi")
    assert (await app.executions.get(out.execution_id)).usage == {
        "model_calls": 1,
        "prompt_tokens": 10,
        "output_tokens": 3,
        "total_tokens": 13,
        "cached_tokens": 0,
        "thoughts_tokens": 0,
        "tool_prompt_tokens": 0,
    }


async def test_usage_of_each_model_is_told_apart(make_app: MakeApp) -> None:
    def used(prompt: int) -> types.GenerateContentResponseUsageMetadata:
        return types.GenerateContentResponseUsageMetadata(
            prompt_token_count=prompt, total_token_count=prompt
        )

    first = agents.talker(says("one", usage_metadata=used(10)), name="first")
    small = agents.talker(says("two", usage_metadata=used(3)), name="second")
    again = agents.talker(says("three", usage_metadata=used(4)), name="third")
    first.model.model, small.model.model, again.model.model = "large", "small", "small"
    app = make_app(SequentialAgent(name="all", sub_agents=[first, small, again]))
    out = await app.invoke(user_id="u", message="hi")
    record = await app.executions.get(out.execution_id)
    assert record.usage_by_model is not None
    assert {
        name: (one["model_calls"], one["prompt_tokens"])
        for name, one in record.usage_by_model.items()
    } == {"large": (1, 10), "small": (2, 7)}
    for name, value in (record.usage or {}).items():
        assert sum(one[name] for one in record.usage_by_model.values()) == value
    assert record.to_dict()["usage_by_model"]["small"]["total_tokens"] == 7
    (row,) = await app.executions.list()
    assert row.usage_by_model is None


async def test_activities_are_shown_with_their_places(place: Place) -> None:
    log: agents.Log = []
    async with App("desk", root_agent=agents.payer(log), config=ON, **place) as app:
        out = await app.invoke(user_id="u", session_id="s", message="pay")
        before = await app.executions.activities(out.execution_id)
        (stored,) = await app.waits.list()
        await app.resume(out.execution_id, yes(*out.waits), by="ada")
        after = await app.executions.activities(out.execution_id)
    assert [(a.kind, a.step, a.status) for a in before] == [
        ("model", 1, "completed"),
        ("wait", 1, "waiting"),
    ]
    assert before[1].id == out.waits[0].id
    assert (before[1].started_at, before[1].ended_at) == (stored.since, None)
    assert [a.details.get("by") for a in after if a.kind == "wait"] == ["ada"]
    for each in after:
        assert each.ended_at is not None
        assert each.ended_at.tzinfo is dt.UTC
    assert [(a.kind, a.name, a.step, a.status) for a in after if a.kind != "wait"] == [
        ("model", "scripted", 1, "completed"),
        ("tool", "pay", 2, "completed"),
        ("model", "scripted", 2, "completed"),
    ]
    shown = {field.name for field in dataclasses.fields(after[0])}
    assert shown >= {
        "id", "kind", "name", "operation_path", "node_path", "step", "entry", "ordinal",
        "status", "attempt", "started_at", "ended_at",
    }  # fmt: skip
    assert len({a.id for a in after}) == len(after)


async def test_events_of_an_execution_are_those_of_its_outcome(make_app: MakeApp) -> None:
    app = make_app(agents.payer([]))
    out = await app.invoke(user_id="u", message="pay")
    assert await app.executions.events(out.execution_id) == out.events


# ---------------------------------------------------------------- sessions


async def test_a_session_begins_with_the_state_it_is_given(place: Place) -> None:
    state = {"tier": "gold", "pair": (1, 2)}
    async with App("desk", root_agent=agents.talker(), config=ON, **place) as app:
        made = await app.sessions.create("u", "s", state)
        assert (made.id, made.user_id, made.state) == ("s", "u", state)
        assert (await app.sessions.get("u", "s")).state == state
        await app.invoke(user_id="u", session_id="s", message="hi", state_delta={"n": 1})
        assert (await app.sessions.get("u", "s")).state == {**state, "n": 1}


async def test_a_session_without_an_id_gets_one(make_app: MakeApp) -> None:
    app = make_app(agents.talker())
    made = [await app.sessions.create("u") for _ in range(2)]
    assert made[0].id != made[1].id
    assert made[0].state == {}


async def test_a_second_session_of_one_id_is_a_conflict(make_app: MakeApp) -> None:
    app = make_app(agents.talker())
    await app.sessions.create("u", "s", {"a": 1})
    with pytest.raises(InputConflict, match="there is one already"):
        await app.sessions.create("u", "s", {"a": 2})
    assert (await app.sessions.get("u", "s")).state == {"a": 1}
    await app.sessions.create("u2", "s")


@pytest.mark.parametrize("key", ["user:a", "app:a", "temp:a"])
async def test_state_that_belongs_elsewhere_is_refused(make_app: MakeApp, key: str) -> None:
    with pytest.raises(ConfigError, match="does not belong to one session"):
        await make_app(agents.talker()).sessions.create("u", "s", {key: 1})


async def test_sessions_are_listed_oldest_first_page_by_page(five: Any) -> None:
    app, _outs = five
    for limit in (1, 2, 50):
        assert [s.id for s in await pages(app.sessions, limit)] == [f"s{n}" for n in range(5)]
    assert [s.id for s in await pages(app.sessions, 1, user_id="u1")] == ["s1", "s3"]


async def test_the_events_of_a_session_are_those_of_its_turns(place: Place) -> None:
    async with App("desk", root_agent=agents.payer([]), config=ON, **place) as app:
        first = await app.invoke(user_id="u", session_id="s", message="pay")
        assert await app.sessions.events("u", "s") == first.events
        first = await app.resume(first.execution_id, yes(*first.waits))
        second = await app.invoke(user_id="u", session_id="s", message="pay")
        assert await app.sessions.events("u", "s") == first.events + second.events


async def test_shared_state_is_shown_in_every_session_of_the_user(place: Place) -> None:
    async with App("desk", root_agent=agents.talker(), config=ON, **place) as app:
        await app.invoke(
            user_id="u",
            session_id="s",
            message="hi",
            state_delta={"user:name": "Ada", "app:rate": 2, "own": 1},
        )
        await app.sessions.create("u", "s2")
        await app.sessions.create("u2", "s3")
        assert (await app.sessions.get("u", "s")).state == {
            "user:name": "Ada",
            "app:rate": 2,
            "own": 1,
        }
        assert (await app.sessions.get("u", "s2")).state == {"user:name": "Ada", "app:rate": 2}
        assert (await app.sessions.get("u2", "s3")).state == {"app:rate": 2}


async def test_a_session_of_another_user_or_app_is_not_found() -> None:
    client = memory_client()
    async with App("desk", root_agent=agents.talker(), config=ON, mongodb=client) as app:
        await app.invoke(user_id="u", session_id="s", execution_id="e", message="hi")
        with pytest.raises(NotFound):
            await app.sessions.get("u2", "s")
    async with App("other", root_agent=agents.talker(), config=ON, mongodb=client) as other:
        with pytest.raises(NotFound):
            await other.sessions.get("u", "s")
        with pytest.raises(NotFound):
            await other.executions.get("e")
        assert (await other.sessions.list()).items == ()
