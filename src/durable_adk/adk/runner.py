"""ADK's runner for one attempt: the same, but it goes on where the invocation began.

Stock ADK resumes at the agent that asked; for a transfer that restarts the node path at ``@1``
and the rest of a pipeline never runs. And an invocation has our id from its first event on.
"""

from __future__ import annotations

from typing import Any

from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.runners import Runner
from google.adk.sessions import Session

from durable_adk.adk.scope import current


class AttemptRunner(Runner):
    """Used inside one attempt only, with the root scope bound."""

    def _new_invocation_context(
        self, session: Session, *, invocation_id: str | None = None, **kwargs: Any
    ) -> InvocationContext:
        scope = current()
        if invocation_id is None and scope is not None and scope.kind == "root":
            invocation_id = scope.stage.invocation_id
        return super()._new_invocation_context(session, invocation_id=invocation_id, **kwargs)

    def _find_agent_to_run(self, session: Session, root_agent: BaseAgent) -> BaseAgent:
        scope = current()
        if scope is None:
            return super()._find_agent_to_run(session, root_agent)
        ours = scope.stage.invocation_id
        first = next(
            (i for i, event in enumerate(session.events) if event.invocation_id == ours),
            len(session.events),
        )
        before = session.model_copy(update={"events": session.events[:first]})
        return super()._find_agent_to_run(before, root_agent)
