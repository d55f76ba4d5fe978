"""Lives of an execution: each attempt is a new process, and some of them die.

The parent has imported everything and opened no client; each attempt is forked from it, so it
begins with fresh objects and a fresh event loop in milliseconds. A child that dies leaves its
lease behind: the test clock of the next one is moved past it. Bodies are counted in a ledger
outside of all of them.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool

from durable_adk import App
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.engine.ports import Write
from durable_adk.store.clock import ServerClock
from durable_adk.testing import memory_client
from tests.support.mongo import ROOT

LEASE_PASSED_MS = 120_000
ATTEMPTS_AT_MOST = 40
DIED = 9
STUCK_AFTER_S = 20


class Ledger:
    """What really ran: one line per effect, in a file that survives every process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, *what: Any) -> None:
        handle = os.open(self.path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.write(handle, (json.dumps(list(what)) + "\n").encode())
        finally:
            os.close(handle)

    def rows(self) -> list[tuple[Any, ...]]:
        if not self.path.exists():
            return []
        return [tuple(json.loads(line)) for line in self.path.read_text().splitlines()]


Point = tuple[str, int]
"""A fault point by its name and the how-manyeth time it is reached in the process: numbers of all
points shift when a write takes one outcome more or less along."""


def points_of(reached: Sequence[str]) -> list[Point]:
    """The points of a list of names."""
    return [(name, reached[: place + 1].count(name)) for place, name in enumerate(reached)]


class KillAt:
    """Faults that end the process at a point, and list the points reached."""

    def __init__(self, at: Point | None = None, *, sigkill: bool = False) -> None:
        self.reached: list[str] = []
        self._at = at
        self._sigkill = sigkill

    def before(self, write: Write) -> None:
        self._reach(f"before: {write.value}", write)

    def after(self, write: Write) -> bool:
        self._reach(f"after: {write.value}", write)
        return False

    def body(self, kind: str, name: str, *, ran: bool) -> None:
        self._reach(f"{'ran' if ran else 'in'}: {kind} {name}")

    def _reach(self, point: str, write: Write | None = None) -> None:
        if write is Write.RENEW:  # comes by the clock, not by what the program does
            return
        self.reached.append(point)
        if self._at is not None and (point, self.reached.count(point)) == tuple(self._at):
            if self._sigkill:
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(DIED)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program and how the world answers it.

    Attributes:
        build: Makes the root anew over a ledger.
        messages: One turn each, in one session.
        answer: The value for a wait (its ``to_dict()``); None leaves it open until it expires.
        in_flight: How many bodies may be cut off by one kill: a tool's outcome may be on its
            way while the next model call runs; more in parallel.
        reentered: Ledger rows (by first fields) of hooks and orchestrators, which may repeat.
        config: Configuration keys beside the usual ones.
        app: More arguments of ``App``, made in each process.
        run_config: Makes ADK's ``RunConfig`` of each turn.
    """

    build: Callable[[Ledger], Any]
    messages: Sequence[str] = ("go",)
    answer: Callable[[Mapping[str, Any]], Any] | None = None
    in_flight: int = 2
    reentered: tuple[tuple[Any, ...], ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    app: Callable[[Ledger], Mapping[str, Any]] | None = None
    run_config: Callable[[], Any] | None = None


@dataclass
class Life:
    """What one life left. ``reached`` lists the points of each attempt."""

    status: list[str] = field(default_factory=list)
    error: dict[str, Any] | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    output: list[Any] = field(default_factory=list)
    ledger: collections.Counter[tuple[Any, ...]] = field(default_factory=collections.Counter)
    reached: list[list[str]] = field(default_factory=list)
    waits: list[list[str]] = field(default_factory=list)
    killed_at: str | None = None
    attempts: int = 0


def default_answer(wait: Mapping[str, Any]) -> Any:
    if wait["kind"] == "adk_request_confirmation":
        return {"confirmed": True}
    return "blue"


@dataclass(frozen=True, kw_only=True)
class Act:
    """What one process does, as plain data: a fresh interpreter must be able to read it."""

    what: str
    execution_id: str = ""
    message: str = ""
    answers: Mapping[str, Any] = field(default_factory=dict)
    messages: Sequence[str] = ()
    kill_at: Point | None = None
    late_ms: int = 0


@functools.cache
def warm() -> None:
    """Import what is imported on first use, once, so that no forked process has to."""

    def hello() -> str:
        """Say hello."""
        return "hello"

    async def run() -> None:
        script = [calls(("hello", {})), says("done")]
        tools = [FunctionTool(hello, require_confirmation=True)]
        root = LlmAgent(name="warm", model=ScriptedModel(script=script), tools=tools)
        config = {"features": {"durable_workflow": True}}
        async with App("warm", root_agent=root, config=config, mongodb=memory_client()) as app:
            out = await app.invoke(user_id="u", message="go")
            answers = {wait.id: default_answer(wait.to_dict()) for wait in out.waits}
            out = await app.resume(out.execution_id, answers)
            assert out.status == "completed"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(run())


def in_fork(run: Callable[[], Awaitable[dict[str, Any]]]) -> tuple[int, dict[str, Any]]:
    """Run a coroutine in a forked process. Returns: exit code (negative: signal), its answer."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            signal.alarm(STUCK_AFTER_S)  # ends a process that waits for ever
            answer = asyncio.run(_run(run))
            os.write(write, json.dumps(answer).encode())
            code = 0
        except BaseException:
            with contextlib.suppress(OSError):
                os.write(write, json.dumps({"trace": traceback.format_exc()}).encode())
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        text = answers.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(text) if text else {}


async def _run(run: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
    return await run()


def in_fresh_interpreter(given: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """The same in a Python of its own, which is killed with SIGKILL where it is killed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.faults.one_process"],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
    )
    if done.returncode != 0:
        return done.returncode, {"trace": done.stderr}
    return 0, json.loads(done.stdout.splitlines()[-1])


@dataclass(frozen=True, kw_only=True)
class World:
    """Where lives are lived: a server, a database, a folder for ledgers, a replay mode."""

    uri: str
    database: str
    folder: Path
    mode: str = "restore"

    def app(self, ledger: Ledger, case: Case, namespace: str, faults: KillAt, late_ms: int) -> App:
        config = {
            "features": {"durable_workflow": True},
            "namespace": namespace,
            "replay": {"mode": self.mode},
            **case.config,
        }
        return App(
            "lives",
            root_agent=case.build(ledger),
            config=config,
            mongodb=self.uri,
            database=self.database,
            clock=ServerClock(offset_ms=late_ms),
            faults=faults,
            **(case.app(ledger) if case.app is not None else {}),
        )

    def live(
        self,
        case: Case,
        *,
        kill: tuple[int, Point] | None = None,
        sigkill_of: str | None = None,
    ) -> Life:
        """Live a case to its end.

        Args:
            kill: (attempt, from 1, and the point in it).
            sigkill_of: The case's name in the catalogue: the attempt that is killed is a fresh
                interpreter, and dies of SIGKILL.
        """
        warm()
        handle, name = tempfile.mkstemp(dir=self.folder)
        os.close(handle)
        return _Living(self, case, Path(name), kill, sigkill_of).live()

    async def perform(
        self, case: Case, ledger: Path, namespace: str, act: Act, *, sigkill: bool
    ) -> dict[str, Any]:
        """One process's work."""
        faults = KillAt(act.kill_at, sigkill=sigkill)
        run_config = case.run_config() if case.run_config is not None else None
        async with self.app(Ledger(ledger), case, namespace, faults, act.late_ms) as app:
            found = await ACTS[act.what](app, act, run_config)
        return {**found, "reached": faults.reached}


class _Living:
    def __init__(
        self,
        world: World,
        case: Case,
        ledger: Path,
        kill: tuple[int, Point] | None,
        sigkill_of: str | None,
    ) -> None:
        self.world = world
        self.case = case
        self.ledger = ledger
        self.kill = kill
        self.sigkill_of = sigkill_of
        self.life = Life()
        self.namespace = f"n{os.urandom(6).hex()}"
        self.late_ms = 0

    def live(self) -> Life:
        for turn, message in enumerate(self.case.messages):
            self.turn(f"x{turn}", message)
        left = self.attempt(Act(what="read", messages=self.case.messages), dies=False)
        self.life.events, self.life.state = left["events"], left["state"]
        self.life.output = left["output"]
        self.life.ledger = collections.Counter(Ledger(self.ledger).rows())
        return self.life

    def turn(self, execution_id: str, message: str) -> None:
        named = {"execution_id": execution_id, "message": message}
        found = self.attempt(Act(what="invoke", **named))
        for _ in range(ATTEMPTS_AT_MOST):
            status = found.get("status")
            if status == "suspended":
                self.life.waits.append([wait["kind"] for wait in found["waits"]])
                given = {wait["id"]: self.answer_to(wait) for wait in found["waits"]}
                answers = {wait: value for wait, value in given.items() if value is not None}
                if answers:
                    found = self.attempt(Act(what="resume", answers=answers, **named))
                else:  # timers, and what nobody answers: both are over by themselves
                    self.late_ms += LEASE_PASSED_MS
                    found = self.attempt(Act(what="recover", **named))
            elif status in ("completed", "failed", "cancelled", "stuck"):
                self.life.status.append(status)
                self.life.error = found.get("error")
                return
            else:  # the process died, or failed: whoever comes next recovers, then looks
                self.late_ms += LEASE_PASSED_MS * (status == "queued")
                found = self.attempt(Act(what="recover", **named), dies=False)
        raise AssertionError(f"no end after {ATTEMPTS_AT_MOST} attempts: {found}")

    def answer_to(self, wait: Mapping[str, Any]) -> Any:
        give = self.case.answer or default_answer
        return None if wait["kind"] == "timer" else give(wait)

    def attempt(self, act: Act, *, dies: bool = True) -> dict[str, Any]:
        self.life.attempts += dies
        at = None
        if dies and self.kill is not None and self.kill[0] == self.life.attempts:
            at = self.kill[1]
        code, found = self.process(replace(act, kill_at=at, late_ms=self.late_ms))
        if code in (DIED, -signal.SIGKILL) and at is not None:
            self.life.killed_at = f"attempt {self.life.attempts}, point {at}"
            self.late_ms += LEASE_PASSED_MS
            return {}
        assert code == 0, f"exit {code}: {found.get('trace')}"
        if dies:
            self.life.reached.append(found["reached"])
        return found

    def process(self, act: Act) -> tuple[int, dict[str, Any]]:
        world, case, ledger = self.world, self.case, self.ledger
        if self.sigkill_of is not None and act.kill_at is not None:
            given = {
                "world": {**asdict(world), "folder": str(world.folder)},
                "case": self.sigkill_of,
                "ledger": str(ledger),
                "namespace": self.namespace,
                "act": asdict(act),
            }
            return in_fresh_interpreter(given)
        return in_fork(lambda: world.perform(case, ledger, self.namespace, act, sigkill=False))


async def _invoke(app: App, act: Act, run_config: Any) -> dict[str, Any]:
    out = await app.invoke(
        user_id="u",
        session_id="s",
        message=act.message,
        execution_id=act.execution_id,
        run_config=run_config,
    )
    return out.to_dict()


async def _resume(app: App, act: Act, _run_config: Any) -> dict[str, Any]:
    return (await app.resume(act.execution_id, act.answers)).to_dict()


async def _recover(app: App, act: Act, run_config: Any) -> dict[str, Any]:
    """What a worker and the client that lost its connection do."""
    await app.recover()
    return await _invoke(app, act, run_config)


async def _read(app: App, act: Act, run_config: Any) -> dict[str, Any]:
    outs = [
        await _invoke(app, Act(what="invoke", execution_id=f"x{turn}", message=message), run_config)
        for turn, message in enumerate(act.messages)
    ]
    events = await app.sessions.events(user_id="u", session_id="s")
    session = await app.sessions.get(user_id="u", session_id="s")
    return {
        "events": [json.loads(event.model_dump_json(exclude_none=True)) for event in events],
        "state": session.to_dict()["state"],
        "output": [out["output"] for out in outs],
    }


ACTS: Mapping[str, Callable[[App, Act, Any], Awaitable[dict[str, Any]]]] = {
    "invoke": _invoke,
    "resume": _resume,
    "recover": _recover,
    "read": _read,
}


def by_place(events: Sequence[Mapping[str, Any]]) -> dict[Any, list[Any]]:
    """Events by who and where, in order there; times left out, ids kept."""
    places: dict[Any, list[Any]] = collections.defaultdict(list)
    for event in events:
        place = (event.get("node_info", {}).get("path"), event.get("branch"), event.get("author"))
        places[place].append(_without_times(event))
    return dict(places)


def _without_times(event: Mapping[str, Any]) -> dict[str, Any]:
    """Without when it was, and what period a summary covers."""
    kept = {key: value for key, value in event.items() if key != "timestamp"}
    summary = event.get("actions", {}).get("compaction")
    if summary:
        text = {"compacted_content": summary.get("compacted_content")}
        kept["actions"] = {**event["actions"], "compaction": text}
    return kept
