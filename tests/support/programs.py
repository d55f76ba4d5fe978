"""Programs the tests start: our scripts, and a mongod run with somebody else's arguments."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.mongo import ROOT


def run_script(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one of our scripts with this interpreter as its environment, and capture what it says."""
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DURABLE_PYTHON": sys.executable, **environment},
    )


def mongod_program() -> str:
    """The mongod that the scripts find."""
    find = f'source "{ROOT}/scripts/lib.sh"; find_mongod "$1"'
    found = subprocess.run(
        ["bash", "-c", find, "find", sys.executable], capture_output=True, text=True, check=True
    )
    return found.stdout.strip()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def mongod(arguments: Sequence[str], folder: Path) -> Iterator[None]:
    """A mongod with these arguments (its port among them) and its data in a folder."""
    data = folder / "data"
    data.mkdir()
    command = [mongod_program(), *arguments, "--dbpath", str(data), "--nounixsocket"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log) as process:
        try:
            yield
        finally:
            process.kill()
