"""A run is resumed at the agent that asked, not where it began."""

from __future__ import annotations

from google.adk.agents import BaseAgent
from google.adk.sessions import Session
from google.adk.workflow import BaseNode

from durable_adk.adk import _seam
from durable_adk.adk._patches.patch import Patch


def _has_sub_agents(root: BaseNode) -> bool:
    return isinstance(root, BaseAgent) and bool(root.sub_agents)


PATCH = Patch(
    symptom="The rest of a `SequentialAgent` and the other branches of a `ParallelAgent` never run;"
    " after transfers the path starts again at `@1`, and a later hand-over is lost.",
    target="`adk/runner.py` `_find_agent_to_run`: sees the events before this invocation only",
    proof="test_the_rest_of_a_sequence_never_runs_after_an_answer",
    until="ADK resumes an invocation at the agent it began with",
    needs=(_seam.FIND_AGENT_TO_RUN,),
    needed_by=_has_sub_agents,
)


def events_before(session: Session, invocation_id: str) -> Session:
    """The session as it was when the invocation began: by it, ADK finds where that was.

    A message that answers a call of an earlier turn is part of it: it leads to who called.
    """
    events = session.events
    first = next(
        (place for place, event in enumerate(events) if event.invocation_id == invocation_id),
        len(events),
    )
    if first < len(events) and events[first].get_function_responses():
        first += 1
    return session.model_copy(update={"events": events[:first]})
