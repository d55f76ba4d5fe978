"""A workflow in sequence: outputs flow from node to node, state is bound to parameters by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.workflow import Workflow

from durable_adk.testing import says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> Workflow:
    def read_order(node_input: str) -> Event:
        plant, _, packets = node_input.partition(" x")
        ledger.add("node", "read_order", plant)
        return Event(output=plant, state={"packets": int(packets)})

    gardener = LlmAgent(
        name="gardener",
        instruction="Say when to sow the plant.",
        model=scripted(ledger, "gardener", lambda asked: says(f"sow {heard(asked)} in April")),
        output_key="advice",
    )

    def print_label(node_input: str, packets: int) -> Iterator[Any]:
        ledger.add("node", "print_label", packets)
        yield Event(message=f"{packets} packets: {node_input}")
        yield Event(output={"packets": packets, "text": node_input})

    def count_stock(node_input: dict[str, Any], packets: int) -> str:
        ledger.add("node", "count_stock")
        return f"{100 - packets} left after {node_input['text']!r}"

    return Workflow(
        name="seed_order", edges=[("START", read_order, gardener, print_label, count_stock)]
    )


SAMPLE = Sample(
    build=build,
    messages=("chard x12",),
    rows={
        ("node", "read_order", "chard"): 1,
        ("model", "gardener"): 1,
        ("node", "print_label", 12): 1,
        ("node", "count_stock"): 1,
    },
    last="88 left after 'sow chard in April'",
    kept={"packets": 12, "advice": "sow chard in April"},
)
