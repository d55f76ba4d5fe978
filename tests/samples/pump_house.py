"""Tools as nodes of a graph: a tool's arguments are the node's input; one tool needs a yes."""

from __future__ import annotations

from typing import Any

from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import Workflow

from tests.samples.sample import Sample
from tests.support.lives import Ledger


def build(ledger: Ledger) -> Workflow:
    def gauge(pond: str) -> dict[str, Any]:
        """Read the level of a pond."""
        ledger.add("tool", "gauge", pond)
        return {"pond": pond, "litres": 5000}

    def drain(pond: str, litres: int) -> dict[str, Any]:
        """Drain litres from a pond."""
        ledger.add("tool", "drain", pond, litres)
        return {"drained": litres}

    def note(node_input: dict[str, Any]) -> str:
        ledger.add("node", "note")
        return f"{node_input['drained']} l drained"

    return Workflow(
        name="pump_house",
        edges=[
            (
                "START",
                FunctionTool(gauge),
                FunctionTool(drain, require_confirmation=True),
                note,
            )
        ],
    )


SAMPLE = Sample(
    build=build,
    messages=("mill pond",),
    reply=lambda asked: {"confirmed": True},
    waits=(1,),
    rows={
        ("tool", "gauge", "mill pond"): 1,
        ("tool", "drain", "mill pond", 5000): 1,
        ("node", "note"): 1,
    },
    last="5000 l drained",
)
