"""Nodes that a tool runs have nowhere to put their events below a `SequentialAgent` as root."""

from __future__ import annotations

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.workflow import BaseNode

from durable_adk.adk import _seam
from durable_adk.adk._patches.patch import Patch


def _is_composite(root: BaseNode) -> bool:
    return isinstance(root, BaseAgent) and not isinstance(root, LlmAgent)


PATCH = Patch(
    symptom="A single-turn sub-agent or a node tool below a `SequentialAgent`, `ParallelAgent`,"
    " `LoopAgent` or `BaseAgent` as root: the model gets an error text, `_event_queue is not set`.",
    target="`adk/nodes.py` `_enqueue_event`: where there is no queue, `adk/runner.py` appends the"
    " event itself",
    proof="test_a_node_below_a_composite_root_has_no_queue",
    until="ADK gives every root an event queue",
    needs=(_seam.EVENT_QUEUE, _seam.PROCESS_EVENT),
    needed_by=_is_composite,
)
