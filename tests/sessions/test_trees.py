"""Whatever tree of turns, waits and forks: each session is as if it had been built straight."""

from __future__ import annotations

import asyncio
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import AsyncMongoClient

from durable_adk.testing import memory_client
from tests.sessions.desk import documents, new_documents
from tests.sessions.test_forks import NO, YES, Place

MESSAGES = ("hello", "note colour red", "note colour blue", "note size big", "pay 5", "pay 6 7")


@dataclass
class Told:
    """One message of a session, and how its waits were answered; None: they are open."""

    message: str
    answers: tuple[bool, ...] | None = ()
    waits: tuple[str, ...] = ()


@dataclass
class Branch:
    """A session of the tree, and what would build it straight."""

    session_id: str
    past: list[Told] = field(default_factory=list)
    executions: list[str] = field(default_factory=list)
    base: int = 0

    @property
    def waits(self) -> bool:
        return bool(self.past) and self.past[-1].answers is None


class Tree:
    """Grows sessions by drawn moves, and checks each fork's documents on the way."""

    def __init__(self, place: Place, draw: random.Random, state: dict[str, Any]) -> None:
        self.place = place
        self.draw = draw
        self.state = state
        self.sessions: list[Branch] = []

    async def plant(self) -> None:
        await self.place.app.sessions.create("u", "root", self.state)
        self.sessions.append(Branch("root"))

    async def move(self) -> None:
        branch = self.draw.choice(self.sessions)
        moves = [self.answer] if branch.waits else [self.tell]
        if branch.past:
            moves += [self.fork_turns, self.fork_inside]
        await self.draw.choice(moves)(branch)

    async def tell(self, branch: Branch) -> None:
        message = self.draw.choice(MESSAGES)
        out = await self.place.say(branch.session_id, message)
        waits = tuple(wait.id for wait in out.waits)
        branch.past.append(Told(message, None if waits else (), waits))
        branch.executions.append(out.execution_id)

    async def answer(self, branch: Branch) -> None:
        execution_id = branch.executions[-1]
        told = branch.past[-1]
        out = await self.place.app.executions.outcome(execution_id)
        told.answers = tuple(self.draw.random() < 0.6 for _ in out.waits)
        answers = {
            wait.id: {"confirmed": yes} for wait, yes in zip(out.waits, told.answers, strict=True)
        }
        await self.place.app.resume(execution_id, answers)

    async def fork_turns(self, branch: Branch) -> None:
        own = len(branch.past) - branch.base
        if not own:
            return await self.fork(branch, branch.base)
        place = branch.base + self.draw.randrange(own)
        finished = place < len(branch.past) - 1 or not branch.waits
        side = self.draw.choice(["before", "after"] if finished else ["before"])
        execution_id = branch.executions[place - branch.base]
        await self.fork(branch, place + (side == "after"), **{side: execution_id})
        return None

    async def fork(self, branch: Branch, length: int, **cut: str) -> None:
        before = await documents(self.place.database)
        made = await self.place.app.sessions.fork("u", branch.session_id, **cut)
        added = new_documents(before, await documents(self.place.database))
        assert added == ["durable_sessions"]
        past = [Told(t.message, t.answers, t.waits) for t in branch.past[:length]]
        self.sessions.append(Branch(made.session_id, past, base=length))

    async def fork_inside(self, branch: Branch) -> None:
        """At a frontier, before or after its answers; or at any record."""
        own = len(branch.past) - branch.base
        if not own:
            return
        place = branch.base + self.draw.randrange(own)
        told, execution_id = branch.past[place], branch.executions[place - branch.base]
        found = [
            activity
            for activity in await self.place.app.executions.activities(execution_id)
            if activity.id.startswith(execution_id)
        ]
        if not found:
            return
        activity = self.draw.choice(found)
        side = self.draw.choice(["before", "after"])
        if activity.kind == "wait" and told.answers is None:
            side = "before"
        before = await documents(self.place.database)
        cut = {side: activity.id}
        made = await self.place.app.sessions.fork("u", branch.session_id, **cut)
        added = new_documents(before, await documents(self.place.database))
        assert added == ["durable_executions", "durable_sessions"]
        await self.place.app.recover()
        out = await self.place.app.executions.outcome(made.execution_id)
        past = [Told(t.message, t.answers, t.waits) for t in branch.past[:place]]
        past.append(Told(told.message, None if out.waits else told.answers))
        self.sessions.append(Branch(made.session_id, past, [made.execution_id], base=place))

    async def check(self) -> None:
        for branch in self.sessions:
            straight = Place(self.place.client, f"{self.place.name}_straight")
            try:
                session = f"s{uuid.uuid4().hex[:8]}"
                await straight.app.sessions.create("u", session, self.state)
                for told in branch.past:
                    out = await straight.say(session, told.message)
                    if out.waits and told.answers is not None:
                        values = [YES if yes else NO for yes in told.answers]
                        await straight.answer(out, *values)
                assert await self.place.events(branch.session_id) == await straight.events(session)
                assert await self.place.state(branch.session_id) == await straight.state(session)
            finally:
                await straight.app.close()


async def grow(place: Place, seed: int, moves: int) -> None:
    draw = random.Random(seed)
    initial = {key: "initial" for key in ("colour", "lang") if draw.random() < 0.5}
    tree = Tree(place, draw, initial)
    await tree.plant()
    for _ in range(moves):
        await tree.move()
    await tree.check()


@pytest.mark.timeout(600)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32), moves=st.integers(2, 10))
def test_every_session_of_a_tree_equals_one_that_was_built_straight(seed: int, moves: int) -> None:
    async def grown() -> None:
        place = Place(memory_client(), "trees")
        try:
            await grow(place, seed, moves)
        finally:
            await place.app.close()

    asyncio.run(grown())


@pytest.mark.parametrize("seed", [1, 2])
async def test_trees_on_a_real_server(replica_set_uri: str, database: str, seed: int) -> None:
    client: Any = AsyncMongoClient(replica_set_uri)
    place = Place(client, f"{database}_{uuid.uuid4().hex[:8]}")
    try:
        await grow(place, seed, 14)
    finally:
        await place.app.close()
        await client.drop_database(place.name)
        await client.drop_database(f"{place.name}_straight")
        await client.close()
