"""Make the histories that are missing: ``python -m tests.replay.record [scenario ...]``.

Needs ``MONGODB_URI``, a replica set. A history that is there is never made again: see README.md.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from tests.replay.golden import HISTORIES, USER, History, Place
from tests.replay.programs import SCENARIOS, Scenario
from tests.support.lives import DIED, KillAt, Ledger, in_fork, warm

DATABASE = "durable_golden_record"


def record(name: str, uri: str) -> list[Path]:
    """Live a scenario to its end in processes of its own; keep it as it stood, and ended."""
    scenario = SCENARIOS[name]
    folder = Path(tempfile.mkdtemp())
    ledger = Ledger(folder / "ledger")

    def process(act: Any, *given: Any) -> dict[str, Any]:
        code, found = in_fork(lambda: act(uri, scenario, ledger, *given))
        if code not in (0, DIED):
            raise SystemExit(f"{name}: exit {code}: {found.get('trace')}")
        return found

    process(_clear)
    session = "s"
    for turn, message in enumerate(scenario.messages[:-1]):
        out = process(_say, session, f"x{turn}", message, None)
        while out["status"] == "suspended":
            out = process(_answer, f"x{turn}", out["waits"])
    execution = f"x{len(scenario.messages) - 1}"
    if scenario.forks:
        fork = process(_fork, session)
        session, execution = fork["session_id"], fork["execution_id"]
    out = process(_say, session, execution, scenario.messages[-1], scenario.dies_at)
    if scenario.dies_at and scenario.frontiers:
        out = process(_recover, execution)
    for _ in range(scenario.frontiers - 1):
        out = process(_answer, execution, out["waits"])
    ran = Counter(ledger.rows())
    paths = [_keep(process, name, "open", session, execution)]
    if scenario.frontiers and scenario.answers(out["waits"]):
        out = process(_answer, execution, out["waits"])
    if not scenario.frontiers or out["status"] == "suspended":
        out = process(_recover, execution)
    if out["status"] != scenario.ends:
        raise SystemExit(f"{name}: ended {out['status']}: {out['error']}")
    runs = sorted(map(list, (Counter(ledger.rows()) - ran).elements()), key=json.dumps)
    paths.append(_keep(process, name, "ended", session, execution))
    was_open = History.read(paths[0])
    History(**{**vars(was_open), "runs": runs}).write(paths[0])
    return paths


def _keep(process: Any, name: str, state: str, session: str, execution: str) -> Path:
    path = HISTORIES / f"{name}.{state}.jsonl"
    process(_write, name, session, execution, str(path))
    return path


async def _with_app(
    uri: str, scenario: Scenario, ledger: Ledger, act: Any, **named: Any
) -> dict[str, Any]:
    place = Place(uri, DATABASE)
    async with place.app(scenario, ledger, **named) as app:
        found = await act(app)
    await place.close(drop=False)
    return dict(found)


async def _clear(uri: str, _scenario: Scenario, _ledger: Ledger) -> dict[str, Any]:
    place = Place(uri, DATABASE)
    await place.clear()
    await place.close(drop=False)
    return {}


async def _say(
    uri: str,
    scenario: Scenario,
    ledger: Ledger,
    session: str,
    execution: str,
    message: str,
    dies_at: Any,
) -> dict[str, Any]:
    async def act(app: Any) -> dict[str, Any]:
        out = await app.invoke(
            user_id=USER,
            session_id=session,
            message=message,
            execution_id=execution,
            run_config=scenario.run_config,
            deadline=scenario.deadline,
        )
        return dict(out.to_dict())

    return await _with_app(uri, scenario, ledger, act, late=False, faults=KillAt(dies_at))


async def _answer(
    uri: str, scenario: Scenario, ledger: Ledger, execution: str, waits: Any
) -> dict[str, Any]:
    async def act(app: Any) -> dict[str, Any]:
        return dict((await app.resume(execution, scenario.answers(waits))).to_dict())

    return await _with_app(uri, scenario, ledger, act, late=False)


async def _recover(uri: str, scenario: Scenario, ledger: Ledger, execution: str) -> dict[str, Any]:
    async def act(app: Any) -> dict[str, Any]:
        await app.recover()
        return dict((await app.executions.outcome(execution)).to_dict())

    return await _with_app(uri, scenario, ledger, act)


async def _fork(uri: str, scenario: Scenario, ledger: Ledger, session: str) -> dict[str, Any]:
    async def act(app: Any) -> dict[str, Any]:
        return dict((await app.sessions.fork(USER, session)).to_dict())

    return await _with_app(uri, scenario, ledger, act, late=False)


async def _write(
    uri: str,
    scenario: Scenario,
    ledger: Ledger,
    name: str,
    session: str,
    execution: str,
    path: str,
) -> dict[str, Any]:
    async def act(app: Any) -> dict[str, Any]:
        out = await app.executions.outcome(execution)
        report = await app.executions.replay(execution)
        inside = scenario.inside * (out.status != scenario.ends)
        if not report.ok or report.matched + inside != report.recorded:
            raise ValueError(f"the new history does not replay: {report}")
        place = Place(uri, DATABASE)
        history = History(
            scenario=name,
            session=session,
            execution=execution,
            status=out.status,
            waits=[wait.kind for wait in out.waits],
            matched=report.matched,
            documents=await place.documents(),
        )
        await place.close(drop=False)
        history.write(Path(path))
        return {}

    return await _with_app(uri, scenario, ledger, act)


def main(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    uri = os.environ.get("MONGODB_URI")
    if not uri:
        raise SystemExit("MONGODB_URI is not set: a replica set, see scripts/mongo.sh")
    HISTORIES.mkdir(exist_ok=True)
    unknown = sorted(set(names) - set(SCENARIOS))
    if unknown:
        raise SystemExit(f"there is no scenario {', '.join(unknown)}")
    warm()
    for name in names or SCENARIOS:
        if list(HISTORIES.glob(f"{name}.*.jsonl")):
            print(f"{name}: there already")
            continue
        made = record(name, uri)
        sizes = ", ".join(f"{path.name} {path.stat().st_size} bytes" for path in made)
        print(f"{name}: {sizes}")


if __name__ == "__main__":
    main(sys.argv[1:])
