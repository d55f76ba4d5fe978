"""With a limit, what is due and cannot be read takes no other's place, however much there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from durable_adk.engine.service import Engine
from durable_adk.errors import CorruptHistory, Unavailable
from durable_adk.model.execution import Execution, Status
from durable_adk.store.mongo import MongoStore
from tests.support.engines import ScriptedProgram, World, ask, world

TORN = ("torn-0", "torn-1", "torn-2")


@pytest.fixture
async def here() -> AsyncIterator[World]:
    async with world() as made:
        yield made


async def begun(here: World, engine: Engine, *names: str) -> dict[str, Execution]:
    """Executions in the order in which they are due, one second after another."""
    found = {}
    for name in names:
        here.clock.advance(1_000)
        found[name] = await engine.invoke(here.message(session=name, execution_id=name))
    return found


async def unapplied(here: World, *names: str) -> dict[str, Execution]:
    """Executions that ended, and whose shared state nobody has applied."""
    store, program = here.new_store(), ScriptedProgram()
    program.writes_shared(1, {"user:name": "Ada"})

    async def dies(*_: object) -> None:
        raise Unavailable("MongoDB", "does not answer")

    store.apply_scopes = dies
    return await begun(here, await here.engine(program, store=store), *names)


def tear(store: MongoStore, torn: dict[str, Execution], method: str) -> None:
    """Let a store find that something of these executions is gone, whoever reads them so."""
    read = getattr(store, method)

    async def unread(which: Any, *given: object, **more: object) -> object:
        if which in torn.values() or which in {one.key for one in torn.values()}:
            raise CorruptHistory("payload p", "chunk p:0 is missing")
        return await read(which, *given, **more)

    setattr(store, method, unread)


async def test_shared_state_is_applied_behind_what_cannot_be_read(here: World) -> None:
    left = await unapplied(here, *TORN, "a", "b")
    store = here.new_store()
    tear(store, {name: left[name] for name in TORN}, "load_steps")
    engine = await here.engine(ScriptedProgram(), store=store)

    async def due() -> set[str]:
        found = await here.store.list_scopes_due(here.tenant, limit=9)
        return {one.execution_id for one in found}

    await engine.recover(limit=1)
    assert len(await due() - {*TORN}) == 1
    await engine.recover(limit=1)
    assert await due() == {*TORN}


async def suspended(here: World, engine: Engine, *names: str) -> dict[str, Execution]:
    """Executions that wait, and whose expiry answer is due."""
    found = await begun(here, engine, *names)
    here.clock.advance(60_000)
    return found


def late() -> ScriptedProgram:
    return ScriptedProgram().asks(1, replace(ask(1), expires_after=1_000, on_expiry='"late"'))


async def test_a_pass_goes_on_with_what_is_due_behind_what_cannot_be_read(here: World) -> None:
    program, store = late(), here.new_store()
    engine = await here.engine(program, store=store)
    found = await suspended(here, engine, *TORN, "a", "b")
    program.steps.clear()
    tear(store, {name: found[name] for name in TORN}, "get_execution")
    for name in ("a", "b"):
        (done,) = await engine.recover(limit=1)
        assert (done.execution_id, done.status) == (name, Status.COMPLETED)
    assert await engine.recover(limit=1) == ()


async def test_what_a_pass_did_is_told_though_it_cannot_look_for_more(here: World) -> None:
    program, store = late(), here.new_store()
    engine = await here.engine(program, store=store)
    found = await suspended(here, engine, "torn-0", "a")
    program.steps.clear()
    tear(store, {"torn-0": found["torn-0"]}, "get_execution")
    look, looks = store.list_due, 0

    async def once(*given: object, **more: object) -> object:
        nonlocal looks
        looks += 1
        if looks > 1:
            raise Unavailable("MongoDB", "does not answer")
        return await look(*given, **more)

    store.list_due = once
    assert [one.execution_id for one in await engine.recover(limit=2)] == ["a"]


async def test_expiries_of_other_versions_are_given_behind_what_cannot_be_read(
    here: World,
) -> None:
    old = await here.engine(late(), version="v1")
    found = await suspended(here, old, *TORN, "a", "b")
    store = here.new_store()
    tear(store, {name: found[name] for name in TORN}, "get_execution")
    listed = store.list_expired_elsewhere

    async def outlines(*given: Any, **more: Any) -> list[Execution]:
        """What cannot be read comes without its frontier."""
        some = await listed(*given, **more)
        return [replace(e, frontier=None) if e.execution_id in TORN else e for e in some]

    store.list_expired_elsewhere = outlines
    new = await here.engine(ScriptedProgram(), store=store, version="v2")
    for still_open in (1, 0):
        await new.recover(limit=1)
        stand = [await here.store.get_execution(found[name].key) for name in ("a", "b")]
        assert sum(e.frontier.open for e in stand if e and e.frontier) == still_open
