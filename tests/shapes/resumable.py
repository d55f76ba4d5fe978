"""The same shapes in an ADK ``App`` whose invocations are resumable: ADK then keeps agent states
of its own, and goes on in the middle of composite agents."""

from __future__ import annotations

import dataclasses
from typing import Any

from google.adk.apps import App, ResumabilityConfig

from tests.shapes import agents, composite, delegation, dynamic, workflows
from tests.shapes.shape import Shape
from tests.support.lives import Ledger

FEATURE = "ADK `App` with `ResumabilityConfig`"
BASES = {
    **agents.SHAPES,
    **composite.SHAPES,
    **delegation.SHAPES,
    **workflows.SHAPES,
    **dynamic.SHAPES,
}
CHOSEN = (
    "agent with a confirmed tool",
    "two confirmations in one turn",
    "transfer to an agent that asks",
    "transfer there and back, asking twice",
    "two messages to the agent that took over",
    "sequence as root, waiting",
    "parallel as root, waiting",
    "parallel in a sequence as root, waiting",
    "loop as root, waiting each round",
    "sequence as node, waiting",
    "sequence as node, finished beside one that waits",
    "parallel as node, waiting",
    "loop as node, waiting each round",
    "agent tool that asks",
    "single turns that ask at once",
    "task that asks",
    "parallel workflow with join, asking three ways",
    "parallel worker, one item asks",
    "children that ask",
)


def resumable(shape: Shape) -> Shape:
    def build(ledger: Ledger) -> Any:
        return App(
            name="lives",
            root_agent=shape.build(ledger),
            resumability_config=ResumabilityConfig(is_resumable=True),
        )

    return dataclasses.replace(shape, build=build, feature=FEATURE, stock="")


RACING = "parallel workflow with join, asking three ways"
SHAPES = {f"{name}, resumable": resumable(BASES[name]) for name in CHOSEN}
SHAPES[f"{RACING}, resumable"] = dataclasses.replace(
    SHAPES[f"{RACING}, resumable"], checkpoints=True
)
