"""A hand-over inside a pipeline that is a node of a Workflow is taken for one of the pipeline."""

from __future__ import annotations

import dataclasses
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent

from durable_adk.adk._patches.patch import Patch
from durable_adk.adk.scope import current

PATCH = Patch(
    symptom="A `SequentialAgent` or its like is a node of a Workflow, and an agent in it handed"
    " over: after any answer the run fails, `Cannot transfer from 'seq' to unrelated agent`.",
    target="`check_interception`: a node that is no `LlmAgent` has handed over to nobody",
    proof="test_a_handover_inside_a_pipeline_node_fails_the_resumed_run",
    until="ADK takes the transfer of an event for that of its author",
)


def wrap(adks_check: Any) -> Any:
    """What ADK makes of a node's events, without the hand-overs that its agents settle."""

    def check_interception(*, node: Any, recovered: Any = None, current_run: Any = None) -> Any:
        if (
            current() is not None
            and isinstance(node, BaseAgent)
            and not isinstance(node, LlmAgent)
            and getattr(recovered, "transfer_to_agent", None) is not None
        ):
            recovered = dataclasses.replace(recovered, transfer_to_agent=None)
        return adks_check(node=node, recovered=recovered, current_run=current_run)

    return check_interception
