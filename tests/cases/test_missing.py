"""S15: documents of an execution are deleted, then it is gone on with: refused, and nothing runs.

What cannot be noticed: a tail of the open step's log (it equals "never happened"), and an intent
whose outcome is missing too.
"""

from __future__ import annotations

import contextlib
import copy
import os
import random
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from pymongo import AsyncMongoClient

from durable_adk import App, CorruptHistory, durable_tool
from durable_adk.store.clock import LocalClock, ServerClock
from durable_adk.testing import FaultPlan, ScriptedModel, calls, memory_client, says

ON: dict[str, Any] = {
    "features": {"durable_workflow": True},
    "payload": {"spill_above": "1KB"},
    "shutdown": {"grace": 0},
}
LARGE = "".join(random.Random(7).choices("abcdefghijklmnop", k=3000))
NAMES = ("sessions", "executions", "steps", "activities", "payloads", "scopes")
DATABASE = "missing"
Ledger = list[Any]
Docs = dict[str, list[dict[str, Any]]]
Key = tuple[str, str]


def agent(ledger: Ledger) -> LlmAgent:
    """Three steps: each with small and large results, and a tool that must not run twice."""

    def look(q: str) -> dict[str, str]:
        """Look something up."""
        ledger.append(("look", q))
        return {"found": q if q < "l" else q + LARGE}

    @durable_tool(on_unknown_outcome="fail")
    def charge(cents: int) -> dict[str, int]:
        """Charge."""
        ledger.append(("charge", cents))
        return {"charged": cents}

    def pay(amount: int, why: str) -> dict[str, int]:
        """Pay."""
        ledger.append(("pay", amount))
        return {"paid": amount}

    def turn(n: int) -> list[Any]:
        return [
            calls(("look", {"q": f"a{n}"}), ("look", {"q": f"l{n}"}), ("charge", {"cents": n})),
            calls(("pay", {"amount": n, "why": LARGE}), ("pay", {"amount": n, "why": "so"})),
        ]

    script = [*turn(1), *turn(2), *turn(3), says("done " + LARGE)]

    def choose(request: Any, _turn: int) -> Any:
        told = [part.text for content in request.contents for part in content.parts or ()]
        if not any(text and text.startswith("go") for text in told):
            return says("hello " + LARGE)
        begun = max(
            i
            for i, content in enumerate(request.contents)
            if content.role == "user"
            and any((p.text or "").startswith("go") for p in content.parts)
        )
        own = sum(1 for content in request.contents[begun:] if content.role == "model")
        return script[min(own, len(script) - 1)]

    tools = [look, charge, FunctionTool(pay, require_confirmation=True)]
    return LlmAgent(name="desk", model=ScriptedModel(script=choose), tools=tools)


@dataclass
class Stage:
    """A database in which an execution waits to be gone on with, and how it would go on.

    Attributes:
        answers: What it is resumed with; None: it is due.
    """

    name: str
    docs: Docs
    execution_id: str
    answers: dict[str, Any] | None

    @property
    def execution(self) -> dict[str, Any]:
        return next(doc for doc in self.docs["executions"] if doc["eid"] == self.execution_id)

    def candidates(self) -> list[Key]:
        """What may be deleted: all but the session and the execution, which are commit points."""
        last = self.execution["_id"]
        return [
            (name, doc["_id"])
            for name in ("executions", "steps", "activities", "payloads")
            for doc in self.docs[name]
            if doc["_id"] != last
        ]


class World:
    def __init__(self, client: Any, database: str, ledger: Ledger, clock: Any) -> None:
        self.client, self.database, self.ledger, self.clock = client, database, ledger, clock

    def app(self, **given: Any) -> App:
        config = ON | given.pop("config", {})
        return App(
            "missing",
            root_agent=agent(self.ledger),
            config=config,
            mongodb=self.client,
            database=self.database,
            clock=self.clock,
            **given,
        )

    async def fill(self, docs: Docs, without: Collection[Key] = ()) -> None:
        for name in NAMES:
            kept = [doc for doc in docs[name] if (name, doc["_id"]) not in without]
            if kept:
                await self.client[self.database][f"durable_{name}"].insert_many(copy.deepcopy(kept))

    async def docs(self) -> Docs:
        return {
            name: await self.client[self.database][f"durable_{name}"].find().to_list(None)
            for name in NAMES
        }


class Died(BaseException):
    pass


async def stages() -> list[Stage]:
    """An execution in its third step with two turns before it: on an open frontier, on an answered
    one, and after a crash behind some records of the step."""
    world = World(memory_client(), DATABASE, [], LocalClock())
    app = world.app()
    for _ in range(2):
        await app.invoke(user_id="u", session_id="s", message="hi " + LARGE)
    out = await app.invoke(user_id="u", session_id="s", message="go " + LARGE)

    def yes(outcome: Any) -> dict[str, Any]:
        return {wait.id: {"confirmed": True} for wait in outcome.waits}

    out = await app.resume(out.execution_id, yes(out))
    assert out.status == "suspended"
    opened = await world.docs()
    for wait in out.waits:
        await app.answer(wait.id, {"confirmed": True})
    answered = await world.docs()
    plan = FaultPlan().fail("ran tool:charge", Died())
    dying = world.app(faults=plan)
    with contextlib.suppress(Died):
        await dying.resume(out.execution_id, yes(out))
    crashed = await world.docs()
    return [
        Stage("open", opened, out.execution_id, yes(out)),
        Stage("answered", answered, out.execution_id, None),
        Stage("crashed", crashed, out.execution_id, None),
    ]


async def go_on(world: World, stage: Stage) -> tuple[str, str]:
    """Go on with it. Returns: its status, and the kind of its error; or of what was raised."""
    app = world.app()
    world.clock.advance(60_000)
    try:
        if stage.answers is not None:
            outcome = await app.resume(stage.execution_id, stage.answers)
        else:
            [outcome] = await app.recover()
    except CorruptHistory:
        return "refused", "CorruptHistory"
    finally:
        await app.close()
    return outcome.status, "" if outcome.error is None else outcome.error.type


def may_be_gone(stage: Stage, deleted: set[Key]) -> bool:
    """Whether all of this is what cannot be noticed, or what nobody needs."""
    execution, free = stage.execution, set[Key]()
    # The step of a frontier is committed with it.
    open_step = execution["step"] + (execution.get("frontier") is not None)
    last = [-1]
    for doc in sorted(stage.docs["activities"], key=lambda d: -d.get("seq", 0)):
        key = ("activities", doc["_id"])
        run, step, slot = doc["_id"].split(":")
        is_open = run == execution["run"] and int(step) == open_step
        in_tail = is_open and doc.get("seq") and (doc["seq"] == last[-1] - 1 or last == [-1])
        if slot.endswith("i") and key in deleted:
            free.add(key)
        elif in_tail and key in deleted:
            free.add(key)
            last.append(doc["seq"])
        elif doc.get("seq") and is_open:
            last.append(-9)  # a record that is left ends the tail
    needed = {
        ref
        for name in ("sessions", "executions", "steps", "activities")
        for doc in stage.docs[name]
        if (name, doc["_id"]) not in free
        for ref in _refs(doc)
    }
    for key in deleted:
        if key[0] == "payloads" and key[1].rpartition(":")[0] not in needed:
            free.add(key)
    return deleted <= free


def _refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "ref" in value and "n" in value:
            yield value["ref"]
        for one in value.values():
            yield from _refs(one)
    elif isinstance(value, list):
        for one in value:
            yield from _refs(one)


def subsets(stage: Stage) -> Iterator[set[Key]]:
    """One of each kind, then random ones; with ``MISSING=all`` each document by itself."""
    candidates = stage.candidates()
    if os.environ.get("MISSING") == "all":
        yield from ({key} for key in candidates)
    run, step = stage.execution["run"], stage.execution["step"]
    log = [
        (doc["seq"], doc["_id"])
        for doc in stage.docs["activities"]
        if doc.get("seq") and doc["_id"].startswith(f"{run}:{step:06d}:")
    ]
    assert len(log) > 1
    yield {("activities", min(log)[1])}  # not its tail
    chosen = random.Random(stage.name)
    for size in (1, 1, 2, 2, 3, 5, 9):
        yield set(chosen.sample(candidates, size))


def described(stage: Stage, key: Key) -> Any:
    ref = key[1].rpartition(":")[0]
    by = [
        (name, doc["_id"], doc.get("pos"))
        for name in NAMES
        for doc in stage.docs[name]
        if ref in set(_refs(doc))
    ]
    return key, by


async def check(world: World, stage: Stage, deleted: set[Key]) -> None:
    await world.fill(stage.docs, deleted)
    status, error = await go_on(world, stage)
    if may_be_gone(stage, deleted):
        assert error in ("", "OutcomeUnknown"), deleted
        return
    assert (error, status in ("refused", "stuck")) == ("CorruptHistory", True), [
        described(stage, key) for key in deleted
    ]
    assert world.ledger == [], "nothing runs that rests on what is missing"


async def test_whatever_subset_of_an_executions_documents_is_gone_is_noticed() -> None:
    """S15"""
    for stage in await stages():
        assert not may_be_gone(stage, {("steps", doc["_id"]) for doc in stage.docs["steps"]})
        for deleted in [set[Key](), *subsets(stage)]:
            await check(World(memory_client(), DATABASE, [], LocalClock()), stage, deleted)


def of_each_kind(stage: Stage) -> Iterator[set[Key]]:
    """One document of each kind that a resume rests on."""
    run = stage.execution["run"]
    steps = [doc["_id"] for doc in stage.docs["steps"] if doc["_id"].startswith(run)]
    waits = [doc["_id"] for doc in stage.docs["activities"] if "wait" in doc]
    first = [doc for doc in stage.docs["activities"] if doc["_id"].startswith(f"{run}:000001")]
    logged = sorted((doc for doc in first if doc.get("seq")), key=lambda doc: doc["seq"])
    large = [_ for doc in logged for _ in _refs(doc)]
    yield {("steps", min(steps))}
    yield {("steps", max(steps))}
    yield {("activities", key) for key in waits if key.startswith(f"{run}:000001")}
    yield {("activities", waits[0])}
    yield {("activities", logged[0]["_id"])}
    yield {("activities", logged[-1]["_id"])}
    yield {("payloads", f"{large[-1]}:0")}
    yield {("executions", doc["_id"]) for doc in stage.docs["executions"] if doc["turn"] == 1}


async def test_what_is_gone_of_each_kind_is_noticed_on_a_server(
    replica_set_uri: str, database: str
) -> None:
    """S15"""
    client: Any = AsyncMongoClient(replica_set_uri)
    [_open, answered, _crashed] = await stages()
    name = f"{database}_{uuid.uuid4().hex[:8]}"
    for deleted in of_each_kind(answered):
        assert not may_be_gone(answered, deleted)
        for kind in NAMES:
            await client[name][f"durable_{kind}"].delete_many({})
        await check(World(client, name, [], ServerClock()), answered, deleted)
    await client.drop_database(name)
    await client.close()


async def test_a_tail_of_the_open_step_cannot_be_told_from_what_never_happened() -> None:
    [_open, _answered, crashed] = await stages()
    run, step = crashed.execution["run"], crashed.execution["step"]
    tail = {
        ("activities", doc["_id"])
        for doc in crashed.docs["activities"]
        if doc["_id"].startswith(f"{run}:{step:06d}:")
    }
    assert len(tail) > 1
    world = World(memory_client(), DATABASE, [], LocalClock())
    await world.fill(crashed.docs, tail)
    assert await go_on(world, crashed) == ("suspended", "")
    assert ("charge", 3) in world.ledger, "with its intent, the charge is forgotten too"


async def test_a_history_with_something_missing_is_not_read() -> None:
    [opened, *_] = await stages()
    past = [doc for doc in opened.docs["executions"] if doc["eid"] != opened.execution_id]
    runs = {doc["run"]: doc for doc in past}
    rests_on = [
        (name, doc["_id"])
        for name in ("steps", "activities", "payloads")
        for doc in opened.docs[name]
        if doc["_id"].partition(":")[0] in runs
    ]
    rests_on += [("executions", doc["_id"]) for doc in past if doc["turn"] == 1]
    assert len(rests_on) > 8
    for key in rests_on:
        world = World(memory_client(), DATABASE, [], LocalClock())
        await world.fill(opened.docs, {key})
        app = world.app()
        with pytest.raises(CorruptHistory):
            await app.sessions.events("u", "s")
        with pytest.raises(CorruptHistory):
            [line async for line in app.sessions.export("u", "s")]
        await app.close()
