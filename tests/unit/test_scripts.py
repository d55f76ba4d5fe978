"""What the scripts share: which Python they take, which mongod, and what they say of google-adk."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.mongo import ROOT


def run_function(call: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call a function of ``scripts/lib.sh`` with nothing in the environment but what is given."""
    return subprocess.run(
        ["/bin/bash", "-c", f'set -euo pipefail; source "{ROOT}/scripts/lib.sh"; {call}'],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "told"),
    [("99.1.0", True), ("2.13.0", False), ("2.9.0", False), ("", False)],
    ids=["newer", "under test", "older", "index not reached"],
)
def test_only_a_newer_google_adk_is_told(version: str, told: bool) -> None:
    done = run_function(f"tell_newer_adk '{version}'")
    assert done.returncode == 0
    assert (f"google-adk {version} is out" in done.stderr) == told
    assert bool(done.stderr) == told


def test_an_index_that_cannot_be_reached_is_no_failure(tmp_path: Path) -> None:
    done = run_function(f'VENV={tmp_path}; tell_newer_adk "$(newest_adk)"')
    assert (done.returncode, done.stderr) == (0, "")


def test_an_old_python_is_passed_over(tmp_path: Path) -> None:
    program(tmp_path, "python3", "exit 1")
    new = program(tmp_path, "python3.12", "exit 0")
    assert run_function("find_python", PATH=f"{tmp_path}").stdout.strip() == str(new)


def test_no_python_that_is_new_enough_is_an_error_with_what_was_seen(tmp_path: Path) -> None:
    program(tmp_path, "python3", 'if [ "$1" = --version ]; then echo Python 3.9.2; else exit 1; fi')
    tools = "for tool in dirname; do ln -s /usr/bin/$tool; done"
    subprocess.run(["/bin/bash", "-c", tools], cwd=tmp_path, check=True)
    done = run_function("find_python", PATH=f"{tmp_path}")
    assert done.returncode == 1
    assert "python3 (Python 3.9.2)" in done.stderr
    assert "python3-venv" in done.stderr


def test_a_mongod_on_the_path_comes_before_the_packaged_one(tmp_path: Path) -> None:
    own = program(tmp_path, "mongod", "exit 0")
    found = run_function("find_mongod python3", PATH=f"{tmp_path}:/usr/bin:/bin")
    assert found.stdout.strip() == str(own)


def test_the_packaged_mongod_gets_its_run_bit(tmp_path: Path) -> None:
    packaged = tmp_path / "fiftyone" / "db" / "bin" / "mongod"
    packaged.parent.mkdir(parents=True)
    packaged.write_text("")
    python = program(tmp_path, "python", f"echo {tmp_path}")
    found = run_function(f"find_mongod {python}")
    assert found.stdout.strip() == str(packaged)
    assert packaged.stat().st_mode & 0o111


def test_no_mongod_at_all_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    python = program(tmp_path, "python", f"echo {tmp_path}")
    done = run_function(f"find_mongod {python}")
    assert done.returncode == 1
    assert "durable-adk[local]" in done.stderr
    assert "MONGODB_URI=" in done.stderr


def test_a_given_mongodb_is_used_and_nothing_is_started() -> None:
    done = run_function("with_mongod demo; echo $MONGODB_URI", MONGODB_URI="mongodb://given")
    assert done.stdout.strip() == "mongodb://given"
