"""A workflow as a tool: the agent's call runs a graph, which asks a person in the middle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import RequestInput
from google.adk.workflow import Workflow
from pydantic import BaseModel

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


class Cake(BaseModel):
    flavour: str
    layers: int


def build(ledger: Ledger) -> LlmAgent:
    def mix(node_input: Cake) -> str:
        """Mix the dough."""
        ledger.add("node", "mix", node_input.flavour)
        return f"{node_input.layers} layers of {node_input.flavour}"

    async def lettering(node_input: str) -> AsyncIterator[RequestInput]:
        """Ask what to write on the cake."""
        yield RequestInput(message=f"{node_input}: what shall it say?")

    def bake(node_input: Any) -> str:
        """Bake."""
        ledger.add("node", "bake", node_input)
        return f"a cake that says {node_input}"

    bakery = Workflow(
        name="bakery",
        description="Bakes a cake.",
        input_schema=Cake,
        edges=[("START", mix, lettering, bake)],
    )
    return LlmAgent(
        name="host",
        model=scripted(
            ledger,
            "host",
            calls(("bakery", {"flavour": "lemon", "layers": 3})),
            says("The cake is ready."),
        ),
        tools=[bakery],
    )


SAMPLE = Sample(
    build=build,
    messages=("a lemon cake",),
    reply=lambda asked: f"hello {asked.text.split()[3].rstrip(':')}",
    waits=(1,),
    rows={
        ("model", "host"): 2,
        ("node", "mix", "lemon"): 1,
        ("node", "bake", "hello lemon"): 1,
    },
    last="The cake is ready.",
)
