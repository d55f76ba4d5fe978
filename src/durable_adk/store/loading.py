"""What an attempt reads: a session's past, an execution's steps, records and answers.

Only what a commit names is given: a stale owner's step document has another token and is on
no chain. What a chain names and is not there is corruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from durable_adk.errors import CorruptHistory, Unavailable
from durable_adk.model.activity import Record
from durable_adk.model.execution import (
    Execution,
    History,
    Parent,
    SessionRecord,
    StepDocument,
    StepRef,
    Turn,
)
from durable_adk.model.identity import RunId, SessionKey
from durable_adk.model.wait import AnsweredWait, WaitKind
from durable_adk.store import filters, session_filters
from durable_adk.store.core import ACTIVITIES, EXECUTIONS, SESSIONS, STEPS, Part, Session
from durable_adk.store.documents import (
    Doc,
    execution_envelopes,
    execution_from,
    parents_from,
    ref_from,
)
from durable_adk.store.payloads import Envelope, Texts
from durable_adk.store.records import (
    answered_from,
    record_envelopes,
    record_from,
    record_key,
    ref_slots,
    step_envelopes,
    step_from,
    step_key,
)
from durable_adk.store.session_documents import session_envelopes, session_from

T = TypeVar("T")

_BATCH = 200
"""Keys or ranges in one read."""


class Loading(Part):
    """Reads in a session that sees the claim."""

    async def load_history(self, key: SessionKey, *, before: int, max_turns: int | None) -> History:
        """A session and its finished turns before turn ``before``, its ancestors' included."""
        core = self._core

        async def once(session: Session) -> History:
            found = await core.find_one(session, SESSIONS, filters.by_id(key))
            if found is None:
                raise CorruptHistory(f"session {key}", "is missing")
            try:
                return await self._history(session, found, before, max_turns)
            except CorruptHistory:  # or turns are removed that were this session's a moment ago
                again = await core.find_one(session, SESSIONS, filters.by_id(key))
                if again is None or (again.get("base") or {}) == (found.get("base") or {}):
                    raise
                return await self._history(session, again, before, max_turns)

        return await core.read("the history of a session", once)

    async def _history(
        self, session: Session, found: Doc, before: int, max_turns: int | None
    ) -> History:
        core = self._core
        record = session_from(found, await core.texts(session, session_envelopes(found)))
        if record.is_going:
            raise Unavailable(
                f"session {record.session_id!r}", "is being deleted", "Use another session."
            )
        docs = await self._turns(session, record, before, max_turns)
        _check_turns(record, docs, before, max_turns)
        chains = await self._chains(session, docs)
        bodies = await self._bodies(session, [step for one in chains for step in one])
        envelopes = [
            *(e for doc in docs for e in execution_envelopes(doc)),
            *(e for one in chains for step in one for e in step_envelopes(step.doc)),
            *(e for found in bodies.values() for e in found.values()),
        ]
        texts = await core.texts(session, envelopes)
        turns = [
            Turn(
                execution=execution_from(doc, texts),
                steps=tuple(step_from(one.doc, texts, bodies[one.key]) for one in chain),
            )
            for doc, chain in zip(docs, chains, strict=True)
        ]
        return History(session=record, turns=tuple(reversed(turns)))

    async def _turns(
        self, session: Session, record: SessionRecord, before: int, max_turns: int | None
    ) -> list[Doc]:
        """The executions before a turn, newest first: the session's own, then its ancestors'."""
        docs: list[Doc] = []
        for key, after, upto in reversed(stretches(record)):
            left = None if max_turns is None else max_turns - len(docs)
            end = before if upto is None else min(before, upto + 1)
            if left == 0 or end <= after + 1:
                continue
            found = session_filters.turns_between(key, after, end)
            docs += await self._core.find(
                session, EXECUTIONS, found, sort=[("turn", -1)], limit=left or 0
            )
        return docs

    async def _chains(self, session: Session, docs: Sequence[Doc]) -> list[list[_Step]]:
        """The committed steps of finished executions: last ones first, then the rest."""
        core = self._core
        stored: dict[str, Doc] = {}
        lasts = [(_Runs.of(doc), _last_of(doc)) for doc in docs]
        for batch in _batches([runs.key(ref) for runs, ref in lasts]):
            for step in await core.find(session, STEPS, filters.by_ids(batch)):
                stored[step["_id"]] = step
        longer = [
            runs
            for runs, ref in lasts
            if (doc := stored.get(runs.key(ref))) is not None and "prev" in doc
        ]
        for group in _batches([found for runs in longer for found in runs.step_ranges()]):
            for step in await core.find(session, STEPS, {"$or": list(group)}):
                stored[step["_id"]] = step
        return [_chain(runs, ref, stored) for runs, ref in lasts]

    async def _bodies(
        self, session: Session, steps: Sequence[_Step]
    ) -> dict[str, dict[str, Envelope]]:
        """The bodies of the records that steps refer to: by key of the step, then by slot."""
        wanted = {
            record_key(run, slot)
            for step in steps
            for slot in ref_slots(step.doc)
            for run in step.runs
        }
        found: dict[str, Envelope] = {}
        for batch in _batches(sorted(wanted)):
            for doc in await self._core.find(session, ACTIVITIES, filters.by_ids(batch)):
                if "body" in doc:
                    found[doc["_id"]] = doc["body"]
        return {step.key: _bodies_of(step, found) for step in steps}

    async def load_steps(self, execution: Execution) -> tuple[StepDocument, ...]:
        """The committed steps of one execution, in order."""
        core = self._core
        if execution.last_step is None:
            if execution.status.is_final:
                raise _without_step(execution.execution_id, execution.user_id, execution.session_id)
            return ()
        last_step, runs = execution.last_step, _Runs(execution.run, execution.parents)

        async def once(session: Session) -> tuple[StepDocument, ...]:
            ranges = runs.step_ranges()
            found = ranges[0] if len(ranges) == 1 else {"$or": ranges}
            docs = await core.find(session, STEPS, found)
            chain = _chain(runs, last_step, {doc["_id"]: doc for doc in docs})
            bodies = await self._bodies(session, chain)
            envelopes = [e for step in chain for e in step_envelopes(step.doc)]
            envelopes += [e for known in bodies.values() for e in known.values()]
            texts = await core.texts(session, envelopes)
            return tuple(step_from(step.doc, texts, bodies[step.key]) for step in chain)

        return await core.read(f"steps of {execution.execution_id!r}", once)

    async def load_records(
        self, run: RunId, *, from_step: int, parents: Sequence[Parent] = ()
    ) -> tuple[Record, ...]:
        """Every record of an execution from a step on, what it keeps of its parents first."""
        found: list[Record] = []
        for parent in parents:
            kept = filters.kept_of(parent.run, from_step, parent.step)
            found += kept_of(parent, await self._read_records(parent.run, kept, _whole))
        own = filters.records_from(run, from_step)
        return (*found, *await self._read_records(run, own, _whole))

    async def load_waits(self, run: RunId, *, step: int) -> tuple[AnsweredWait, ...]:
        """The wait records of one step in frontier order; settled doubts before the rest."""

        def placed(doc: Doc, texts: Texts) -> tuple[AnsweredWait, int, int]:
            place, count = doc["place"]
            return answered_from(doc, texts), place, count

        found = filters.wait_records_of(run, step)
        waits = await self._read_records(run, found, placed)
        asked = sorted(
            (place, count) for a, place, count in waits if a.wait.kind is not WaitKind.IN_DOUBT
        )
        if asked and [place for place, _ in asked] != list(range(asked[0][1])):
            raise CorruptHistory(
                f"run {run} step {step}", f"has {len(asked)} of {asked[0][1]} answers"
            )
        waits = tuple(sorted(waits, key=_in_frontier_order))
        return tuple(answered for answered, _, _ in waits)

    async def _read_records(
        self, run: RunId, found: filters.Filter, made: Callable[[Doc, Texts], T]
    ) -> tuple[T, ...]:
        core = self._core

        async def once(session: Session) -> tuple[T, ...]:
            docs = await core.find(session, ACTIVITIES, found, sort=[("_id", 1)])
            envelopes = [e for doc in docs for e in record_envelopes(doc) if isinstance(e, dict)]
            texts = await core.texts(session, envelopes)
            return tuple(made(doc, texts) for doc in docs)

        return await core.read("the records of an execution", once)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Where the steps of one execution are: its own run, and those of its parents."""

    run: RunId
    parents: tuple[Parent, ...] = ()

    @staticmethod
    def of(doc: Doc) -> _Runs:
        return _Runs(RunId(doc["run"]), parents_from(doc))

    def recorded_in(self, step: int) -> tuple[RunId, ...]:
        """The run that committed a step, then those whose records it may have gone on from, the
        nearest first."""
        earlier: list[RunId] = []
        for parent in self.parents:
            if step < parent.step:
                return (parent.run, *reversed(earlier))
            if step == parent.step:
                earlier.append(parent.run)
        return (self.run, *reversed(earlier))

    def key(self, ref: StepRef) -> str:
        return step_key(self.recorded_in(ref.step)[0], ref)

    def step_ranges(self) -> list[filters.Filter]:
        kept = [filters.steps_before(parent.run, parent.step) for parent in self.parents]
        return [*kept, filters.starting_with(f"{self.run}:")]


@dataclass(frozen=True, slots=True)
class _Step:
    """A committed step, and the runs that its records may be in, the likeliest first."""

    doc: Doc
    runs: tuple[RunId, ...]

    @property
    def key(self) -> str:
        return str(self.doc["_id"])


def stretches(record: SessionRecord) -> list[tuple[SessionKey, int, int | None]]:
    """Whose turns a session has, in order: the key, after which turn, up to which (None: on)."""
    found: list[tuple[SessionKey, int, int | None]] = []
    after = record.floor
    for ancestor in record.lineage:
        if ancestor.upto > after:
            found.append((ancestor.key, after, ancestor.upto))
            after = ancestor.upto
    return [*found, (record.key, after, None)]


def kept_of(parent: Parent, records: Iterable[Record]) -> list[Record]:
    """What a fork keeps of its parent's records.

    Of the step that it was cut in: outcomes up to the cut, and the intents of those; a call behind
    it has not been made.
    """
    records = list(records)
    outcomes = {record.digest for record in records if record.seq and parent.has(record)}
    return [
        record
        for record in records
        if parent.has(record)
        or (record.is_intent and record.step == parent.step and record.digest in outcomes)
    ]


def _whole(doc: Doc, texts: Texts) -> Record:
    """A record of which nothing is missing: what an answered wait had asked is read as well."""
    if "wait" in doc:
        texts.of(doc["wait"]["c"])
    return record_from(doc, texts)


def _bodies_of(step: _Step, found: Mapping[str, Envelope]) -> dict[str, Envelope]:
    bodies: dict[str, Envelope] = {}
    for slot in ref_slots(step.doc):
        keys = [record_key(run, slot) for run in step.runs]
        there = [found[key] for key in keys if key in found]
        if not there:
            raise CorruptHistory(
                f"record {keys[0]}", "a committed step refers to it and it is missing"
            )
        bodies[slot] = there[0]
    return bodies


def _in_frontier_order(placed: tuple[AnsweredWait, int, int]) -> tuple[bool, int, int]:
    answered, place, _ = placed
    asked = answered.wait.kind is not WaitKind.IN_DOUBT
    return (asked, place if asked else answered.answer.at, place)


def _batches(keys: Sequence[T]) -> Iterable[Sequence[T]]:
    return (keys[i : i + _BATCH] for i in range(0, len(keys), _BATCH))


def _check_turns(
    record: SessionRecord, docs: Sequence[Doc], before: int, max_turns: int | None
) -> None:
    """Newest first and without a gap, down to the first turn or as many as were asked for."""
    there = max(0, before - 1 - record.floor)
    wanted = there if max_turns is None else min(max_turns, there)
    turns = [doc["turn"] for doc in docs]
    if turns != [before - 1 - n for n in range(wanted)]:
        missing = sorted(set(range(before - wanted, before)) - set(turns))
        raise CorruptHistory(f"session {record.session_id!r}", f"turns {missing} are missing")
    for doc in docs:
        if doc["active"]:
            raise CorruptHistory(
                f"execution {doc['eid']!r}", "is not finished, and is not the last"
            )


def _last_of(doc: Doc) -> StepRef:
    last = ref_from(doc.get("last_step"))
    if last is None:
        raise _without_step(doc["eid"], doc["user"], doc["session"])
    return last


def _without_step(execution_id: str, user_id: str, session_id: str) -> CorruptHistory:
    return CorruptHistory(
        f"execution {execution_id!r}",
        "was ended although something of it was gone, and nothing can go on from it",
        f"Go on without its turn: app.sessions.fork({user_id!r}, {session_id!r},"
        f" before={execution_id!r}) makes a session of the turns before it. Or delete the session.",
    )


def _chain(runs: _Runs, last: StepRef, stored: Mapping[str, Doc]) -> list[_Step]:
    """From the last step back along ``prev``, in order."""
    chain: list[_Step] = []
    ref: StepRef | None = last
    while ref is not None:
        key = runs.key(ref)
        doc = stored.get(key)
        if doc is None:
            raise CorruptHistory(f"step {key}", "is named by a commit and is missing")
        chain.append(_Step(doc, runs.recorded_in(ref.step)))
        before = ref_from(doc.get("prev"))
        if before is not None and before.step >= ref.step:
            raise CorruptHistory(f"step {key}", f"names step {before.step} as the one before it")
        ref = before
    if chain[-1].key.split(":")[1] != f"{1:06d}":
        raise CorruptHistory(f"step {chain[-1].key}", "is not the first and names none before")
    chain.reverse()
    return chain
