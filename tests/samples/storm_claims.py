"""Nested workflows: a router picks one of two inner workflows, and one of them asks a person."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event, RequestInput
from google.adk.workflow import Workflow

from durable_adk.testing import says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> Workflow:
    def triage(node_input: str) -> Event:
        ledger.add("node", "triage", node_input)
        return Event(output=node_input, route="roof" if "roof" in node_input else "glass")

    def measure(node_input: str) -> str:
        ledger.add("node", "measure")
        return f"40 m2 for {node_input}"

    async def inspect(node_input: str) -> AsyncIterator[RequestInput]:
        yield RequestInput(message=f"Inspect: {node_input}", response_schema=str)

    surveyor = LlmAgent(
        name="surveyor",
        model=scripted(ledger, "surveyor", lambda asked: says(f"report says {heard(asked)}")),
    )
    roof = Workflow(name="roof", edges=[("START", measure, inspect, surveyor)])

    def quote(node_input: str) -> str:
        ledger.add("node", "quote")
        return f"new pane for {node_input}"

    glass = Workflow(name="glass", edges=[("START", quote)])

    def file_away(node_input: Any) -> str:
        ledger.add("node", "file_away")
        return f"filed: {node_input}"

    return Workflow(
        name="storm_claims",
        edges=[
            ("START", triage),
            (triage, {"roof": roof, "glass": glass}),
            (roof, file_away),
            (glass, file_away),
        ],
    )


SAMPLE = Sample(
    build=build,
    messages=("a window", "the roof"),
    reply=lambda asked: f"seen ({asked.text[9:11]})",
    waits=(1,),
    rows={
        ("node", "triage", "a window"): 1,
        ("node", "triage", "the roof"): 1,
        ("node", "quote"): 1,
        ("node", "measure"): 1,
        ("model", "surveyor"): 1,
        ("node", "file_away"): 2,
    },
    last="filed: report says seen (40)",
)
