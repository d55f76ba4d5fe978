"""ADK's tool that lets the user choose, then a planner that thinks before it books."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.planners import PlanReActPlanner
from google.adk.tools.get_user_choice_tool import get_user_choice_tool

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> LlmAgent:
    def book(seat: str) -> str:
        """Book a seat."""
        ledger.add("tool", "book", seat)
        return f"seat {seat}"

    def take(asked: Any) -> Any:
        said = asked.contents[-1].parts[0].function_response.response
        return calls(("book", {"seat": said["result"]}))

    return LlmAgent(
        name="box_office",
        model=scripted(
            ledger,
            "box_office",
            calls(("get_user_choice", {"options": ["stalls", "balcony"]})),
            take,
            says("/*REASONING*/it is booked/*FINAL_ANSWER*/Enjoy the balcony."),
        ),
        tools=[get_user_choice_tool, book],
        planner=PlanReActPlanner(),
    )


SAMPLE = Sample(
    build=build,
    messages=("a ticket",),
    reply=lambda asked: {"result": asked.args["options"][-1]},
    waits=(1,),
    rows={("model", "box_office"): 3, ("tool", "book", "balcony"): 1},
    last="Enjoy the balcony.",
)
