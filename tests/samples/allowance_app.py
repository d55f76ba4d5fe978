"""An ADK ``App``: a plugin over all agents, a resumable sequence, a purchase that is confirmed."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.llm_request import LlmRequest
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, instruction, scripted
from tests.support.lives import Ledger


class House(BasePlugin):
    """Tells every model the house rule, and notes what was spent."""

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> None:
        llm_request.append_instructions(["Be frugal."])

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> None:
        if "spent" in result:
            tool_context.state["spent"] = tool_context.state.get("spent", 0) + result["spent"]


def build(ledger: Ledger) -> App:
    def buy(thing: str, cents: int) -> dict[str, int]:
        """Buy a thing."""
        ledger.add("tool", "buy", thing)
        return {"spent": cents}

    buyer = LlmAgent(
        name="buyer",
        model=scripted(
            ledger,
            "buyer",
            calls(("buy", {"thing": "kite", "cents": 900})),
            says("bought a kite"),
        ),
        tools=[FunctionTool(buy, require_confirmation=True)],
        output_key="bought",
    )
    bookkeeper = LlmAgent(
        name="bookkeeper",
        instruction="{bought}, {spent} cents.",
        model=scripted(ledger, "bookkeeper", lambda asked: says(instruction(asked))),
    )
    return App(
        name="lives",
        root_agent=SequentialAgent(name="allowance", sub_agents=[buyer, bookkeeper]),
        plugins=[House(name="house")],
        resumability_config=ResumabilityConfig(is_resumable=True),
    )


SAMPLE = Sample(
    build=build,
    messages=("buy a kite",),
    waits=(1,),
    rows={("model", "buyer"): 2, ("tool", "buy", "kite"): 1, ("model", "bookkeeper"): 1},
    last="bought a kite, 900 cents. Be frugal.",
    kept={"spent": 900},
)
