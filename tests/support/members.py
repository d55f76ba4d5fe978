"""Three members of a replica set behind TCP proxies, and what can happen to them.

Clients and members reach each member through its proxy only. Nothing here keeps a client or a
thread between two calls, so a process that holds ``Members`` may fork.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.support.mongo import MONGO_SCRIPT, ROOT, NoServer
from tests.support.programs import free_port

PATIENCE_S = 60.0
START_TIMEOUT_S = 120


class Members:
    """A running set. ``uri`` names the proxies."""

    def __init__(self, name: str, *, members: int = 3) -> None:
        self.name = name
        self.count = members
        self.folder = ROOT / ".durable" / "mongo" / name
        self.proxied = [f"127.0.0.1:{free_port()}" for _ in range(members)]
        self.uri = f"mongodb://{','.join(self.proxied)}/?replicaSet=rs0"
        self._proxies: subprocess.Popen[str] | None = None
        self._control = 0
        self._commands: list[list[str]] = []

    def start(self) -> None:
        """Start the proxies, then the members that know each other under the proxies' addresses.

        Raises:
            NoServer: with what ``mongo.sh`` said.
        """
        ports = [address.rpartition(":")[2] for address in self.proxied]
        self._proxies = subprocess.Popen(
            [sys.executable, "-m", "tests.support.proxies", str(self.folder), *ports],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._proxies.stdout is not None
        self._control = int(self._proxies.stdout.readline())
        given = ["--members", str(self.count), "--advertise", ",".join(self.proxied)]
        started = subprocess.run(
            ["bash", MONGO_SCRIPT, "start", "--name", self.name, *given],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            env={**os.environ, "DURABLE_PYTHON": sys.executable},
            check=False,
        )
        if started.returncode != 0:
            raise NoServer(f"no three members: {started.stderr.strip()}")
        for number in range(self.count):
            text = Path(f"/proc/{self._pid(number)}/cmdline").read_text()
            self._commands.append(text.split("\0")[:-1])

    def stop(self) -> None:
        """Stop all, and delete the data. Repeat: yes."""
        subprocess.run(
            ["bash", MONGO_SCRIPT, "stop", "--name", self.name],
            capture_output=True,
            env={**os.environ, "DURABLE_PYTHON": sys.executable},
            check=False,
        )
        if self._proxies is not None:
            self._proxies.kill()
            self._proxies.communicate()
            self._proxies = None

    # ---------------------------------------------------------------- what happens

    def primary(self) -> int:
        """The number of the primary, once there is one.

        Raises:
            TimeoutError: there is none within a minute.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(PyMongoError), self._client(self.uri) as client:
                hello = client.admin.command("hello")
                if hello.get("isWritablePrimary"):
                    return self.proxied.index(hello["me"])
            time.sleep(0.1)
        raise TimeoutError(f"{self.name} has no primary after {PATIENCE_S:.0f} s")

    def wait_until_whole(self) -> None:
        """Return when there is a primary and every other member follows it.

        Raises:
            TimeoutError: not within a minute.
        """
        deadline = time.monotonic() + PATIENCE_S
        wanted = ["PRIMARY"] + ["SECONDARY"] * (self.count - 1)
        seen: object = None
        while time.monotonic() < deadline:
            with contextlib.suppress(PyMongoError), self._client(self.uri) as client:
                status = client.admin.command("replSetGetStatus")
                seen = sorted(member["stateStr"] for member in status["members"])
                if seen == wanted:
                    return
            time.sleep(0.1)
        raise TimeoutError(f"{self.name} is not whole after {PATIENCE_S:.0f} s: {seen}")

    def step_down(self) -> None:
        """Have the primary step down at once."""
        own = f"mongodb://127.0.0.1:{self._port(self.primary())}/?directConnection=true"
        with contextlib.suppress(PyMongoError), self._client(own) as client:
            # It closes connections as it goes.
            client.admin.command("replSetStepDown", 10, secondaryCatchUpPeriodSecs=0, force=True)

    def kill(self, number: int) -> None:
        """SIGKILL a member, and wait until it holds nothing any more."""
        pid = self._pid(number)
        os.kill(pid, signal.SIGKILL)
        while _is_there(pid):
            time.sleep(0.02)

    def restart(self, number: int) -> None:
        """Start a killed member again on its port and its data."""
        done = subprocess.run(
            self._commands[number], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.returncode != 0:
            raise NoServer(f"member {number} did not start again: {done.stdout[-500:]}")

    def tell(self, command: str, number: int, *more: object) -> None:
        """``cut``, ``freeze``, ``delay`` or ``pass`` for one member; see ``proxies``."""
        text = " ".join(map(str, (command, number, *more)))
        with socket.create_connection(("127.0.0.1", self._control)) as control:
            control.sendall(f"{text}\n".encode())
            assert control.recv(16) == b"ok\n", text

    @contextlib.contextmanager
    def each(self, command: str) -> Iterator[None]:
        """All members cut or frozen, for a while."""
        for number in range(self.count):
            self.tell(command, number)
        try:
            yield
        finally:
            for number in range(self.count):
                self.tell("pass", number)

    # ---------------------------------------------------------------- parts

    def _client(self, uri: str) -> MongoClient[dict[str, Any]]:
        return MongoClient(uri, serverSelectionTimeoutMS=1000, timeoutMS=3000)

    def _pid(self, number: int) -> int:
        return int((self.folder / f"member-{number}" / "pid").read_text())

    def _port(self, number: int) -> int:
        return int((self.folder / f"member-{number}" / "port").read_text())


def _is_there(pid: int) -> bool:
    """Whether a process runs; a zombie whose last thread has ended does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False
