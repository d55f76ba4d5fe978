"""A resumable app takes an invocation id it does not know for one to resume."""

from __future__ import annotations

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.workflow import BaseNode

from durable_adk.adk import _seam
from durable_adk.adk._patches.patch import Patch
from durable_adk.adk.scope import current


def is_composite(root: BaseNode) -> bool:
    """Whether it is an agent that runs outside of the node runtime."""
    return isinstance(root, BaseAgent) and not isinstance(root, LlmAgent)


PATCH = Patch(
    symptom="`run_async(invocation_id=..., new_message=...)` of a resumable app whose root is a"
    " `SequentialAgent` or its like fails: the session has no events to resume.",
    target="`adk/runner.py` `_new_invocation_context`: such an invocation gets its id there",
    proof="test_a_resumable_app_of_a_sequence_refuses_an_invocation_id_of_ones_own",
    until="ADK begins an invocation with the id it is given",
    needs=(_seam.NEW_INVOCATION_CONTEXT,),
    needed_by=is_composite,
)


def ours() -> str | None:
    """The id for an invocation that ADK starts without one, directly in an attempt."""
    scope = current()
    return scope.stage.invocation_id if scope is not None and scope.kind == "root" else None
