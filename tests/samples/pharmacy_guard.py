"""Callbacks as guards: one stops a request, one corrects a tool call, one answers from a cache."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def no_poisons(context: CallbackContext, request: LlmRequest) -> LlmResponse | None:
    return says("We do not sell that.") if "arsenic" in heard(request) else None


def at_most_three(tool: BaseTool, args: dict[str, Any], context: ToolContext) -> Any:
    """Caps what is sold; a price that was asked before comes from the state."""
    if tool.name == "sell":
        args["packs"] = min(args["packs"], 3)
        return None
    return context.state.get(f"price:{args['drug']}")


def keep_price(tool: BaseTool, args: dict[str, Any], context: ToolContext, result: Any) -> Any:
    if tool.name == "price":
        context.state[f"price:{args['drug']}"] = result
        return {**result, "currency": "EUR"}
    return None


def build(ledger: Ledger) -> LlmAgent:
    def price(drug: str) -> dict[str, int]:
        """The price of a drug."""
        ledger.add("tool", "price", drug)
        return {"cents": 450}

    def sell(drug: str, packs: int) -> str:
        """Sell packs of a drug."""
        ledger.add("tool", "sell", drug, packs)
        return "sold"

    return LlmAgent(
        name="pharmacist",
        model=scripted(
            ledger,
            "pharmacist",
            calls(("price", {"drug": "aspirin"})),
            calls(("price", {"drug": "aspirin"}), ("sell", {"drug": "aspirin", "packs": 20})),
            says("Three packs, here you are."),
        ),
        tools=[price, sell],
        before_model_callback=no_poisons,
        before_tool_callback=at_most_three,
        after_tool_callback=keep_price,
    )


SAMPLE = Sample(
    build=build,
    messages=("twenty aspirin", "and arsenic"),
    in_flight=3,
    rows={
        ("model", "pharmacist"): 3,
        ("tool", "price", "aspirin"): 1,
        ("tool", "sell", "aspirin", 3): 1,
    },
    last="We do not sell that.",
    kept={"price:aspirin": {"cents": 450}},
)
