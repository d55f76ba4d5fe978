"""A pipeline with approvals in parallel: two agents ask at once, then a third goes on."""

from __future__ import annotations

from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.tools.function_tool import FunctionTool

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> SequentialAgent:
    def turn_key(vault: str) -> dict[str, str]:
        """Turn the key of a vault."""
        ledger.add("tool", "turn_key", vault)
        return {"turned": vault}

    def ring_bell() -> str:
        """Ring the bell."""
        ledger.add("tool", "ring_bell")
        return "rang"

    def keeper(vault: str) -> LlmAgent:
        name = f"keeper_{vault}"
        return LlmAgent(
            name=name,
            model=scripted(
                ledger, name, calls(("turn_key", {"vault": vault})), says(f"{vault} is open")
            ),
            tools=[FunctionTool(turn_key, require_confirmation=True)],
            output_key=vault,
        )

    warden = LlmAgent(
        name="warden",
        model=scripted(ledger, "warden", calls(("ring_bell", {})), says("both are open")),
        tools=[ring_bell],
    )
    both = ParallelAgent(name="both", sub_agents=[keeper("east"), keeper("west")])
    return SequentialAgent(name="two_keys", sub_agents=[both, warden])


SAMPLE = Sample(
    build=build,
    messages=("open",),
    waits=(2,),
    in_flight=4,
    rows={
        ("model", "keeper_east"): 2,
        ("model", "keeper_west"): 2,
        ("tool", "turn_key", "east"): 1,
        ("tool", "turn_key", "west"): 1,
        ("model", "warden"): 2,
        ("tool", "ring_bell"): 1,
    },
    last="both are open",
    kept={"east": "east is open", "west": "west is open"},
    stock="only the agent of the first answer goes on: the rest of the pipeline never runs",
)
