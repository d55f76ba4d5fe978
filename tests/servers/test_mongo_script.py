"""``scripts/mongo.sh`` starts, names and stops a private mongod."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator

import pytest
from pymongo import MongoClient
from pymongo.errors import ServerSelectionTimeoutError

from tests.support.members import Members
from tests.support.mongo import ROOT, Kind, kind_of, run_name
from tests.support.programs import free_port, run_script


@pytest.fixture
def name() -> Iterator[str]:
    """A server of this test alone; one that is left over is stopped with the run's others."""
    chosen = f"{run_name()}.{secrets.token_hex(4)}"
    yield chosen
    run_script("mongo.sh", "stop", "--name", chosen)


def start(name: str, *options: str) -> str:
    started = run_script("mongo.sh", "start", "--name", name, *options)
    assert started.returncode == 0, started.stderr
    return started.stdout.strip()


def test_a_replica_set_of_one_takes_writes_with_majority_when_start_returns(name: str) -> None:
    uri = start(name)
    with MongoClient(uri, w="majority", journal=True, serverSelectionTimeoutMS=10_000) as client:
        client.get_database("smoke").things.insert_one({"_id": 1})
        with client.start_session() as session, session.start_transaction():
            client.get_database("smoke").things.insert_one({"_id": 2}, session=session)
    assert kind_of(uri) is Kind.REPLICA_SET


def test_a_second_start_gives_the_running_one(name: str) -> None:
    uri = start(name)
    assert start(name) == uri
    assert run_script("mongo.sh", "uri", "--name", name).stdout.strip() == uri
    assert uri in run_script("mongo.sh", "status", "--name", name).stdout


def test_data_in_memory_is_deleted_with_its_server(name: str) -> None:
    started = run_script("mongo.sh", "start", "--name", name, DURABLE_MONGO_MEMORY="1")
    assert started.returncode == 0, started.stderr
    data = ROOT / ".durable" / "mongo" / name / "member-0" / "data"
    place = data.resolve()
    assert (place / "WiredTiger").exists()
    assert run_script("mongo.sh", "stop", "--name", name).returncode == 0
    assert not place.exists()


def test_a_standalone_takes_the_port_it_is_given(name: str) -> None:
    port = free_port()
    uri = start(name, "--standalone", "--port", str(port))
    assert f":{port}/" in uri
    assert kind_of(uri) is Kind.STANDALONE


def test_three_members_are_one_set_with_two_secondaries(three_members_uri: str) -> None:
    with MongoClient(three_members_uri) as client:
        status = client.admin.command("replSetGetStatus")
    states = sorted(member["stateStr"] for member in status["members"])
    assert states == ["PRIMARY", "SECONDARY", "SECONDARY"]


def test_members_know_each_other_by_the_addresses_that_are_advertised(name: str) -> None:
    members = Members(name, members=1)
    try:
        members.start()
        with MongoClient(members.uri, serverSelectionTimeoutMS=10_000) as client:
            hello = client.admin.command("hello")
        assert hello["hosts"] == members.proxied
        members.tell("cut", 0)
        with (
            MongoClient(members.uri, serverSelectionTimeoutMS=300) as client,
            pytest.raises(ServerSelectionTimeoutError),
        ):
            client.admin.command("ping")
        members.tell("pass", 0)
        members.wait_until_whole()
    finally:
        members.stop()


def test_stop_ends_the_process_and_deletes_its_data(name: str) -> None:
    port = free_port()
    start(name, "--standalone", "--port", str(port))
    assert run_script("mongo.sh", "stop", "--name", name).returncode == 0
    assert not (ROOT / ".durable" / "mongo" / name).exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert run_script("mongo.sh", "status", "--name", name).returncode == 3


def test_what_a_killed_mongod_left_is_replaced(name: str) -> None:
    first = start(name, "--standalone")
    pid = int((ROOT / ".durable" / "mongo" / name / "member-0" / "pid").read_text())
    os.kill(pid, 9)
    with MongoClient(start(name, "--standalone"), serverSelectionTimeoutMS=10_000) as client:
        assert client.admin.command("ping")["ok"] == 1
    assert first


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["start", "--nonsense"], "unknown option"),
        (["start", "--members"], "needs a value"),
        (["start", "--members", "0"], "expected 1 to 7"),
        (["start", "--port", "x"], "expected a number"),
        (["start", "--members", "2", "--advertise", "h:1"], "one HOST:PORT for each of 2"),
        (["start", "--standalone", "--advertise", "h:1"], "of a replica set"),
        (["start", "--name", "../out"], "use letters"),
        (["uri", "--name", "nobody"], "does not run"),
        ([], "usage:"),
        (["dance"], "usage:"),
    ],
)
def test_a_wrong_call_is_refused_with_what_is_wrong(arguments: list[str], said: str) -> None:
    refused = run_script("mongo.sh", *arguments)
    assert refused.returncode != 0
    assert said in refused.stderr
    assert refused.stdout == ""


def test_a_mongod_that_cannot_start_shows_its_last_words(name: str) -> None:
    failed = run_script("mongo.sh", "start", "--name", name, MONGOD="/bin/false")
    assert failed.returncode == 1
    assert "did not start" in failed.stderr
    assert "MONGODB_URI" in failed.stderr
    assert not (ROOT / ".durable" / "mongo" / name).exists()


def test_a_missing_mongod_is_an_error_with_the_remedy(name: str) -> None:
    missing = run_script("mongo.sh", "start", "--name", name, MONGOD="/nowhere/mongod")
    assert missing.returncode == 1
    assert "MONGOD=/nowhere/mongod is not a program" in missing.stderr
