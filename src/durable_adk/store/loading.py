"""What an attempt reads: a session's past, an execution's steps, records and answers.

Only what a commit names is given: a stale owner's step document has another token and is on
no chain. What a chain names and is not there is corruption.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Record
from durable_adk.model.execution import Execution, History, StepDocument, StepRef, Turn
from durable_adk.model.identity import RunId
from durable_adk.model.wait import AnsweredWait, WaitKind
from durable_adk.store import filters
from durable_adk.store.core import ACTIVITIES, EXECUTIONS, SESSIONS, STEPS, Part, Session
from durable_adk.store.documents import (
    Doc,
    execution_envelopes,
    execution_from,
    ref_from,
    session_from,
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

T = TypeVar("T")

_BATCH = 200
"""Keys or ranges in one read."""


class Loading(Part):
    """Reads in a session that sees the claim."""

    async def load_history(self, execution: Execution, *, max_turns: int | None) -> History:
        """The session and its finished turns before this one, newest whole ones if limited."""
        core = self._core

        async def once(session: Session) -> History:
            key = execution.session_key
            found = await core.find_one(session, SESSIONS, filters.by_id(key))
            if found is None:
                raise CorruptHistory(f"session {execution.session_id!r}", "is missing")
            docs: list[Doc] = []
            if max_turns != 0 and execution.turn > 1:
                docs = await core.find(
                    session,
                    EXECUTIONS,
                    filters.turns_before(key, execution.turn),
                    sort=[("turn", -1)],
                    limit=max_turns or 0,
                )
            _check_turns(execution, docs, max_turns)
            steps = await self._chains(session, docs)
            bodies = await self._bodies(session, [doc for chain in steps.values() for doc in chain])
            texts = await core.texts(
                session,
                [
                    found.get("state"),
                    *(e for doc in docs for e in execution_envelopes(doc)),
                    *(
                        e
                        for chain in steps.values()
                        for step in chain
                        for e in step_envelopes(step)
                    ),
                    *bodies.values(),
                ],
            )
            turns = [
                Turn(
                    execution=execution_from(doc, texts),
                    steps=tuple(step_from(step, texts, bodies) for step in steps[doc["run"]]),
                )
                for doc in reversed(docs)
            ]
            return History(session=session_from(found, texts), turns=tuple(turns))

        return await core.read(f"history of session {execution.session_id!r}", once)

    async def _chains(self, session: Session, docs: Sequence[Doc]) -> dict[str, list[Doc]]:
        """The committed steps of finished executions, by run: last ones first, then the rest."""
        core = self._core
        last = {doc["run"]: _last_of(doc) for doc in docs}
        stored: dict[str, Doc] = {}
        keys = [step_key(run, ref) for run, ref in last.items()]
        for batch in _batches(keys):
            for step in await core.find(session, STEPS, filters.by_ids(batch)):
                stored[step["_id"]] = step
        longer = [
            run
            for run, ref in last.items()
            if (doc := stored.get(step_key(run, ref))) is not None and "prev" in doc
        ]
        for batch in _batches(longer):
            ranges = {"$or": [filters.starting_with(f"{run}:") for run in batch]}
            for step in await core.find(session, STEPS, ranges):
                stored[step["_id"]] = step
        return {run: _chain(run, ref, stored) for run, ref in last.items()}

    async def _bodies(self, session: Session, steps: Sequence[Doc]) -> dict[str, Envelope]:
        """The bodies of the records that steps refer to, by key."""
        keys = [
            record_key(step["_id"].split(":")[0], slot)
            for step in steps
            for slot in ref_slots(step)
        ]
        found: dict[str, Envelope] = {}
        for batch in _batches(keys):
            for doc in await self._core.find(session, ACTIVITIES, filters.by_ids(batch)):
                if "body" in doc:
                    found[doc["_id"]] = doc["body"]
        missing = [key for key in keys if key not in found]
        if missing:
            raise CorruptHistory(
                f"record {missing[0]}", "a committed step refers to it and it is missing"
            )
        return found

    async def load_steps(self, execution: Execution) -> tuple[StepDocument, ...]:
        """The committed steps of one execution, in order."""
        core, run = self._core, execution.run
        if execution.last_step is None:
            return ()
        last_step = execution.last_step

        async def once(session: Session) -> tuple[StepDocument, ...]:
            docs = await core.find(session, STEPS, filters.starting_with(f"{run}:"))
            chain = _chain(run, last_step, {doc["_id"]: doc for doc in docs})
            bodies = await self._bodies(session, chain)
            envelopes = [e for doc in chain for e in step_envelopes(doc)]
            texts = await core.texts(session, [*envelopes, *bodies.values()])
            return tuple(step_from(doc, texts, bodies) for doc in chain)

        return await core.read(f"steps of {execution.execution_id!r}", once)

    async def load_records(self, run: RunId, *, from_step: int) -> tuple[Record, ...]:
        """Every record of an execution from a step on, in key order, bodies whole."""
        return await self._read_records(run, filters.records_from(run, from_step), record_from)

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

        return await core.read(f"records of run {run}", once)


def _in_frontier_order(placed: tuple[AnsweredWait, int, int]) -> tuple[bool, int, int]:
    answered, place, _ = placed
    asked = answered.wait.kind is not WaitKind.IN_DOUBT
    return (asked, place if asked else answered.answer.at, place)


def _batches(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    return (keys[i : i + _BATCH] for i in range(0, len(keys), _BATCH))


def _check_turns(execution: Execution, docs: Sequence[Doc], max_turns: int | None) -> None:
    """Newest first and without a gap, down to the first turn or as many as were asked for."""
    wanted = execution.turn - 1 if max_turns is None else min(max_turns, execution.turn - 1)
    turns = [doc["turn"] for doc in docs]
    if turns != [execution.turn - 1 - n for n in range(wanted)]:
        missing = sorted(set(range(execution.turn - wanted, execution.turn)) - set(turns))
        raise CorruptHistory(f"session {execution.session_id!r}", f"turns {missing} are missing")
    for doc in docs:
        if doc["active"]:
            raise CorruptHistory(
                f"execution {doc['eid']!r}", "is not finished, and is not the last"
            )


def _last_of(doc: Doc) -> StepRef:
    last = ref_from(doc.get("last_step"))
    if last is None:
        raise CorruptHistory(f"execution {doc['eid']!r}", "has ended without a step")
    return last


def _chain(run: str, last: StepRef, stored: dict[str, Doc]) -> list[Doc]:
    """From the last step back along ``prev``, in order."""
    chain: list[Doc] = []
    ref: StepRef | None = last
    while ref is not None:
        key = step_key(run, ref)
        doc = stored.get(key)
        if doc is None:
            raise CorruptHistory(f"step {key}", "is named by a commit and is missing")
        chain.append(doc)
        before = ref_from(doc.get("prev"))
        if before is not None and before.step >= ref.step:
            raise CorruptHistory(f"step {key}", f"names step {before.step} as the one before it")
        ref = before
    if chain[-1]["_id"].split(":")[1] != f"{1:06d}":
        raise CorruptHistory(f"step {chain[-1]['_id']}", "is not the first and names none before")
    chain.reverse()
    return chain
