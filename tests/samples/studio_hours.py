"""A tool that asks for its own confirmation, with a payload that the person fills in."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.tool_context import ToolContext

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> LlmAgent:
    def book_studio(hours: int, tool_context: ToolContext) -> dict[str, Any]:
        """Book the studio."""
        given = tool_context.tool_confirmation
        if given is None:
            ledger.add("tool", "book_studio asks", hours)
            tool_context.request_confirmation(
                hint=f"{hours} hours are wanted", payload={"hours": 0}
            )
            return {"status": "the studio manager is asked"}
        granted = min(given.payload["hours"], hours) if given.confirmed else 0
        ledger.add("tool", "book_studio", granted)
        tool_context.state["booked"] = granted
        return {"status": "booked" if granted else "refused", "hours": granted}

    def tell(asked: Any) -> Any:
        said = asked.contents[-1].parts[0].function_response.response
        return says(f"{said['status']}: {said.get('hours', '?')} hours")

    return LlmAgent(
        name="studio",
        model=scripted(
            ledger,
            "studio",
            calls(("book_studio", {"hours": 8})),
            tell,
        ),
        tools=[book_studio],
    )


SAMPLE = Sample(
    build=build,
    messages=("eight hours please",),
    reply=lambda asked: {"confirmed": True, "payload": {"hours": 5}},
    waits=(1,),
    rows={
        ("model", "studio"): 3,
        ("tool", "book_studio asks", 8): 1,
        ("tool", "book_studio", 5): 1,
    },
    last="booked: 5 hours",
    kept={"booked": 5},
)
