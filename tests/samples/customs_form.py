"""A task agent as a node of a graph: it talks until its task is done, then the graph goes on."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow
from pydantic import BaseModel

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, scripted
from tests.support.lives import Ledger


class Form(BaseModel):
    goods: str
    cents: int


def build(ledger: Ledger) -> Workflow:
    def tariff(goods: str) -> int:
        """The tariff of goods in percent."""
        ledger.add("tool", "tariff", goods)
        return 5

    officer = LlmAgent(
        name="officer",
        mode="task",
        output_schema=Form,
        model=scripted(
            ledger,
            "officer",
            says("What is it worth?"),
            calls(("tariff", {"goods": "clocks"})),
            calls(("finish_task", {"goods": "clocks", "cents": 200})),
        ),
        tools=[tariff],
    )

    def stamp(node_input: Form) -> str:
        ledger.add("node", "stamp", node_input.cents)
        return f"{node_input.goods}: {node_input.cents} to pay"

    return Workflow(name="customs_form", edges=[("START", officer, stamp)])


SAMPLE = Sample(
    build=build,
    messages=("I bring clocks", "forty euros"),
    rows={("model", "officer"): 3, ("tool", "tariff", "clocks"): 1, ("node", "stamp", 200): 1},
    last="clocks: 200 to pay",
)
