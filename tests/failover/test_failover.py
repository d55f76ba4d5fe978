"""S10 and S11: the primary is taken away while executions run, under a hostile client.

``--all-points`` (``scripts/faults.sh``) has each kind of failover over 100 executions; the ordinary
run has two kinds over fewer.
"""

from __future__ import annotations

import asyncio
import collections
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from durable_adk import App
from tests.soak.programs import answer_to
from tests.support.lives import Ledger
from tests.support.members import Members

ORDINARY = ("kill", "silence")
EXECUTIONS = (100, 16)
"""In the whole run, and in the ordinary one."""
CUT_S = 5.0
BODY_S = 0.6

PROGRAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("desk", {"ops": [["look"], ["note", "look"], ["look"], ["note"], ["look"]]}),
    "once": ("desk", {"ops": [["pay"], ["look"], ["pay"], ["pay"], ["pay", "pay"]]}),
    "confirmed": ("desk", {"ops": [["pay_confirmed"], ["look"], ["pay_confirmed"], ["later"]]}),
    "parallel": (
        "flow",
        {
            "a": [["look"], ["look_confirmed", "note"]],
            "b": [["note", "look"], ["pay"], ["later"]],
            "ask": True,
            "tail": [["pay"], ["look"]],
        },
    ),
}


async def step_down(members: Members) -> None:
    await asyncio.to_thread(members.step_down)


async def kill(members: Members) -> None:
    number = await asyncio.to_thread(members.primary)
    await asyncio.to_thread(members.kill, number)
    await asyncio.to_thread(members.primary)  # a new one, while it is away
    await asyncio.to_thread(members.restart, number)


def cut(command: str) -> Callable[[Members], Awaitable[None]]:
    async def cut_off(members: Members) -> None:
        number = await asyncio.to_thread(members.primary)
        await asyncio.to_thread(members.tell, command, number)
        await asyncio.sleep(CUT_S)  # the length of the cut is what the case is about
        await asyncio.to_thread(members.tell, "pass", number)

    return cut_off


FAILOVERS: dict[str, Callable[[Members], Awaitable[None]]] = {
    "step-down": step_down,
    "kill": kill,
    "reset": cut("cut"),
    "silence": cut("freeze"),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "what" in metafunc.fixturenames:
        is_whole = metafunc.config.getoption("--all-points")
        metafunc.parametrize("what", list(FAILOVERS) if is_whole else ORDINARY)


async def to_its_end(app: App, kind: str, number: int, program: dict[str, Any]) -> Any:
    """Invoke, and answer whatever is asked, as a client does."""
    x = f"{kind}-{number}"
    out = await app.invoke(
        user_id="u",
        session_id=x,
        message=json.dumps({"x": x, **program}),
        execution_id=x,
    )
    while out.status == "suspended":
        answers = {wait.id: answer_to(wait.to_dict()) for wait in out.waits}
        out = await app.resume(x, answers)
    return out


def expected_of(out: Any, program: dict[str, Any], kind: str) -> set[str]:
    """The keys of all bodies that a program runs; a declined confirmation runs none."""
    x, keys = out.execution_id, set()
    agents = {"desk": "ops", "a": "a", "b": "b", "tail": "tail"}
    for name, field in agents.items():
        if field in program:
            keys |= {f"{x}.{name}{k}.model" for k in range(len(program[field]) + 1)}
        for k, op in enumerate(program.get(field, ())):
            for i, tool in enumerate(op):
                key = f"{x}.{name}{k}.{i}"
                if tool.endswith("_confirmed"):
                    wait = {"kind": "adk_request_confirmation", "tool_call": {"args": {"key": key}}}
                    if not answer_to(wait)["confirmed"]:
                        continue
                keys.add(key)
    if kind == "parallel":
        keys |= {f"{x}.plain", f"{x}.stamp", f"{x}.settle"}
    return keys


async def when_busy(ledger: Ledger, rows: int) -> None:
    while len(ledger.rows()) < rows:
        await asyncio.sleep(0.02)


@pytest.mark.timeout(600)
async def test_a_primary_that_goes_away_loses_nothing_and_doubles_nothing(
    make_app: Any,
    members: Members,
    ledger: Ledger,
    what: str,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    count = EXECUTIONS[not request.config.getoption("--all-points")]
    apps = {kind: make_app(kind, longest_s=BODY_S) for kind in ("desk", "flow")}
    running: set[asyncio.Task[Any]] = set()
    for number in range(count):
        kind = list(PROGRAMS)[number % len(PROGRAMS)]
        app, program = PROGRAMS[kind]
        running.add(asyncio.create_task(to_its_end(apps[app], kind, number, program)))
    await when_busy(ledger, count)
    primary = await asyncio.to_thread(members.primary)
    began = len(ledger.rows())
    assert not any(task.done() for task in running), "all of them run when it happens"
    await FAILOVERS[what](members)
    outs = await asyncio.gather(*running)
    assert len(ledger.rows()) > began
    assert await asyncio.to_thread(members.primary) != primary or what != "kill"
    assert collections.Counter(out.status for out in outs) == {"completed": count}
    wanted: collections.Counter[str] = collections.Counter()
    for out in outs:
        kind = out.execution_id.partition("-")[0]
        wanted.update(expected_of(out, PROGRAMS[kind][1], kind))
    ran = collections.Counter(row[3] for row in ledger.rows() if row[2] == "began")
    assert ran == wanted, "each body exactly once: no process died, and no lease was lost"
    assert all(len({event.id for event in out.events}) == len(out.events) for out in outs)
    record_property("faults: failovers", 1)
