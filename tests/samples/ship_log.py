"""A long conversation: an ADK ``App`` sums up old turns, and the model sees the summary."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.models.llm_request import LlmRequest

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> App:
    def log(entry: str) -> str:
        """Write into the log."""
        ledger.add("tool", "log", entry)
        return "written"

    def mate(request: LlmRequest) -> Any:
        seen = [p.text for content in request.contents for p in content.parts or () if p.text]
        if any("calm until noon" in text for text in seen):
            return says("I remember: calm until noon.")
        last = request.contents[-1].parts or []
        if last and last[0].function_response:
            return says("It is in the log.")
        return calls(("log", {"entry": seen[-1]}))

    summarizer = LlmEventSummarizer(llm=scripted(ledger, "summarizer", says("calm until noon")))
    return App(
        name="lives",
        root_agent=LlmAgent(name="mate", model=scripted(ledger, "mate", mate, mate), tools=[log]),
        events_compaction_config=EventsCompactionConfig(
            summarizer=summarizer, compaction_interval=2, overlap_size=0
        ),
    )


SAMPLE = Sample(
    build=build,
    messages=("wind from the west", "a whale", "what was the morning like?"),
    rows={
        ("model", "mate"): 5,
        ("model", "summarizer"): 1,
        ("tool", "log", "wind from the west"): 1,
        ("tool", "log", "a whale"): 1,
    },
    last="I remember: calm until noon.",
)
