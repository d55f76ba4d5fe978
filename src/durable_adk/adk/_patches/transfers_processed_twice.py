"""An agent that runs for a single turn and transfers has the target run twice."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.workflow import BaseNode

from durable_adk.adk import _seam
from durable_adk.adk._patches import agent_tool_waits
from durable_adk.adk._patches.patch import Patch
from durable_adk.errors import UnsupportedNode

TWICE = "ADK then enters the target of a transfer twice"

PATCH = Patch(
    symptom="A single-turn agent of a Workflow hands over to a sub-agent: its flow enters it, and"
    " so does the scheduler.",
    target="`adk/check.py` `check_node`: refused before it runs",
    proof="test_a_single_turn_node_that_transfers_enters_the_target_twice",
    until="ADK processes a transfer of a single-turn node once",
)


def refusal(node: BaseNode, path: str) -> UnsupportedNode | None:
    """Why an agent cannot be run, or cannot be a tool, if it is such a one."""
    if isinstance(node, LlmAgent) and node.mode == "single_turn" and _seam.transfers(node):
        return UnsupportedNode(
            path,
            because=f"it runs for a single turn, and {TWICE}",
            instead="set mode='chat' on the agent that has sub_agents, or mode='single_turn' or"
            " 'task' on its sub_agents",
        )
    for agent in agent_tool_waits.for_a_single_turn(node):
        if isinstance(agent, LlmAgent) and _seam.transfers(agent):
            return UnsupportedNode(
                f"{path}/{agent.name}",
                because=f"an agent that can wait is run for a single turn as a tool, and {TWICE}",
                instead="make it a sub-agent instead of a tool, or set mode='single_turn' or 'task'"
                " on its sub_agents",
            )
    return None
