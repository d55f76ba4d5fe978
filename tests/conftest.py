"""Servers and databases for every test. A missing server fails the run; nothing is skipped."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest

from tests.support import mongo

pytest_plugins = ["pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption(
        "--all-points",
        action="store_true",
        help="kill at every fault point instead of at a seeded slice of them",
    )
    group.addoption(
        "--fault-seed",
        type=int,
        default=1,
        help="what the slice of fault points is drawn with (default 1)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Name this run, so that workers share its servers, and clear what dead runs left."""
    if not hasattr(config, "workerinput"):
        os.environ[mongo.RUN_VARIABLE] = f"tests-{os.getpid()}"
        mongo.stop_abandoned()


def pytest_collection_finish() -> None:
    """What is imported by now stays: no collection has to look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the private servers once every worker is done."""
    if not hasattr(config, "workerinput"):
        mongo.stop_private(mongo.run_name())


@pytest.fixture(scope="session")
def servers() -> Iterator[mongo.Servers]:
    found = mongo.Servers()
    yield found
    found.close()


def _uri(servers: mongo.Servers, kind: mongo.Kind) -> str:
    try:
        return servers.uri(kind)
    except mongo.NoServer as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def replica_set_uri(servers: mongo.Servers) -> str:
    """A replica set; one member unless ``MONGODB_URI`` names a larger one."""
    return _uri(servers, mongo.Kind.REPLICA_SET)


@pytest.fixture(scope="session")
def standalone_uri(servers: mongo.Servers) -> str:
    return _uri(servers, mongo.Kind.STANDALONE)


@pytest.fixture(scope="session")
def three_members_uri(servers: mongo.Servers) -> str:
    """A replica set with two secondaries; started only for tests that ask for it."""
    return _uri(servers, mongo.Kind.THREE_MEMBERS)


@pytest.fixture(scope="session")
def database(servers: mongo.Servers) -> str:
    """A database name of this run and worker alone; names that begin with it are dropped too."""
    return servers.database
