"""A Workflow does not see a wait below a tool, and goes on."""

from __future__ import annotations

from google.adk.agents.context import Context

from durable_adk.adk import _seam
from durable_adk.adk._patches.patch import Patch

PATCH = Patch(
    symptom="A single-turn sub-agent of an agent in a Workflow asks, and the next node runs before"
    " the answer.",
    target="`adk/nodes.py`: the interrupt ids, on the tool's context only, are put on its node's",
    proof="test_the_next_node_runs_before_an_answer_below_a_tool_is_there",
    until="ADK passes interrupts from a tool's context on to the node around it",
)


def pass_on(ctx: Context, interrupts: set[str]) -> None:
    """Tell the node of a context that something below one of its tools waits."""
    _seam.interrupts_of(ctx).update(interrupts)
