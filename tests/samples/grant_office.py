"""A long-running tool: the program waits for the committee's word, then pays or does not."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.tools.long_running_tool import LongRunningFunctionTool

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> LlmAgent:
    def ask_committee(project: str, amount: int) -> None:
        """Put a grant before the committee."""
        ledger.add("tool", "ask_committee", project, amount)

    def pay_grant(project: str, amount: int) -> dict[str, Any]:
        """Pay a grant."""
        ledger.add("tool", "pay_grant", project, amount)
        return {"paid": amount}

    def decide(request: Any) -> Any:
        said = request.contents[-1].parts[0].function_response.response
        if said["status"] == "approved":
            return calls(("pay_grant", {"project": "choir", "amount": said["amount"]}))
        return says("The committee declined.")

    return LlmAgent(
        name="grants",
        model=scripted(
            ledger,
            "grants",
            calls(("ask_committee", {"project": "choir", "amount": 900})),
            decide,
            says("The choir has its grant."),
        ),
        tools=[LongRunningFunctionTool(ask_committee), pay_grant],
    )


SAMPLE = Sample(
    build=build,
    messages=("a grant for the choir",),
    reply=lambda asked: {"status": "approved", "amount": asked.args["amount"] - 100},
    waits=(1,),
    rows={
        ("model", "grants"): 3,
        ("tool", "ask_committee", "choir", 900): 1,
        ("tool", "pay_grant", "choir", 800): 1,
    },
    last="The choir has its grant.",
)
