"""A waiting agent takes the answer for its output."""

from __future__ import annotations

from google.adk.agents import BaseAgent
from google.adk.workflow import BaseNode

from durable_adk.adk import _seam, tree
from durable_adk.adk._patches.patch import Patch


def _has_inner_agents(root: BaseNode) -> bool:
    return any(isinstance(node, BaseAgent) and node is not root for node in tree.walk(root))


PATCH = Patch(
    symptom="A `SequentialAgent`, `ParallelAgent` or `LoopAgent` in a Workflow that waits, or an"
    " agent that took over, is done with the answer as its output: the approved tool never runs.",
    target="`adk/clone.py`: the agents of an attempt are resumed where they asked",
    proof="test_an_answer_becomes_the_output_of_a_sequence_in_a_workflow",
    until="ADK resumes every agent that waits, however it came into the graph",
    needs=(_seam.RERUN_ON_RESUME,),
    needed_by=_has_inner_agents,
)


def resume_where_asked(agent: BaseAgent) -> None:
    """Have an agent of this attempt, and its sub-agents, entered again with the answer."""
    if not _seam.RERUN_ON_RESUME.exists():
        return  # an app that needs it was refused
    agent.rerun_on_resume = True
    for sub_agent in agent.sub_agents:
        resume_where_asked(sub_agent)


def require(made: BaseNode) -> None:
    """For what is made at run time: no check of the app has seen it.

    Raises:
        ConfigError: this ADK takes an answer for the output of the agents in it.
    """
    if isinstance(made, BaseAgent) or _has_inner_agents(made):
        _seam.RERUN_ON_RESUME.get()
