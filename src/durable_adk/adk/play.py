"""One attempt's live session with ADK: restore, run to quiet, answer, run again.

ADK is consumed until it has nothing more to do, whatever the caller of a stream does; then
what is still asked is the frontier, and what was appended is the step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import aclosing
from functools import partial
from typing import Any

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.sessions import Session
from google.adk.sessions.state import State
from google.genai import types

from durable_adk.adk import _seam, artifacts, closing, spans, topology, waits
from durable_adk.adk import events as stored
from durable_adk.adk.runner import AttemptRunner
from durable_adk.adk.scope import Scope, bound, current, within
from durable_adk.adk.session import AttemptSessions
from durable_adk.adk.stage import Stage
from durable_adk.engine.program import Quiet
from durable_adk.model import codec
from durable_adk.model.activity import Payload, Record
from durable_adk.model.execution import History, StepDocument
from durable_adk.model.position import parent_of
from durable_adk.model.wait import AnsweredWait, WaitRequest

PRINTS = "prints"
"""In what lies between steps: see ``topology``."""


class AdkPlay:
    """Implements ``engine.program.Play``."""

    def __init__(
        self, stage: Stage, sessions: AttemptSessions, runner: AttemptRunner, root: Any
    ) -> None:
        self._stage = stage
        self._sessions = sessions
        self._runner = runner
        self._root = root
        self._prints: topology.Prints = {}
        self._is_open = False
        stage.deliver = self._deliver
        stage.sleepers.leave = self._asleep
        stage.attempt.places.has = partial(topology.has, root)

    def restore(self, step: StepDocument) -> None:
        for event in stored.decode_step(self._stage.attempt.execution, step):
            self._sessions.restore(event)
        left = codec.decode(step.finished)
        self._prints.update(left.get(artifacts.BETWEEN, {}).get(PRINTS, {}))
        for filename, version in artifacts.saved_between(left).items():
            self._sessions.artifacts.note_saved(filename, version)
        between = left.pop(artifacts.BETWEEN, {})
        self._stage.open_calls = {
            (path, call_id): segment for path, call_id, segment in between.get("calls", ())
        }
        self._stage.handed_over = between.get("to", {})
        self._stage.done.update(left)
        for path, of_it in left.items():
            if not parent_of(path):  # a root, which the steps after this one may not enter again
                self._stage.output = of_it.get("output")

    def check(self, step: StepDocument, asked: Sequence[WaitRequest] = ()) -> None:
        left = codec.decode(step.finished)
        topology.check(self._root, left.get(artifacts.BETWEEN, {}).get(PRINTS, {}))
        topology.check_asked(self._root, asked)
        self._sessions.go_on_from(stored.decode_step(self._stage.attempt.execution, step))

    def check_asks(self, asked: Sequence[WaitRequest], recorded: Sequence[WaitRequest]) -> None:
        waits.check_shown(asked, recorded)

    def texts(self, steps: Sequence[StepDocument] = ()) -> Set[str]:
        if not steps:
            return frozenset(self._texts(reversed(self._sessions.session.events)))
        execution = self._stage.attempt.execution
        events = [event for step in steps for event in stored.decode_step(execution, step)]
        return frozenset(self._texts(reversed(events)))

    async def run_step(
        self, step: int, answered: Sequence[AnsweredWait], shared: Mapping[str, Payload]
    ) -> Quiet:
        with spans.attempt_span(self._stage):
            return await self._run_step(step, answered, shared)

    async def _run_step(
        self, step: int, answered: Sequence[AnsweredWait], shared: Mapping[str, Payload]
    ) -> Quiet:
        # Not when a step is restored: one that no longer fits can still be closed.
        topology.check_finished(self._root, self._stage.done)
        topology.check(self._root, self._prints)
        topology.check_asked(self._root, [one.wait for one in answered])
        topology.check_asleep(self._root, self._stage.attempt.execution.frontier)
        self._open_step(shared)
        top = self._top_scope(answered)
        _seam.set_providers(lambda: (current() or top).new_id(), lambda: (current() or top).now())
        with bound(top):
            message, state_delta, run_config = await self._feed(step, answered)
        run = self._runner.run_async(
            user_id=self._sessions.session.user_id,
            session_id=self._sessions.session.id,
            invocation_id=self._given_id(step),
            new_message=message,
            state_delta=state_delta,
            run_config=run_config,
        )
        async with aclosing(within(top, run)) as events:
            # No node run around a composite root takes what says that a tool of it waits.
            with contextlib.suppress(_seam.NodeInterruptedError):
                async for event in events:
                    self._emit(event)
        return self._quiet(waits.open_waits(self._stage, self._sessions.events_of_step()))

    def close_turn(
        self, note: str, records: Sequence[Record], answered: Sequence[AnsweredWait] = ()
    ) -> Quiet:
        stage, sessions = self._stage, self._sessions
        has_run = self._is_open
        if not has_run:
            self._open_step({})
        events = sessions.session.events
        since = len(events) - len(sessions.events_of_step())
        with bound(self._top_scope(answered)):
            if not has_run:
                made = closing.events_of(stage, records, answered)
            else:  # the run may have ended before it appended the message
                made = [] if sessions.step_events else closing.opening(stage, answered)
            for event in made:
                sessions.append(event)
            ran = closing.Ran(stage, records)
            for event in closing.responses(stage, events, since=since, note=note, ran=ran):
                sessions.append(event)
        for delta in artifacts.saved_in(records):  # of calls whose events never came
            sessions.artifacts.note(delta)
        return self._quiet(())

    async def aclose(self) -> None:
        """Nothing to let go of: the runner's plugins and toolsets are the user's."""

    # ---------------------------------------------------------------- parts of a step

    def _open_step(self, shared: Mapping[str, Payload]) -> None:
        self._is_open = True
        self._stage.open_step()
        self._sessions.open_step()
        state = self._sessions.session.state
        for key in [key for key in state if key.startswith(State.TEMP_PREFIX)]:
            del state[key]  # it lives as long as one run of ADK, on every attempt
        for key, value in shared.items():
            state[key] = codec.decode(value)

    def _top_scope(self, answered: Sequence[AnsweredWait]) -> Scope:
        at = max((one.answer.at for one in answered), default=0)
        return Scope(
            stage=self._stage,
            path="",
            entry=1,
            kind="root",
            name="",
            node_path="",
            invocation_id=self._stage.invocation_id,
            parent=None,
            ended_at=at or self._stage.attempt.execution.created_at,
        )

    def _needs_message(self) -> bool:
        """Agents outside the node runtime resume by a message only."""
        return isinstance(self._root, BaseAgent) and not isinstance(self._root, LlmAgent)

    def _given_id(self, step: int) -> str | None:
        """None lets the runner's override supply ours: an id ADK does not know yet means
        "resume" to a resumable app without a node root."""
        return None if self._needs_message() and step == 1 else self._stage.invocation_id

    async def _feed(
        self, step: int, answered: Sequence[AnsweredWait]
    ) -> tuple[types.Content | None, dict[str, Any] | None, Any]:
        given = codec.decode(self._stage.attempt.execution.input)
        run_config = given.get("run_config")
        if step == 1:
            message = stored.content_from_data(given["message"])
            return message, given.get("state_delta") or None, run_config
        events = waits.feed(self._stage, answered)
        last = events.pop() if self._needs_message() and events else None
        for event in events:
            await self._sessions.append_event(self._sessions.session, event)
        if last is None:
            return None, None, run_config
        return last.content, last.actions.state_delta or None, run_config

    async def _deliver(self, invocation: InvocationContext, event: Event) -> None:
        self._emit(await self._runner.deliver(invocation, event))

    def _emit(self, event: Event) -> None:
        if event.partial:
            self._stage.attempt.emit("partial", event)
            text = stored.text_of(event.content)
            if text:
                self._stage.attempt.emit("token", text)
        else:
            self._stage.attempt.emit("event", event)

    def _quiet(self, open_waits: tuple[WaitRequest, ...]) -> Quiet:
        references = self._stage.references
        events = [references.shorten(data) for data in self._sessions.step_events]
        shared = self._sessions.shared_writes
        finished: dict[str, Any] = {}
        if open_waits:
            self._stage.settle_step(self._sessions.events_of_step())
            finished.update(self._stage.finished)
            calls = [[*key, segment] for key, segment in self._stage.open_calls.items()]
            finished[artifacts.BETWEEN] = {
                "calls": calls,
                "to": self._stage.handed_over,
                PRINTS: self._printed(open_waits),
                **self._sessions.artifacts.between(),
            }
        return Quiet(
            waits=open_waits,
            events=stored.encode_step(events, self._stage.invocation_id),
            finished=codec.encode(finished, where="finished"),
            state=codec.encode(self._sessions.state(), where="state"),
            scopes=codec.encode(shared, where="state") if shared else None,
            result=codec.encode(self._result(), where="output"),
            refs=tuple(references.used),
            artifacts=self._sessions.artifacts.payload(),
        )

    def _asleep(self, timers: Sequence[WaitRequest]) -> Quiet:
        """What the open step leaves while something in it sleeps: its timers, and what it asked."""
        asked = waits.open_waits(self._stage, self._sessions.events_of_step())
        found = sorted((*asked, *timers), key=lambda wait: wait.operation_path)
        return self._quiet(tuple(found))

    def _printed(self, open_waits: Sequence[WaitRequest]) -> topology.Prints:
        """Of what finished or asks in the open step; what is around an asker waits with it."""
        ran = dict.fromkeys(self._stage.finished)
        for wait in open_waits:
            path = wait.operation_path
            while path:
                ran[path] = None
                path = parent_of(path)
        tools = [
            (parent_of(position.path), name)
            for position, name in self._stage.attempt.records.of_tools()
        ]
        return topology.prints(self._root, ran, tools)

    def _result(self) -> dict[str, Any]:
        output = self._stage.output
        if isinstance(output, types.Content):
            output = stored.text_of(output)
        return {"response": self._response(), "output": output}

    def _response(self) -> str | None:
        return next(self._texts(reversed(self._sessions.session.events)), None)

    def _texts(self, latest_first: Iterable[Event]) -> Iterator[str]:
        """Of the final responses of this execution."""
        for event in latest_first:
            if event.actions.compaction is not None:  # has an invocation id of its own
                continue
            if event.invocation_id != self._stage.invocation_id:
                return
            if event.author != "user" and event.is_final_response():
                text = stored.text_of(event.content)
                if text:
                    yield text


def open_session(history: History, app_name: str) -> tuple[Session, artifacts.Versions]:
    """The session as it was before the execution, and the newest versions of its artifacts."""
    record = history.session
    state: dict[str, Any] = codec.decode(record.first_state) if record.first_state else {}
    events: list[tuple[int, Event]] = []
    for turn in history.turns:
        for step in turn.steps:
            decoded = stored.decode_step(turn.execution, step)
            events.extend((turn.execution.turn, event) for event in decoded)
            if step.state is not None:
                state = codec.decode(step.state)
    session = Session(
        app_name=app_name,
        user_id=record.user_id,
        id=record.session_id,
        state=state,
        events=[event for _turn, event in events],
    )
    return session, artifacts.versions_before(history, events)
