"""An agent of one's own: code runs a loop and a sequence, and decides on what they left."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent, LoopAgent, SequentialAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, instruction, scripted
from tests.support.lives import Ledger


class Nursery(BaseAgent):
    """Composes, rehearses, and composes anew when the song would wake the child."""

    composer: LlmAgent
    rehearsal: LoopAgent
    checks: SequentialAgent

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        for part in (self.composer, self.rehearsal, self.checks):
            async for event in part.run_async(ctx):
                yield event
        if ctx.session.state.get("mood") == "loud":
            async for event in self.composer.run_async(ctx):
                yield event


def build(ledger: Ledger) -> Nursery:
    def measure(song: str) -> int:
        """How loud a song is."""
        ledger.add("tool", "measure", song)
        return 80

    composer = LlmAgent(
        name="composer",
        model=scripted(ledger, "composer", says("drums at dusk"), says("the moon hums")),
        output_key="song",
    )
    singer = LlmAgent(
        name="singer",
        instruction="Sing {song}",
        model=scripted(ledger, "singer", lambda asked: says(instruction(asked).upper())),
    )
    listener = LlmAgent(
        name="listener",
        instruction="{song}",
        model=scripted(
            ledger,
            "listener",
            lambda asked: calls(("measure", {"song": instruction(asked)})),
            says("loud"),
        ),
        tools=[measure],
        output_key="mood",
    )
    titler = LlmAgent(
        name="titler", model=scripted(ledger, "titler", says("Dusk")), output_key="title"
    )
    rehearsal = LoopAgent(name="rehearsal", sub_agents=[singer], max_iterations=2)
    checks = SequentialAgent(name="checks", sub_agents=[listener, titler])
    parts: dict[str, Any] = {"composer": composer, "rehearsal": rehearsal, "checks": checks}
    return Nursery(name="nursery", sub_agents=list(parts.values()), **parts)


SAMPLE = Sample(
    build=build,
    messages=("sing",),
    rows={
        ("model", "composer"): 2,
        ("model", "singer"): 2,
        ("model", "listener"): 2,
        ("model", "titler"): 1,
        ("tool", "measure", "drums at dusk"): 1,
    },
    last="the moon hums",
    kept={"song": "the moon hums", "mood": "loud", "title": "Dusk"},
)
