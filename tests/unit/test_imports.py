"""Importing the package costs what ADK and PyMongo cost, and nothing more."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.mongo import ROOT


def modules_after(program: str) -> set[str]:
    """What a fresh interpreter has loaded after running a program."""
    script = f"import json, sys\n{program}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def allowed() -> set[str]:
    return modules_after("from google.adk.runners import Runner\nimport pymongo")


def test_importing_app_loads_only_adk_pymongo_and_our_modules(allowed: set[str]) -> None:
    loaded = modules_after("from durable_adk import App")
    extra = {name for name in loaded - allowed if name.partition(".")[0] != "durable_adk"}
    assert not extra, f"import these later: {sorted(extra)}"


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "src" / "durable_adk" / "py.typed").is_file()
