"""The server of ``docker-compose.yml``, run with our own mongod: its arguments and its check."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pymongo import MongoClient

from tests.support.mongo import ROOT, Kind, kind_of, wait_until_writable
from tests.support.programs import free_port, mongod


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    found: dict[str, Any] = compose["services"]["mongodb"]
    return found


def configuration_in(check: str) -> dict[str, Any]:
    """The document that the health check initiates the set with."""
    written = re.search(r"rs\.initiate\((\{.*?\}\]\})\)", check)
    assert written, check
    found: dict[str, Any] = json.loads(re.sub(r"(\w+): ", r'"\1": ', written[1]))
    return found


def test_its_arguments_and_its_health_check_make_a_replica_set_that_takes_writes(
    service: dict[str, Any], tmp_path: Path
) -> None:
    port = str(free_port())
    program, *arguments = [word.replace("27017", port) for word in service["command"]]
    assert program == "mongod"
    configuration = configuration_in(service["healthcheck"]["test"][1].replace("27017", port))
    client: MongoClient[dict[str, Any]]
    with mongod(arguments, tmp_path):
        uri = f"mongodb://localhost:{port}/"
        with MongoClient(uri, directConnection=True) as client:
            client.admin.command("replSetInitiate", configuration)
            wait_until_writable(client)
        with MongoClient(uri, replicaSet="rs0", serverSelectionTimeoutMS=5000) as client:
            client.get_database("smoke").things.insert_one({})
        assert kind_of(uri) is Kind.REPLICA_SET


def test_the_published_port_is_the_one_it_listens_on(service: dict[str, Any]) -> None:
    arguments = service["command"]
    listens = arguments[arguments.index("--port") + 1]
    assert service["ports"] == [f"127.0.0.1:{listens}:{listens}"]
    assert f"--port {listens} " in service["healthcheck"]["test"][1]
