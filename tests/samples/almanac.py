"""A hierarchy of agents as tools: an author asks a researcher, who asks two helpers at once."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> LlmAgent:
    async def archive(subject: str) -> str:
        """Look into the archive."""
        ledger.add("tool", "archive", subject)
        return f"{subject}: founded 1702"

    searcher = LlmAgent(
        name="searcher",
        description="Searches the archive.",
        model=scripted(
            ledger,
            "searcher",
            calls(("archive", {"subject": "the mill"})),
            says("founded 1702"),
        ),
        tools=[archive],
    )
    speller = LlmAgent(
        name="speller",
        description="Corrects spelling.",
        model=scripted(ledger, "speller", lambda asked: says(heard(asked).replace("teh", "the"))),
    )
    researcher = LlmAgent(
        name="researcher",
        description="Finds facts.",
        model=scripted(
            ledger,
            "researcher",
            calls(("searcher", {"request": "the mill"}), ("speller", {"request": "teh mill"})),
            says("the mill was founded 1702"),
        ),
        tools=[AgentTool(searcher), AgentTool(speller)],
    )
    return LlmAgent(
        name="author",
        model=scripted(
            ledger,
            "author",
            calls(("researcher", {"request": "facts on teh mill"})),
            says("In 1702 the mill was founded."),
        ),
        tools=[AgentTool(researcher)],
    )


SAMPLE = Sample(
    build=build,
    messages=("write on teh mill",),
    in_flight=4,
    rows={
        ("model", "author"): 2,
        ("model", "researcher"): 2,
        ("model", "searcher"): 2,
        ("model", "speller"): 1,
        ("tool", "archive", "the mill"): 1,
    },
    last="In 1702 the mill was founded.",
)
