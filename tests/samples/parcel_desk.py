"""Routes: a router picks an agent, a function or the default branch; one message each."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.events import Event
from google.adk.workflow import DEFAULT_ROUTE, Workflow

from durable_adk.testing import calls, says
from tests.samples.sample import Sample, heard, scripted
from tests.support.lives import Ledger


def build(ledger: Ledger) -> Workflow:
    def locate(parcel: str) -> dict[str, str]:
        """Where a parcel is."""
        ledger.add("tool", "locate", parcel)
        return {"place": f"depot {len(parcel)}"}

    def sort_mail(node_input: str) -> Event:
        ledger.add("node", "sort_mail", node_input)
        word = node_input.split()[0]
        return Event(output=node_input, route=word if word in ("track", "return") else "unclear")

    tracker = LlmAgent(
        name="tracker",
        model=scripted(
            ledger, "tracker", calls(("locate", {"parcel": "P-77"})), says("P-77 is at depot 4")
        ),
        tools=[locate],
    )

    def print_return(node_input: str) -> str:
        ledger.add("node", "print_return")
        return f"label for {node_input!r}"

    clerk = LlmAgent(
        name="clerk",
        model=scripted(ledger, "clerk", lambda asked: says(f"What is {heard(asked)!r}?")),
    )

    def close(node_input: str) -> str:
        ledger.add("node", "close", node_input)
        return f"closed: {node_input}"

    return Workflow(
        name="parcel_desk",
        edges=[
            ("START", sort_mail),
            (sort_mail, {"track": tracker, "return": print_return, DEFAULT_ROUTE: clerk}),
            (tracker, close),
            (print_return, close),
            (clerk, close),
        ],
    )


SAMPLE = Sample(
    build=build,
    messages=("track P-77", "return boots", "hello"),
    rows={
        ("node", "sort_mail", "track P-77"): 1,
        ("node", "sort_mail", "return boots"): 1,
        ("node", "sort_mail", "hello"): 1,
        ("model", "tracker"): 2,
        ("tool", "locate", "P-77"): 1,
        ("node", "print_return"): 1,
        ("model", "clerk"): 1,
        ("node", "close", "P-77 is at depot 4"): 1,
        ("node", "close", "label for 'return boots'"): 1,
        ("node", "close", "What is 'hello'?"): 1,
    },
    last="closed: What is 'hello'?",
)
