"""A sequential pipeline: writer, critic and editor hand on their work in the session's state."""

from __future__ import annotations

from google.adk.agents import LlmAgent, SequentialAgent

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, instruction, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> SequentialAgent:
    def count_words(text: str) -> int:
        """Count words."""
        ledger.add("tool", "count_words", text)
        return len(text.split())

    writer = LlmAgent(
        name="writer",
        instruction="Write a toast.",
        model=scripted(ledger, "writer", says("Dear friends, to the bride!")),
        output_key="draft",
    )
    critic = LlmAgent(
        name="critic",
        instruction="Criticise: {draft}",
        model=scripted(
            ledger,
            "critic",
            lambda asked: calls(("count_words", {"text": instruction(asked).split(": ")[1]})),
            says("too short, and the groom is missing"),
        ),
        tools=[count_words],
        output_key="remarks",
    )
    editor = LlmAgent(
        name="editor",
        instruction="{draft} | {remarks}",
        model=scripted(ledger, "editor", lambda asked: says(f"Final: {instruction(asked)}")),
        output_key="speech",
    )
    return SequentialAgent(name="speech_pipeline", sub_agents=[writer, critic, editor])


SPEECH = "Final: Dear friends, to the bride! | too short, and the groom is missing"

SAMPLE = Sample(
    build=build,
    messages=("a toast",),
    rows={
        ("model", "writer"): 1,
        ("model", "critic"): 2,
        ("tool", "count_words", "Dear friends, to the bride!"): 1,
        ("model", "editor"): 1,
    },
    last=SPEECH,
    kept={"speech": SPEECH},
)
