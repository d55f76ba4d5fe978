"""Bring freshly started mongods to where they take writes, and print their URI.

Called by ``mongo.sh``: ``free-port``, ``standalone HOST:PORT`` or ``replica [--through HOST:PORT]
HOST:PORT...``; ``--through`` is the first member's own address where the others are proxies'.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

PATIENCE_S = 30.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_writable(uri: str, *, members: int) -> None:
    from pymongo import MongoClient
    from pymongo.errors import PyMongoError

    deadline = time.monotonic() + PATIENCE_S
    seen: object = None
    client: MongoClient[dict[str, Any]]
    with MongoClient(uri, serverSelectionTimeoutMS=500) as client:
        while time.monotonic() < deadline:
            try:
                hello = client.admin.command("hello")
                if hello.get("isWritablePrimary") and _are_caught_up(client, members):
                    return
                seen = hello
            except PyMongoError as error:
                seen = error
            time.sleep(0.05)
    raise SystemExit(f"error: {uri} takes no writes after {PATIENCE_S:.0f} s; last seen: {seen}")


def _are_caught_up(client: Any, members: int) -> bool:
    if members == 1:
        return True
    status = client.admin.command("replSetGetStatus")
    states = [member["stateStr"] for member in status["members"]]
    return sorted(states) == ["PRIMARY"] + ["SECONDARY"] * (members - 1)


def initiate(hosts: list[str], through: str) -> None:
    from pymongo import MongoClient

    # Quick elections: these servers are thrown away, and tests take their primary away.
    configuration = {
        "_id": "rs0",
        "members": [{"_id": place, "host": host} for place, host in enumerate(hosts)],
        "settings": {
            "electionTimeoutMillis": 2000,
            "heartbeatIntervalMillis": 500,
            "heartbeatTimeoutSecs": 2,
        },
    }
    client: MongoClient[dict[str, Any]]
    with MongoClient(f"mongodb://{through}/?directConnection=true") as client:
        client.admin.command("replSetInitiate", configuration)


def main(arguments: list[str]) -> None:
    match arguments:
        case ["free-port"]:
            print(free_port())
        case ["standalone", host]:
            uri = f"mongodb://{host}/?directConnection=true"
            wait_until_writable(uri, members=1)
            print(uri)
        case ["replica", "--through", through, *hosts] if hosts:
            _replica_set(hosts, through)
        case ["replica", *hosts] if hosts:
            _replica_set(hosts, hosts[0])
        case _:
            raise SystemExit(f"error: unknown arguments {arguments}; {__doc__}")


def _replica_set(hosts: list[str], through: str) -> None:
    initiate(hosts, through)
    uri = f"mongodb://{','.join(hosts)}/?replicaSet=rs0"
    wait_until_writable(uri, members=len(hosts))
    print(uri)


if __name__ == "__main__":
    main(sys.argv[1:])
