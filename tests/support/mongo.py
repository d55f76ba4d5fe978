"""Where the tests find MongoDB servers, and how they give them back.

For each kind of server, in this order: ``MONGODB_URI`` if it is of that kind, a private mongod
through ``scripts/mongo.sh``, a container where Docker runs. None of them fails the run.
"""

from __future__ import annotations

import enum
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

ROOT = Path(__file__).resolve().parents[2]
MONGO_SCRIPT = ROOT / "scripts" / "mongo.sh"
RUN_VARIABLE = "DURABLE_TEST_RUN"
CONTAINER_IMAGE = "mongo:6.0"
CONTAINER_PORT = 27017
CONTAINER_START_MS = 30_000
START_TIMEOUT_S = 50
ANSWER_WITHIN_MS = 5000

REMEDY = (
    "The tests need a real MongoDB and are never skipped. One of these provides it: "
    "run them with ./scripts/test.sh (Linux x86-64: brings its own mongod); "
    "put a mongod on PATH or name it with MONGOD=...; start Docker; "
    "or 'docker compose up -d' and MONGODB_URI='mongodb://localhost:27017/?replicaSet=rs0'."
)


class NoServer(Exception):
    """No server of this kind could be found or started."""


class Kind(enum.Enum):
    """The kinds of server that tests ask for, with what ``mongo.sh`` calls them."""

    REPLICA_SET = ()
    STANDALONE = ("--standalone",)
    THREE_MEMBERS = ("--members", "3")

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", "-")


def kind_of(uri: str) -> Kind:
    """Ask a server what it is.

    Raises:
        NoServer: it does not answer.
    """
    client: MongoClient[dict[str, Any]]
    try:
        with MongoClient(uri, serverSelectionTimeoutMS=ANSWER_WITHIN_MS) as client:
            hello = client.admin.command("hello")
    except PyMongoError as error:
        raise NoServer(f"MONGODB_URI is set, but its server does not answer: {error}") from error
    if "setName" not in hello:
        return Kind.STANDALONE
    return Kind.THREE_MEMBERS if len(hello.get("hosts", ())) >= 3 else Kind.REPLICA_SET


def run_name() -> str:
    """The name of this test run, the same in each of its worker processes."""
    return os.environ.setdefault(RUN_VARIABLE, f"tests-{os.getpid()}")


def start_private(kind: Kind) -> str:
    """Start a private mongod, or return the URI of the one this run has started already.

    Raises:
        NoServer: there is no mongod, or it does not start; with what the script said.
    """
    started = subprocess.run(
        ["bash", MONGO_SCRIPT, "start", "--name", f"{run_name()}.{kind.label}", *kind.value],
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        env={**os.environ, "DURABLE_PYTHON": sys.executable, "DURABLE_MONGO_MEMORY": "1"},
        check=False,
    )
    if started.returncode != 0:
        raise NoServer(f"no private mongod: {started.stderr.strip()}")
    return started.stdout.strip()


def stop_private(run: str) -> None:
    """Stop every private mongod of a test run."""
    for folder in (ROOT / ".durable" / "mongo").glob(f"{run}.*"):
        subprocess.run(
            ["bash", MONGO_SCRIPT, "stop", "--name", folder.name], capture_output=True, check=True
        )


def stop_abandoned() -> None:
    """Stop the private mongods of test runs whose process is gone, which could not do it."""
    for folder in (ROOT / ".durable" / "mongo").glob("tests-*.*"):
        run = folder.name.partition(".")[0]
        if not _is_alive(int(run.removeprefix("tests-"))):
            stop_private(run)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def start_container(kind: Kind, resources: ExitStack) -> str:
    """Start MongoDB in Docker; ``resources`` stops it.

    Raises:
        NoServer: Docker does not run, or cannot run it.
    """
    if kind is Kind.THREE_MEMBERS:
        raise NoServer("no container: three members are not started in Docker")
    try:
        from testcontainers.core.container import DockerContainer

        command = ["mongod", "--bind_ip_all", "--port", str(CONTAINER_PORT)]
        if kind is Kind.REPLICA_SET:
            command += ["--replSet", "rs0"]
        container = DockerContainer(CONTAINER_IMAGE).with_exposed_ports(CONTAINER_PORT)
        resources.enter_context(container.with_command(command))
        host = f"{container.get_container_host_ip()}:{container.get_exposed_port(CONTAINER_PORT)}"
    except Exception as error:  # docker and testcontainers share no base error
        raise NoServer(f"no container: {error}") from error
    uri = f"mongodb://{host}/?directConnection=true"
    client: MongoClient[dict[str, Any]]
    with MongoClient(uri, serverSelectionTimeoutMS=CONTAINER_START_MS) as client:
        if kind is Kind.REPLICA_SET:
            # Its one member is known by its name inside the container.
            member = {"_id": 0, "host": f"localhost:{CONTAINER_PORT}"}
            client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
        wait_until_writable(client)
    return uri


def wait_until_writable(client: MongoClient[dict[str, Any]]) -> None:
    """Return when a fresh server is up (and primary). A test's own timeout bounds it."""
    while not client.admin.command("hello").get("isWritablePrimary"):
        time.sleep(0.05)


class Servers:
    """The servers of one test process, found on first use, and the databases made on them."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._given = environ.get("MONGODB_URI")
        self._given_kind: Kind | None = None
        self._uris: dict[Kind, str] = {}
        self._resources = ExitStack()
        worker = environ.get("PYTEST_XDIST_WORKER", "main")
        self.database = f"durable_test_{worker}_{secrets.token_hex(6)}"

    def uri(self, kind: Kind) -> str:
        """The URI of a server of this kind.

        Raises:
            NoServer: every way to get one failed; says why, and the remedy.
        """
        if kind not in self._uris:
            self._uris[kind] = self._find(kind)
        return self._uris[kind]

    def _find(self, kind: Kind) -> str:
        if self._given:
            self._given_kind = self._given_kind or kind_of(self._given)
            if self._given_kind is kind:
                return self._given
            if (self._given_kind, kind) == (Kind.THREE_MEMBERS, Kind.REPLICA_SET):
                return self._given
        reasons: list[str] = []
        try:
            return start_private(kind)
        except NoServer as error:
            reasons.append(str(error))
        try:
            return start_container(kind, self._resources)
        except NoServer as error:
            reasons.append(str(error))
        raise NoServer(f"no MongoDB ({kind.label}). " + "; ".join(reasons) + f". {REMEDY}")

    def close(self) -> None:
        """Drop this process's database where the server outlives the run; end containers."""
        client: MongoClient[dict[str, Any]]
        if self._given and self._given in self._uris.values():
            with MongoClient(self._given, serverSelectionTimeoutMS=ANSWER_WITHIN_MS) as client:
                for name in client.list_database_names():
                    if name.startswith(self.database):
                        client.drop_database(name)
        self._resources.close()
