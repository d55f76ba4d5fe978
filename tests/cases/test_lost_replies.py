"""S12: the reply of every kind of write is lost, in whole executions."""

from __future__ import annotations

import asyncio
import collections
import functools
from pathlib import Path
from typing import Any

import pytest
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from durable_adk import App, MongoArtifactService, durable_tool
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.engine import service
from durable_adk.engine.keeper import Keeper
from durable_adk.engine.ports import NoFaults, Write
from tests.cases.conftest import approve
from tests.faults.catalogue import agent
from tests.support.lives import Ledger, by_place

LARGE = "x" * (80 << 10)
"""An input of this many characters is stored in chunks."""

KINDS = {
    Write.SESSION,
    Write.BEGIN,
    Write.CLAIM,
    Write.RENEW,
    Write.CHUNK,
    Write.INTENT,
    Write.VERDICT,
    Write.OUTCOMES,
    Write.STEP,
    Write.FRONTIER,
    Write.ANSWER,
    Write.WAITS,
    Write.CONTINUE,
    Write.END,
    Write.SCOPES,
    Write.ATTEMPT_FAILED,
    Write.RELEASE,
    Write.CANCEL,
    Write.RETRY,
    Write.ARTIFACT,
}
"""All that executions write."""


class LoseReplies(NoFaults):
    """Every write is stored; of each kind, the replies of ``times`` tries are lost, then one comes.

    A renewal is tried again by the next one only: each second is lost.
    """

    def __init__(self, times: int) -> None:
        self.lost: collections.Counter[Write] = collections.Counter()
        self._times = times
        self._in_a_row: collections.Counter[Write] = collections.Counter()

    def after(self, write: Write) -> bool:
        if self._in_a_row[write] >= (1 if write is Write.RENEW else self._times):
            self._in_a_row[write] = 0
            return False
        self._in_a_row[write] += 1
        self.lost[write] += bool(self._times)
        return bool(self._times)


class Desk:
    """An agent whose program is the first word of a message."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.blocked = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.fails_at = 1

    def root(self) -> Any:
        once = durable_tool(on_unknown_outcome="fail")

        async def keep(name: str, tool_context: Any) -> dict[str, int]:
            """Keep a file and a note for the user."""
            self.ledger.add("keep", name)
            part = types.Part(text=f"content of {name}")
            version = await tool_context.save_artifact(name, part)
            tool_context.state["user:kept"] = name
            return {"version": version}

        @once
        def pay(amount: int) -> dict[str, int]:
            """Pay."""
            self.ledger.add("pay", amount)
            return {"paid": amount}

        @once
        async def slow_pay(amount: int) -> dict[str, int]:
            """Pay, and take a while."""
            return await self._slow("slow_pay", amount)

        async def slow(amount: int) -> dict[str, int]:
            """Take a while."""
            return await self._slow("slow", amount)

        programs = {
            "files": [calls(("keep", {"name": "a"})), calls(("pay", {"amount": 1}))],
            "confirm": [calls(("ask_pay", {"amount": 2}), ("pay", {"amount": 3}))],
            "break": [calls(("pay", {"amount": 4})), RuntimeError("once")],
            "cancel": [calls(("slow_pay", {"amount": 5}))],
            "close": [calls(("slow", {"amount": 6}))],
        }

        def reply(request: Any, _turn: int) -> Any:
            mine = [c for c in request.contents if (c.parts[0].text or "").startswith("do ")][-1]
            program = programs[mine.parts[0].text.split()[1]]
            turn = sum(c.role == "model" for c in request.contents) - self._before(request, mine)
            self.ledger.add("model", mine.parts[0].text[:12], turn)
            if turn >= len(program):
                return says("done")
            if isinstance(program[turn], Exception):
                self.fails_at -= 1
                return program[turn] if self.fails_at >= 0 else says("done after all")
            return program[turn]

        tools = [keep, pay, slow_pay, slow]
        asking = FunctionTool(once(self._named(pay, "ask_pay")), require_confirmation=True)
        root = agent(self.ledger, "desk", says(""), tools=[*tools, asking])
        root.model = ScriptedModel(model="desk", script=reply)
        return root

    @staticmethod
    def _named(tool: Any, name: str) -> Any:
        @functools.wraps(tool)
        def renamed(amount: int) -> Any:
            return tool(amount)

        renamed.__name__ = name
        return renamed

    @staticmethod
    def _before(request: Any, message: Any) -> int:
        place = request.contents.index(message)
        return sum(content.role == "model" for content in request.contents[:place])

    async def _slow(self, name: str, amount: int) -> dict[str, int]:
        self.ledger.add(name, amount)
        self.blocked.set()
        await self.may_go_on.wait()
        return {"done": amount}


async def lives(make: Any, ledger: Ledger) -> dict[str, Any]:
    """One execution of each fate. Returns: what they left."""
    desk = Desk(ledger)
    app: App = make(desk.root())
    await app.sessions.create(user_id="u", session_id="s", state={"k": 1})
    named = {"user_id": "u", "session_id": "s"}
    left = {}

    async def keep_outcome(x: str) -> None:
        out = await app.executions.outcome(x)
        left[x] = (out.status, out.response, by_place([_plain(e) for e in out.events]))

    await app.invoke(message=f"do files {LARGE}", execution_id="files", **named)
    out = await app.invoke(message="do confirm", execution_id="confirm", **named)
    assert out.status == "suspended"
    await app.resume("confirm", approve(out))

    assert (await app.submit(message="do break", execution_id="break", **named)).status == "queued"
    await app.recover()
    assert (await app.retry("break")).status == "queued"
    await app.recover()

    running = asyncio.create_task(app.invoke(message="do cancel", execution_id="cancel", **named))
    await desk.blocked.wait()
    await make(desk.root()).cancel("cancel", "enough")  # asks: another process runs it
    await running

    desk.blocked.clear()
    leaving: App = make(desk.root())
    running = asyncio.create_task(leaving.invoke(message="do close", execution_id="close", **named))
    await desk.blocked.wait()
    await leaving.close()  # gives it back
    await asyncio.gather(running, return_exceptions=True)
    desk.may_go_on.set()
    await app.recover()

    for x in ("files", "confirm", "break", "cancel", "close"):
        await keep_outcome(x)
    left["state"] = (await app.sessions.get(**named)).to_dict()["state"]
    return left


def _plain(event: Any) -> dict[str, Any]:
    return dict(event.model_dump(mode="json", exclude_none=True))


@pytest.mark.timeout(600)
async def test_no_lost_reply_makes_a_difference(
    make_app: Any, tmp_path: Path, monkeypatch: Any, replica_set_uri: str
) -> None:
    """Each kind of write loses none, one, or two replies in a row, again and again."""
    monkeypatch.setattr(service, "Keeper", functools.partial(Keeper, renew_every_s=0.05))
    seen = []
    for times in (0, 1, 2):
        ledger, faults = Ledger(tmp_path / f"{times}"), LoseReplies(times)

        def make(root: Any, times: int = times, faults: LoseReplies = faults) -> App:
            return make_app(
                root,
                namespace=f"{tmp_path.name}-{times}",
                faults=faults,
                artifact_service=MongoArtifactService(),
            )

        left = await lives(make, ledger)
        seen.append((left, sorted(ledger.rows())))
        if times:
            assert KINDS - set(faults.lost) == set()
    statuses = [value[0] for x, value in seen[0][0].items() if x != "state"]
    assert statuses == ["completed", "completed", "completed", "cancelled", "completed"]
    assert seen[1] == seen[0]
    assert seen[2] == seen[0]
