"""A structured question: an agent reads the wish, small ones pass, large ones ask with a schema."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event, RequestInput
from google.adk.workflow import Workflow
from pydantic import BaseModel

from durable_adk.testing import says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


class Wish(BaseModel):
    nights: int
    purpose: str


class Ruling(BaseModel):
    granted: bool
    nights: int | None = None


def build(ledger: Ledger) -> Workflow:
    def extract(asked: Any) -> Any:
        nights, _, purpose = heard(asked).partition(" nights for ")
        return says(Wish(nights=int(nights), purpose=purpose).model_dump_json())

    reader = LlmAgent(
        name="reader",
        instruction="Extract nights and purpose.",
        model=scripted(ledger, "reader", extract),
        output_schema=Wish,
        output_key="wish",
    )

    def rule(wish: Wish) -> Any:
        ledger.add("node", "rule", wish.nights)
        if wish.nights <= 2:
            return Ruling(granted=True)
        return RequestInput(message="Grant it?", payload=wish, response_schema=Ruling)

    def book(wish: Wish, node_input: Ruling) -> Iterator[Event]:
        ledger.add("node", "book", node_input.granted)
        nights = node_input.nights or wish.nights
        text = f"{nights} of {wish.nights} nights for {wish.purpose}"
        yield Event(message=text if node_input.granted else "not this time")

    return Workflow(name="telescope_loan", edges=[("START", reader, rule, book)])


def reply(asked: Any) -> Any:
    if asked.payload["nights"] > 20:
        return {"granted": False}
    return {"granted": True, "nights": asked.payload["nights"] - 1}


SAMPLE = Sample(
    build=build,
    messages=("2 nights for Mars", "30 nights for Pluto", "9 nights for Saturn"),
    reply=reply,
    waits=(1, 1),
    rows={
        ("model", "reader"): 3,
        ("node", "rule", 2): 1,
        ("node", "rule", 30): 1,
        ("node", "rule", 9): 1,
        ("node", "book", True): 2,
        ("node", "book", False): 1,
    },
    last="8 of 9 nights for Saturn",
    kept={"wish": {"nights": 9, "purpose": "Saturn"}},
)
