"""Two runs of one name on one branch take each other's answers."""

from __future__ import annotations

from google.adk.agents.context import Context

from durable_adk.adk import _seam
from durable_adk.adk._patches.patch import Patch
from durable_adk.errors import UnsupportedNode

Place = tuple[str, str, str | None]

PATCH = Patch(
    symptom="Two parallel tools each run a node of one name: each of the two sees both answers, and"
    " runs what was approved twice.",
    target="`adk/nodes.py` `_durable`: the second is refused before it runs",
    proof="test_two_approvals_of_runs_at_one_place_pay_four_times",
    until="ADK gives each run its own answers",
)


def place_of(ctx: Context) -> Place:
    """By what ADK finds the answers for a run; two that are active at once must differ in it."""
    invocation = _seam.invocation_of(ctx)
    return invocation.invocation_id, ctx.node_path, invocation.branch


def refusal(ctx: Context) -> UnsupportedNode:
    return UnsupportedNode(
        ctx.node_path,
        because="two runs of it are active at once on one branch, and each would take the answers"
        " of the other",
        instead="give each a run id and a branch of its own: run_node(...,"
        " run_id=tool_context.function_call_id, use_sub_branch=True)",
    )
