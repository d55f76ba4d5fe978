"""Generated agents and workflows leave what plain ADK leaves, also when they are killed.

``GENERATED_EXAMPLES`` and ``GENERATED_SEED`` ask for more programs, or for others.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings

import durable_adk.adk.adapter
import durable_adk.adk.runner  # noqa: F401  (before forks: each would load it anew)
from durable_adk.testing import memory_client
from tests.faults.differences import differences
from tests.generated.comparing import durable, plain
from tests.generated.descriptions import programs
from tests.generated.programs import Data, build, waits_of, width
from tests.support.lives import Case, World, points_of

EXAMPLES = int(os.environ.get("GENERATED_EXAMPLES", "30"))
SEED = int(os.environ.get("GENERATED_SEED", "1"))
CONFIG = {"features": {"durable_workflow": True}, "retry": {"max_attempts": 1}}

pytestmark = pytest.mark.timeout(120 + 30 * EXAMPLES)

PINNED: dict[str, Data] = {
    "an output that is false": {
        "root": {
            "kind": "flow",
            "name": "flow",
            "at_once": None,
            "steps": [
                {"kind": "fn", "name": "fn1", "out": False},
                {"kind": "ask", "name": "ask", "value": True, "keyed": False, "loop": ""},
                {"kind": "fn", "name": "fn2", "out": False},
            ],
        },
        "messages": ["go"],
    },
}
"""Programs that differed once."""

drawn = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    phases=[Phase.generate, *([Phase.shrink] if "GENERATED_SHRINK" in os.environ else [])],
    suppress_health_check=list(HealthCheck),
    print_blob=False,
)


async def against_plain(program: Data, folder: Path) -> None:
    theirs = await plain(program, folder / "theirs")
    ours = await durable(program, folder / "ours", config=CONFIG, mongodb=memory_client())
    assert ours.status == theirs.status
    assert ours.frontiers == theirs.frontiers
    assert ours.ledger == theirs.ledger
    assert ours.events == theirs.events
    assert ours.output == theirs.output
    assert ours.state == theirs.state
    if width(program) == 1:
        assert ours.order == theirs.order


@seed(SEED)
@drawn
@given(programs())
def test_a_generated_program_leaves_what_plain_adk_leaves(program: Data) -> None:
    note(json.dumps(program))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(against_plain(program, Path(folder)))


@pytest.mark.parametrize("name", PINNED)
async def test_a_program_that_differed_once_leaves_what_plain_adk_leaves(
    name: str, tmp_path: Path
) -> None:
    await against_plain(PINNED[name], tmp_path)


def case_of(program: Data) -> Case:
    return Case(
        build=lambda ledger: build(program, ledger),
        messages=program["messages"],
        answer=waits_of(program),
        in_flight=1 + width(program),  # a tool's outcome may be on its way while a model runs
        config={"retry": {"max_attempts": 1}},
    )


def killed_once(world: World, program: Data) -> list[str]:
    """How a life with one kill, drawn by the program, differs from an undisturbed one."""
    case = case_of(program)
    if program["root"]["kind"] == "flow":  # its second turn is the first once more
        case = replace(case, messages=case.messages[:1])
    undisturbed = world.live(case)
    points = [
        (attempt, point)
        for attempt, reached in enumerate(undisturbed.reached, 1)
        for point in points_of(reached)
    ]
    kill = random.Random(json.dumps(program)).choice(points)
    life = world.live(case, kill=kill)
    note(f"killed {life.killed_at} in mode {world.mode}")
    return differences(case, undisturbed, life, kill[1][0])


def test_a_generated_program_that_is_killed_ends_as_if_undisturbed(
    replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    """The same programs: they are drawn with the same seed."""

    @seed(SEED)
    @drawn
    @given(programs())
    def killed(program: Data) -> None:
        note(json.dumps(program))
        mode = ("restore", "walk")[len(json.dumps(program)) % 2]
        world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
        assert killed_once(world, program) == []

    killed()
