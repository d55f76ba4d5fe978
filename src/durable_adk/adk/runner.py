"""ADK's runner for one attempt: the same, but it goes on where the invocation began.

Stock ADK resumes at the agent that asked; for a transfer that restarts the node path at ``@1``
and the rest of a pipeline never runs. And an invocation has our id from its first event on.
"""

from __future__ import annotations

from typing import Any

from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import Session

from durable_adk.adk._patches import new_invocations_of_composites, resume_at_the_asker
from durable_adk.adk.scope import current


class AttemptRunner(Runner):
    """Used inside one attempt only, with the root scope bound."""

    def _new_invocation_context(
        self, session: Session, *, invocation_id: str | None = None, **kwargs: Any
    ) -> InvocationContext:
        invocation_id = invocation_id or new_invocations_of_composites.ours()
        return super()._new_invocation_context(session, invocation_id=invocation_id, **kwargs)

    async def deliver(self, invocation: InvocationContext, event: Event) -> Event:
        """Do with an event what the runner does with those of its queue."""
        shown: Event = await self._process_event_with_plugin_callbacks(
            invocation_context=invocation, event=event
        )
        if not shown.partial:
            if shown.node_info.message_as_output and shown.content is not None:
                shown = shown.model_copy(update={"output": None})
            await self.session_service.append_event(session=invocation.session, event=shown)
        return shown

    def _find_agent_to_run(self, session: Session, root_agent: BaseAgent) -> BaseAgent:
        scope = current()
        if scope is not None:
            session = resume_at_the_asker.events_before(session, scope.stage.invocation_id)
        return super()._find_agent_to_run(session, root_agent)
