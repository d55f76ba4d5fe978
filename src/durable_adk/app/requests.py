"""One message, checked and turned into what the engine takes."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import Any

from durable_adk._expiries import checked_deadline
from durable_adk.app import checks
from durable_adk.app.lifecycle import Opened
from durable_adk.engine.requests import Request
from durable_adk.errors import NotFound
from durable_adk.model.due import Due
from durable_adk.model.identity import checked_id


@dataclass(frozen=True, slots=True)
class Message:
    """The checked arguments of ``invoke``, ``stream`` and ``submit``."""

    user_id: str
    session_id: str | None
    execution_id: str | None
    message: object
    state_delta: dict[str, Any] | None
    run_config: object
    deadline: Due | None = None

    async def request(self, opened: Opened) -> Request:
        """What the engine takes.

        Raises:
            NotStorable: a value in the message or the state cannot be recorded.
        """
        payload = opened.program.message_payload(self.message, self.state_delta, self.run_config)
        return Request(
            user_id=self.user_id,
            session_id=self.session_id or await self._session(opened),
            execution_id=self.execution_id,
            input=payload,
            deadline=self.deadline,
        )

    async def _session(self, opened: Opened) -> str:
        """A new session's id; for a given execution id the same on every call.

        A repeat without a session id must find the execution where the first call put it.
        """
        if self.execution_id is None:
            return str(uuid.uuid4())
        try:
            known = await opened.engine.get(self.execution_id)
        except NotFound:
            return hashlib.sha256(self.execution_id.encode()).hexdigest()[:32]
        return known.session_id


def checked_request(
    *,
    user_id: object,
    session_id: object,
    message: object,
    execution_id: object,
    state_delta: object,
    run_config: object,
    deadline: object = None,
    late_answers: bool = False,
) -> Message:
    """Check the arguments of a call that starts an execution. Nothing is read or stored.

    Raises:
        ConfigError: naming the argument and its rule.
    """
    return Message(
        user_id=checked_id("user_id", user_id),
        session_id=checks.checked_optional_id("session_id", session_id),
        execution_id=checks.checked_optional_id("execution_id", execution_id),
        message=checks.checked_message(message, late_answers=late_answers),
        state_delta=checks.checked_state("state_delta", state_delta),
        run_config=checks.checked_run_config(run_config),
        deadline=checked_deadline(deadline),
    )
