"""Generator and critic: two agents with structured outputs in a graph, until the critic agrees."""

from __future__ import annotations

from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.workflow import Workflow
from pydantic import BaseModel

from durable_adk.testing import says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


class Riddle(BaseModel):
    text: str
    answer: str


class Verdict(BaseModel):
    solvable: bool
    hint: str = ""


def build(ledger: Ledger) -> Workflow:
    def invent(asked: Any) -> Any:
        hinted = "candle" in heard(asked)
        text = "I shrink while I shine" if hinted else "What am I?"
        return says(Riddle(text=text, answer="candle").model_dump_json())

    def judge(asked: Any) -> Any:
        riddle = Riddle.model_validate_json(heard(asked))
        solvable = "shine" in riddle.text
        hint = "" if solvable else f"say more of the {riddle.answer}"
        return says(Verdict(solvable=solvable, hint=hint).model_dump_json())

    maker = LlmAgent(
        name="maker",
        model=scripted(ledger, "maker", invent),
        output_schema=Riddle,
        output_key="riddle",
    )
    critic = LlmAgent(
        name="critic",
        model=scripted(ledger, "critic", judge),
        input_schema=Riddle,
        output_schema=Verdict,
    )

    def gate(node_input: Verdict) -> Event:
        ledger.add("node", "gate", node_input.solvable)
        return Event(output=node_input.hint, route=node_input.solvable)

    def publish(riddle: Riddle) -> str:
        ledger.add("node", "publish")
        return f"{riddle.text}? ({riddle.answer})"

    return Workflow(
        name="puzzle_critic",
        edges=[("START", maker, critic, gate), (gate, {False: maker, True: publish})],
    )


SAMPLE = Sample(
    build=build,
    messages=("a riddle",),
    rows={
        ("model", "maker"): 2,
        ("model", "critic"): 2,
        ("node", "gate", False): 1,
        ("node", "gate", True): 1,
        ("node", "publish"): 1,
    },
    last="I shrink while I shine? (candle)",
)
