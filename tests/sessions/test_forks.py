"""``app.sessions.fork``: where it cuts, what it keeps, and that the source does not notice."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.artifacts import InMemoryArtifactService
from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionResult
from google.adk.events import RequestInput
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, Workflow
from google.genai import types
from pymongo import AsyncMongoClient

from durable_adk import (
    App,
    ConfigError,
    InputConflict,
    NotFound,
    SessionBusy,
    WaitClosed,
    current_activity_id,
    durable_tool,
    step,
)
from durable_adk.adk.recorded import uuid4
from durable_adk.model.identity import session_key
from durable_adk.testing import (
    FaultPlan,
    ManualClock,
    ScriptedModel,
    calls,
    memory_client,
    says,
)
from tests.sessions.desk import Ledger, desk, documents, new_documents, shown

ON: dict[str, Any] = {
    "features": {"durable_workflow": True},
    "retry": {"backoff": "10ms", "backoff_max": "20ms"},
    "shutdown": {"grace": 0},
}
YES = {"confirmed": True}
NO = {"confirmed": False}


class Place:
    """An App with its database, and the ledger of its tools."""

    def __init__(self, client: Any, database: str) -> None:
        self.client, self.name = client, database
        self.database = client[database]
        self.ledger: Ledger = []
        self.apps: list[App] = []
        self.app = self.make()

    def make(self, root: Any = None, **given: Any) -> App:
        given = {"config": ON, "mongodb": self.client, "database": self.name, **given}
        self.apps.append(App("forks", root_agent=root or desk(self.ledger), **given))
        return self.apps[-1]

    async def say(self, session_id: str, message: str, **given: Any) -> Any:
        return await self.app.invoke(user_id="u", session_id=session_id, message=message, **given)

    async def answer(self, outcome: Any, *values: Any) -> Any:
        waits = [wait.id for wait in outcome.waits]
        return await self.app.resume(outcome.execution_id, dict(zip(waits, values, strict=True)))

    async def events(self, session_id: str) -> list[dict[str, Any]]:
        return shown(await self.app.sessions.events("u", session_id))

    async def state(self, session_id: str) -> Any:
        return (await self.app.sessions.get("u", session_id)).state

    async def outcome(self, fork: Any) -> Any:
        return await self.app.executions.outcome(fork.execution_id)


class ByRunner(Place):
    """The same, told and answered through ``app.runner``."""

    async def say(self, session_id: str, message: str, **given: Any) -> Any:
        content = types.Content(role="user", parts=[types.Part(text=message)])
        where = {"user_id": "u", "session_id": session_id}
        invocation_id = given.get("execution_id")
        async for event in self.app.runner.run_async(
            **where, new_message=content, invocation_id=invocation_id
        ):
            invocation_id = event.invocation_id
        return await self.app.executions.outcome(invocation_id)

    async def answer(self, outcome: Any, *values: Any) -> Any:
        parts = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=wait.id, name="adk_request_confirmation", response=value
                )
            )
            for wait, value in zip(outcome.waits, values, strict=True)
        ]
        async for _ in self.app.runner.run_async(
            user_id="u",
            session_id=outcome.session_id,
            new_message=types.Content(role="user", parts=parts),
        ):
            pass
        return await self.app.executions.outcome(outcome.execution_id)


@contextlib.asynccontextmanager
async def placed(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place of the kind that a fixture's parameter names; it is cleared at the end."""
    if request.param == "mongod":
        client: Any = AsyncMongoClient(request.getfixturevalue("replica_set_uri"))
        found = Place(client, f"{request.getfixturevalue('database')}_{uuid.uuid4().hex[:8]}")
    else:
        client = memory_client()
        found = (ByRunner if request.param == "runner" else Place)(client, "forks")
    yield found
    for app in found.apps:
        await app.close()
    if request.param == "mongod":
        await client.drop_database(found.name)
        await client.close()


@pytest.fixture(params=["memory", "mongod", "runner"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    async with placed(request) as found:
        yield found


# ---------------------------------------------------------------- whole turns (S4)


async def test_a_fork_before_a_turn_has_the_events_and_the_state_at_the_cut(place: Place) -> None:
    await place.app.sessions.create("u", "s", {"lang": "de", "mood": "good"})
    await place.say("s", "note mood fine")
    second = await place.say("s", "note colour red")

    fork = await place.app.sessions.fork("u", "s", before=second.execution_id)

    assert await place.state(fork.session_id) == {"lang": "de", "mood": "fine"}
    both = await place.app.sessions.events("u", "s")
    assert await place.app.sessions.events("u", fork.session_id) == both[:4]
    newest = await place.app.sessions.events("u", fork.session_id, num_recent_events=2)
    assert newest == both[2:4]
    assert await place.state("s") == {"lang": "de", "mood": "fine", "colour": "red"}


async def test_the_first_message_to_a_fork_is_its_pending_execution(place: Place) -> None:
    await place.say("s", "one")
    second = await place.say("s", "two")
    fork = await place.app.sessions.fork("u", "s", before=second.execution_id)
    pending = await place.app.executions.get(fork.execution_id)

    assert (pending.status, pending.turn) == ("pending", 2)
    with pytest.raises(InputConflict, match=fork.execution_id):
        await place.say(fork.session_id, "three", execution_id="another")
    out = await place.say(fork.session_id, "three")

    assert (out.execution_id, out.session_id) == (fork.execution_id, fork.session_id)
    assert out.response == "heard one | heard one | three"
    assert (await place.app.executions.get(fork.execution_id)).status == "completed"
    again = await place.say(fork.session_id, "three", execution_id=fork.execution_id)
    assert again.events == out.events
    following = await place.say(fork.session_id, "four")
    assert following.execution_id != fork.execution_id
    assert "four" in (following.response or "")


async def test_a_pending_execution_says_what_starts_it(place: Place) -> None:
    await place.say("s", "one")
    fork = await place.app.sessions.fork("u", "s")

    for ask in (place.app.resume, place.app.cancel, place.app.executions.outcome):
        with pytest.raises(NotFound, match=f"next message to session '{fork.session_id}'"):
            await ask(fork.execution_id)


async def test_a_turn_of_a_fork_made_inside_one_is_known_by_its_invocation_too(
    place: Place,
) -> None:
    await place.say("s", "one")
    waiting = await place.say("s", "pay 5")
    fork = await place.app.sessions.fork("u", "s", before=waiting.waits[0].id)
    await place.answer(await place.outcome(fork), NO)
    last = (await place.app.sessions.events("u", fork.session_id))[-1]
    assert last.invocation_id == waiting.execution_id

    nested = await place.app.sessions.fork("u", fork.session_id, before=last.invocation_id)

    assert len(await place.events(nested.session_id)) == 2


async def test_two_messages_at_once_to_a_fork_are_two_turns_or_one_is_refused(
    place: Place,
) -> None:
    await place.say("s", "one")
    fork = await place.app.sessions.fork("u", "s")

    outs = await asyncio.gather(
        place.say(fork.session_id, "left"),
        place.say(fork.session_id, "right"),
        return_exceptions=True,
    )

    ran = [out for out in outs if not isinstance(out, BaseException)]
    refused = [out for out in outs if isinstance(out, BaseException)]
    assert all(isinstance(error, SessionBusy) for error in refused), refused
    assert fork.execution_id in {out.execution_id for out in ran}
    assert len({out.execution_id for out in ran}) == len(ran)


async def test_a_fork_is_one_document_and_the_source_does_not_change(place: Place) -> None:
    for number in range(3):
        out = await place.say("s", f"note k{number} v")
    before = await documents(place.database)

    await place.app.sessions.fork("u", "s", before=out.execution_id)

    added = new_documents(before, await documents(place.database))
    assert added == ["durable_sessions"]


async def test_forks_of_forks_share_the_turns_of_all_their_ancestors(place: Place) -> None:
    for text in ("a1", "a2", "a3"):
        last = await place.say("a", text)
    b = await place.app.sessions.fork("u", "a", before=last.execution_id)
    b1 = await place.say(b.session_id, "b1")
    b2 = await place.say(b.session_id, "b2")
    c = await place.app.sessions.fork("u", b.session_id, after=b1.execution_id)
    out = await place.say(c.session_id, "c1")

    told = [e for e in await place.app.sessions.events("u", c.session_id) if e.author == "user"]
    assert [e.content.parts[0].text for e in told] == ["a1", "a2", "b1", "c1"]
    assert all(text in out.response for text in ("a1", "a2", "b1", "c1"))
    assert not any(text in out.response for text in ("a3", "b2"))
    with pytest.raises(ConfigError, match="Fork session 'a'"):
        await place.app.sessions.fork("u", c.session_id, before=last.execution_id)
    with pytest.raises(NotFound, match="no turn of session"):
        await place.app.sessions.fork("u", "a", before=b2.execution_id)
    turns = [e.invocation_id for e in await place.app.sessions.events("u", c.session_id)]
    assert b2.execution_id not in turns
    assert turns[-1] == c.execution_id


async def test_a_fork_before_the_first_turn_has_the_initial_state_only(place: Place) -> None:
    await place.app.sessions.create("u", "s", {"lang": "de"})
    first = await place.say("s", "note lang fr")
    fork = await place.app.sessions.fork("u", "s", before=first.execution_id)

    assert await place.state(fork.session_id) == {"lang": "de"}
    assert await place.events(fork.session_id) == []
    out = await place.say(fork.session_id, "hello")
    assert out.response == "heard hello"


async def test_a_session_that_waits_is_forked_at_its_finished_turns(place: Place) -> None:
    await place.say("s", "one")
    waiting = await place.say("s", "pay 5")
    fork = await place.app.sessions.fork("u", "s")

    assert len(await place.events(fork.session_id)) == 2
    with pytest.raises(ConfigError, match="is suspended"):
        await place.app.sessions.fork("u", "s", after=waiting.execution_id)
    assert (await place.say(fork.session_id, "two")).status == "completed"
    assert (await place.answer(waiting, YES)).status == "completed"


# ---------------------------------------------------------------- frontiers (S5, S6)


async def test_a_fork_before_the_answers_asks_again_and_one_after_them_keeps_them(
    place: Place,
) -> None:
    waiting = await place.say("s", "pay 5 6")
    source = await place.answer(waiting, YES, NO)
    recorded = await place.app.executions.activities(source.execution_id)
    everything = await documents(place.database)

    asks = await place.app.sessions.fork("u", "s", before=waiting.waits[1].id)
    keeps = await place.app.sessions.fork("u", "s", after=waiting.waits[0].id)

    added = new_documents(everything, await documents(place.database))
    assert added == ["durable_executions"] * 2 + ["durable_sessions"] * 2
    again = await place.outcome(asks)
    assert again.status == "suspended"
    assert [w.tool_call.args for w in again.waits] == [{"cents": 5}, {"cents": 6}]
    assert [w.id.split("~")[0] for w in again.waits] == [asks.execution_id] * 2
    assert [w.id.split("~")[1] for w in again.waits] == [w.id.split("~")[1] for w in waiting.waits]
    assert {event.invocation_id for event in again.events} == {source.execution_id}
    refused = await place.answer(again, NO, NO)
    assert {event.invocation_id for event in refused.events} == {source.execution_id}
    assert "{'paid'" not in (refused.response or "")
    kept = await place.app.resume(keeps.execution_id)
    assert kept.response == source.response
    assert [row[:2] for row in place.ledger] == [("pay", 5), ("pay", 5)]
    keys = [row[2] for row in place.ledger]
    assert keys[0].startswith(source.execution_id)
    assert keys[1].startswith(keeps.execution_id)
    model = recorded[0]
    for out in (refused, kept):
        found = await place.app.executions.activities(out.execution_id)
        assert found[0] == model
    assert await place.app.executions.activities(source.execution_id) == recorded


async def test_a_waiting_execution_is_forked_and_both_are_answered_differently(
    place: Place,
) -> None:
    waiting = await place.say("s", "pay 5")
    fork = await place.app.sessions.fork("u", "s", before=waiting.waits[0].id)
    with pytest.raises(ConfigError, match="not every wait of its frontier is answered"):
        await place.app.sessions.fork("u", "s", after=waiting.waits[0].id)
    asked = await place.outcome(fork)

    no = await place.answer(asked, NO)
    yes = await place.answer(waiting, YES)

    assert [row[:2] for row in place.ledger] == [("pay", 5)]
    assert await place.state("s") == {"paid": 5}
    assert await place.state(fork.session_id) == {}
    assert no.execution_id != yes.execution_id
    with pytest.raises(SessionBusy, match="is suspended"):
        busy = await place.app.sessions.fork("u", "s", before=waiting.waits[0].id)
        await place.say(busy.session_id, "and now?")


async def test_answers_after_a_cancel_are_stale_in_the_source_and_count_in_the_fork(
    place: Place,
) -> None:
    waiting = await place.say("s", "pay 5")
    fork = await place.app.sessions.fork("u", "s", before=waiting.waits[0].id)
    await place.app.cancel(waiting.execution_id, "changed my mind")

    with pytest.raises(WaitClosed, match="changed my mind"):
        await place.answer(waiting, YES)
    out = await place.answer(await place.outcome(fork), YES)

    assert out.status == "completed"
    assert len(place.ledger) == 1


def gates(ledger: Ledger) -> LlmAgent:
    """Asks twice, one after the other."""

    def gate(value: str) -> str:
        """Do something behind a confirmation."""
        ledger.append(("gate", value))
        return value

    script = [
        calls(("gate", {"value": "first"})),
        calls(("gate", {"value": "second"})),
        says("both"),
    ]
    return LlmAgent(
        name="gates",
        model=ScriptedModel(script=script),
        tools=[FunctionTool(gate, require_confirmation=True)],
    )


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_fork_stands_on_its_own_answers_and_not_on_those_of_the_source(
    place: Place, mode: str
) -> None:
    place.app = place.make(gates(place.ledger), config={**ON, "replay": {"mode": mode}})
    one = await place.say("s", "go")
    await place.answer(await place.answer(one, YES), YES)
    other = await place.say("t", "go")
    straight = await place.answer(await place.answer(other, NO), YES)
    place.ledger.clear()

    fork = await place.app.sessions.fork("u", "s", before=one.waits[0].id)
    again = await place.answer(await place.outcome(fork), NO)
    nested = await place.app.sessions.fork("u", fork.session_id, before=again.waits[0].id)
    for asked in (again, await place.outcome(nested)):
        done = await place.answer(asked, YES)
        assert shown(done.events) == shown(straight.events)
        answered = await place.app.executions.activities(done.execution_id)
        assert [a.status for a in answered if a.kind == "wait"] == ["denied", "completed"]
    assert place.ledger == [("gate", "second"), ("gate", "second")]
    next_turn = await place.say(fork.session_id, "and again")
    assert next_turn.status == "suspended" or next_turn.response == "both"


async def test_an_execution_with_two_frontiers_is_cut_at_each(place: Place) -> None:
    app = place.app = place.make(gates(place.ledger))
    one = await place.say("s", "go")
    two = await place.answer(one, YES)
    end = await place.answer(two, YES)
    assert end.response == "both"

    first = await app.sessions.fork("u", "s", before=one.waits[0].id)
    second = await app.sessions.fork("u", "s", before=two.waits[0].id)
    kept = await app.sessions.fork("u", "s", after=two.waits[0].id)

    again = await place.answer(await place.outcome(first), YES)
    assert again.status == "suspended"
    nested = await app.sessions.fork("u", first.session_id, before=again.waits[0].id)
    for asked in (again, await place.outcome(second), await place.outcome(nested)):
        done = await place.answer(asked, YES)
        assert done.response == "both"
        assert shown(done.events) == shown(end.events)
    assert shown((await app.resume(kept.execution_id)).events) == shown(end.events)
    assert [row[1] for row in place.ledger].count("first") == 2
    assert [row[1] for row in place.ledger].count("second") == 5


# ---------------------------------------------------------------- records


async def test_a_fork_at_any_record_ends_as_the_source_did(place: Place) -> None:
    """Kept are exactly the records up to the cut; what follows runs, under ids of its own."""
    waiting = await place.say("s", "pay 5 6")
    source = await place.answer(waiting, YES, YES)
    for mode in ("restore", "walk"):
        app = place.app = place.make(config={**ON, "replay": {"mode": mode}})
        for activity in await app.executions.activities(source.execution_id):
            if activity.kind == "wait":
                continue
            for side in ("before", "after"):
                fork = await app.sessions.fork("u", "s", **{side: activity.id})
                out = await app.resume(fork.execution_id) if False else None
                await app.recover()
                out = await place.outcome(fork)
                if out.status == "suspended":
                    out = await place.answer(out, YES, YES)
                assert out.status == "completed", (mode, side, activity)
                assert shown(out.events) == shown(source.events)
                kept = [
                    a.id
                    for a in await app.executions.activities(fork.execution_id)
                    if a.id.startswith(source.execution_id)
                ]
                assert (activity.id in kept) == (side == "after")
    assert await place.state("s") == {"paid": 11}


async def test_a_failure_that_was_tried_again_is_not_what_a_fork_keeps(place: Place) -> None:
    def flaky(value: str) -> str:
        """Fail once."""
        place.ledger.append(value)
        if len(place.ledger) == 1:
            raise ConnectionError("not now")
        return "done"

    app = place.app = place.make(desk(place.ledger, flaky))
    out = await app.invoke(user_id="u", session_id="s", message="do flaky x")
    assert out.status == "queued"
    await app.retry(out.execution_id)
    (out,) = await app.recover()
    model, tool, _end = await app.executions.activities(out.execution_id)
    assert place.ledger == ["x", "x"]

    kept = await app.sessions.fork("u", "s", after=tool.id)
    again = await app.sessions.fork("u", "s", after=model.id)
    done = {each.session_id: each for each in await app.recover()}

    assert [done[f.session_id].response for f in (kept, again)] == [out.response] * 2
    assert place.ledger == ["x", "x", "x"]


async def test_what_a_kept_part_drew_is_drawn_again_and_what_follows_is_new(
    place: Place,
) -> None:
    drawn: list[tuple[str, str]] = []

    async def order(value: str) -> str:
        """Order something under a number of one's own."""
        from durable_adk import step

        first = str(uuid4())
        await step("reserve", drawn.append, ("reserve", first))
        await step("charge", drawn.append, ("charge", str(uuid4())))
        return first

    place.app = place.make(desk(place.ledger, order))
    source = await place.say("s", "do order x")
    steps = [
        a for a in await place.app.executions.activities(source.execution_id) if a.kind == "step"
    ]
    assert [a.name for a in steps] == ["reserve", "charge"]

    fork = await place.app.sessions.fork("u", "s", after=steps[0].id)
    await place.app.recover()
    out = await place.outcome(fork)

    assert out.status == "completed", out.error
    assert [what for what, _number in drawn] == ["reserve", "charge", "charge"]
    assert drawn[1][1] != drawn[2][1]


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_nodes_that_had_finished_are_not_run_in_a_fork(place: Place, mode: str) -> None:
    def charge() -> str:
        """Charge a card."""
        place.ledger.append("charge")
        return "charged"

    def ask() -> Any:
        return RequestInput(interrupt_id="q", message="ship it?")

    def ship(node_input: Any) -> str:
        """Ship it, or not."""
        place.ledger.append(("ship", node_input))
        return f"shipped: {node_input}"

    flow = Workflow(name="flow", edges=[(START, charge, ask, ship)])
    place.app = place.make(flow, config={**ON, "replay": {"mode": mode}})
    asked = await place.app.invoke(user_id="u", session_id="s", message="go")
    (wait,) = asked.waits
    await place.app.resume(asked.execution_id, {wait.id: "yes"})

    fork = await place.app.sessions.fork("u", "s", before=wait.id)
    (again,) = (await place.outcome(fork)).waits
    out = await place.app.resume(fork.execution_id, {again.id: "no"})

    assert (out.status, out.output) == ("completed", "shipped: no")
    assert place.ledger == ["charge", ("ship", "yes"), ("ship", "no")]


async def test_a_tool_that_was_entered_after_the_cut_is_not_in_doubt_in_the_fork(
    place: Place,
) -> None:
    @durable_tool(on_unknown_outcome="fail")
    def transfer(value: str) -> str:
        """Move money, never twice."""
        place.ledger.append((value, current_activity_id()))
        return "moved"

    dying = place.make(
        desk(place.ledger, transfer), faults=FaultPlan().fail("ran tool:transfer", _Died())
    )
    with pytest.raises(_Died):
        await dying.invoke(user_id="u", session_id="s", message="do transfer x", execution_id="e")
    place.app = place.make(desk(place.ledger, transfer))
    model, tool = await place.app.executions.activities("e")
    assert tool.status == "running"  # as far as anybody can tell

    fork = await place.app.sessions.fork("u", "s", after=model.id)
    (out,) = await place.app.recover()
    assert out.execution_id == fork.execution_id

    assert out.status == "completed", out.error
    assert [key.split("~")[0] for _value, key in place.ledger] == ["e", fork.execution_id]


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_what_was_drawn_above_a_body_that_was_kept_in_part_is_the_same_on_each_attempt(
    place: Place, mode: str
) -> None:
    async def pay_twice(value: str, key: str = "") -> str:
        """Pay in two parts."""
        await step("reserve", place.ledger.append, "reserve")
        await step("charge", place.ledger.append, "charge")
        return value

    def give_key(tool: Any, args: dict[str, Any], tool_context: Any) -> None:
        args["key"] = str(uuid4())

    def agent() -> LlmAgent:
        made = desk(place.ledger, pay_twice)
        made.before_tool_callback = give_key
        return made

    config = {**ON, "replay": {"mode": mode}}
    place.app = place.make(agent(), config=config)
    source = await place.say("s", "do pay_twice x")
    reserve = (await place.app.executions.activities(source.execution_id))[1]
    assert reserve.name == "reserve"
    fork = await place.app.sessions.fork("u", "s", after=reserve.id)
    dying = place.make(
        agent(), config=config, faults=FaultPlan().fail("before end", ConnectionError())
    )

    (cut_off,) = await dying.recover()
    assert cut_off.status == "queued"
    await place.app.retry(fork.execution_id)
    (out,) = await place.app.recover()

    assert (out.status, out.response) == ("completed", source.response), out.error
    assert place.ledger == ["reserve", "charge", "charge"]


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_code_that_ran_is_kept_although_its_executor_was_told_the_session(
    place: Place, mode: str
) -> None:
    class Sandbox(BaseCodeExecutor):
        stateful: bool = True

        def execute_code(self, invocation_context: Any, code_execution_input: Any) -> Any:
            place.ledger.append(code_execution_input.execution_id)
            return CodeExecutionResult(stdout="4")

    def reply(request: Any, _batch: int) -> Any:
        told = str([part for content in request.contents for part in content.parts or ()])
        return says("done") if "stdout" in told or "4" in told else says("```python\nprint(4)\n```")

    agent = LlmAgent(name="coder", model=ScriptedModel(script=reply), code_executor=Sandbox())
    place.app = place.make(
        agent, config={**ON, "replay": {"mode": mode}}, artifact_service=InMemoryArtifactService()
    )
    source = await place.app.invoke(user_id="u", session_id="s", message="go")
    (code,) = [
        a for a in await place.app.executions.activities(source.execution_id) if a.kind == "tool"
    ]

    await place.app.sessions.fork("u", "s", after=code.id)
    (out,) = await place.app.recover()

    assert (out.status, out.response) == ("completed", "done"), out.error
    assert len(place.ledger) == 1


# ---------------------------------------------------------------- idempotence and faults


async def test_the_id_of_a_pending_execution_belongs_to_its_session(place: Place) -> None:
    await place.say("s", "one")
    fork = await place.app.sessions.fork("u", "s")

    for where in ({"session_id": "elsewhere"}, {}):
        with pytest.raises(InputConflict, match=fork.session_id):
            await place.app.invoke(
                user_id="u", message="hi", execution_id=fork.execution_id, **where
            )
    with pytest.raises(InputConflict, match=fork.session_id):
        await place.app.submit(user_id="u", message="hi", execution_id=fork.execution_id)
    assert (await place.say(fork.session_id, "hi")).status == "completed"


async def test_a_late_call_with_the_same_key_takes_nothing_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.say("s", "one")
    fork = await place.app.sessions.fork("u", "s", idempotency_key="k")
    out = await place.say(fork.session_id, "two")
    opened = await place.app._lifecycle.opened()
    store, get, create = opened.store, opened.store.get_session, opened.store.create_session
    source = session_key(place.app._lifecycle.tenant, "u", "s")

    async def not_there_yet(key: Any) -> Any:
        if key == source:
            return await get(key)
        monkeypatch.setattr(store, "get_session", get)
        return None

    async def too_late(record: Any) -> Any:
        await store.mark_going(source)
        return await create(record)

    monkeypatch.setattr(store, "get_session", not_there_yet)
    monkeypatch.setattr(store, "create_session", too_late)
    again = await place.app.sessions.fork("u", "s", idempotency_key="k")

    assert again == fork
    assert (await place.app.executions.get(out.execution_id)).status == "completed"


async def test_what_a_fork_asks_does_not_depend_on_what_becomes_of_the_source(
    place: Place,
) -> None:
    waiting = await place.say("s", "pay 5")
    dying = place.make(faults=FaultPlan().fail("before begin", _Died()))
    with pytest.raises(_Died):
        await dying.sessions.fork("u", "s", before=waiting.waits[0].id)
    await place.app.cancel(waiting.execution_id)
    made = await place.database["durable_sessions"].find_one({"next": {"$exists": True}})

    asked = await place.app.executions.outcome(made["next"]["execution_id"])

    assert [wait.tool_call.args for wait in asked.waits] == [{"cents": 5}]
    assert (await place.answer(asked, YES)).status == "completed"


async def test_the_same_key_makes_the_same_fork_once(place: Place) -> None:
    first = await place.say("s", "one")
    await place.say("s", "two")

    forks = await asyncio.gather(
        *(
            place.app.sessions.fork("u", "s", after=first.execution_id, idempotency_key="k")
            for _ in range(5)
        )
    )

    assert len(set(forks)) == 1
    assert await place.database["durable_sessions"].count_documents({}) == 2
    other = await place.app.sessions.fork(
        "u", "s", after=first.execution_id, idempotency_key="other"
    )
    assert other != forks[0]
    with pytest.raises(InputConflict, match="no fork at this cut"):
        await place.app.sessions.fork("u", "s", idempotency_key="k")


@pytest.mark.parametrize("point", ["before session", "after session", "before begin"])
async def test_a_fork_that_was_cut_off_is_finished_by_the_next_call(
    place: Place, point: str
) -> None:
    waiting = await place.say("s", "pay 5")
    plan = FaultPlan().fail(point, _Died())
    dying = place.make(faults=plan)
    given = {"before": waiting.waits[0].id, "idempotency_key": "k"}
    with pytest.raises(_Died):
        await dying.sessions.fork("u", "s", **given)
    plan.assert_all_struck()

    fork = await place.app.sessions.fork("u", "s", **given)

    out = await place.answer(await place.outcome(fork), YES)
    assert out.status == "completed"
    assert await place.database["durable_sessions"].count_documents({}) == 2


async def test_the_execution_of_a_fork_is_made_by_whoever_touches_it_first(place: Place) -> None:
    waiting = await place.say("s", "pay 5")
    dying = place.make(faults=FaultPlan().fail("before begin", _Died()))
    with pytest.raises(_Died):
        await dying.sessions.fork("u", "s", before=waiting.waits[0].id)
    made = await place.database["durable_sessions"].find_one({"next": {"$exists": True}})

    with pytest.raises(SessionBusy, match="is suspended") as refused:
        await place.say(made["session"], "hello?")

    assert refused.value.execution_id == made["next"]["execution_id"]
    out = await place.app.executions.outcome(made["next"]["execution_id"])
    assert (await place.answer(out, YES)).status == "completed"


class _Died(BaseException):
    """The process is gone, as far as the code after it can tell."""


async def test_a_source_that_is_deleted_meanwhile_leaves_no_fork(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.say("s", "one")
    store = (await place.app._lifecycle.opened()).store
    create = store.create_session

    async def slow(record: Any) -> Any:
        made = await create(record)
        source = record.lineage[-1].key
        assert await store.decide_removal(source, await store.mark_going(source))
        return made

    monkeypatch.setattr(store, "create_session", slow)
    with pytest.raises(NotFound):
        await place.app.sessions.fork("u", "s")

    assert await place.database["durable_sessions"].count_documents({}) == 1


async def test_a_fork_that_is_taken_back_leaves_no_chunks(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.app = place.make(config=ON | {"payload": {"spill_above": "1KB"}})
    await place.app.sessions.create("u", "s", {"large": uuid.uuid4().hex * 100})
    await place.say("s", "one")
    before = await documents(place.database)
    store = (await place.app._lifecycle.opened()).store
    create = store.create_session

    async def slow(record: Any) -> Any:
        made = await create(record)
        assert len(await documents(place.database)) == len(before) + 2  # it, and its chunk
        source = record.lineage[-1].key
        assert await store.decide_removal(source, await store.mark_going(source))
        return made

    monkeypatch.setattr(store, "create_session", slow)
    with pytest.raises(NotFound):
        await place.app.sessions.fork("u", "s")
    assert set(await documents(place.database)) == set(before)


async def test_a_fork_takes_the_mark_of_a_deletion_away_that_was_cut_off(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await place.say("s", "one")
    store = (await place.app._lifecycle.opened()).store
    create = store.create_session

    async def slow(record: Any) -> Any:
        made = await create(record)
        await store.mark_going(record.lineage[-1].key)
        return made

    monkeypatch.setattr(store, "create_session", slow)
    monkeypatch.setattr("durable_adk.engine.forking.DELETION_PAUSES_S", ())
    fork = await place.app.sessions.fork("u", "s")

    assert (await place.say(fork.session_id, "two")).status == "completed"
    assert (await place.say("s", "two")).status == "completed"


async def test_a_transfer_in_a_later_turn_is_not_in_the_fork(place: Place) -> None:
    """S7: the root answers."""

    def reply(request: Any, _batch: int) -> Any:
        last = (request.contents[-1].parts or [])[0]
        if last.text == "go over":
            return calls(("transfer_to_agent", {"agent_name": "helper"}))
        return says("the root")

    helper = LlmAgent(name="helper", model=ScriptedModel(script=[says("the helper")]))
    root = LlmAgent(name="root", model=ScriptedModel(script=reply), sub_agents=[helper])
    place.app = place.make(root)
    await place.say("s", "hello")
    second = await place.say("s", "go over")
    assert (await place.say("s", "who is there?")).response == "the helper"

    fork = await place.app.sessions.fork("u", "s", before=second.execution_id)

    assert (await place.say(fork.session_id, "who is there?")).response == "the root"


# ---------------------------------------------------------------- deleting


async def test_a_session_that_forks_depend_on_is_not_deleted(place: Place) -> None:
    first = await place.say("s", "one")
    fork = await place.app.sessions.fork("u", "s", after=first.execution_id)
    with pytest.raises(InputConflict, match=fork.session_id):
        await place.app.sessions.delete("u", "s")
    assert (await place.say("s", "two")).status == "completed"

    await place.app.sessions.delete("u", fork.session_id)
    await place.app.sessions.delete("u", "s")

    left = await documents(place.database)
    assert left == {}
    with pytest.raises(NotFound):
        await place.app.sessions.delete("u", "s")


async def test_a_user_is_deleted_whose_sessions_were_made_in_one_moment() -> None:
    place = Place(memory_client(), "forks")
    app = place.app = place.make(clock=ManualClock())
    await place.say("s", "one")
    for _ in range(4):
        await app.sessions.fork("u", (await app.sessions.list(user_id="u")).items[-1].id)

    assert await app.sessions.delete_user("u") == 5

    await app.close()
    await place.apps[0].close()


async def test_deleting_a_user_takes_forks_and_shared_state_with_it(place: Place) -> None:
    first = await place.say("s", "note user:name Ada")
    await place.app.sessions.fork("u", "s", after=first.execution_id)
    await place.say("other", "pay 5")
    await place.app.invoke(user_id="v", session_id="s", message="hello")

    assert await place.app.sessions.delete_user("u") == 3

    left = await documents(place.database)
    assert {key for key in left if b"Ada" in left[key]} == set()
    assert (await place.app.sessions.get("v", "s")).user_id == "v"
    assert [s.user_id for s in await place.app.sessions.list()] == ["v"]


async def test_deleting_a_user_takes_large_shared_state_with_it(place: Place) -> None:
    place.app = place.make(config=ON | {"payload": {"spill_above": "1KB"}})
    await place.say("s", f"note user:bio {uuid.uuid4().hex * 100}")
    await place.app.sessions.delete_user("u")
    assert await documents(place.database) == {}


async def test_a_running_session_is_not_deleted(place: Place) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def slow(value: str) -> str:
        """Take a while."""
        started.set()
        await go_on.wait()
        return value

    place.app = place.make(desk(place.ledger, slow))
    running = asyncio.create_task(place.say("s", "do slow x"))
    await started.wait()

    with pytest.raises(SessionBusy, match="running"):
        await place.app.sessions.delete("u", "s")

    go_on.set()
    assert (await running).status == "completed"
    await place.app.sessions.delete("u", "s")


async def test_a_session_that_is_being_deleted_is_not_forked_nor_invoked(place: Place) -> None:
    await place.say("s", "one")
    dying = place.make(faults=FaultPlan().fail("before delete", _Died(), at=2))
    with pytest.raises(_Died):
        await dying.sessions.delete("u", "s")

    with pytest.raises(NotFound):
        await place.app.sessions.fork("u", "s")
    out = await place.app.invoke(user_id="u", session_id="s", message="two")
    assert out.status == "queued"
    assert "is being deleted" in out.error.message

    await place.app.sessions.delete("u", "s")
    assert await documents(place.database) == {}
