"""A toolset: which tools there are depends on the state, and one tool is a class of its own."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


class Saw(BaseTool):
    """Cuts a board."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(name="saw", description="Cut a board.")
        self.ledger = ledger

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema={"type": "object", "properties": {"cm": {"type": "integer"}}},
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        self.ledger.add("tool", "saw", args["cm"])
        return {"board": args["cm"]}


class Bench(BaseToolset):
    """A saw for everybody; a router once the safety briefing was heard."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()

        def brief(tool_context: ToolContext) -> str:
            """Hear the safety briefing."""
            ledger.add("tool", "brief")
            tool_context.state["briefed"] = True
            return "heard"

        def rout(groove: str) -> str:
            """Rout a groove."""
            ledger.add("tool", "rout", groove)
            return f"{groove} groove"

        self.always = [FunctionTool(brief), Saw(ledger)]
        self.briefed = [FunctionTool(rout, require_confirmation=True)]

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        heard_it = readonly_context is not None and readonly_context.state.get("briefed")
        return [*self.always, *(self.briefed if heard_it else ())]


def build(ledger: Ledger) -> LlmAgent:
    return LlmAgent(
        name="joiner",
        model=scripted(
            ledger,
            "joiner",
            calls(("saw", {"cm": 40}), ("brief", {})),
            says("Now you may use the router."),
            calls(("rout", {"groove": "deep"})),
            says("The shelf is done."),
        ),
        tools=[Bench(ledger)],
    )


SAMPLE = Sample(
    build=build,
    messages=("let me in", "build a shelf"),
    waits=(1,),
    in_flight=3,
    rows={
        ("model", "joiner"): 4,
        ("tool", "saw", 40): 1,
        ("tool", "brief"): 1,
        ("tool", "rout", "deep"): 1,
    },
    last="The shelf is done.",
    kept={"briefed": True},
)
