"""Structured output with tools: the agent looks things up and then answers in a schema."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from pydantic import BaseModel

from durable_adk.testing import calls
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


class Receipt(BaseModel):
    shop: str
    cents: int
    items: list[str]


def build(ledger: Ledger) -> LlmAgent:
    def scan(image: str) -> dict[str, Any]:
        """Read the text of an image."""
        ledger.add("tool", "scan", image)
        return {"text": "BAKER bread 2.80"}

    def to_cents(amount: str) -> int:
        """Cents of an amount."""
        ledger.add("tool", "to_cents", amount)
        return round(float(amount) * 100)

    return LlmAgent(
        name="reader",
        model=scripted(
            ledger,
            "reader",
            calls(("scan", {"image": "r1.png"})),
            calls(("to_cents", {"amount": "2.80"})),
            calls(("set_model_response", {"shop": "BAKER", "cents": 280, "items": ["bread"]})),
        ),
        tools=[scan, to_cents],
        output_schema=Receipt,
        output_key="receipt",
    )


SAMPLE = Sample(
    build=build,
    messages=("r1.png",),
    rows={
        ("model", "reader"): 3,
        ("tool", "scan", "r1.png"): 1,
        ("tool", "to_cents", "2.80"): 1,
    },
    last='{"shop": "BAKER", "cents": 280, "items": ["bread"]}',
    kept={"receipt": {"shop": "BAKER", "cents": 280, "items": ["bread"]}},
)
