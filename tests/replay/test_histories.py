"""Every history that was ever recorded replays on this code, and goes on to the end it had then."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replay.golden import USER, History, Place, files, left_behind
from tests.replay.programs import SCENARIOS, Scenario
from tests.support.lives import Ledger, by_place

FILES = files()
NAMES = sorted({name.rpartition(".")[0] for name in FILES})


@pytest.fixture
async def place(replica_set_uri: str, database: str) -> AsyncIterator[Place]:
    found = Place(replica_set_uri, f"{database}_golden")
    yield found
    await found.close(drop=False)  # all of them are dropped with the run's database


def executions(history: History) -> Iterator[str]:
    for document in sorted(history.documents["executions"], key=lambda one: one["turn"]):
        yield document["eid"]


def test_every_scenario_has_its_histories_and_they_are_small() -> None:
    recorded = {History.read(path).scenario for path in FILES.values()}
    assert recorded == set(SCENARIOS)
    assert len(recorded) >= 12
    assert {path.stem.rpartition(".")[2] for path in FILES.values()} == {"open", "ended"}
    assert sum(path.stat().st_size for path in FILES.values()) < 1_000_000


@pytest.mark.parametrize("name", FILES)
async def test_a_history_replays_with_no_difference(place: Place, tmp_path: Path, name) -> None:
    history = History.read(FILES[name])
    ledger = Ledger(tmp_path / "ledger")
    await place.put(history.documents)
    scenario = SCENARIOS[history.scenario]
    async with place.app(scenario, ledger) as app:
        for execution in executions(history):
            report = await app.executions.replay(execution)
            assert report.ok, report
            inside = scenario.inside * name.endswith(".open")
            assert (report.matched + inside, report.warnings) == (report.recorded, ())
        assert (report.status, report.matched) == (history.status, history.matched)
    assert ledger.rows() == []
    assert await place.documents() == history.documents, "nothing is written"


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("name", NAMES)
async def test_an_open_history_goes_on_to_the_end_that_it_had(
    place: Place, tmp_path: Path, name, mode
) -> None:
    ended = History.read(FILES[f"{name}.ended"])
    scenario = SCENARIOS[ended.scenario]
    ledger = Ledger(tmp_path / "ledger")
    await place.put(ended.documents)
    async with place.app(scenario, ledger) as app:
        then = await left_behind(app, ended.session, executions(ended))
    was_open = History.read(FILES[f"{name}.open"])
    await place.put(was_open.documents)
    async with place.app(scenario, ledger, mode=mode) as app:
        await go_on(app, scenario, was_open)
        now = await left_behind(app, ended.session, executions(ended))
    assert by_place(now.pop("events")) == by_place(then.pop("events"))
    assert now == then
    assert counted(ledger.rows()) == counted(was_open.runs)


def counted(rows: Any) -> Counter[str]:
    return Counter(json.dumps(list(row)) for row in rows)


async def go_on(app: Any, scenario: Scenario, history: History) -> None:
    """Answer what is open, or recover what its owner left."""
    out = await app.executions.outcome(history.execution)
    if out.status == "suspended":
        assert [wait.kind for wait in out.waits] == history.waits
        if answers := scenario.answers([wait.to_dict() for wait in out.waits]):
            out = await app.resume(history.execution, answers)
    if out.status in ("queued", "running", "suspended"):
        (out,) = await app.recover()
    assert out.status == scenario.ends, out.error
    assert out.user_id == USER
