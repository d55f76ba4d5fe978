"""What one attempt knows while ADK runs: the open step's counters and the past it stands on.

One ``Stage`` lives as long as its attempt and is shared by all its scopes. Everything that
identifies a position is counted within the step, so ``open_step`` starts it over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from google.adk.events import Event

from durable_adk.adk import limits, paths, spans
from durable_adk.adk.events import EventIds, References
from durable_adk.adk.lineage import Lineage
from durable_adk.adk.marks import Policies, positional_of
from durable_adk.adk.parameters import Fit
from durable_adk.adk.returned import schema_of
from durable_adk.adk.scope import Scope, derived_uuid
from durable_adk.adk.sleepers import Sleepers
from durable_adk.engine.attempt import Attempt, Call, Dispatched, Replayed
from durable_adk.engine.calls import Entering
from durable_adk.errors import NotStorable
from durable_adk.model import codec, entries, failure
from durable_adk.model.activity import Kind, Payload, Record, UnknownOutcome
from durable_adk.model.doubt import intent_body
from durable_adk.model.due import Expiry
from durable_adk.model.position import (
    Position,
    activity_id,
    agent_segment,
    call_segment,
    join,
    known_later,
    node_segment,
)


@dataclass(frozen=True, slots=True)
class Shown:
    """What an answered confirmation was about, as it was shown: it must be what runs.

    Attributes:
        names: Of the arguments of a tool that is a node, if somebody agreed to it.
    """

    digest: str
    text: str
    fit: Fit
    names: tuple[str, ...] | None = None


@dataclass(eq=False, slots=True, kw_only=True)
class Stage:
    """The state of one attempt.

    Attributes:
        lineage: The sessions whose records these may be.
        policies: What the App and its configuration say by tool name.
        expiries: How the questions of a tool expire, by tool name.
        call_expiries: The same of calls of the open step, by (agent path, call id), and whether
            the tool runs long; of a tool node by (its path, nothing).
        done: What finished node runs of earlier steps left, by operation path: never entered again.
        finished: The same of the open step.
        asked_by: Scope path and entry of the latest asker, by branch and ADK call id.
        asked_two: Where one run of a node asked different things under one id; as ``asked_by``.
        segments: Segment of a call that the open step asked for, by (agent path, call id).
        call_segments: The same of calls that an earlier step asked for, and that had no response
            when it ended.
        gated: Tool name, arguments with callbacks applied, and how they fit its parameters,
            of a call that was held back or ran, by (agent path, call id): what a person is shown.
        held_back: Calls of the open step, by (agent path, call id), and tool nodes, by (path,
            nothing), that the confirmation gate held back.
        held: The same of those whose answers are there: they stay held back.
        open_calls: ``segments`` and ``call_segments`` as the step leaves them.
        handed_over: Whom an agent that is no node handed over to and is not done with, by path.
        went_to: The same as earlier steps left it.
        shown: Of confirmed calls, by (agent path, call id): models repeat their ids; of tool nodes
            by (path, nothing).
        toolsets: The toolset that a tool came from, by (agent path, tool name).
        limits: Timeouts of node runs that are under way, by the id of their context.
        active: ADK path and branch of the node runs that are entered now.
        references: What the open step's records hold already, for its events to refer to.
        deliver: Appends an event of a node run where the runner has no queue for it.
        output: The root's output, when it has one.
        sleepers: Who sleeps, and what runs beside them.
        failed_before: When the failure handed out last was recorded, by an earlier attempt; taken
            by the delay of the retry that follows it.
        in_flight: Calls that were admitted, and may have ended.
        moves: How often something began or was handed out.
    """

    attempt: Attempt
    expiries: Mapping[str, Expiry] = field(default_factory=dict)
    call_expiries: dict[tuple[str, str], tuple[Expiry, bool]] = field(default_factory=dict)
    policies: Policies
    lineage: Lineage = field(default_factory=Lineage)
    keeps_secrets: bool = False
    payload_max: int | None = None
    redact: frozenset[str] = frozenset()
    done: dict[str, Any] = field(default_factory=dict)
    finished: dict[str, Any] = field(default_factory=dict)
    asked_by: dict[tuple[str | None, str], tuple[str, int]] = field(default_factory=dict)
    asked_two: set[tuple[str | None, str]] = field(default_factory=set)
    segments: dict[tuple[str, str], str] = field(default_factory=dict)
    call_segments: dict[tuple[str, str], str] = field(default_factory=dict)
    open_calls: dict[tuple[str, str], str] = field(default_factory=dict)
    handed_over: dict[str, str] = field(default_factory=dict)
    went_to: dict[str, str] = field(default_factory=dict)
    gated: dict[tuple[str, str], tuple[str, dict[str, Any], Fit]] = field(default_factory=dict)
    held_back: set[tuple[str, str]] = field(default_factory=set)
    held: set[tuple[str, str]] = field(default_factory=set)
    shown: dict[tuple[str, str], Shown] = field(default_factory=dict)
    toolsets: dict[tuple[str, str], str] = field(default_factory=dict)
    limits: dict[int, limits.Limit] = field(default_factory=dict)
    active: set[tuple[str, str, str | None]] = field(default_factory=set)
    references: References = field(default_factory=References)
    event_ids: EventIds = field(init=False)
    deliver: Callable[[Any, Event], Awaitable[None]] | None = None
    output: Any = None
    failed_before: int | None = None
    sleepers: Sleepers = field(init=False)
    in_flight: list[Dispatched] = field(default_factory=list)
    moves: int = 0
    _entries: dict[tuple[str, int], int] = field(default_factory=dict)
    _runs: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sleepers = Sleepers(self.attempt)

    @property
    def step(self) -> int:
        return self.attempt.step

    @property
    def execution_id(self) -> str:
        """What the ids of the step derive from."""
        return self.attempt.execution.id_of(self.step)

    @property
    def invocation_id(self) -> str:
        return self.attempt.execution.invocation_id

    def open_step(self) -> None:
        """Start counting for a new step; what the last one finished is done for good."""
        self.done.update(self.finished)
        self.finished = {}
        self.active.clear()
        self.call_segments = self.open_calls
        self.open_calls = {}
        self.went_to.update(self.handed_over)
        self.handed_over = {}
        self.segments.clear()
        self.gated.clear()
        self.held_back.clear()
        self.call_expiries.clear()
        self.references = References()
        self.event_ids = EventIds(self.execution_id, self.step)
        self._entries.clear()
        self._runs.clear()

    def encode(self, value: object, *, where: str) -> Payload:
        """What a body left, as it is recorded.

        Raises:
            NotStorable: it cannot be recorded, or is too large.
        """
        return codec.encode(value, where=where, most=self.payload_max)

    def encode_failure(self, error: Exception, left: Mapping[str, Any] | None = None) -> Payload:
        """What a body raised, as it is recorded, with what it ``left`` before, as far as that can
        be stored."""
        try:
            return failure.encode_failure(error, left, most=self.payload_max)
        except NotStorable:
            return failure.encode_failure(error, most=self.payload_max)

    def failure_of(self, record: Record) -> Exception:
        """The recorded failure, as every attempt hands it to ADK."""
        is_old = record.attempt < self.attempt.execution.attempt
        self.failed_before = record.ended_at if is_old else None
        return self.attempt.causes.failure_of(record)

    async def admit(self, scope: Scope, call: Call) -> Replayed | Dispatched:
        """``Attempt.admit``, but for a call that an entry had no time left to end: it waits for the
        timeout, as it did when the record was made."""
        around: Scope | None = scope
        while around is not None and not around.ran_out:
            around = around.parent
        is_known = self.attempt.records.find(call.position.digest) is not None
        if around is not None and not is_known:
            await asyncio.Event().wait()
        self.moves += 1
        with limits.held(scope) if is_known else nullcontext():
            found = await self.attempt.admit(call)
        self.moves += 1
        spans.admitted(scope, call, replayed=isinstance(found, Replayed))
        if isinstance(found, Dispatched):
            self.in_flight = [*self.still_in_flight(), found]
        return found

    def still_in_flight(self) -> list[Dispatched]:
        """The calls whose bodies run now."""
        return [ticket for ticket in self.in_flight if not ticket.settled]

    def policy_of(
        self,
        name: str,
        args: Mapping[str, Any],
        *marked: object,
        call_id: str = "",
        fit: Fit | None = None,
        in_order: bool = False,
    ) -> Entering:
        """By the name in the App or its configuration, else by the mark on one of the things, the
        last of which is the function. ``fit``: of a tool; ``in_order``: there are arguments by
        place."""
        policy, reconcile, place = self.policies.of(name, *marked)
        if policy is UnknownOutcome.RERUN or (policy is UnknownOutcome.FAIL and reconcile is None):
            return Entering(policy)
        returns = schema_of(marked[-1])
        told = None if fit is None else fit.told()
        names = positional_of(marked[-1]) if in_order else ()
        intent = intent_body(
            policy, args, place, call_id=call_id, returns=returns, fit=told, names=names
        )
        return Entering(policy, intent, reconcile)

    # ---------------------------------------------------------------- identity

    def derive_id(self, *parts: str) -> str:
        return derived_uuid(self.execution_id, str(self.step), *parts)

    def draw_id(self, scope: Scope, *parts: str) -> str:
        """A value that user code or ADK draws in a scope, the same on every attempt.

        In the step that a fork was cut in, the parent's own as long as what was kept of it in this
        scope is still to come: it may be in the arguments of that.
        """
        whose, execution = self.execution_id, self.attempt.execution
        for parent in execution.parents:
            in_cut = parent.step == self.step and parent.seq > 0
            if in_cut and self.attempt.records.is_ahead(scope.path, parent.seq):
                whose = parent.execution_id
                break
        return derived_uuid(whose, str(self.step), scope.path, str(scope.entry), *parts)

    def enter(self, path: str, around: int) -> int:
        """The number of this entry of the path in the step, given that of what is around it.

        Entries are counted apart for each entry around them: a replay that hands out an outer run
        whole does not come by what it ran.
        """
        self.moves += 1
        key = (path, around)
        self._entries[key] = self._entries.get(key, 0) + 1
        return entries.number(around, self._entries[key])

    def node_path(self, outer: Scope, name: str, adk_path: str, invocation_id: str) -> str:
        """The operation path of a node run, remembered for its children."""
        parent, _, run = paths.split_leaf(adk_path)
        if outer.kind == "tool":
            # ADK counts these per parent, in starting order; the calling tool is the identity.
            count = str(outer.count(f"node:{name}"))
            path = join(outer.path, node_segment(name, count if run.isdigit() else run))
        else:
            path = self._below(outer, parent, name, run, adk_path, invocation_id)
        self._runs[invocation_id, adk_path] = path
        return path

    def has_later_entry(self, path: str, entry: int) -> bool:
        """Whether a later entry of a node than this one has left records in the step, itself or in
        what it ran."""
        return entries.has_later(self.attempt.records.places_below(path), path, entry)

    def ran_nodes(self, path: str, entry: int) -> bool:
        """Whether an entry of a node in this step ran others."""
        return entries.ran_others(self.attempt.records.places_below(path), path, entry)

    def _below(
        self, outer: Scope, parent: str, name: str, run: str, adk_path: str, invocation_id: str
    ) -> str:
        known = self._runs.get((invocation_id, parent)) if parent else None
        if known is not None:
            return join(known, node_segment(name, run))
        if invocation_id != self.invocation_id:  # a private runner: its root nests here
            return join(outer.path, node_segment(name, run))
        return paths.from_adk(adk_path)

    def left_by(self, outer: Scope, path: str, run: str) -> Any | None:
        """What a node run left that finished in an earlier step; None if it has to run."""
        if run in outer.calls:  # a task whose delegation this step asked for
            return None
        return self.done.get(path)

    def settle_step(self, events: Iterable[Event]) -> None:
        """Turn what the step left into what later steps know of it: which runs are done, and where
        the calls stand that its events leave without a response."""
        step = self.step
        self.finished = {known_later(path, step): left for path, left in self.finished.items()}
        self.handed_over = {
            known_later(path, step): name for path, name in self.handed_over.items()
        }
        answered: dict[tuple[str | None, str], bool] = {}
        for event in events:
            for call in event.get_function_calls():
                answered[event.branch, call.id or ""] = False
            for response in event.get_function_responses():
                answered[event.branch, response.id or ""] = True
        known = {**self.call_segments, **self.segments}
        still_open = {call_id for (_branch, call_id), done in answered.items() if not done}
        seen = {call_id for _branch, call_id in answered}
        self.open_calls = {
            (known_later(path, step), call_id): known_later(segment, step)
            for (path, call_id), segment in known.items()
            if call_id in still_open or call_id not in seen
        }

    def note_call(self, agent: Scope, call_id: str, ordinal: int, place: int) -> None:
        """A model response asks for this call; ids may repeat, so the latest one counts."""
        agent.calls[call_id] = (ordinal, place)
        self.segments[agent.path, call_id] = call_segment(ordinal, place)

    def agent_path(self, outer: Scope, name: str) -> str:
        """The operation path of an agent that is not run as a node."""
        if outer.kind == "root" and not outer.path:
            return paths.root_path(str(outer.count("root")))
        return join(outer.path, agent_segment(name, outer.count(f"agent:{name}")))

    def tool_path(self, agent: Scope, call_id: str) -> str:
        """The operation path of a tool call: who asked and where in its response, never the id."""
        place = agent.calls.get(call_id)
        if place is not None:
            return join(agent.path, call_segment(*place))
        if self.is_earlier_call(agent, call_id):
            return join(agent.path, self.call_segments[agent.path, call_id])
        return join(agent.path, node_segment(":call", str(agent.count("call"))))

    def is_earlier_call(self, agent: Scope, call_id: str) -> bool:
        """Whether an earlier step asked for this call, and a wait held it back until now."""
        return call_id not in agent.calls and (agent.path, call_id) in self.call_segments

    def position(self, scope: Scope, kind: Kind, ordinal: int, label: str = "") -> Position:
        return Position(self.step, scope.path, scope.entry, kind, ordinal, label)

    def activity_id(self, position: Position) -> str:
        return activity_id(self.execution_id, position.digest)
