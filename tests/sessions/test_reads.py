"""Reads of sessions: events, turns and trees, and what they cost."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from google.adk.agents import RunConfig
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from pymongo import AsyncMongoClient

from durable_adk import App, ConfigError, NotFound
from durable_adk.app.outcome import SessionNode
from durable_adk.engine.recent import history_for
from durable_adk.model.codec import encode
from durable_adk.model.identity import session_key
from durable_adk.testing import memory_client
from tests.app import agents
from tests.app.conftest import ON
from tests.sessions.conversations import START, Prompts, long_session

Place = dict[str, Any]


@pytest.fixture(params=["memory", "mongod"])
def place(request: pytest.FixtureRequest) -> Place:
    """Where an App keeps its data: new and empty for each test."""
    if request.param == "memory":
        return {"mongodb": memory_client()}
    uri = request.getfixturevalue("replica_set_uri")
    database = request.getfixturevalue("database")
    return {"mongodb": uri, "database": f"{database}_{uuid.uuid4().hex[:8]}"}


def shape(node: SessionNode) -> Any:
    return {node.info.id: [shape(child) for child in node.children]}


# ---------------------------------------------------------------- S9


class Cost:
    """What the server looked at for what is done here: index keys and documents."""

    def __init__(self, database: Any) -> None:
        self._database = database

    async def of(self, what: Callable[[], Any]) -> int:
        await self._database.command("profile", 0)
        await self._database["system.profile"].drop()
        await self._database.command("profile", 2)
        await what()
        await self._database.command("profile", 0)
        looked_at = 0
        async for each in self._database["system.profile"].find({"op": {"$ne": "remove"}}):
            looked_at += each.get("docsExamined", 0) + each.get("keysExamined", 0)
        return looked_at


@pytest.fixture
async def cost(replica_set_uri: str, database: str) -> AsyncIterator[tuple[Cost, Place]]:
    name = f"{database}_{uuid.uuid4().hex[:8]}"
    async with AsyncMongoClient(replica_set_uri) as client:
        yield Cost(client[name]), {"mongodb": replica_set_uri, "database": name}


async def test_reads_and_turns_cost_the_same_after_10_turns_and_after_1000(
    cost: tuple[Cost, Place],
) -> None:
    measure, place = cost
    config = {**ON, "session": {"max_turns": 3}}
    async with App("desk", root_agent=agents.talker(), config=config, **place) as app:
        found: dict[str, dict[str, int]] = {}
        for turns in (10, 1000):
            name = str(turns)
            await app.sessions.import_(long_session(turns), session_id=name)
            (last,) = (await app.sessions.turns("u", name, limit=1)).items
            assert last.turn == turns
            asked: dict[str, Callable[[], Any]] = {
                "get": lambda name=name: app.sessions.get("u", name),
                "recent": lambda name=name: app.sessions.events("u", name, num_recent_events=10),
                "since": lambda name=name, turns=turns: app.sessions.events(
                    "u", name, after_timestamp=START + turns * 10 - 10
                ),
                "turns": lambda name=name: app.sessions.turns("u", name, limit=3),
                "invoke": lambda name=name: app.invoke(user_id="u", session_id=name, message="hi"),
            }
            found[name] = {what: await measure.of(call) for what, call in asked.items()}
            assert len(await app.sessions.events("u", name)) == turns * 5 + 2
        assert found["10"] == found["1000"]
        assert all(0 < looked_at <= 60 for looked_at in found["1000"].values()), found


async def test_the_measure_of_cost_sees_a_read_of_everything(cost: tuple[Cost, Place]) -> None:
    measure, place = cost
    async with App("desk", config=ON, **place) as app:
        await app.sessions.import_(long_session(40))
        assert await measure.of(lambda: app.sessions.events("u", "long")) > 80


@pytest.mark.parametrize(("count", "turns"), [(0, 1), (5, 1), (6, 2), (12, 3), (16, 4), (1000, 20)])
async def test_an_attempt_loads_the_whole_turns_that_hold_the_events_it_wants(
    count: int, turns: int
) -> None:
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        await app.sessions.import_(long_session(20))
        opened = await app.sessions._lifecycle.opened()
        key = session_key(app.sessions._lifecycle.tenant, "u", "long")
        latest = await opened.store.latest_execution(key)
        assert latest is not None
        config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=count))
        asking = _after(latest, encode({"message": {}, "run_config": config}))
        history = await history_for(opened.store, asking, max_turns=None)
        assert [turn.execution.turn for turn in history.turns] == list(range(21 - turns, 21))
        fewer = await history_for(opened.store, asking, max_turns=2)
        assert len(fewer.turns) == min(2, turns)


async def test_a_turn_loads_what_its_run_config_wants(place: Place) -> None:
    prompts = Prompts()
    async with App("desk", root_agent=prompts.agent(), config=ON, **place) as app:
        await app.sessions.import_(long_session(4, events_per_turn=2))
        config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=3))
        await app.invoke(user_id="u", session_id="long", message="on", run_config=config)
        (shown,) = prompts.seen
        assert shown == [f"turn {turn}, event {n}" for turn in (3, 4) for n in (0, 1)] + ["on"]
        assert (await app.sessions.get("u", "long")).state["from"] == "the beginning"


async def test_without_a_wish_an_attempt_loads_all_or_max_turns() -> None:
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        await app.sessions.import_(long_session(20))
        opened = await app.sessions._lifecycle.opened()
        key = session_key(app.sessions._lifecycle.tenant, "u", "long")
        latest = await opened.store.latest_execution(key)
        assert latest is not None
        asking = _after(latest, encode({"message": {}, "run_config": RunConfig()}))
        assert len((await history_for(opened.store, asking, max_turns=None)).turns) == 20
        assert len((await history_for(opened.store, asking, max_turns=4)).turns) == 4


def _after(latest: Any, given: str) -> Any:
    return replace(latest, turn=latest.turn + 1, input=given)


# ---------------------------------------------------------------- events


@pytest.mark.parametrize("count", [None, 0, 1, 4, 5, 7, 40, 1000])
@pytest.mark.parametrize("since", [None, 0.0, START + 32, START + 32.5, START + 94, START + 1000])
async def test_events_are_picked_as_adk_picks_them(count: int | None, since: float | None) -> None:
    given = long_session(9)
    service = InMemorySessionService()
    session = await service.create_session(app_name="old", user_id="u", session_id="long")
    for event in given.events:
        await service.append_event(session, event)
    wanted = GetSessionConfig(num_recent_events=count, after_timestamp=since)
    expected = await service.get_session(
        app_name="old", user_id="u", session_id="long", config=wanted
    )
    assert expected is not None
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        await app.sessions.import_(given)
        found = await app.sessions.events(
            "u", "long", num_recent_events=count, after_timestamp=since
        )
        assert list(found) == expected.events


async def test_a_datetime_says_the_same_as_its_seconds() -> None:
    async with App("desk", config=ON, mongodb=memory_client()) as app:
        await app.sessions.import_(long_session(9))
        moment = datetime.fromtimestamp(START + 72, UTC)
        found = await app.sessions.events("u", "long", after_timestamp=moment)
        assert [event.timestamp for event in found] == [
            START + at for at in (72, 73, 74, 80, 81, 82, 83, 84, 90, 91, 92, 93, 94)
        ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_recent_events": -1},
        {"num_recent_events": True},
        {"num_recent_events": "3"},
        {"after_timestamp": "yesterday"},
        {"after_timestamp": datetime(2026, 1, 1)},  # noqa: DTZ001 - that is what is wrong with it
        {"after_timestamp": float("nan")},
    ],
)
async def test_a_wish_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    app = App("desk", config=ON, mongodb="mongodb://nowhere")
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        await app.sessions.events("u", "s", **wrong)


async def test_events_of_an_open_turn_are_the_newest_ones(place: Place) -> None:
    async with App("desk", root_agent=agents.payer([]), config=ON, **place) as app:
        await app.sessions.import_(long_session(5))
        out = await app.invoke(user_id="u", session_id="long", message="pay")
        assert out.status == "suspended"
        count = len(out.events)
        assert await app.sessions.events("u", "long", num_recent_events=count) == out.events
        found = await app.sessions.events("u", "long", num_recent_events=count + 1)
        assert found[1:] == out.events and found[0].content.parts[0].text == "turn 5, event 4"
        assert (await app.sessions.get("u", "long")).state == {
            "turns": 5,
            "from": "the beginning",
        }


# ---------------------------------------------------------------- forks


@pytest.fixture
async def family(place: Place) -> AsyncIterator[tuple[App, dict[str, str], Prompts]]:
    """``root`` of three turns, ``mid`` forked after its second one with one more, ``leaf`` forked
    of ``mid`` as it stands, and ``bare`` forked of ``root`` before anything."""
    prompts = Prompts()
    async with App("desk", root_agent=prompts.agent(), config=ON, **place) as app:
        await app.sessions.create("u", "root", state={"kept": 1})
        made = []
        for number in range(1, 4):
            delta = {f"k{number}": number}
            out = await app.invoke(
                user_id="u", session_id="root", message=f"m{number}", state_delta=delta
            )
            made.append(out.execution_id)
        ids = {"root": "root"}
        ids["mid"] = (await app.sessions.fork("u", "root", after=made[1])).session_id
        await app.invoke(user_id="u", session_id=ids["mid"], message="aside")
        ids["leaf"] = (await app.sessions.fork("u", ids["mid"])).session_id
        ids["bare"] = (await app.sessions.fork("u", "root", before=made[0])).session_id
        yield app, ids, prompts


def texts(events: Any) -> list[str]:
    return [event.content.parts[0].text for event in events]


async def test_a_fork_shows_its_ancestors_turns_and_the_state_at_the_cut(
    family: tuple[App, dict[str, str], Prompts],
) -> None:
    app, ids, _prompts = family
    leaf = await app.sessions.get("u", ids["leaf"])
    assert leaf.state == {"kept": 1, "k1": 1, "k2": 2}
    assert (leaf.forked_from, leaf.base_turns) == (ids["mid"], 3)
    assert leaf.pending is not None
    found = await app.sessions.events("u", ids["leaf"])
    assert texts(found) == ["m1", "answer 1", "m2", "answer 2", "aside", "answer 4"]
    assert found[:4] == (await app.sessions.events("u", "root"))[:4]
    newest = await app.sessions.events("u", ids["leaf"], num_recent_events=3)
    assert texts(newest) == ["answer 2", "aside", "answer 4"]
    bare = await app.sessions.get("u", ids["bare"])
    assert (bare.state, bare.base_turns) == ({"kept": 1}, 0)
    assert await app.sessions.events("u", ids["bare"]) == ()
    assert (await app.sessions.get("u", "root")).forked_from is None


async def test_a_fork_awaits_its_execution_until_it_is_there(
    family: tuple[App, dict[str, str], Prompts],
) -> None:
    app, ids, _prompts = family
    before = await app.sessions.get("u", ids["leaf"])
    listed = {info.id: info.pending for info in await app.sessions.list(user_id="u")}
    assert listed[ids["leaf"]] == before.pending and listed[ids["mid"]] is None
    out = await app.invoke(user_id="u", session_id=ids["leaf"], message="on")
    assert out.execution_id == before.pending
    assert (await app.sessions.get("u", ids["leaf"])).pending is None


async def test_turns_name_the_session_they_belong_to(
    family: tuple[App, dict[str, str], Prompts],
) -> None:
    app, ids, _prompts = family
    await app.invoke(user_id="u", session_id=ids["leaf"], message="on")
    expected = [(4, ids["leaf"]), (3, ids["mid"]), (2, "root"), (1, "root")]
    for limit in (1, 2, 3, 50):
        found: list[Any] = []
        cursor = None
        while True:
            page = await app.sessions.turns("u", ids["leaf"], limit=limit, cursor=cursor)
            assert len(page) <= limit
            found += page.items
            cursor = page.cursor
            if cursor is None:
                break
        assert [(turn.turn, turn.session_id) for turn in found] == expected
    assert {turn.status for turn in found} == {"completed"}
    assert [turn.turn for turn in await app.sessions.turns("u", "root")] == [3, 2, 1]
    with pytest.raises(ConfigError, match="cursor"):
        await app.sessions.turns("u", "root", cursor="t-1")
    with pytest.raises(NotFound):
        await app.sessions.turns("u", "nobody")


async def test_a_tree_has_each_session_below_the_one_it_was_forked_from(
    family: tuple[App, dict[str, str], Prompts],
) -> None:
    app, ids, _prompts = family
    await app.sessions.create("u", "alone")
    await app.sessions.create("other", "theirs")
    root, alone = await app.sessions.tree("u")
    assert shape(root) == {"root": [{ids["mid"]: [{ids["leaf"]: []}]}, {ids["bare"]: []}]}
    assert shape(alone) == {"alone": []}
    assert [node.forked_at for node in root.walk()] == [None, 2, 3, 0]
    assert [node.info.base_turns for node in root.walk()] == [0, 2, 3, 0]
    assert await app.sessions.tree("u", ids["leaf"]) == (root,)
    with pytest.raises(NotFound):
        await app.sessions.tree("u", "theirs")
    assert root.to_dict()["children"][0]["info"]["id"] == ids["mid"]


async def test_a_fork_whose_parent_is_gone_is_a_root() -> None:
    client = memory_client()
    async with App("desk", root_agent=agents.talker(), config=ON, mongodb=client) as app:
        await app.invoke(user_id="u", session_id="root", message="m")
        fork = (await app.sessions.fork("u", "root")).session_id
        await client["durable_adk"]["durable_sessions"].delete_one({"session": "root"})
        (node,) = await app.sessions.tree("u")
        assert shape(node) == {fork: []} and node.forked_at is None


async def test_a_tree_is_read_at_once(cost: tuple[Cost, Place]) -> None:
    _measure, place = cost
    async with (
        AsyncMongoClient(place["mongodb"]) as client,
        App("desk", root_agent=agents.talker(), config=ON, **place) as app,
    ):
        database = client[place["database"]]
        reads = []
        await app.invoke(user_id="u", session_id="root", message="m")
        for _ in range(2):
            for _ in range(5):
                await app.sessions.fork("u", "root")
            await database.command("profile", 2)
            (root,) = await app.sessions.tree("u")
            await database.command("profile", 0)
            reads.append(await database["system.profile"].count_documents({"op": "query"}))
            await database["system.profile"].drop()
        assert len(root.children) == 10
        assert reads == [2, 2]  # the sessions, and which of their executions are there
