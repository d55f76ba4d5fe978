"""A short soak: two workers on one server, a kill or a pause now and then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.soaking import soak
from tests.soak.trouble import Plan


@pytest.mark.timeout(600)
def test_a_short_soak_finds_nothing(replica_set_uri: str, database: str, tmp_path: Path) -> None:
    plan = Plan(seconds=4, executions=4, failover_every_s=0, seed=5, workers=2)
    found, figures = soak(
        replica_set_uri,
        plan,
        members=None,
        folder=tmp_path,
        database=f"{database}_soak",
        twins_uri=lambda: replica_set_uri,
    )
    assert found.is_right, found
    assert figures["executions"] >= 4
    assert figures["kills"] + figures["pauses"] > 0
    assert figures["answers"] > 0
