"""What durability costs, as ratios measured in one run against one mongod.

    scripts/bench.sh [calls] [throughput] [resume] [bytes] [frontier] [fork]

Each figure is printed beside its budget. The comparison is plain ADK with its in-memory
sessions; the unit is one raw majority and journaled ``insert_one`` of a record's size. Runs of
the two are interleaved, and medians are taken, because machines drift.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.genai import types
from pymongo import AsyncMongoClient, WriteConcern

from durable_adk import App
from durable_adk.engine.ports import NoFaults, Write
from durable_adk.testing import ScriptedModel, calls, says

logging.getLogger("google_adk").setLevel(logging.ERROR)

DATABASE = f"durable_adk_bench_{uuid.uuid4().hex[:8]}"
WORD = "the quick brown fox jumps over the lazy dog "


def look(q: str) -> dict[str, str]:
    """Look something up."""
    return {"found": q, "text": WORD * 2}


def pay(cents: int) -> str:
    """Pay."""
    return "paid"


def later(q: str) -> None:
    """Answer later."""


def agent(
    pairs: int, *, delay: float = 0.0, then: Any = None, tools: list[Any] | None = None
) -> Any:
    """``pairs`` model and tool calls one after the other, then an end (or a wait and an end)."""
    end = [says("the end")] if then is None else [then, says("the end")]
    script = [*(calls(("look", {"q": f"question {i}"})) for i in range(pairs)), *end]
    return LlmAgent(
        name="worker",
        model=ScriptedModel(script=script, delay=delay),
        tools=[look, FunctionTool(pay, require_confirmation=True), *(tools or [])],
    )


def durable(root: Any, *, faults: Any = None, mode: str = "restore") -> App:
    config = {"features": {"durable_workflow": True}, "replay": {"mode": mode}}
    return App(
        "bench",
        root_agent=root,
        config=config,
        mongodb=os.environ["MONGODB_URI"],
        database=DATABASE,
        faults=faults,
    )


async def plain(root: Any) -> None:
    service = InMemorySessionService()
    runner = Runner(agent=root, app_name="bench", session_service=service)
    session = uuid.uuid4().hex
    await service.create_session(app_name="bench", user_id="u", session_id=session)
    message = types.Content(role="user", parts=[types.Part(text="go")])
    async for _ in runner.run_async(user_id="u", session_id=session, new_message=message):
        pass


async def timed(run: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await run()
    return time.perf_counter() - began


async def raw_insert(size: int = 400, times: int = 200) -> float:
    """Seconds of one majority and journaled insert of ``size`` bytes: the median."""
    client: AsyncMongoClient[Any] = AsyncMongoClient(os.environ["MONGODB_URI"])
    async with client:
        rows = client[DATABASE].get_collection(
            "raw", write_concern=WriteConcern("majority", j=True)
        )
        taken = [
            await timed(lambda: rows.insert_one({"_id": uuid.uuid4().hex, "text": "x" * size}))
            for _ in range(times)
        ]
    return statistics.median(taken)


def report(what: str, value: str, budget: str, *, met: bool | None) -> None:
    mark = {True: "met", False: "MISSED", None: ""}[met]
    print(f"{what:58s} {value:>22s}   budget {budget:22s} {mark}", flush=True)


async def bench_calls() -> None:
    """Added time per recorded call on a fresh run, as a multiple of one raw insert."""
    pairs, rounds = 20, 7
    added, raws = [], []
    async with durable(agent(pairs)) as app:
        await app.invoke(user_id="u", message="warm up")
        await plain(agent(pairs))
        for _ in range(rounds):
            raws.append(await raw_insert(times=60))
            without = await timed(lambda: plain(agent(pairs)))
            with_us = await timed(lambda: app.invoke(user_id="u", message="go"))
            added.append((with_us - without) / (2 * pairs + 1))
    ratio = statistics.median(a / r for a, r in zip(added, raws, strict=True))
    print(
        f"one raw insert {statistics.median(raws) * 1000:.2f} ms,"
        f" added per call {statistics.median(added) * 1000:.2f} ms ({pairs} pairs)"
    )
    report("added time per recorded call", f"{ratio:.2f} x raw", "<= 0.65 x raw", met=ratio <= 0.65)


async def bench_throughput() -> None:
    """32 executions at once against plain ADK."""
    for delay, budget in ((0.05, 0.85), (0.0, None)):
        ratios = []
        async with durable(agent(10, delay=delay)) as app:
            await app.invoke(user_id="u", message="warm up")

            async def ours(app: App = app) -> None:
                await asyncio.gather(*(app.invoke(user_id="u", message="go") for _ in range(32)))

            async def theirs(delay: float = delay) -> None:
                await asyncio.gather(*(plain(agent(10, delay=delay)) for _ in range(32)))

            for _ in range(3):
                without = await timed(theirs)
                ratios.append(without / await timed(ours))
        ratio = statistics.median(ratios)
        met = None if budget is None else ratio >= budget
        shown = "none" if budget is None else f">= {budget:.0%}"
        report(
            f"32 at once, model of {delay * 1000:.0f} ms, 10 pairs each",
            f"{ratio:.0%} of plain ADK",
            shown,
            met=met,
        )


async def bench_resume() -> None:
    """From the answer to the end, with so many recorded calls before the wait."""
    taken = {}
    for recorded in (100, 400):
        root = agent(recorded // 2, then=calls(("pay", {"cents": 1})))
        async with durable(root) as app:
            samples = []
            for _ in range(3):
                out = await app.invoke(user_id="u", message="go")
                answers = {wait.id: {"confirmed": True} for wait in out.waits}
                samples.append(await timed(lambda a=answers, o=out: app.resume(o.execution_id, a)))
        taken[recorded] = statistics.median(samples)
        shown = f"{taken[recorded]:.2f} s"
        report(f"resume after {recorded} recorded calls", shown, "none", met=None)
    ratio = taken[400] / taken[100]
    report("  t(400) / t(100)", f"{ratio:.1f}", "<= 5", met=ratio <= 5)


async def bench_bytes() -> None:
    """BSON bytes over all collections per recorded call, against the calls' own content."""
    pairs = 100
    async with durable(agent(pairs)) as app:
        out = await app.invoke(user_id="u", message="go")
        own = sum(
            len(event.content.model_dump_json(exclude_none=True))
            for event in out.events
            if event.content
        )
    client: AsyncMongoClient[Any] = AsyncMongoClient(os.environ["MONGODB_URI"])
    total = 0
    async with client:
        execution = await client[DATABASE]["durable_executions"].find_one({"eid": out.execution_id})
        assert execution is not None
        for name in ("activities", "steps", "payloads"):
            query = {"_id": {"$regex": f"^{execution['run']}:"}}
            async for row in await client[DATABASE][f"durable_{name}"].aggregate(
                [{"$match": query}, {"$group": {"_id": 1, "b": {"$sum": {"$bsonSize": "$$ROOT"}}}}]
            ):
                print(f"  {name}: {row['b']} bytes")
                total += row["b"]
    count = 2 * pairs + 1
    allowed = 400 + 1.2 * own / count
    report(
        "bytes stored per recorded call",
        f"{total / count:.0f} B ({own / count:.0f} own)",
        f"<= {allowed:.0f} B",
        met=total / count <= allowed,
    )


class Counting(NoFaults):
    """Counts writes by kind."""

    def __init__(self) -> None:
        self.writes: list[Write] = []

    def before(self, write: Write) -> None:
        if write is not Write.RENEW:
            self.writes.append(write)


async def bench_frontier() -> None:
    """Raw writes that commit a frontier of ten waits."""
    counting = Counting()
    root = LlmAgent(
        name="asker",
        model=ScriptedModel(
            script=[calls(*(("later", {"q": str(i)}) for i in range(10))), says("the end")]
        ),
        tools=[LongRunningFunctionTool(later)],
    )
    async with durable(root, faults=counting) as app:
        out = await app.invoke(user_id="u", message="go")
    assert len(out.waits) == 10
    commit = [w for w in counting.writes if w in (Write.STEP, Write.FRONTIER, Write.CHUNK)]
    report("frontier of 10 waits", f"{len(commit)} writes", "<= 2 writes", met=len(commit) <= 2)


def conversation(turns: int) -> Session:
    """A session of so many turns, as ADK's services would give it."""
    events = []
    for turn in range(turns):
        for place, author in enumerate(("user", "worker")):
            content = types.Content(role="model", parts=[types.Part(text=f"{turn} {WORD}")])
            if author == "user":
                content.role = "user"
            events.append(
                Event(
                    id=f"e{turn}.{place}",
                    invocation_id=f"fork-{turns}-{turn}",
                    author=author,
                    timestamp=1_700_000_000.0 + turn + place / 2,
                    content=content,
                    actions=EventActions(state_delta={"turn": turn}),
                )
            )
    return Session(
        id=f"with-{turns}", app_name="bench", user_id="u", state={"turn": turns - 1}, events=events
    )


async def bench_fork() -> None:
    """Time and bytes of forking a session in its middle and at its end, by its length."""
    lengths, rounds = (10, 200, 2_000), 40
    client: AsyncMongoClient[Any] = AsyncMongoClient(os.environ["MONGODB_URI"])
    taken: dict[int, list[float]] = {turns: [] for turns in lengths}
    sizes: dict[int, set[int]] = {turns: set() for turns in lengths}
    async with client, durable(agent(1)) as app:
        database = client[DATABASE]
        for turns in lengths:
            await app.sessions.import_(conversation(turns))
        before = await _counts(database)
        for number in range(rounds):
            for turns in lengths:  # one after the other: machines drift
                cut = f"fork-{turns}-{turns // 2}" if number % 2 else None
                began = time.perf_counter()
                made = await app.sessions.fork("u", f"with-{turns}", before=cut)
                taken[turns].append(time.perf_counter() - began)
                (row,) = await (
                    await database["durable_sessions"].aggregate(
                        [
                            {"$match": {"session": made.session_id}},
                            {"$project": {"b": {"$bsonSize": "$$ROOT"}}},
                        ]
                    )
                ).to_list()
                sizes[turns].add(row["b"])
        after = await _counts(database)
    added = {name: after[name] - before.get(name, 0) for name in after}
    added = {name: count for name, count in added.items() if count}
    forks = rounds * len(lengths)
    only = added == {"durable_sessions": forks}
    report("documents of a fork", f"{added} for {forks}", "one session document", met=only)
    first = statistics.median(taken[lengths[0]])
    for turns in lengths:
        median = statistics.median(taken[turns])
        report(
            f"fork of a session with {turns} turns",
            f"{median * 1000:.2f} ms, {max(sizes[turns])} B",
            "<= 1.5 x that of 10 turns",
            met=median <= 1.5 * first and max(sizes[turns]) <= 1.5 * max(sizes[lengths[0]]),
        )


async def _counts(database: Any) -> dict[str, int]:
    names = [name for name in await database.list_collection_names() if name.startswith("durable_")]
    return {name: await database[name].count_documents({}) for name in names}


BENCHES = {
    "calls": bench_calls,
    "throughput": bench_throughput,
    "resume": bench_resume,
    "bytes": bench_bytes,
    "frontier": bench_frontier,
    "fork": bench_fork,
}


async def main(names: list[str]) -> None:
    try:
        for name in names or list(BENCHES):
            await BENCHES[name]()
    finally:
        client: AsyncMongoClient[Any] = AsyncMongoClient(os.environ["MONGODB_URI"])
        async with client:
            await client.drop_database(DATABASE)


if __name__ == "__main__":
    unknown = [name for name in sys.argv[1:] if name not in BENCHES]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    asyncio.run(main(sys.argv[1:]))
