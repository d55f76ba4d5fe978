"""Where the tests find a server: the one given, a private one, a container; none is a failure."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from pymongo import MongoClient

from tests.support import mongo, programs


class ContainerOnThisMachine:
    """Stands in for testcontainers' class: what would run in Docker runs beside the test."""

    folder: Path

    def __init__(self, image: str) -> None:
        self.image = image
        self.command: list[str] = ["mongod"]
        self.resources = ExitStack()

    def with_exposed_ports(self, *ports: int) -> Self:
        self.ports = ports
        return self

    def with_command(self, command: list[str]) -> Self:
        self.command = command
        return self

    def get_container_host_ip(self) -> str:
        return "127.0.0.1"

    def get_exposed_port(self, port: int) -> int:
        assert port in self.ports
        return port

    def __enter__(self) -> Self:
        program, *arguments = self.command
        assert program == "mongod"
        self.resources.enter_context(programs.mongod(arguments, self.folder))
        return self

    def __exit__(self, *_: object) -> None:
        self.resources.close()


class NoDocker:
    """testcontainers' class where no Docker runs."""

    def __init__(self, image: str) -> None:
        raise RuntimeError("Cannot connect to the Docker daemon")


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ContainerOnThisMachine, "folder", tmp_path, raising=False)
    monkeypatch.setattr("testcontainers.core.container.DockerContainer", ContainerOnThisMachine)
    monkeypatch.setattr(mongo, "CONTAINER_PORT", programs.free_port())


@pytest.fixture
def no_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONGOD", "/nowhere/mongod")
    monkeypatch.setenv(mongo.RUN_VARIABLE, "tests-0")


def test_a_given_server_of_the_right_kind_is_used_as_it_is(
    replica_set_uri: str, standalone_uri: str
) -> None:
    given = mongo.Servers({"MONGODB_URI": replica_set_uri})
    assert given.uri(mongo.Kind.REPLICA_SET) == replica_set_uri
    assert given.uri(mongo.Kind.STANDALONE) == standalone_uri


def test_a_given_server_that_does_not_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Falling back to another server would test something else than was asked for."""
    monkeypatch.setattr(mongo, "ANSWER_WITHIN_MS", 200)
    given = mongo.Servers({"MONGODB_URI": "mongodb://127.0.0.1:1/"})
    with pytest.raises(mongo.NoServer, match="MONGODB_URI is set, but its server does not answer"):
        given.uri(mongo.Kind.REPLICA_SET)


def test_a_database_on_a_given_server_is_dropped_and_others_stay(standalone_uri: str) -> None:
    given = mongo.Servers({"MONGODB_URI": standalone_uri})
    given.uri(mongo.Kind.STANDALONE)
    client: MongoClient[dict[str, Any]]
    with MongoClient(standalone_uri) as client:
        client.get_database(f"{given.database}_x").things.insert_one({})
        client.get_database("somebody_else").things.insert_one({})
        given.close()
        names = client.list_database_names()
    assert "somebody_else" in names
    assert not [name for name in names if name.startswith(given.database)]


@pytest.mark.parametrize("kind", [mongo.Kind.REPLICA_SET, mongo.Kind.STANDALONE])
def test_a_container_takes_writes_when_it_is_found(container: None, kind: mongo.Kind) -> None:
    with ExitStack() as resources:
        uri = mongo.start_container(kind, resources)
        with MongoClient(uri, serverSelectionTimeoutMS=10_000) as client:
            client.get_database("smoke").things.insert_one({})
        assert mongo.kind_of(uri) is kind


@pytest.mark.usefixtures("no_private")
def test_no_server_at_all_is_an_error_with_each_reason_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("testcontainers.core.container.DockerContainer", NoDocker)
    with pytest.raises(mongo.NoServer) as caught:
        mongo.Servers({}).uri(mongo.Kind.REPLICA_SET)
    said = str(caught.value)
    assert "MONGOD=/nowhere/mongod is not a program" in said
    assert "Cannot connect to the Docker daemon" in said
    assert "./scripts/test.sh" in said
    assert "docker compose" in said


@pytest.mark.usefixtures("no_private")
def test_a_test_without_a_server_fails_and_is_not_skipped(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MONGODB_URI", raising=False)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    monkeypatch.setenv("PYTHONPATH", str(mongo.ROOT))
    pytester.makeconftest((mongo.ROOT / "tests" / "conftest.py").read_text("utf-8"))
    pytester.makepyfile("def test_needs_one(replica_set_uri): pass")
    outcome = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    outcome.assert_outcomes(errors=1)
    outcome.stdout.fnmatch_lines(["*never skipped*"])
    assert outcome.ret == 1
