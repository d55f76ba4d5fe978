"""A team: one helper answers at once, one talks with the user until its task is finished."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from pydantic import BaseModel

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


class Party(BaseModel):
    guests: int


class Booking(BaseModel):
    hall: str
    deposit: int


def build(ledger: Ledger) -> LlmAgent:
    def forecast(day: str) -> str:
        """The weather of a day."""
        ledger.add("tool", "forecast", day)
        return "dry"

    def pay_deposit(hall: str, amount: int) -> dict[str, Any]:
        """Pay the deposit of a hall."""
        ledger.add("tool", "pay_deposit", hall, amount)
        return {"paid": amount}

    meteorologist = LlmAgent(
        name="meteorologist",
        description="Knows the weather.",
        mode="single_turn",
        model=scripted(
            ledger, "meteorologist", calls(("forecast", {"day": "June 5"})), says("June 5 is dry")
        ),
        tools=[forecast],
    )
    booker = LlmAgent(
        name="booker",
        description="Books a hall.",
        mode="task",
        input_schema=Party,
        output_schema=Booking,
        model=scripted(
            ledger,
            "booker",
            says("The barn or the castle?"),
            calls(("pay_deposit", {"hall": "barn", "amount": 300})),
            calls(("finish_task", {"hall": "barn", "deposit": 300})),
        ),
        tools=[FunctionTool(pay_deposit, require_confirmation=True)],
    )
    return LlmAgent(
        name="planner",
        model=scripted(
            ledger,
            "planner",
            calls(("meteorologist", {"request": "June 5"})),
            calls(("booker", {"guests": 80})),
            says("June 5 in the barn, the deposit is paid."),
        ),
        sub_agents=[meteorologist, booker],
    )


SAMPLE = Sample(
    build=build,
    messages=("a wedding on June 5 for 80", "the barn"),
    waits=(1,),
    rows={
        ("model", "planner"): 3,
        ("model", "meteorologist"): 2,
        ("tool", "forecast", "June 5"): 1,
        ("model", "booker"): 3,
        ("tool", "pay_deposit", "barn", 300): 1,
    },
    last="June 5 in the barn, the deposit is paid.",
)
