"""A review loop: an agent drafts, an editor sends it back with a remark until it is good."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.events import Event, RequestInput
from google.adk.workflow import Workflow, node

from durable_adk.testing import says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> Workflow:
    writer = LlmAgent(
        name="writer",
        model=scripted(ledger, "writer", lambda asked: says(f"HEADLINE ON {heard(asked)}")),
    )

    @node(rerun_on_resume=True)
    async def editor(ctx: Context, node_input: str) -> AsyncIterator[Any]:
        rounds = ctx.state.get("rounds", 0)
        remark = ctx.resume_inputs.get(f"round-{rounds}")
        if remark is None:
            yield RequestInput(interrupt_id=f"round-{rounds}", message=node_input)
            return
        if remark == "print it":
            yield Event(output=node_input, route="good")
        else:
            yield Event(output=remark, route="again", state={"rounds": rounds + 1})

    def press(node_input: str) -> str:
        ledger.add("node", "press")
        return f"printed {node_input}"

    return Workflow(
        name="headline_review",
        edges=[("START", writer, editor), (editor, {"again": writer, "good": press})],
    )


REMARKS = {"storm": "the big storm", "the big storm": "storms", "storms": "print it"}

SAMPLE = Sample(
    build=build,
    messages=("storm",),
    reply=lambda asked: REMARKS[asked.text.removeprefix("HEADLINE ON ")],
    waits=(1, 1, 1),
    rows={("model", "writer"): 3, ("node", "press"): 1},
    last="printed HEADLINE ON storms",
    kept={"rounds": 2},
)
