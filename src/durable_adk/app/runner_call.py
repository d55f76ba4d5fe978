"""One call of ``DurableRunner.run_async``: what it starts or answers, and what it yields."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from durable_adk.adk import late_results, runner_base
from durable_adk.adk.late_results import LateResult
from durable_adk.adk.runner_base import Response
from durable_adk.app import checks, show
from durable_adk.app.call_answers import FoundAnswers, answers_to, nowhere
from durable_adk.app.failures import original
from durable_adk.app.lifecycle import Opened
from durable_adk.app.reads import events_of
from durable_adk.app.requests import checked_request
from durable_adk.app.streams import items
from durable_adk.engine.answers import MOST_STATE
from durable_adk.engine.program import Sink
from durable_adk.engine.requests import Request
from durable_adk.errors import (
    ConfigError,
    InputConflict,
    LeaseLost,
    NotFound,
    OutcomeUnknown,
)
from durable_adk.model.activity import Payload
from durable_adk.model.codec import encode
from durable_adk.model.execution import Execution, SessionRecord, Status
from durable_adk.model.identity import SessionKey, Tenant, session_key
from durable_adk.model.wait import WaitKind

_NEAR = 8
"""Turns among which the call of a late result is looked for first."""


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
    _state: Payload | None = None
    _late: tuple[LateResult, ...] = ()
    _is_first: bool = False
    _yielded: set[str] = field(default_factory=set, init=False)

    async def prepare(self, opened: Opened) -> None:
        """Find out what the call means. Nothing is stored."""
        responses = runner_base.responses_of(self.message)
        if responses and await self._answers_waits(opened, responses):
            given = checks.checked_state("state_delta", self.state_delta)
            came = late_results.with_state(given or {}, self._late)
            self._state = encode(came, where="new_message") if came else None
            self._check_late()
        elif self.message is not None:
            await self._start(opened)
        elif self.invocation_id is not None:
            self._refuse_state()
            self.execution_id = await self._known_id(opened, self.invocation_id)
            self._answers = {}
        else:
            raise ConfigError(
                "run_async",
                "has neither a message nor an execution to go on with",
                "Pass new_message=, or the invocation_id of an execution.",
            )

    @property
    def _key(self) -> SessionKey:
        return session_key(self.tenant, self.user_id, self.session_id)

    async def _answers_waits(self, opened: Opened, responses: Sequence[Response]) -> bool:
        """Whether the responses answer waits; False if they are the later results of long-running
        calls that returned a value in a turn that is over: to ADK they are a new message."""
        latest = await opened.store.latest_execution(self._key)
        before = 0 if latest is None else latest.turn + 1
        if latest is None:
            session = await opened.store.get_session(self._key)
            if session is None:
                self._refuse_state()
                raise runner_base.session_not_found(self.session_id)
            before = session.ground + 1
            latest = await _begun_inside(opened, session)
        try:
            found = await answers_to(opened.store, latest, self.session_id, responses)
        except NotFound:
            is_open = latest is not None and latest.is_active
            if not is_open and await self._are_late(opened, responses, before):
                return False
            raise
        self.execution_id, self._answers = found.execution_id, found.answers
        self._answered_calls = found.call_ids
        if found.beside:
            assert latest is not None
            self._late = await self._beside(opened, latest, found)
        return True

    async def _beside(
        self, opened: Opened, latest: Execution, found: FoundAnswers
    ) -> tuple[LateResult, ...]:
        """The later results that come with answers; nothing if they came with them before.

        Raises:
            NotFound: a response is no such result, or its answers are given already without it.
        """
        events = await events_of(opened, latest)
        if not found.adds and late_results.are_in(events, found.beside):
            return ()
        late = late_results.among(events, found.beside) if found.adds else {}
        if found.adds and len(late) < len(found.beside):
            history = await opened.store.load_history(self._key, before=latest.turn, max_turns=None)
            for turn in history.turns:
                events = opened.program.decode_events(turn.execution, turn.steps)
                late = {**late_results.among(events, found.beside), **late}
        for response in found.beside:
            if response.id not in late:
                raise nowhere(response.id, self.session_id)
        return tuple(late[response.id] for response in found.beside)

    def _check_late(self) -> None:
        if self._late and self._state is not None and len(self._state) > MOST_STATE:
            raise ConfigError(
                "new_message",
                f"has late results of {len(self._state)} characters, and {MOST_STATE} may come with"
                " answers",
                "Send them alone, after the turn.",
            )

    async def _are_late(self, opened: Opened, responses: Sequence[Response], before: int) -> bool:
        wanted = {response.id for response in responses}
        for max_turns in (_NEAR, None):
            history = await opened.store.load_history(self._key, before=before, max_turns=max_turns)
            returned: set[str] = set()
            for turn in history.turns:
                events = opened.program.decode_events(turn.execution, turn.steps)
                returned |= runner_base.returned_early(events)
            if wanted <= returned:
                return True
            if len(history.turns) < _NEAR:
                break
        return False

    async def _start(self, opened: Opened) -> None:
        checked = checked_request(
            user_id=self.user_id,
            session_id=self.session_id,
            message=self.message,
            execution_id=self.invocation_id,
            state_delta=self.state_delta,
            run_config=self.run_config,
            late_answers=True,  # prepare() found out what answers are
        )
        session = await opened.store.get_session(self._key)
        if session is None and not self.makes_sessions:
            raise runner_base.session_not_found(self.session_id)
        self.execution_id = self.invocation_id or await self._next_id(opened, session)
        self._request = await replace(checked, execution_id=self.execution_id).request(opened)

    async def _next_id(self, opened: Opened, session: SessionRecord | None) -> str:
        """The id of a new execution: a fork of whole turns has settled that of its first one."""
        following = None if session is None else session.awaited
        if following is None or following.made is not None:
            return str(uuid.uuid4())
        self._is_first = await opened.store.latest_execution(self._key) is None
        return following.execution_id if self._is_first else str(uuid.uuid4())

    async def _known_id(self, opened: Opened, invocation_id: str) -> str:
        """The execution of this session that ADK knows by an id: a fork's may have its source's.

        Raises:
            NotFound: the session has no such execution.
        """
        latest = await opened.store.latest_execution(self._key)
        if latest is not None and invocation_id in (latest.execution_id, latest.invocation_id):
            return latest.execution_id
        execution = await opened.engine.get(invocation_id)
        if execution.session_key != self._key:
            raise NotFound(
                f"execution {invocation_id!r}",
                f"session {self.session_id!r} of user {self.user_id!r} has no such execution",
                "Use the invocation_id of one of its events.",
            )
        return execution.execution_id

    def _refuse_state(self) -> None:
        if checks.checked_state("state_delta", self.state_delta):
            raise ConfigError(
                "state_delta",
                "comes with a message only",
                "Set it with the next message, or with the answers.",
            )

    def user_event(self) -> Any:
        """The message as ADK yields it on request."""
        return runner_base.user_event(
            self.message,
            self.execution_id,
            state_delta=self.state_delta,
            run_config=self.run_config,
        )

    async def events(self, opened: Opened) -> AsyncGenerator[Any, None]:
        """ADK's events as they come; then raise what the agent raised, if it failed."""

        async def start(sink: Sink) -> Execution:
            if self._request is not None:
                return await self._invoke(opened, self._request, sink)
            return await opened.engine.resume(
                self.execution_id, self._answers or {}, state=self._state, sink=sink
            )

        with opened.failures.watch(self.execution_id) as raised:
            async with aclosing(items(start)) as found:
                async for kind, data in found:
                    if kind == "end":
                        execution: Execution = data
                        break
                    for event in self._shown(kind, data):
                        self._yielded.add(event.id)
                        yield event
        # It ran before, or elsewhere; or it was cancelled, and what closes it was added.
        if not self._yielded or execution.status is Status.CANCELLED:
            for event in await self._recorded(opened, execution):
                yield event
        await self._raise(opened, execution, raised)

    async def _invoke(self, opened: Opened, request: Request, sink: Sink) -> Execution:
        try:
            return await opened.engine.invoke(request, sink=sink)
        except InputConflict:
            if not self._is_first:
                raise
        # Another message was the first of the fork: this one comes after it.
        self.execution_id = str(uuid.uuid4())
        request = replace(request, execution_id=self.execution_id)
        return await opened.engine.invoke(request, sink=sink)

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
        return [e for e in after if e.author != "user" and e.id not in self._yielded]

    def _raise_doubts(self, execution: Execution) -> None:
        """Say that calls are in doubt: ADK has no event that asks about one."""
        waits = [w for w in show.waits_of(execution) if w.kind == WaitKind.IN_DOUBT.value]
        if waits:
            raise OutcomeUnknown(
                ", ".join(wait.tool_call.name for wait in waits if wait.tool_call),
                "was entered and left no result: the execution waits for somebody who says whether"
                f" it happened (wait {', '.join(wait.id for wait in waits)})",
                'Answer {"outcome": "done", "result": ...} or {"outcome": "not_done"}: with'
                " App.answer, or as a function response whose id is the wait's.",
            )

    async def _raise(
        self, opened: Opened, execution: Execution, raised: list[BaseException]
    ) -> None:
        self._raise_doubts(execution)
        if execution.status not in (Status.FAILED, Status.STUCK, Status.QUEUED):
            return
        own = [error for error in raised if not isinstance(error, LeaseLost)]
        if own:
            raise original(own[-1])
        show.outcome_of(execution, ()).raise_for_status()


async def _begun_inside(opened: Opened, session: SessionRecord) -> Execution | None:
    """The first execution of a fork that was made inside another one; else None."""
    if session.awaited is None or session.awaited.made is None:
        return None
    return await opened.engine.get(session.awaited.execution_id)
