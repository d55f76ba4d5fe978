"""Tool confirmation: one tool always asks, one asks above a limit; one of the calls is declined."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> LlmAgent:
    def block_card(card: str) -> dict[str, str]:
        """Block a card."""
        ledger.add("tool", "block_card", card)
        return {"blocked": card}

    def load_card(card: str, litres: int) -> dict[str, Any]:
        """Load litres onto a card."""
        ledger.add("tool", "load_card", card, litres)
        return {"card": card, "litres": litres}

    async def is_much(card: str, litres: int) -> bool:
        return litres > 100

    return LlmAgent(
        name="fleet",
        model=scripted(
            ledger,
            "fleet",
            calls(
                ("load_card", {"card": "van", "litres": 40}),
                ("load_card", {"card": "bus", "litres": 300}),
                ("load_card", {"card": "bike", "litres": 500}),
                ("block_card", {"card": "old"}),
            ),
            says("van and bus are loaded, the old card is blocked"),
        ),
        tools=[
            FunctionTool(block_card, require_confirmation=True),
            FunctionTool(load_card, require_confirmation=is_much),
        ],
    )


SAMPLE = Sample(
    build=build,
    messages=("load all cards, block the old one",),
    reply=lambda asked: {"confirmed": asked.args.get("card") != "bike"},
    waits=(3,),
    in_flight=4,
    rows={
        ("model", "fleet"): 2,
        ("tool", "load_card", "van", 40): 1,
        ("tool", "load_card", "bus", 300): 1,
        ("tool", "block_card", "old"): 1,
    },
    last="van and bus are loaded, the old card is blocked",
)
