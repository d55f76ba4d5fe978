"""Streaming: text comes in pieces, a call comes as a piece and then whole, and asks a person."""

from __future__ import annotations

from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.tools.function_tool import FunctionTool

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> LlmAgent:
    def broadcast(scene: str) -> str:
        """Broadcast a scene."""
        ledger.add("tool", "broadcast", scene)
        return "on air"

    asks = ("broadcast", {"scene": "the storm"})
    begun = calls(asks)
    begun.partial = True
    return LlmAgent(
        name="narrator",
        model=scripted(
            ledger,
            "narrator",
            [says("Shall I ", partial=True), says("go on?", partial=True), says("Shall I go on?")],
            [begun, calls(asks)],
            [says("Wind ", partial=True), says("and rain.", partial=True), says("Wind and rain.")],
        ),
        tools=[FunctionTool(broadcast, require_confirmation=True)],
    )


SAMPLE = Sample(
    build=build,
    messages=("hello", "go on"),
    run_config=lambda: RunConfig(streaming_mode=StreamingMode.SSE),
    waits=(1,),
    rows={("model", "narrator"): 3, ("tool", "broadcast", "the storm"): 1},
    last="Wind and rain.",
)
