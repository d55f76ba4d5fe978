"""``app.runner.rewind_async``: a turn of a session makes a fork of it without its last turns."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from durable_adk import App, ConfigError, DurableRunner, SessionFork
from durable_adk.testing import FaultPlan
from tests.sessions.desk import desk, documents, new_documents
from tests.sessions.test_forks import Place, placed
from tests.support import forks


@pytest.fixture(params=["memory", "mongod"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with placed(request) as found:
        yield found


def rewinding(place: Place, made: list[Any], **given: Any) -> App:
    """An App whose agent can rewind: ``do rewind <invocation id>``."""

    async def rewind(value: str, tool_context: Any) -> dict[str, Any]:
        """Make a fork without the turns from this one on."""
        place.ledger.append(("rewind", value))
        where = {"user_id": tool_context.user_id, "session_id": tool_context.session.id, **asked}
        fork = await app.runner.rewind_async(**where, rewind_before_invocation_id=value)
        made.append(fork)
        return fork.to_dict()

    asked: dict[str, str] = {}
    app = place.make(desk(place.ledger, rewind), **given)
    place.app = app
    place.asked = asked  # type: ignore[attr-defined]
    return app


async def test_a_turn_rewinds_its_session_into_a_new_one(place: Place) -> None:
    made: list[SessionFork] = []
    rewinding(place, made)
    first = await place.say("s", "note colour red")
    second = await place.say("s", "note colour blue")
    before = await documents(place.database)

    third = await place.say("s", f"do rewind {second.execution_id}")

    (fork,) = made
    new = new_documents(before, await documents(place.database))
    assert new.count("durable_sessions") == 1
    assert fork.session_id != "s"
    assert await place.state(fork.session_id) == {"colour": "red"}
    assert await place.state("s") == {"colour": "blue"}
    assert third.status == "completed"
    out = await place.say(fork.session_id, "and now?")
    assert out.execution_id == fork.execution_id
    told = await place.app.sessions.events("u", fork.session_id)
    assert {e.invocation_id for e in told} == {first.execution_id, fork.execution_id}


async def test_each_replay_of_the_turn_has_the_same_fork(place: Place) -> None:
    made: list[SessionFork] = []
    rewinding(place, made)
    await place.say("s", "one")
    second = await place.say("s", "two")
    plan = FaultPlan()
    for point in ("after session", "ran step:rewind_async", "before end"):
        plan.fail(point, ConnectionError("cut off"))
    app = rewinding(place, made, faults=plan)

    third = await place.say("s", f"do rewind {second.execution_id}")
    while third.status == "queued":
        await app.retry(third.execution_id)
        (third,) = await app.recover()

    assert third.status == "completed"
    plan.assert_all_struck()
    assert len({fork.session_id for fork in made}) == 1
    assert len({fork.execution_id for fork in made}) == 1
    assert await place.database["durable_sessions"].count_documents({}) == 2


@pytest.mark.parametrize("case", ["first", "event", "other session", "other user", "unknown"])
async def test_what_cannot_be_rewound_says_why(place: Place, case: str) -> None:
    made: list[SessionFork] = []
    rewinding(place, made)
    first = await place.say("s", "one")
    second = await place.say("s", "two")
    other = await place.say("t", "three")
    asked = place.asked  # type: ignore[attr-defined]
    target, text = {
        "first": (first.execution_id, "is the first turn"),
        "event": (second.events[0].id, "is the id of an event"),
        "other session": (other.execution_id, "is a turn of another session"),
        "other user": (second.execution_id, "is not the one of this invocation"),
        "unknown": ("nowhere", "is no turn of session 's'"),
    }[case]
    if case == "other user":
        asked["user_id"] = "v"

    out = await place.say("s", f"do rewind {target}")

    assert out.status == "failed"
    assert text in out.error.message
    assert made == []
    assert await place.database["durable_sessions"].count_documents({}) == 2


async def test_a_turn_of_an_ancestor_is_rewound_by_the_ancestor_only(place: Place) -> None:
    made: list[SessionFork] = []
    rewinding(place, made)
    await place.say("s", "one")
    second = await place.say("s", "two")
    fork = await place.app.sessions.fork("u", "s")

    out = await place.say(fork.session_id, f"do rewind {second.execution_id}")

    assert out.status == "failed"
    assert "is a turn of its ancestor 's'" in out.error.message
    own = await place.say(fork.session_id, "four")
    assert (await place.say(fork.session_id, f"do rewind {own.execution_id}")).status == "completed"
    assert len(made) == 1


async def test_a_turn_of_a_fork_made_inside_one_is_rewound_by_its_invocation(
    place: Place,
) -> None:
    made: list[SessionFork] = []
    rewinding(place, made)
    await place.say("s", "one")
    waiting = await place.say("s", "pay 5")
    fork = await place.app.sessions.fork("u", "s", before=waiting.waits[0].id)
    await place.answer(await place.outcome(fork), {"confirmed": False})

    out = await place.say(fork.session_id, f"do rewind {waiting.execution_id}")

    assert out.status == "completed", out.error
    assert len(await place.events(made[0].session_id)) == 2


async def test_outside_a_durable_invocation_it_is_refused(place: Place) -> None:
    first = await place.say("s", "one")

    with pytest.raises(ConfigError, match="outside a durable invocation"):
        await place.app.runner.rewind_async(
            user_id="u", session_id="s", rewind_before_invocation_id=first.execution_id
        )


async def test_the_runner_rewinds_too(place: Place) -> None:
    made: list[SessionFork] = []

    async def rewind(value: str) -> str:
        """Rewind."""
        where = {"user_id": "u", "session_id": "s"}
        made.append(await runner.rewind_async(**where, rewind_before_invocation_id=value))
        return made[0].session_id

    runner = DurableRunner(
        agent=desk(place.ledger, rewind),
        app_name="runs",
        mongodb=place.client,
        database=place.name,
    )
    ids = []
    for text in ("one", "two"):
        async for event in runner.run_async(user_id="u", session_id="s", new_message=_text(text)):
            ids.append(event.invocation_id)
    async for _ in runner.run_async(
        user_id="u", session_id="s", new_message=_text(f"do rewind {ids[-1]}")
    ):
        pass

    async for event in runner.run_async(
        user_id="u", session_id=made[0].session_id, new_message=_text("three")
    ):
        last = event
    assert last.invocation_id == made[0].execution_id
    assert last.content.parts[0].text == "heard one | heard one | three"
    await runner.close()


def _text(text: str) -> Any:
    from google.genai import types

    return types.Content(role="user", parts=[types.Part(text=text)])


async def _live(uri: str, database: str, message: str, point: str) -> None:
    place = Place(AsyncMongoClient(uri), database)
    made: list[Any] = []
    app = rewinding(place, made, faults=FaultPlan().kill(point, sigkill=True) if point else None)
    if message:
        await place.say("s", message, execution_id="third")
    else:
        for out in await app.recover():
            parts = [part for event in out.events for part in event.content.parts]
            told = [part.function_response for part in parts if part.function_response]
            print(out.status, *(response.response["session_id"] for response in told))
    await app.close()


@pytest.mark.parametrize("point", ["after session", "ran step:rewind_async", "before end"])
async def test_a_process_killed_in_the_turn_leaves_one_fork(
    replica_set_uri: str, database: str, point: str
) -> None:
    name = f"{database}_{uuid.uuid4().hex[:8]}"
    client: Any = AsyncMongoClient(replica_set_uri)
    place = Place(client, name)
    await place.say("s", "one")
    second = await place.say("s", "two")
    message = f"do rewind {second.execution_id}"

    killed = _life(replica_set_uri, name, message, point)
    assert killed.returncode == -9, killed.stderr
    await client[name]["durable_executions"].update_many(  # its lease has run out
        {"active": True}, {"$set": {"wake_at": 0}}
    )
    recovered = _life(replica_set_uri, name, "", "")

    assert recovered.returncode == 0, recovered.stderr
    status, session = recovered.stdout.split()
    assert status == "completed"
    forks = [s async for s in client[name]["durable_sessions"].find({"cut": {"$exists": True}})]
    assert [each["session"] for each in forks] == [session]
    await place.app.close()
    await client.drop_database(name)
    await client.close()


def _life(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forks.run(lambda: asyncio.run(_live(*arguments)))
