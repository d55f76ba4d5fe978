"""A loop in a graph: an agent tries, a checker sends the work back until it fits."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.workflow import Workflow

from durable_adk.testing import says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger

LIMIT = 16


def build(ledger: Ledger) -> Workflow:
    def cut(asked: str) -> str:
        """A model that drops the last word of what it is given."""
        return asked.rsplit(" ", 1)[0]

    shortener = LlmAgent(
        name="shortener", model=scripted(ledger, "shortener", lambda asked: says(cut(heard(asked))))
    )

    def fits(node_input: str, rounds: int = 0) -> Event:
        ledger.add("node", "fits", node_input)
        return Event(
            output=node_input,
            state={"rounds": rounds + 1},
            route="fits" if len(node_input) <= LIMIT else "too long",
        )

    def burn_in(node_input: str, rounds: int) -> str:
        ledger.add("node", "burn_in")
        return f"{node_input} (after {rounds})"

    return Workflow(
        name="subtitle_loop",
        edges=[
            ("START", shortener, fits),
            (fits, {"too long": shortener, "fits": burn_in}),
        ],
    )


SAMPLE = Sample(
    build=build,
    messages=("we will never leave this island again",),
    rows={
        ("model", "shortener"): 4,
        ("node", "fits", "we will never leave this island"): 1,
        ("node", "fits", "we will never leave this"): 1,
        ("node", "fits", "we will never leave"): 1,
        ("node", "fits", "we will never"): 1,
        ("node", "burn_in"): 1,
    },
    last="we will never (after 4)",
    kept={"rounds": 4},
)
