"""Sessions out of an App and into one: whole, once, and gone on with."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.events import Event, EventActions
from google.adk.events.event_actions import EventCompaction
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from durable_adk import (
    App,
    ConfigError,
    DurabilityDisabled,
    InputConflict,
    NotFound,
    NotStorable,
    Unavailable,
)
from durable_adk.app.exchange import portable_of
from durable_adk.testing import FaultPlan, ScriptedModel, Write, calls, memory_client, says
from tests.app import agents
from tests.app.agents import yes
from tests.app.conftest import ON
from tests.sessions import one_import
from tests.sessions.conversations import (
    START,
    Prompts,
    long_session,
    note,
    said,
    talk_with_adk,
    with_tools,
)
from tests.support import forks

Place = dict[str, Any]


@pytest.fixture(params=["memory", "mongod"])
def place(request: pytest.FixtureRequest) -> Place:
    """Where an App keeps its data: new and empty for each test."""
    if request.param == "memory":
        return {"mongodb": memory_client()}
    return request.getfixturevalue("on_server")


@pytest.fixture
def on_server(replica_set_uri: str, database: str) -> Place:
    return {"mongodb": replica_set_uri, "database": f"{database}_{uuid.uuid4().hex[:8]}"}


async def lines_of(app: App, user_id: str, session_id: str) -> list[str]:
    return [line async for line in app.sessions.export(user_id, session_id)]


def turns_of(lines: list[str]) -> list[Any]:
    """All but the ids of executions, which an App may have taken already."""
    return [{**json.loads(line), "execution_id": None} for line in lines[1:]]


@dataclass
class Basket:
    fruits: tuple[str, ...]


TYPED = {
    "when": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    "price": Decimal("1.10"),
    "raw": b"\xff\x00",
    "pair": (1, {2, 3}),
    "basket": Basket(("fig",)),
    "$t": "not a tag",
    "line\nbreak": "a\r\nb",
}


# ---------------------------------------------------------------- export, then import


async def test_a_session_is_the_same_in_another_app_and_database(place: Place) -> None:
    prompts = Prompts()
    async with App("first", root_agent=with_tools(prompts), config=ON, **place) as app:
        await app.sessions.create("u", "s", state={"first": "there", **TYPED})
        await app.invoke(user_id="u", session_id="s", message="keep milk")
        ended = await app.invoke(user_id="u", session_id="s", message="it leaks")
        assert ended.status == "suspended"
        await app.cancel(ended.execution_id, "nobody is there")
        await app.invoke(user_id="u", session_id="s", message="go on", state_delta={"n": None})
        lines = await lines_of(app, "u", "s")
        events = await app.sessions.events("u", "s")
        info = await app.sessions.get("u", "s")
        turns = await app.sessions.turns("u", "s")
        outcome = await app.executions.outcome(ended.execution_id)
    assert "\n" not in "".join(lines) and len(lines) == 4
    async with App("second", config=ON, mongodb=memory_client()) as app:
        got = await app.sessions.import_(lines, user_id="v")
        assert (got.id, got.user_id, got.created_at) == ("s", "v", info.created_at)
        own = {key: value for key, value in info.state.items() if not key.startswith("user:")}
        assert got.state == own and type(got.state["pair"]) is tuple
        assert got.state["basket"] == Basket(("fig",))
        assert await app.sessions.events("v", "s") == events
        assert [(t.id, t.turn, t.status, t.created_at, t.ended_at) for t in turns] == [
            (t.id, t.turn, t.status, t.created_at, t.ended_at)
            for t in await app.sessions.turns("v", "s")
        ]
        again = await app.executions.outcome(ended.execution_id)
        assert (again.status, again.response, again.error) == ("cancelled", None, outcome.error)
        assert (await lines_of(app, "v", "s"))[1:] == lines[1:]


async def test_the_next_message_goes_on_with_the_imported_conversation(place: Place) -> None:
    prompts = Prompts()
    given = long_session(2, events_per_turn=2)
    async with App("desk", root_agent=prompts.agent(), config=ON, **place) as app:
        await app.sessions.import_(given)
        out = await app.invoke(user_id="u", session_id="long", message="and now")
        assert out.response == "answer 1"
        assert prompts.seen == [
            ["turn 1, event 0", "turn 1, event 1", "turn 2, event 0", "turn 2, event 1", "and now"]
        ]
        assert [t.turn for t in await app.sessions.turns("u", "long")] == [3, 2, 1]
        assert out.events[0].timestamp > given.events[-1].timestamp
        assert (await app.sessions.get("u", "long")).state == given.state
        fork = await app.sessions.fork("u", "long", after="e-1")
        events = await app.sessions.events("u", fork.session_id)
        assert list(events) == given.events[:2]


async def test_the_export_of_a_fork_stands_alone(place: Place) -> None:
    prompts = Prompts()
    async with App("desk", root_agent=prompts.agent(), config=ON, **place) as app:
        out = await app.invoke(user_id="u", session_id="root", message="m1", state_delta={"a": 1})
        await app.invoke(user_id="u", session_id="root", message="m2")
        fork = (await app.sessions.fork("u", "root", after=out.execution_id)).session_id
        pending = await lines_of(app, "u", fork)
        assert json.loads(pending[0])["turns"] == 1
        await app.invoke(user_id="u", session_id=fork, message="aside")
        lines = await lines_of(app, "u", fork)
        events = await app.sessions.events("u", fork)
        async with App("other", config=ON, mongodb=memory_client()) as other:
            info = await other.sessions.import_(lines)
            assert (info.state, info.forked_from) == ({"a": 1}, None)
            assert await other.sessions.events("u", fork) == events


async def test_an_open_execution_is_named_and_left_out(place: Place) -> None:
    async with App("desk", root_agent=agents.payer([]), config=ON, **place) as app:
        await app.sessions.import_(long_session(1))
        out = await app.invoke(user_id="u", session_id="long", message="pay")
        header, turn = await lines_of(app, "u", "long")
        assert json.loads(header)["open"] == out.execution_id
        assert json.loads(turn)["execution_id"] == "e-1"
        await app.resume(out.execution_id, yes(*out.waits))
        assert len(await lines_of(app, "u", "long")) == 3
        with pytest.raises(NotFound):
            await lines_of(app, "u", "nobody")


async def test_an_execution_id_that_is_taken_is_not_taken_over(place: Place) -> None:
    async with App("desk", root_agent=Prompts().agent(), config=ON, **place) as app:
        out = await app.invoke(user_id="u", session_id="s", message="m")
        lines = await lines_of(app, "u", "s")
        await app.sessions.import_(lines, session_id="twin")
        (turn,) = await app.sessions.turns("u", "twin")
        assert turn.id != out.execution_id
        assert (await app.executions.get(out.execution_id)).session_id == "s"
        assert await app.sessions.events("u", "twin") == out.events
        assert turns_of(await lines_of(app, "u", "twin")) == turns_of(lines)


def invented(seed: int) -> Session:
    """Any small conversation, as a session of ADK."""
    draw = random.Random(seed)
    state: dict[str, Any] = {"begun": draw.random()}
    events: list[Event] = []
    at = START
    for turn in range(draw.randint(0, 5)):
        for number in range(draw.randint(1, 4)):
            at += draw.choice([0.0, 0.000001, 1.5])
            delta = {
                draw.choice("abc"): draw.choice([None, 1, 2.5, "é\n", [1, {"x": None}], {"$t": 1}])
                for _ in range(draw.randint(0, 2))
            }
            event = said(
                draw.choice(["", "hello", '{"a":\u2028}', "\U0001f600"]),
                turn=draw.choice([turn, turn, 0]),
                at=at,
                author="user" if number == 0 else draw.choice(["talker", "helper"]),
                state=delta,
                branch=draw.choice([None, "a.b"]),
            )
            if draw.random() < 0.3:
                event.actions.artifact_delta = {draw.choice(["f", "user:g"]): draw.randint(0, 9)}
            if draw.random() < 0.2:
                event.output = draw.choice([{"done": True}, "text", 3])
            if draw.random() < 0.2:
                event.custom_metadata = {"pair": (1, 2)}  # which no JSON brings back
            state.update(delta)
            event.id = f"{seed}-{len(events)}"
            events.append(event)
    return Session(
        id="s", app_name="old", user_id="u", state=state, events=events, last_update_time=at
    )


@pytest.mark.parametrize("seed", range(25))
async def test_any_conversation_comes_through_unchanged(seed: int) -> None:
    given = invented(seed)
    async with (
        App("one", config=ON, mongodb=memory_client()) as one,
        App("two", config=ON, mongodb=memory_client()) as two,
    ):
        info = await one.sessions.import_(given)
        assert info.state == given.state
        assert list(await one.sessions.events("u", "s")) == given.events
        newest = await one.sessions.events("u", "s", num_recent_events=3)
        assert list(newest) == given.events[-3:]
        lines = await lines_of(one, "u", "s")
        await two.sessions.import_("\n".join(lines) + "\n", user_id="v", session_id="t")
        assert (await two.sessions.get("v", "t")).state == given.state
        assert list(await two.sessions.events("v", "t")) == given.events
        assert (await lines_of(two, "v", "t"))[1:] == lines[1:]


def of_all_kinds(request: Any, _batch: int) -> Any:
    """Pays, fails, or talks, as the message says."""
    last = request.contents[-1].parts[-1]
    if last.function_response:
        return says("that was it")
    if "pay" in last.text:
        return calls(("pay", {"amount": len(last.text)}))
    return RuntimeError("no line") if "boom" in last.text else says(f"you said {last.text}")


def pay(amount: int, tool_context: Any) -> dict[str, Any]:
    """Pay somebody."""
    tool_context.state["paid"] = tool_context.state.get("paid", 0) + amount
    return {"paid": amount, "note": "x" * 100}  # above what an event refers to


@pytest.mark.parametrize("seed", range(6))
async def test_any_history_that_was_made_here_comes_through_unchanged(seed: int) -> None:
    draw = random.Random(seed)
    agent = LlmAgent(
        name="all",
        model=ScriptedModel(script=of_all_kinds),
        tools=[FunctionTool(pay, require_confirmation=True)],
    )
    config = {**ON, "retry": {"max_attempts": 1}}
    async with (
        App("one", root_agent=agent, config=config, mongodb=memory_client()) as one,
        App("two", config=ON, mongodb=memory_client()) as two,
    ):
        for turn in range(draw.randint(1, 5)):
            kind = draw.choice(["pay", "deny", "leave", "boom", "talk"])
            text = {"deny": "pay", "leave": "pay"}.get(kind, kind) + "!" * turn
            delta = {draw.choice("ab"): draw.choice([None, turn])}
            out = await one.invoke(user_id="u", session_id="s", message=text, state_delta=delta)
            if kind == "leave":
                await one.cancel(out.execution_id)
            elif out.waits:
                answer = {wait.id: {"confirmed": kind == "pay"} for wait in out.waits}
                await one.resume(out.execution_id, answer)
        lines = await lines_of(one, "u", "s")
        await two.sessions.import_(lines)
        assert await two.sessions.events("u", "s") == await one.sessions.events("u", "s")
        assert (await two.sessions.get("u", "s")).state == (await one.sessions.get("u", "s")).state
        for before, after in zip(
            await one.sessions.turns("u", "s"), await two.sessions.turns("u", "s"), strict=True
        ):
            outcome = await one.executions.outcome(before.id)
            assert await two.executions.outcome(after.id) == outcome
        assert (await lines_of(two, "u", "s"))[1:] == lines[1:]


# ---------------------------------------------------------------- what can be imported


async def test_a_source_is_lines_a_text_a_file_or_a_session(tmp_path: Path) -> None:
    given = long_session(3)
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        await app.sessions.import_(given, session_id="0")
        lines = await lines_of(app, "u", "0")
        exported, saved = tmp_path / "exported.jsonl", tmp_path / "saved.session.json"
        exported.write_text("\n".join(lines) + "\n", encoding="utf-8")
        # As ADK's command line saves it, and as its servers send it.
        saved.write_text(given.model_dump_json(indent=2, exclude_none=True), encoding="utf-8")
        sent = given.model_dump_json(by_alias=True, exclude_none=True)
        sources: list[Any] = [
            lines,
            iter(lines),
            app.sessions.export("u", "0"),
            exported,
            str(exported),
            exported.read_text("utf-8"),
            saved,
            saved.read_text("utf-8"),
            saved.read_text("utf-8").splitlines(keepends=True),
            sent,
        ]
        for number, source in enumerate(sources, 1):
            info = await app.sessions.import_(source, session_id=str(number))
            assert info.state == given.state
            assert list(await app.sessions.events("u", str(number))) == given.events


@pytest.mark.parametrize("source", [None, 7, b"{}", "", "no such file", "{}", ["{", "}"], [1], {}])
async def test_what_is_no_source_is_refused(source: Any) -> None:
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        with pytest.raises(ConfigError, match="source"):
            await app.sessions.import_(source)
        assert await app.sessions.tree("u") == ()


async def test_an_export_that_is_cut_off_or_mixed_up_is_refused() -> None:
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        await app.sessions.import_(long_session(3))
        lines = await lines_of(app, "u", "long")
        newer = lines[0].replace('"version":1', '"version":2')
        for wrong, said_of in [
            (lines[:-1], "2 of 3 turns"),
            ([*lines, lines[-1]], "4 of 3 turns"),
            ([lines[0], lines[2], lines[1], lines[3]], "line 2: cannot be turn 1: it is turn 2"),
            ([*lines[:3], lines[3][:-9]], "line 4: cannot be turn 3"),
            ([*lines[:3], lines[3].replace('"completed"', '"running"')], "status is running"),
            ([newer, *lines[1:]], "version 2"),
            ([lines[0].replace('"user_id"', '"uid"'), *lines[1:]], "line 1: .* no 'user_id'"),
            ([*lines[:3], lines[3].replace('"state"', '"st"')], "line 4: .* no 'state'"),
        ]:
            with pytest.raises(ConfigError, match=said_of):
                await app.sessions.import_(wrong, session_id="other")
        with pytest.raises(NotFound):
            await app.sessions.get("u", "other")


async def test_the_same_again_is_the_same_and_another_is_a_conflict(place: Place) -> None:
    async with App("desk", root_agent=Prompts().agent(), config=ON, **place) as app:
        first = await app.sessions.import_(long_session(3))
        assert await app.sessions.import_(long_session(3)) == first
        with pytest.raises(InputConflict, match="'long'"):
            await app.sessions.import_(long_session(4))
        out = await app.invoke(user_id="u", session_id="long", message="on", state_delta={"x": 1})
        again = await app.sessions.import_(long_session(3))
        assert again.state == {**first.state, "x": 1}
        assert (await app.sessions.turns("u", "long")).items[0].id == out.execution_id
        assert len(await app.sessions.turns("u", "long")) == 4
        await app.invoke(user_id="u", session_id="made here", message="m")
        with pytest.raises(InputConflict, match="made here"):
            await app.sessions.import_(long_session(3), session_id="made here")


@pytest.mark.parametrize("point", [("before session", 2), ("before begin", 1), ("before step", 1)])
async def test_the_same_again_is_the_same_when_the_key_of_its_import_is_gone(
    place: Place, point: tuple[str, int]
) -> None:
    """Cut off under one key, finished under the next, there under the last; never in the open."""
    old, new = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))

    def app(keys: dict[str, str], **more: Any) -> App:
        return App("desk", config={**ON, "encryption": {"keys": keys}}, **more, **place)

    async with App("first", root_agent=with_tools(Prompts()), config=ON, **place) as first:
        for message in ("keep milk", "and eggs"):
            await first.invoke(user_id="u", session_id="s", message=message)
        lines = await lines_of(first, "u", "s")
    plan = FaultPlan().fail(point[0], RuntimeError("cut off"), at=point[1])
    async with app({"k1": old}, faults=plan) as desk:
        with pytest.raises(RuntimeError, match="cut off"):
            await desk.sessions.import_(lines)
    async with app({"k2": new, "k1": old}) as desk:
        await desk.reencrypt()
        assert (await desk.reencrypt()).rewritten == 0
    async with app({"k2": new}) as desk:
        done = await desk.sessions.import_(lines)
        assert await desk.sessions.import_(lines) == done
        opened = desk._lifecycle._opened
        assert opened is not None
        doc = await opened.store._core.collection("sessions").find_one({"import.whole": True})
        own = portable_of(lines).digest()
        assert doc["import"]["own"]["key"] == "k2"
        assert own not in repr(doc)
        other = [lines[0], *(line.replace("milk", "tea") for line in lines[1:])]
        with pytest.raises(InputConflict):
            await desk.sessions.import_(other)


async def test_what_cannot_be_recorded_is_refused_by_its_path() -> None:
    session = long_session(1)
    session.events[0].actions.state_delta["callback"] = print
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        with pytest.raises(NotStorable):
            await app.sessions.import_(session)
        with pytest.raises(NotFound):
            await app.sessions.get("u", "long")


async def test_a_turn_of_20_mb_is_imported(on_server: Place) -> None:
    session = long_session(2)
    session.events[-1].content.parts[0].text = "".join(map(str, range(3_400_000)))
    async with App("desk", config=ON, **on_server) as app:
        await app.sessions.import_(session)
        assert list(await app.sessions.events("u", "long")) == session.events


# ---------------------------------------------------------------- sessions of ADK


async def test_state_that_no_event_set_was_there_from_the_beginning() -> None:
    session = Session(
        id="s",
        app_name="old",
        user_id="u",
        state={"kept": 1, "a": 2, "user:name": "Kim", "app:motto": "slow", "temp:x": 1},
        events=[
            said("q", turn=1, at=START, state={"a": 1, "temp:x": 1, "user:name": "Jo"}),
            said("q", turn=2, at=START + 1, state={"a": 2}),
        ],
        last_update_time=START + 1,
    )
    async with App("desk", root_agent=Prompts().agent(), config=ON, mongodb=memory_client()) as app:
        info = await app.sessions.import_(session)
        assert info.state == {"kept": 1, "a": 2, "user:name": "Kim", "app:motto": "slow"}
        begun = await app.sessions.fork("u", "s", before="e-1")
        middle = await app.sessions.fork("u", "s", after="e-1")
        shared = {"user:name": "Kim", "app:motto": "slow"}
        assert (await app.sessions.get("u", begun.session_id)).state == {"kept": 1, **shared}
        assert (await app.sessions.get("u", middle.session_id)).state == {
            "kept": 1,
            "a": 1,
            **shared,
        }
        first = (await app.sessions.events("u", "s"))[0]
        assert first.actions.state_delta == {"a": 1, "user:name": "Jo"}
        lines = await lines_of(app, "u", "s")
    assert "slow" not in "".join(lines)


async def test_shared_state_that_is_newer_is_kept() -> None:
    session = long_session(1)
    session.state |= {"user:name": "old", "user:more": 1, "app:motto": "old"}
    async with App("desk", root_agent=Prompts().agent(), config=ON, mongodb=memory_client()) as app:
        await app.invoke(user_id="u", session_id="s", message="m", state_delta={"user:name": "new"})
        state = (await app.sessions.import_(session)).state
        assert state["user:name"] == "new"
        assert (state["user:more"], state["app:motto"]) == (1, "old")


async def test_a_session_without_events_is_imported() -> None:
    session = Session(id="s", app_name="old", user_id="u", state={"a": 1, "user:b": 2})
    async with App("desk", root_agent=Prompts().agent(), config=ON, mongodb=memory_client()) as app:
        info = await app.sessions.import_(session)
        assert info.state == {"a": 1, "user:b": 2}
        assert (await app.invoke(user_id="u", session_id="s", message="m")).status == "completed"
        assert len(await app.sessions.turns("u", "s")) == 1


async def test_a_call_that_nobody_answered_is_closed_in_its_turn() -> None:
    session = await talk_with_adk(InMemorySessionService())
    prompts = Prompts()
    async with App(
        "desk", root_agent=with_tools(prompts), config=ON, mongodb=memory_client()
    ) as app:
        await app.sessions.import_(session)
        found = await app.sessions.events("u", "s")
        assert list(found[:-1]) == session.events
        (closing,) = found[-1].get_function_responses()
        (call,) = next(e for e in session.events if e.long_running_tool_ids).get_function_calls()
        assert (closing.id, closing.name, closing.response["status"]) == (
            call.id,
            "ticket",
            "closed",
        )
        await app.sessions.import_(session)  # the closing response is the same one again
        prompts.seen = [[], []]  # the next call is the third one's successor
        out = await app.invoke(user_id="u", session_id="s", message="and now")
        assert out.response or out.waits
        shown = prompts.seen[2]
        assert shown[:4] == [
            "keep milk",
            "call note",
            "response note: {'kept': 'milk'}",
            "noted",
        ]
        assert shown[4:6] == ["it leaks", "call ticket"]
        assert shown[6].startswith("response ticket: {'status': 'closed'")
        assert shown[7:] == ["and now"]


async def test_a_call_that_a_later_turn_answered_is_left_alone() -> None:
    def part(**fields: Any) -> types.Content:
        return types.Content(role="user", parts=[types.Part(**fields)])

    call = types.FunctionCall(id="c", name="ticket", args={})
    answer = types.FunctionResponse(id="c", name="ticket", response={"ok": True})
    session = long_session(0)
    session.events = [
        Event(invocation_id="e-1", author="user", content=part(text="q"), timestamp=START),
        Event(
            invocation_id="e-1",
            author="talker",
            content=part(function_call=call),
            long_running_tool_ids={"c"},
            timestamp=START + 1,
        ),
        Event(
            invocation_id="e-2",
            author="user",
            content=part(function_response=answer),
            timestamp=START + 2,
        ),
        said("done", turn=2, at=START + 3, author="talker"),
    ]
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        await app.sessions.import_(session)
        assert list(await app.sessions.events("u", "long")) == session.events


async def test_what_adk_rewound_stays_out_of_the_prompt() -> None:
    service = InMemorySessionService()
    runner = Runner(app_name="old", agent=Prompts().agent(note), session_service=service)
    await service.create_session(app_name="old", user_id="u", session_id="s")
    for text in ("one", "two", "three"):
        content = types.Content(role="user", parts=[types.Part(text=text)])
        async for event in runner.run_async(user_id="u", session_id="s", new_message=content):
            last = event
        if text == "two":
            await runner.rewind_async(
                user_id="u", session_id="s", rewind_before_invocation_id=last.invocation_id
            )
    session = await service.get_session(app_name="old", user_id="u", session_id="s")
    assert session is not None
    prompts = Prompts()
    async with App("desk", root_agent=prompts.agent(), config=ON, mongodb=memory_client()) as app:
        await app.sessions.import_(session)
        assert list(await app.sessions.events("u", "s")) == session.events
        await app.invoke(user_id="u", session_id="s", message="four")
        assert prompts.seen == [["one", "answer 1", "three", "answer 3", "four"]]


async def test_what_adk_compacted_is_shown_as_its_summary() -> None:
    session = long_session(3, events_per_turn=2)
    summary = Event(
        id="summary",
        invocation_id="of its own",
        author="user",
        timestamp=START + 22,
        actions=EventActions(
            compaction=EventCompaction(
                start_timestamp=START + 10,
                end_timestamp=START + 21,
                compacted_content=types.Content(role="model", parts=[types.Part(text="in short")]),
            )
        ),
    )
    session.events.insert(4, summary)
    prompts = Prompts()
    async with App("desk", root_agent=prompts.agent(), config=ON, mongodb=memory_client()) as app:
        await app.sessions.import_(session)
        assert len(await app.sessions.turns("u", "long")) == 3
        assert list(await app.sessions.events("u", "long")) == session.events
        await app.invoke(user_id="u", session_id="long", message="on")
        assert prompts.seen == [["in short", "turn 3, event 0", "turn 3, event 1", "on"]]


# ---------------------------------------------------------------- services of ADK


def database_service(folder: Path) -> BaseSessionService:
    pytest.importorskip("sqlalchemy", reason="DatabaseSessionService needs sqlalchemy")
    from google.adk.sessions import DatabaseSessionService

    return DatabaseSessionService(db_url=f"sqlite+aiosqlite:///{folder / 'sessions.db'}")


@pytest.fixture(params=["memory", "sqlite", "database", "mongodb"])
async def service(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[BaseSessionService]:
    if request.param == "memory":
        yield InMemorySessionService()
    elif request.param == "sqlite":
        yield SqliteSessionService(db_path=str(tmp_path / "sessions.db"))
    elif request.param == "database":
        made = database_service(tmp_path)
        yield made
        await made.close()  # type: ignore[attr-defined]
    else:
        from google.adk.integrations.mongodb import MongoDbSessionService
        from pymongo import MongoClient

        place = request.getfixturevalue("on_server")
        with MongoClient[Any](place["mongodb"]) as client:
            yield MongoDbSessionService(
                database_name=f"{place['database']}_adk", mongo_client=client
            )


async def test_the_sessions_of_a_service_of_adk_move_over(
    service: BaseSessionService, place: Place
) -> None:
    before = {
        (user, name): await talk_with_adk(service, user_id=user, session_id=name)
        for user, name in (("u", "s"), ("u", "t"), ("v", "s"))
    }
    await service.create_session(app_name="old", user_id="v", session_id="no~id")
    await service.create_session(app_name="another", user_id="v", session_id="not wanted")
    prompts = Prompts()
    async with App("desk", root_agent=prompts.agent(note), config=ON, **place) as app:
        mine = [
            (one.session_id, one.status)
            async for one in app.sessions.import_from(service, app_name="old", user_id="u")
        ]
        assert sorted(mine) == [("s", "imported"), ("t", "imported")]
        every = [one async for one in app.sessions.import_from(service, app_name="old")]
        found = {(one.user_id, one.session_id): one for one in every}
        assert {key: one.status for key, one in found.items()} == {
            ("u", "s"): "skipped",
            ("u", "t"): "skipped",
            ("v", "s"): "imported",
            ("v", "no~id"): "refused",
        }
        assert "no~id" in (found["v", "no~id"].reason or "")
        for (user, name), session in before.items():
            events = await app.sessions.events(user, name)
            assert list(events[:-1]) == session.events
            assert (await app.sessions.get(user, name)).state == session.state
        out = await app.invoke(user_id="u", session_id="s", message="and now")
        assert out.response == "answer 1"
        (shown,) = prompts.seen
        assert shown[:4] == ["keep milk", "call note", "response note: {'kept': 'milk'}", "noted"]
        assert shown[-1] == "and now" and len(shown) == 8


async def test_what_was_open_there_is_told_and_what_is_wrong_here_is_raised() -> None:
    service = InMemorySessionService()
    session = await service.create_session(app_name="old", user_id="u", session_id="s")
    call = types.FunctionCall(id="c1", name="refund", args={})
    asks = said("", turn=1, at=START + 1, author="talker", long_running_tool_ids={"c1"})
    asks.content = types.Content(role="model", parts=[types.Part(function_call=call)])
    for event in (said("refund", turn=1, at=START), asks):
        await service.append_event(session, event)

    async with App("desk", config=ON, mongodb=memory_client()) as app:
        (one,) = [one async for one in app.sessions.import_from(service, app_name="old")]
        assert one.status == "imported" and "nobody had answered refund" in (one.reason or "")
        with pytest.raises(ConfigError, match="got str"):
            await anext(app.sessions.import_from("old.db", app_name="old"))
    off = App("desk", config={}, mongodb=memory_client())
    with pytest.raises(DurabilityDisabled):
        await anext(off.sessions.import_from(service, app_name="old"))


async def test_a_session_that_went_on_there_is_refused_here() -> None:
    service = InMemorySessionService()
    session = await talk_with_adk(service)
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        assert [one.status async for one in app.sessions.import_from(service, app_name="old")] == [
            "imported"
        ]
        await service.append_event(session, said("more", turn=9, at=START + 1e8))
        (one,) = [one async for one in app.sessions.import_from(service, app_name="old")]
        assert one.status == "refused" and "there is one already" in (one.reason or "")


# ---------------------------------------------------------------- cut off


def points() -> list[tuple[str, int]]:
    """Where an import of three turns and shared state can be cut off."""
    writes = (Write.SESSION, Write.STEP, Write.BEGIN, Write.SCOPES, Write.SESSION)
    found: list[tuple[str, int]] = []
    for number, write in enumerate(writes):
        at = 2 if number == 4 else 1
        found += [(f"before {write.name.lower()}", at), (f"after {write.name.lower()}", at)]
    return found


def with_shared_state() -> Session:
    session = long_session(3)
    session.state["user:name"] = "Kim"
    return session


async def test_an_import_writes_at_these_points() -> None:
    plan = FaultPlan()
    async with App("desk", config=ON, mongodb=memory_client(), faults=plan) as app:
        await app.sessions.import_(with_shared_state())
    assert plan.reached == [point for point, _at in points()]


@pytest.mark.parametrize(("point", "at"), points())
async def test_a_killed_import_is_refused_and_then_finished(
    point: str, at: int, on_server: Place, tmp_path: Path
) -> None:
    given = with_shared_state()
    path = tmp_path / "saved.json"
    path.write_text(given.model_dump_json(), encoding="utf-8")
    order = {
        "uri": on_server["mongodb"],
        "database": on_server["database"],
        "path": str(path),
        "point": point,
        "at": at,
    }
    died = forks.run(lambda: asyncio.run(one_import.main()), json.dumps(order))
    assert died.returncode == 9
    prompts = Prompts()
    async with App("desk", root_agent=prompts.agent(), config=ON, **on_server) as app:
        if (point, at) == ("before session", 1):
            assert await app.sessions.tree("u") == ()
        elif (point, at) != ("after session", 2):
            for call in (
                app.invoke(user_id="u", session_id="long", message="too early"),
                app.sessions.get("u", "long"),
                app.sessions.events("u", "long"),
                app.sessions.turns("u", "long"),
                lines_of(app, "u", "long"),
            ):
                with pytest.raises(Unavailable, match="import_"):
                    await call
            assert prompts.seen == []
            assert len(await app.sessions.list(user_id="u")) == 0
            with pytest.raises(InputConflict):
                await app.sessions.import_(long_session(2))
        await app.sessions.import_(path)
        assert list(await app.sessions.events("u", "long")) == given.events
        assert (await app.sessions.get("u", "long")).state == given.state
        await app.invoke(user_id="u", session_id="long", message="and now")
        assert len(prompts.seen[0]) == 16
        assert [turn.turn for turn in await app.sessions.turns("u", "long")] == [4, 3, 2, 1]


@pytest.mark.parametrize("write", [Write.SESSION, Write.STEP, Write.BEGIN, Write.SCOPES])
async def test_a_lost_reply_changes_nothing(write: Write, place: Place) -> None:
    given = with_shared_state()
    plan = FaultPlan().lose_reply(write)
    async with App("desk", config=ON, faults=plan, **place) as app:
        await app.sessions.import_(given)
        plan.assert_all_struck()
        assert list(await app.sessions.events("u", "long")) == given.events
        assert len(await app.sessions.turns("u", "long")) == 3


async def test_a_half_imported_session_can_be_deleted_and_not_forked() -> None:
    client = memory_client()
    plan = FaultPlan().fail("before session", RuntimeError("cut off"), at=2)
    async with App("desk", config=ON, mongodb=client, faults=plan) as app:
        with pytest.raises(RuntimeError, match="cut off"):
            await app.sessions.import_(long_session(3))
        with pytest.raises(Unavailable, match="import_"):
            await app.sessions.fork("u", "long")
        await app.sessions.delete("u", "long")
        await app.sessions.import_(long_session(2))
        assert len(await app.sessions.turns("u", "long")) == 2


async def stored_in(app: App) -> list[str]:
    """The collections that hold something."""
    opened = app._lifecycle._opened
    assert opened is not None
    core = opened.store._core
    names = ("sessions", "scopes", "executions", "steps", "activities", "payloads", "artifacts")
    return [name for name in names if await core.collection(name).find_one({}) is not None]


@pytest.mark.parametrize("point", ["before begin", "before step", "before scopes"])
async def test_nothing_is_left_of_a_half_imported_session_that_is_deleted(
    point: str, place: Place
) -> None:
    given = with_shared_state()
    given.events[1].content.parts[0].text = os.urandom(4 << 20).hex()  # it is stored in chunks
    plan = FaultPlan().fail(point, RuntimeError("cut off"))
    async with App("desk", config=ON, faults=plan, **place) as app:
        with pytest.raises(RuntimeError, match="cut off"):
            await app.sessions.import_(given)
        assert {"sessions", "payloads"} <= set(await stored_in(app))
        await app.sessions.delete("u", "long")
        assert await stored_in(app) == []


async def test_two_imports_at_once_are_one(on_server: Place) -> None:

    async with (
        App("desk", config=ON, **on_server) as one,
        App("desk", config=ON, **on_server) as two,
    ):
        both = await asyncio.gather(
            *(app.sessions.import_(long_session(150)) for app in (one, two))
        )
        assert both[0] == both[1]
        assert len(await one.sessions.turns("u", "long", limit=1000)) == 150
