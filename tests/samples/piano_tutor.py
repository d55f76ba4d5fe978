"""Memory and state: what is known of the user shapes the instruction; old notes are searched."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.tools.load_memory_tool import load_memory_tool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, instruction, scripted
from tests.support.lives import Ledger


class Lessons(BaseMemoryService):
    """What earlier lessons were about."""

    async def add_session_to_memory(self, session: Any) -> None:
        """Lessons are written down by hand."""

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        text = types.Content(role="user", parts=[types.Part(text=f"{query} went badly")])
        return SearchMemoryResponse(memories=[MemoryEntry(content=text, author=user_id)])


def build(ledger: Ledger) -> LlmAgent:
    def remember(piece: str, tool_context: ToolContext) -> str:
        """Remember what the pupil plays."""
        ledger.add("tool", "remember", piece)
        tool_context.state["user:piece"] = piece
        tool_context.state["temp:scratch"] = "not kept"
        return "noted"

    def guide(context: ReadonlyContext) -> str:
        return f"The pupil plays {context.state.get('user:piece', 'nothing yet')}."

    return LlmAgent(
        name="tutor",
        instruction=guide,
        model=scripted(
            ledger,
            "tutor",
            calls(("remember", {"piece": "a waltz"})),
            says("Welcome."),
            calls(("load_memory", {"query": "the waltz"})),
            lambda asked: says(f"Slowly! {instruction(asked).splitlines()[0].strip()}"),
        ),
        tools=[remember, load_memory_tool],
        output_key="advice",
    )


SAMPLE = Sample(
    build=build,
    services=lambda ledger: {"memory_service": Lessons()},
    messages=("I play a waltz", "how shall I play?"),
    rows={("model", "tutor"): 4, ("tool", "remember", "a waltz"): 1},
    last="Slowly! The pupil plays a waltz.",
    kept={"user:piece": "a waltz", "advice": "Slowly! The pupil plays a waltz."},
)
