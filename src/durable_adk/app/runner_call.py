"""One call of ``DurableRunner.run_async``: what it starts or answers, and what it yields."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from durable_adk.adk import runner_base
from durable_adk.app import checks, show
from durable_adk.app.call_answers import answers_to
from durable_adk.app.failures import original
from durable_adk.app.lifecycle import Opened
from durable_adk.app.reads import events_of
from durable_adk.app.requests import checked_request
from durable_adk.app.streams import items
from durable_adk.engine.program import Sink
from durable_adk.engine.service import Request
from durable_adk.errors import ConfigError, LeaseLost
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import Tenant, session_key


@dataclass(slots=True, kw_only=True)
class RunnerCall:
    """The arguments of one call, already checked but for the message.

    Attributes:
        makes_sessions: Whether an unknown session is made.
        execution_id: Known once ``prepare`` has run.
    """

    tenant: Tenant
    makes_sessions: bool
    user_id: str
    session_id: str
    invocation_id: str | None
    message: Any
    state_delta: Mapping[str, Any] | None
    run_config: Any
    execution_id: str = ""
    _answers: Mapping[str, object] | None = None
    _answered_calls: frozenset[str] = frozenset()
    _request: Request | None = None
    _yielded: int = field(default=0, init=False)

    async def prepare(self, opened: Opened) -> None:
        """Find out what the call means. Nothing is stored."""
        responses = runner_base.responses_of(self.message)
        if responses and not await self._is_late(opened, responses):
            self._refuse_state()
            found = await answers_to(
                opened.store, self.tenant, self.user_id, self.session_id, responses
            )
            self.execution_id, self._answers = found.execution_id, found.answers
            self._answered_calls = found.call_ids
        elif self.message is not None:
            await self._start(opened)
        elif self.invocation_id is not None:
            self._refuse_state()
            self.execution_id, self._answers = self.invocation_id, {}
        else:
            raise ConfigError(
                "run_async",
                "has neither a message nor an execution to go on with",
                "Pass new_message=, or the invocation_id of an execution.",
            )

    async def _is_late(self, opened: Opened, responses: Sequence[runner_base.Response]) -> bool:
        """Whether all responses are the later results of long-running calls that returned a value
        in a turn that is over: no wait is open for them, and to ADK they are a new message."""
        key = session_key(self.tenant, self.user_id, self.session_id)
        latest = await opened.store.latest_execution(key)
        if latest is None or latest.is_active:
            return False
        after = replace(latest, turn=latest.turn + 1)
        history = await opened.store.load_history(after, max_turns=None)
        returned: set[str] = set()
        for turn in history.turns:
            events = opened.program.decode_events(turn.execution, turn.steps)
            returned |= runner_base.returned_early(events)
        return {response.id for response in responses} <= returned

    async def _start(self, opened: Opened) -> None:
        self.execution_id = self.invocation_id or str(uuid.uuid4())
        checked = checked_request(
            user_id=self.user_id,
            session_id=self.session_id,
            message=self.message,
            execution_id=self.execution_id,
            state_delta=self.state_delta,
            run_config=self.run_config,
            late_answers=True,  # prepare() found out what answers are
        )
        if not self.makes_sessions:
            key = session_key(self.tenant, self.user_id, self.session_id)
            if await opened.store.get_session(key) is None:
                raise runner_base.session_not_found(self.session_id)
        self._request = await checked.request(opened)

    def _refuse_state(self) -> None:
        if checks.checked_state("state_delta", self.state_delta):
            raise ConfigError(
                "state_delta",
                "comes with a message that starts an execution only",
                "Set it with the next message.",
            )

    async def events(self, opened: Opened) -> AsyncGenerator[Any, None]:
        """ADK's events as they come; then raise what the agent raised, if it failed."""

        async def start(sink: Sink) -> Execution:
            if self._request is not None:
                return await opened.engine.invoke(self._request, sink=sink)
            return await opened.engine.resume(self.execution_id, self._answers or {}, sink=sink)

        with opened.failures.watch(self.execution_id) as raised:
            async with aclosing(items(start)) as found:
                async for kind, data in found:
                    if kind == "end":
                        execution: Execution = data
                        break
                    for event in self._shown(kind, data):
                        self._yielded += 1
                        yield event
        if not self._yielded:  # it ran before, or elsewhere
            for event in await self._recorded(opened, execution):
                yield event
        await self._raise(opened, execution, raised)

    def _shown(self, kind: str, data: Any) -> tuple[Any, ...]:
        match kind:
            case "event":
                return () if data.author == "user" else (data,)
            case "partial":
                return (data,)
            case _:
                return ()

    async def _recorded(self, opened: Opened, execution: Execution) -> list[Any]:
        events = await events_of(opened, execution)
        after = runner_base.after_answer(events, self._answered_calls)
        return [event for event in after if event.author != "user"]

    async def _raise(
        self, opened: Opened, execution: Execution, raised: list[BaseException]
    ) -> None:
        if execution.status not in (Status.FAILED, Status.STUCK, Status.QUEUED):
            return
        own = [error for error in raised if not isinstance(error, LeaseLost)]
        if own:
            raise original(own[-1])
        show.outcome_of(execution, ()).raise_for_status()
