"""Where a soak happens, what it writes down, and the processes that it forks.

The parent has imported everything and holds no client, no event loop and no thread: what it forks
begins with fresh ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient

from durable_adk import App
from durable_adk.store.clock import ServerClock
from tests.soak.programs import AGENTS, Bodies
from tests.support.lives import Ledger

LEASE_S = 5
NAMESPACE = "soak"


@dataclass(frozen=True)
class World:
    """A database and a folder with what is written down.

    Attributes:
        longest_s: Bodies take half of this to all of it, at random.
        dies_in: Keys of bodies in which the process ends.
        late_ms: How far the clock is ahead.
        seed: What its conversations are drawn from.
    """

    uri: str
    database: str
    folder: Path
    longest_s: float = 0.4
    dies_in: frozenset[str] = frozenset()
    late_ms: int = 0
    lease_s: int = LEASE_S
    seed: int = 1

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.folder / "ledger")

    @property
    def trouble(self) -> Ledger:
        """What was done to processes and servers: ``(from, to, what, pid or None)``."""
        return Ledger(self.folder / "trouble")

    def twin(self, uri: str) -> World:
        """A world without trouble: a server, a database and a folder of its own."""
        folder = self.folder / "twins"
        folder.mkdir()
        return replace(
            self,
            uri=uri,
            database=f"{self.database}_twins",
            folder=folder,
            longest_s=0.0,
            lease_s=30,
        )

    def apps(self, client: object, *, runs: bool) -> dict[str, App]:
        """The Apps over one client; without agents if they are only to ask, answer and read."""
        bodies = Bodies(self.ledger, self.longest_s, self.dies_in)
        config = {
            "features": {"durable_workflow": True},
            "namespace": NAMESPACE,
            "lease": {"ttl": f"{self.lease_s}s"},
            "shutdown": {"grace": "2s"},
        }
        return {
            kind: App(
                kind,
                root_agent=build(bodies) if runs else None,
                config=config,
                mongodb=client,
                database=self.database,
                clock=ServerClock(offset_ms=self.late_ms),
            )
            for kind, build in AGENTS.items()
        }

    @contextlib.asynccontextmanager
    async def open_apps(self, *, runs: bool) -> Any:
        async with AsyncMongoClient(self.uri) as client, contextlib.AsyncExitStack() as stack:
            apps = self.apps(client, runs=runs)
            for app in apps.values():
                await stack.enter_async_context(app)
            yield apps


def forked(run: Callable[[], Awaitable[Any]], *, answer: Path | None = None) -> int:
    """Run a coroutine in a new process. Returns: its pid; its result goes to a file as JSON."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        result = asyncio.run(_awaited(run))
        if answer is not None:
            answer.write_text(json.dumps(result))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


async def _awaited(run: Callable[[], Awaitable[Any]]) -> Any:
    return await run()


def joined(pid: int) -> int:
    """Wait for a process. Returns: its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# -------------------------------------------------------------------- a worker


async def work(world: World) -> None:
    """A worker process: goes on with what is due until SIGTERM."""
    loop, lag = asyncio.get_running_loop(), asyncio.create_task(_tell_stalls(world))
    logging.getLogger("durable_adk.engine").addHandler(_Renewals(world))
    async with AsyncMongoClient(world.uri) as client:
        apps = list(world.apps(client, runs=True).values())
        workers = [app.worker() for app in apps]

        def stop() -> None:
            for worker in workers:
                worker.stop()

        loop.add_signal_handler(signal.SIGTERM, stop)
        try:
            await asyncio.gather(*(worker.run() for worker in workers))
        finally:
            lag.cancel()
            for app in apps:
                await app.close()


async def _tell_stalls(world: World) -> None:
    """Write down when this process did not run, whoever stopped it: the machine may be busy."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.2)
        if time.monotonic() - before > 1.5:
            world.trouble.add(before, time.monotonic(), "stall", os.getpid())


class _Renewals(logging.Handler):
    """Writes down renewals that did not come through."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if "not renewed" in record.msg:
            self._world.trouble.add(now - LEASE_S, now, "late renewal", os.getpid())
        else:
            what = f"{record.getMessage()} {record.exc_info[1]!r}" if record.exc_info else ""
            Ledger(self._world.folder / "log").add(now, os.getpid(), what or record.getMessage())
