"""Lives of an execution: each attempt is a new process, and some of them die.

The parent has imported everything and opened no client; each attempt is forked from it, so it
begins with fresh objects and a fresh event loop in milliseconds. A child that dies leaves its
lease behind: the test clock of the next one is moved past it. Bodies are counted in a ledger
outside of all of them.

An undisturbed life has a process for each act. A disturbed one is cheaper: a process goes on with
the next act (with an App, an event loop and agents of its own) until it dies; what it did until
then is in a journal that the next process begins with.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import fcntl
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool

from durable_adk import App
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.engine.ports import Faults, Write
from durable_adk.store.clock import ServerClock
from durable_adk.testing import memory_client
from tests.support.acts import ACTS, Act, Fault, Forked, Ledger, Point, Told
from tests.support.mongo import ROOT

LEASE_PASSED_MS = 120_000
ATTEMPTS_AT_MOST = 40
DIED = 9
STUCK_AFTER_S = 20
STOPPED_S = 3.3
"""For how long a process is stopped at least; its lease is one of 3 s (see ``Case.config``)."""


def points_of(reached: Sequence[str]) -> list[Point]:
    """The points of a list of names."""
    return [(name, reached[: place + 1].count(name)) for place, name in enumerate(reached)]


ANY = "any point"
"""As the name of a point: whichever is reached as the n-th."""


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
        here = ((point, self.reached.count(point)), (ANY, len(self.reached)))
        if self._at is not None and tuple(self._at) in here:
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
        settle: What somebody says of a call in doubt who looked into the ledger.
        in_flight: How many bodies may be cut off by one kill: a tool's outcome may be on its
            way while the next model call runs; more in parallel.
        reentered: Ledger rows (by first fields) of hooks and orchestrators, which may repeat.
        config: Configuration keys beside the usual ones.
        app: More arguments of ``App``, made in each process.
        run_config: Makes ADK's ``RunConfig`` of each turn.
        forks: What is forked when all turns have ended, and goes on in the fork.
        listens: Each process reads the stream; what it is told is in ``Life.told``.
    """

    build: Callable[[Ledger], Any]
    messages: Sequence[str] = ("go",)
    answer: Callable[[Mapping[str, Any]], Any] | None = None
    settle: Callable[[Ledger, Mapping[str, Any]], Any] | None = None
    in_flight: int = 2
    reentered: tuple[tuple[Any, ...], ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    app: Callable[[Ledger], Mapping[str, Any]] | None = None
    run_config: Callable[[], Any] | None = None
    forks: Sequence[Forked] = ()
    listens: bool = False


@dataclass
class Life:
    """What one life left.

    Attributes:
        reached: The points of each attempt.
        asked: Kind, id and call of each wait that somebody answered, once.
        forks: Of each fork: events, state and output, its own ids named by their order.
        struck: Whether the fault happened; ``died`` counts the processes that did.
        told: What listeners were told, in order: ("token", text), and ("goes on", waits) where a
            process began with answers.
        raised: What calls raised, which a fault had made.
        woken: What a stopped process answered in the end.
    """

    status: list[str] = field(default_factory=list)
    error: dict[str, Any] | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    output: list[Any] = field(default_factory=list)
    ledger: collections.Counter[tuple[Any, ...]] = field(default_factory=collections.Counter)
    reached: list[list[str]] = field(default_factory=list)
    waits: list[list[str]] = field(default_factory=list)
    wait_ids: list[str] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)
    forks: list[dict[str, Any]] = field(default_factory=list)
    told: list[tuple[Any, ...]] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)
    killed_at: str | None = None
    died: int = 0
    struck: bool = False
    attempts: int = 0
    woken: dict[str, Any] | None = None


def default_answer(wait: Mapping[str, Any]) -> Any:
    if wait["kind"] == "adk_request_confirmation":
        return {"confirmed": True}
    return "blue"


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
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy all that it looks at


def in_fork(run: Callable[[], Awaitable[dict[str, Any]]]) -> tuple[int, dict[str, Any]]:
    """Run a coroutine in a forked process. Returns: exit code (negative: signal), its answer."""
    return begin_fork(lambda: asyncio.run(_run(run))).wait()


@dataclass
class Child:
    """A forked process and the pipe with its answer."""

    pid: int
    pipe: int

    def is_stopped(self) -> bool:
        """Wait until it has ended, or is stopped."""
        info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        return info is not None and info.si_code == os.CLD_STOPPED

    def wait(self) -> tuple[int, dict[str, Any]]:
        """Its exit code (negative: signal) and its answer."""
        with os.fdopen(self.pipe, "rb") as answers:
            text = answers.read()
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), json.loads(text) if text else {}


def begin_fork(run: Callable[[], dict[str, Any]], *, stuck_after_s: int = STUCK_AFTER_S) -> Child:
    """Start a forked process that answers what ``run`` returns."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 1 << 20)  # an answer must not wait for its reader
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            gc.disable()  # it does not live long enough
            signal.alarm(stuck_after_s)  # ends a process that waits for ever
            answer = run()
            with os.fdopen(write, "wb", closefd=False) as pipe:
                pipe.write(json.dumps(answer).encode())
            code = 0
        except BaseException:
            with contextlib.suppress(OSError):
                os.write(write, json.dumps({"trace": traceback.format_exc()}).encode())
        finally:
            os._exit(code)
    os.close(write)
    return Child(pid, read)


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

    def app(self, ledger: Ledger, case: Case, namespace: str, faults: Faults, late_ms: int) -> App:
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
        fault: tuple[int, Fault] | None = None,
        again: int | None = None,
    ) -> Life:
        """Live a case to its end.

        Args:
            kill: (attempt, from 1, and the point in it).
            sigkill_of: The case's name in the catalogue: the attempt that is killed is a fresh
                interpreter, and dies of SIGKILL.
            fault: The same as ``kill``, with another fault.
            again: A second process dies: at the how-manyeth point that is reached after the first
                death, in the recovery or in what follows it.
        """
        warm()
        handle, name = tempfile.mkstemp(dir=self.folder)
        os.close(handle)
        stops = fault is not None and fault[1].what == "stop"
        in_few = (kill or fault) is not None and sigkill_of is None and not stops
        living = (_InFewProcesses if in_few else _Living)(self, case, Path(name))
        living.kill, living.sigkill_of, living.fault, living.again = kill, sigkill_of, fault, again
        return living.lived()

    async def perform(
        self, case: Case, ledger: Path, namespace: str, act: Act, *, sigkill: bool
    ) -> dict[str, Any]:
        """One process's work."""
        plan = None if act.fault is None else act.fault.plan()
        faults = plan or KillAt(act.kill_at, sigkill=sigkill)
        run_config = case.run_config() if case.run_config is not None else None
        told = Ledger(Path(f"{ledger}.told")) if case.listens else None
        found: dict[str, Any] = {}
        try:
            async with self.app(Ledger(ledger), case, namespace, faults, act.late_ms) as app:
                found = await ACTS[act.what](app, act, Told(run_config, told))
        except Exception as error:
            if plan is None:
                raise
            found = {"raised": repr(error)}
        if plan is not None:
            with contextlib.suppress(AssertionError):
                plan.assert_all_struck()
                found["struck"] = True
        return {**found, "reached": faults.reached}


class _Living:
    kill: tuple[int, Point] | None = None
    sigkill_of: str | None = None
    fault: tuple[int, Fault] | None = None
    again: int | None = None

    def __init__(self, world: World, case: Case, ledger: Path) -> None:
        self.world = world
        self.case = case
        self.ledger = ledger
        self.life = Life()
        self.namespace = f"n{os.urandom(6).hex()}"
        self.late_ms = 0
        self.stopped: Child | None = None

    def lived(self) -> Life:
        """The life to its end, with what is outside of all processes."""
        life = self.live()
        life.ledger = collections.Counter(Ledger(self.ledger).rows())
        life.told = Ledger(Path(f"{self.ledger}.told")).rows()
        return life

    def live(self) -> Life:
        for turn, message in enumerate(self.case.messages):
            self.turn(Act(what="invoke", execution_id=f"x{turn}", message=message))
        forks = [self.forked(number, fork) for number, fork in enumerate(self.case.forks)]
        self.wake()
        if self.fault is not None and self.fault[1].what == "raise":
            # Shared state follows the commit: where the server was gone then, a worker finishes it.
            self.attempt(Act(what="work"), dies=False)
        left = self.attempt(Act(what="read", messages=self.case.messages), dies=False)
        self.life.events, self.life.state = left["events"], left["state"]
        self.life.output = left["output"]
        for act in forks:
            left = self.attempt(replace(act, what="read a fork"), dies=False)
            self.life.forks.append(in_order(left, known=self.life.events))
        return self.life

    def forked(self, number: int, fork: Forked) -> Act:
        """Make a fork and bring it to its end."""
        cut = f"x{fork.turn}" if fork.wait is None else self.life.wait_ids[fork.wait]
        act = Act(what="fork", cut={"after" if fork.after else "before": cut}, message=str(number))
        found = self.attempt(act)
        while "session_id" not in found:  # whoever asked asks again
            self.late_ms += LEASE_PASSED_MS
            found = self.attempt(act, dies=False)
        made = Act(
            what="invoke" if fork.message else "go on",
            execution_id=found["execution_id"],
            session_id=found["session_id"],
            message=fork.message,
        )
        self.turn(made, fork.answer)
        return made

    def turn(self, begin: Act, answer: Callable[[Mapping[str, Any]], Any] | None = None) -> None:
        give = answer or self.case.answer or default_answer
        found = self.attempt(begin)
        for _ in range(ATTEMPTS_AT_MOST):
            status = found.get("status")
            if status == "suspended":
                self.life.waits.append([wait["kind"] for wait in found["waits"]])
                self.life.wait_ids += [wait["id"] for wait in found["waits"]]
                given = {wait["id"]: self.told(wait, give) for wait in found["waits"]}
                answers = {wait: value for wait, value in given.items() if value is not None}
                if answers:
                    found = self.following(replace(begin, what="resume", answers=answers))
                else:  # timers, and what nobody answers: both are over by themselves
                    self.late_ms += LEASE_PASSED_MS
                    found = self.following(replace(begin, what="recover"))
            elif status in ("completed", "failed", "cancelled", "stuck"):
                self.life.status.append(status)
                self.life.error = found.get("error")
                return
            else:  # the process died, or failed: whoever comes next recovers, then looks
                self.late_ms += LEASE_PASSED_MS * (status == "queued")
                found = self.following(replace(begin, what="recover"), dies=False)
        raise AssertionError(f"no end after {ATTEMPTS_AT_MOST} attempts: {found}")

    def told(self, wait: Mapping[str, Any], give: Callable[[Mapping[str, Any]], Any]) -> Any:
        """The answer to a wait; None where nobody gives one."""
        if wait["kind"] == "timer":
            return None
        if wait["kind"] == "in_doubt" and self.case.settle is not None:
            value = self.case.settle(Ledger(self.ledger), wait)
        else:
            value = give(wait)
        call = wait.get("tool_call") or {}
        asked = [wait["kind"], wait["id"], call.get("name") or ""]
        if value is not None and asked not in self.life.asked:
            self.life.asked.append(asked)
        return value

    def following(self, act: Act, *, dies: bool = True) -> dict[str, Any]:
        """An attempt that may be the one that dies again."""
        if self.again is None or self.life.died != 1:
            return self.attempt(act, dies=dies)
        found = self.attempt(act, dies=dies, at=(ANY, self.again))
        left = self.again - len(found.get("reached", ()))
        self.again = left if found and left > 0 else None
        return found

    def attempt(self, act: Act, *, dies: bool = True, at: Point | None = None) -> dict[str, Any]:
        """One process's work; {} if it died where it was to die, or was stopped."""
        self.life.attempts += dies
        fault = None
        if dies and self.kill is not None and self.kill[0] == self.life.attempts:
            at = self.kill[1]
        if dies and self.fault is not None and self.fault[0] == self.life.attempts:
            fault = self.fault[1]
        code, found = self.process(replace(act, kill_at=at, fault=fault, late_ms=self.late_ms))
        if found.get("stopped"):
            self.life.struck = True
            time.sleep(STOPPED_S)
            return {}
        if code in (DIED, -signal.SIGKILL) and (at or fault) is not None:
            self.life.killed_at = f"attempt {self.life.attempts}, point {at or fault}"
            self.life.died += 1
            self.life.struck = True
            self.late_ms += LEASE_PASSED_MS
            return {}
        assert code == 0, f"exit {code}: {found.get('trace')}"
        self.life.struck |= found.get("struck", False)
        if "raised" in found:
            self.life.raised.append(found["raised"])
            self.late_ms += LEASE_PASSED_MS
        if dies:
            self.life.reached.append(found["reached"])
        return found

    def process(self, act: Act) -> tuple[int, dict[str, Any]]:
        world = self.world
        if self.sigkill_of is not None and act.kill_at is not None:
            given = {
                "world": {**asdict(world), "folder": str(world.folder)},
                "case": self.sigkill_of,
                "ledger": str(self.ledger),
                "namespace": self.namespace,
                "act": asdict(act),
            }
            return in_fresh_interpreter(given)
        child = begin_fork(lambda: self.perform(act), stuck_after_s=STUCK_AFTER_S)
        if act.fault is not None and act.fault.what == "stop" and child.is_stopped():
            self.stopped = child
            return 0, {"stopped": True}
        return child.wait()

    def perform(self, act: Act) -> dict[str, Any]:
        work = self.world.perform(self.case, self.ledger, self.namespace, act, sigkill=False)
        return asyncio.run(work)

    def wake(self) -> None:
        """Continue the process that was stopped, and wait for what it answers."""
        if self.stopped is not None:
            os.kill(self.stopped.pid, signal.SIGCONT)
            code, self.life.woken = self.stopped.wait()
            assert code == 0, f"exit {code}: {self.life.woken.get('trace')}"


class _InFewProcesses(_Living):
    """A life in one process more than deaths: it goes on with what the journal holds."""

    def __init__(self, world: World, case: Case, ledger: Path) -> None:
        super().__init__(world, case, ledger)
        self.journal = Ledger(Path(f"{ledger}.acts"))
        self.past: list[tuple[int, dict[str, Any]]] = []

    def live(self) -> Life:
        for _ in range(ATTEMPTS_AT_MOST):
            self.past = [(code, found) for code, found in self.journal.rows()]
            code, found = begin_fork(lambda: asdict(super(_InFewProcesses, self).live())).wait()
            if code not in (DIED, -signal.SIGKILL):
                assert code == 0, f"exit {code}: {found.get('trace')}"
                return Life(**{**found, "ledger": collections.Counter()})
            self.journal.add(code, {})
        raise AssertionError("dies again and again")

    def process(self, act: Act) -> tuple[int, dict[str, Any]]:
        if self.past:
            return self.past.pop(0)
        signal.alarm(STUCK_AFTER_S)
        found = self.perform(act)
        self.journal.add(0, found)
        return 0, found


_ID_FIELDS = ("id", "invocation_id", "execution_id", "session_id")


def _ids(event: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for part in event.get("content", {}).get("parts", ()):
        for kind in ("function_call", "function_response"):
            if kind in part:
                yield "call", part[kind]["id"]
    for key in _ID_FIELDS:
        if event.get(key):
            yield key, event[key]


def in_order(left: Mapping[str, Any], *, known: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a fork left, with its own ids named by their order: they derive from the namespace."""
    shared = {one for event in known for _, one in _ids(event)}
    timeless = [_without_times(event) for event in left["events"]]
    text = json.dumps({**left, "events": timeless}, sort_keys=True)
    named: dict[str, str] = {}
    for event in (left["named"], *left["events"]):
        for key, one in _ids(event):
            if one not in shared:
                named.setdefault(one, f"({key} {len(named)})")
    for one, name in named.items():
        text = text.replace(one, name)
    found: dict[str, Any] = json.loads(text)
    return found


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
