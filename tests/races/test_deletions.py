"""Two deletions beside a fork or a turn, in the orders that the model in ``tests/protocol`` found.

The first deletion has seen that nobody needs the session; then everything else happens; then it
goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent

from durable_adk import App, InputConflict, SessionBusy
from durable_adk.model.identity import session_key
from durable_adk.testing import ScriptedModel, calls, memory_client, says
from tests.app.conftest import ON

Meanwhile = Callable[[], Awaitable[Any]]


class Gate:
    """Whoever comes here waits until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.opened.wait()

    async def passed(self) -> None:
        """Let whoever comes go on, once it is there."""
        await self.reached.wait()
        self.opened.set()


class Desk:
    """Two Apps over one database, whose agents call a tool that waits for ``go_on``."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        client = memory_client()
        self.started, self.go_on = asyncio.Event(), asyncio.Event()
        self.apps = [App("desk", root_agent=self._agent(), mongodb=client, config=ON) for _ in "ab"]
        self._patch = patch

    def _agent(self) -> Any:
        async def look() -> str:
            """Take a while."""
            self.started.set()
            await self.go_on.wait()
            return "seen"

        def reply(request: Any, _batch: int) -> Any:
            last = (request.contents[-1].parts or [])[0]
            return calls(("look", {})) if last.text == "look" else says("done")

        return LlmAgent(name="desk", model=ScriptedModel(script=reply), tools=[look])

    async def say(self, session: str, message: str) -> Any:
        return await self.apps[1].invoke(user_id="u", session_id=session, message=message)

    async def store(self, app: int) -> Any:
        return (await self.apps[app]._lifecycle.opened()).store

    async def around(self, app: int, method: str, *, before: Any = None, after: Any = None) -> None:
        """Do something the next time an App calls a method of its store."""
        store = await self.store(app)
        original = getattr(store, method)

        async def once(*args: Any, **named: Any) -> Any:
            self._patch.setattr(store, method, original)
            if before is not None:
                await before()
            found = await original(*args, **named)
            if after is not None:
                await after()
            return found

        self._patch.setattr(store, method, once)


@pytest.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    made = Desk(monkeypatch)
    monkeypatch.setattr("durable_adk.engine.forking.DELETION_PAUSES_S", (0.01, 0.02))
    await made.say("s", "hello")
    yield made
    made.go_on.set()
    for app in made.apps:
        await app.close()


async def test_a_fork_made_between_two_deletions_keeps_its_source(desk: Desk) -> None:
    insert, inserted = Gate(), Gate()
    inserted.opened.set()
    await desk.around(1, "create_session", before=insert, after=inserted)
    forking = asyncio.create_task(desk.apps[1].sessions.fork("u", "s"))
    await insert.reached.wait()

    async def fork_and_delete() -> None:
        insert.opened.set()
        await inserted.reached.wait()
        with pytest.raises(InputConflict, match="forks that depend on it"):
            await desk.apps[1].sessions.delete("u", "s")
        await forking

    await desk.around(0, "latest_execution", after=fork_and_delete)
    with pytest.raises(InputConflict, match="forks that depend on it"):
        await desk.apps[0].sessions.delete("u", "s")

    assert (await desk.say(forking.result().session_id, "hi")).status == "completed"


async def test_a_turn_begun_between_two_deletions_is_not_removed(desk: Desk) -> None:
    begun = Gate()
    await desk.around(1, "begin", after=begun)
    running: list[asyncio.Task[Any]] = []

    async def begin_and_delete() -> None:
        running.append(asyncio.create_task(desk.say("s", "look")))
        await begun.reached.wait()
        with pytest.raises(SessionBusy):
            await desk.apps[1].sessions.delete("u", "s")
        begun.opened.set()
        await desk.started.wait()

    await desk.around(0, "latest_execution", after=begin_and_delete)
    with pytest.raises(SessionBusy):
        await desk.apps[0].sessions.delete("u", "s")

    desk.go_on.set()
    assert (await running[0]).status == "completed"


async def test_a_fork_under_way_while_another_call_makes_it_is_taken_back_by_neither(
    desk: Desk,
) -> None:
    """One call was told of the fork; the other one meets a later mark, that nobody goes on with."""
    insert, later = Gate(), Gate()
    await desk.around(0, "create_session", before=insert, after=later)
    given = {"idempotency_key": "k"}
    one = asyncio.create_task(desk.apps[0].sessions.fork("u", "s", **given))
    await insert.passed()
    await later.reached.wait()
    other = await desk.apps[1].sessions.fork("u", "s", **given)
    store = await desk.store(1)
    await store.mark_going((await store.get_session(_key_of(desk, "s"))).key)
    later.opened.set()

    assert (await one) == other
    assert (await desk.say(other.session_id, "hi")).status == "completed"


def _key_of(desk: Desk, session: str) -> Any:
    return session_key(desk.apps[0]._lifecycle.tenant, "u", session)
