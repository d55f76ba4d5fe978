"""Iterative refinement: a draft, then critic and poet in a loop that the poet leaves by a tool."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent, LoopAgent, SequentialAgent
from google.adk.tools.exit_loop_tool import exit_loop

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, instruction, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> SequentialAgent:
    def rhymes(word: str) -> list[str]:
        """Words that rhyme."""
        ledger.add("tool", "rhymes", word)
        return ["sea", "free"]

    drafter = LlmAgent(
        name="drafter", model=scripted(ledger, "drafter", says("gulls")), output_key="poem"
    )

    def judge(asked: Any) -> Any:
        lines = instruction(asked).removeprefix("Judge: ")
        return says("good" if lines.count("/") == 2 else f"{lines} wants a line")

    critic = LlmAgent(
        name="critic",
        instruction="Judge: {poem}",
        model=scripted(ledger, "critic", judge),
        output_key="verdict",
    )

    def improve(asked: Any) -> Any:
        poem, _, verdict = instruction(asked).partition(" | ")
        parts = asked.contents[-1].parts or []
        if any(part.function_response for part in parts):
            return says(f"{poem} / sea")
        return calls(("exit_loop", {})) if verdict == "good" else calls(("rhymes", {"word": poem}))

    poet = LlmAgent(
        name="poet",
        instruction="{poem} | {verdict}",
        model=scripted(ledger, "poet", improve),
        tools=[rhymes, exit_loop],
        output_key="poem",
    )
    workshop = LoopAgent(name="workshop", sub_agents=[critic, poet], max_iterations=6)
    printer = LlmAgent(
        name="printer",
        instruction="{poem}",
        model=scripted(ledger, "printer", lambda asked: says(f"In print: {instruction(asked)}")),
    )
    return SequentialAgent(name="sonnet_workshop", sub_agents=[drafter, workshop, printer])


SAMPLE = Sample(
    build=build,
    messages=("a sonnet on gulls",),
    rows={
        ("model", "drafter"): 1,
        ("model", "critic"): 3,
        ("model", "poet"): 5,
        ("tool", "rhymes", "gulls"): 1,
        ("tool", "rhymes", "gulls / sea"): 1,
        ("model", "printer"): 1,
    },
    last="In print: gulls / sea / sea",
    kept={"verdict": "good", "poem": "gulls / sea / sea"},
)
