"""A coordinator hands the guest over to specialists and back, over several messages."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.function_tool import FunctionTool

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def hand_over(name: str) -> LlmResponse:
    return calls(("transfer_to_agent", {"agent_name": name}))


def build(ledger: Ledger) -> LlmAgent:
    def reserve(room: str) -> dict[str, str]:
        """Reserve a room."""
        ledger.add("tool", "reserve", room)
        return {"reserved": room}

    async def menu(day: str) -> list[str]:
        """The menu of a day."""
        ledger.add("tool", "menu", day)
        return ["leek soup", "apple tart"]

    def dispatch(asked: Any) -> LlmResponse:
        wish = heard(asked)
        if "room" in wish:
            return hand_over("rooms")
        return hand_over("kitchen") if "eat" in wish else says("Safe travels!")

    rooms = LlmAgent(
        name="rooms",
        description="Reserves rooms.",
        model=scripted(
            ledger,
            "rooms",
            calls(("reserve", {"room": "attic"})),
            says("The attic is yours."),
            hand_over("desk"),
        ),
        tools=[FunctionTool(reserve, require_confirmation=True)],
    )
    kitchen = LlmAgent(
        name="kitchen",
        description="Knows the menu.",
        model=scripted(
            ledger,
            "kitchen",
            calls(("menu", {"day": "today"})),
            says("Leek soup."),
            hand_over("desk"),
        ),
        tools=[menu],
    )
    return LlmAgent(
        name="desk",
        description="Greets guests.",
        model=scripted(ledger, "desk", dispatch),
        sub_agents=[rooms, kitchen],
    )


SAMPLE = Sample(
    build=build,
    messages=("a room please", "what can I eat?", "goodbye"),
    waits=(1,),
    rows={
        ("model", "desk"): 3,
        ("model", "rooms"): 3,
        ("model", "kitchen"): 3,
        ("tool", "reserve", "attic"): 1,
        ("tool", "menu", "today"): 1,
    },
    last="Safe travels!",
)
