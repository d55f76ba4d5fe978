"""What is recorded of an execution, and which of it counts.

For a committed step only the records that its step document names count, and each of them must
be there; for the open step every record counts that is not voided. The *try* of a position is
one more than its voided slots and those whose doubt is settled: each is followed by a fresh slot.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from durable_adk.engine.settled import settled_slots
from durable_adk.errors import CorruptHistory, NotStorable
from durable_adk.model import entries, failure
from durable_adk.model.activity import (
    Kind,
    Payload,
    Record,
    RecordStatus,
    slot_of,
)
from durable_adk.model.execution import StepDocument
from durable_adk.model.position import Position, is_under, known_in, parent_of

_NOT_ASKED_FOR = frozenset({Kind.SHARED, Kind.WAIT})
"""Written and read by the engine itself: no caller is handed one."""

_AT_BODY = frozenset({Kind.STEP, Kind.TIMER})
"""What is recorded by the user inside a body carries the body's own path."""

_COVERS = frozenset({Kind.NODE, Kind.TOOL})
_VOIDABLE = frozenset({Kind.MODEL, Kind.NODE, Kind.TOOL, Kind.STEP})


@dataclass(eq=False, slots=True)
class Entry:
    """One record that counts, and what became of it in this attempt.

    Attributes:
        covered: It was made inside the body of a recorded call: nobody will ask for it.
        asked_at, told_at: When it was asked for and handed out, counted in moves; 0 for not.
    """

    record: Record
    position: Position
    covered: bool = False
    asked_at: int = 0
    told_at: int = 0


class StepRecords:
    """The records of one step that count, by position."""

    def __init__(
        self,
        step: int,
        records: Iterable[Record],
        *,
        document: StepDocument | None = None,
        tries: Counter[str] | None = None,
        entered: Mapping[str, Record] | None = None,
    ) -> None:
        self.step = step
        self.committed = document is not None
        self.abandoned = frozenset(document.abandoned) if document else frozenset()
        self.shared: Record | None = None
        self._tries = tries if tries is not None else Counter[str]()
        self._before = entered or {}
        self._by_digest: dict[str, Entry] = {}
        self._intents: dict[str, Record] = {}
        self._places: set[tuple[str, int, Kind | None]] = set()
        for record in records:
            self._take(record)
        self._cover()

    def _take(self, record: Record) -> None:
        if record.is_intent:
            self._intents[record.digest] = record
            return
        position = Position.parse(record.position)
        if position.kind is Kind.SHARED:
            self.shared = record
        self.add(record, position)

    def add(self, record: Record, position: Position, *, entered_at: int = 0, at: int = 0) -> None:
        """Count a record; the times are given for one that this attempt made."""
        self._by_digest[record.digest] = Entry(record, position, False, entered_at, at)
        self._places.add((position.path, position.entry, position.kind))
        self._places.add((position.path, position.entry, None))

    def intend(self, record: Record) -> None:
        """Note an intent that this attempt made."""
        self._intents[record.digest] = record

    def find(self, digest: str) -> Entry | None:
        return self._by_digest.get(digest)

    @property
    def is_empty(self) -> bool:
        return not self._by_digest

    def same_call(self, position: Position, request: str) -> Record | None:
        """The record of a user call at this path, name and count, of its last entry, if it asked
        for the same."""
        found = [
            entry
            for entry in self._by_digest.values()
            if entry.position.kind is position.kind
            and (entry.position.path, entry.position.label, entry.position.ordinal)
            == (position.path, position.label, position.ordinal)
            and entry.record.request == request
        ]
        return max(found, key=lambda e: e.position.entry).record if found else None

    def has(self, path: str, entry: int, kind: Kind | None) -> bool:
        return (path, entry, kind) in self._places

    def has_after(self, position: Position) -> bool:
        """Whether something is recorded at the same path in a later entry of it."""
        path, entry = position.path, position.entry
        return any(found == path and later > entry for found, later, _kind in self._places)

    def is_to_come(self, entry: Entry) -> bool:
        """Whether somebody will ask for a record of an earlier attempt, and nobody has yet."""
        return not entry.asked_at and not entry.covered

    def to_come_below(self, path: str) -> Iterator[tuple[str, int]]:
        """Path and entry of what is still to be asked for below a path."""
        for entry in self._by_digest.values():
            found = entry.position
            if found.path != path and is_under(found.path, path) and self.is_to_come(entry):
                yield found.path, found.entry

    def was_held_back(self, path: str, around: str, asked: Sequence[str]) -> bool:
        """Whether a committed step recorded and abandoned nothing at a path or below it, and
        something near it asks."""
        asked = [one for one in asked if is_under(one, around)]
        begun = {found for found, _entry, _kind in self._places}
        begun.update(asked, (Position.parse(text).path for text in self.abandoned))
        return self.committed and bool(asked) and not any(is_under(one, path) for one in begun)

    def places_below(self, path: str) -> Iterator[tuple[str, int]]:
        """Path and entry of what is recorded at a path or below it."""
        return ((found, entry) for found, entry, _kind in self._places if is_under(found, path))

    def try_of(self, digest: str) -> int:
        """Which slot of a position is the one that counts or is free."""
        return 1 + self._tries[digest]

    def in_order(self) -> list[Entry]:
        """Entries in log order."""
        return sorted(
            self._by_digest.values(),
            key=lambda e: (e.record.seq, e.record.token, e.record.digest),
        )

    def to_hand_out(self) -> list[Entry]:
        """Entries that somebody will ask for, in log order."""
        return [
            entry
            for entry in self.in_order()
            if not entry.covered
            and entry.position.kind not in _NOT_ASKED_FOR
            and entry.record.status is not RecordStatus.IN_DOUBT
            and entry.position.text not in self.abandoned
        ]

    def unused(self) -> list[Record]:
        """What earlier attempts recorded and this one came by without asking for it."""
        return [entry.record for entry in self.to_hand_out() if not entry.asked_at]

    def outcomes(self) -> list[Record]:
        """The records that a commit of this step names, in log order: no verdicts, no waits."""
        return [
            entry.record
            for entry in self.in_order()
            if entry.record.status is not RecordStatus.IN_DOUBT
            and entry.position.kind is not Kind.WAIT
        ]

    def of_tools(self) -> list[tuple[Position, str]]:
        """The tool calls that have a record, with the tool's name."""
        entries = self.in_order()
        return [(e.position, e.record.name) for e in entries if e.position.kind is Kind.TOOL]

    def doubts(self) -> list[Record]:
        """Intents without an outcome."""
        return [r for d, r in self._intents.items() if d not in self._by_digest]

    def intent_of(self, verdict: Record) -> Record | None:
        return self._intents.get(verdict.digest)

    def entered(self, digest: str) -> Record | None:
        """The last intent at a position, of whatever try: what its body was entered with."""
        return self._intents.get(digest) or self._before.get(digest)

    @property
    def next_frontier(self) -> int:
        """The number of the next frontier of this step: no frontier before it has it."""
        return 1 + len(settled_slots([entry.record for entry in self._by_digest.values()]))

    def verdicts(self) -> list[Record]:
        """Outcome slots that hold a verdict."""
        return [
            entry.record
            for entry in self._by_digest.values()
            if entry.record.status is RecordStatus.IN_DOUBT
        ]

    def in_doubt(self) -> list[Record]:
        """Verdicts that nothing has settled, and intents that have none yet."""
        return [*self.verdicts(), *self.doubts()]

    def is_ahead(self, path: str, seq: int) -> bool:
        """Whether something of the log up to ``seq`` is still to be handed out at or below a path:
        by itself, or with the body around it."""
        return any(
            0 < entry.record.seq <= seq
            and entry.position.kind not in _NOT_ASKED_FOR
            and is_under(entry.position.path, path)
            and not self._is_told(entry)
            for entry in self._by_digest.values()
        )

    def _is_told(self, inner: Entry) -> bool:
        return bool(inner.told_at) or any(
            outer.told_at
            and outer.position.kind in _COVERS
            and outer.record.seq > inner.record.seq
            and is_under(inner.position.path, outer.position.path)
            for outer in self._by_digest.values()
        )

    def _cover(self) -> None:
        """Mark what lies inside recorded bodies: it came before their record, below their path."""
        last: dict[str, dict[int, float]] = {}  # by path and entry
        for entry in self._by_digest.values():
            if entry.position.kind in _COVERS and entry.record.status is not RecordStatus.IN_DOUBT:
                ends, at = last.setdefault(entry.position.path, {}), entry.position.entry
                ends[at] = max(ends.get(at, 0), entry.record.seq)
        for text in self.abandoned:  # never entered by a replay, whatever it had recorded inside
            position = Position.parse(text)
            if position.kind in _COVERS:
                last.setdefault(position.path, {})[position.entry] = math.inf
        if not last:
            return
        for entry in self._by_digest.values():
            path, kind = entry.position.path, entry.position.kind
            if kind not in _AT_BODY:
                path = parent_of(path)
            while path and not entry.covered:
                if path in last:
                    at = entries.at(path, entry.position.path, entry.position.entry)
                    entry.covered = last[path].get(at, 0) > entry.record.seq
                path = parent_of(path)

    def voidable(self, carried: Iterable[Record]) -> list[str]:
        """Slots of those failures of this step that the next attempt tries anew.

        The failure of a body that must not run twice stays: it has an intent. So does a result
        that cannot be stored: it would be none again.
        """
        return [
            record.slot
            for record in carried
            if record.step == self.step
            and record.status is RecordStatus.FAILED
            and Position.parse(record.position).kind in _VOIDABLE
            and record.digest not in self._intents
            and not _is_not_storable(record.body)
        ]


def _is_not_storable(body: Payload | None) -> bool:
    return (
        body is not None
        and NotStorable.__name__ in body
        and isinstance(failure.decode_failure(body), NotStorable)
    )


def gaps(records: Iterable[Record]) -> list[int]:
    """Places of the log that nobody holds, below the last one that somebody does.

    Outcomes become durable in the order of their numbers, so there is none. Two owners may hold
    one number: a stale one's records count on from the same last number as the living one's.
    """
    held = {record.seq for record in records}
    return [seq for seq in range(1, max(held, default=0)) if seq not in held]


class Recorded:
    """Everything loaded for an attempt, checked against what its commits name."""

    def __init__(
        self,
        *,
        open_step: int,
        records: Sequence[Record] = (),
        steps: Sequence[StepDocument] = (),
        voided: Iterable[str] = (),
        to_close: bool = False,
    ) -> None:
        """Sort records into steps. ``to_close``: records may be missing, nothing rests on them.

        Raises:
            CorruptHistory: a record that a step document names is missing, or one of the log
                before its last, or a step is.
        """
        self.open_step = open_step
        self.last_seq = max((record.seq for record in records), default=0)
        self._documents = {document.step: document for document in steps}
        self._voided = frozenset(voided)
        self._by_step: dict[int, list[Record]] = {}
        self._steps: dict[int, StepRecords] = {}
        for record in records:
            self._by_step.setdefault(record.step, []).append(record)
        self._check_steps()
        if not to_close:
            self._check_records()

    def _check_steps(self) -> None:
        if sorted(self._documents) != list(range(1, self.open_step)):
            raise CorruptHistory(
                f"steps before step {self.open_step}",
                f"found {sorted(self._documents)}",
                "A step document was removed; give the execution up or restore it.",
            )

    def _check_records(self) -> None:
        for document in self._documents.values():
            there = {r.slot for r in self._by_step.get(document.step, ())}
            missing = [slot for slot in document.records if slot not in there]
            if missing:
                raise CorruptHistory(
                    f"step {document.step}",
                    f"{len(missing)} of {len(document.records)} records are missing,"
                    f" the first is {missing[0]}",
                    "Records were removed; give the execution up or restore them.",
                )
        gap = next(iter(gaps(itertools.chain.from_iterable(self._by_step.values()))), None)
        if gap is not None:
            raise CorruptHistory(
                f"the log of step {self.open_step}",
                f"record {gap} of {self.last_seq} is missing",
                "Records were removed; give the execution up or restore them.",
            )

    def earlier(self, position: Position, request: str) -> Record | None:
        """What an earlier step recorded for the same user call: same path, name and count.

        For a body that asked in that step and is entered again from its top.
        """
        for step in range(position.step - 1, 0, -1):
            then = dataclasses.replace(position, path=known_in(position.path, step))
            found = self.step(step).same_call(then, request)
            if found is not None:
                return found
        return None

    def of_kind(self, kind: Kind) -> list[Record]:
        """What counts of a kind, in every step, in log order."""
        steps = (self.step(step) for step in range(1, self.open_step + 1))
        return [e.record for one in steps for e in one.in_order() if e.position.kind is kind]

    def step(self, step: int) -> StepRecords:
        """What counts in one step; always the same object."""
        if step not in self._steps:
            self._steps[step] = self._sort(step)
        return self._steps[step]

    def _counting(self, step: int) -> list[Record]:
        """What may count in a step."""
        return self._by_step.get(step, [])

    def _sort(self, step: int) -> StepRecords:
        records = self._counting(step)
        document = self._documents.get(step)
        if document is not None:
            named = frozenset(document.records)
            return StepRecords(step, [r for r in records if r.slot in named], document=document)
        prefix = slot_of(step, "", 0)[:7]
        closed = {slot for slot in self._voided if slot.startswith(prefix)}
        closed |= settled_slots(records)
        tries = Counter(slot[7:].rpartition(".")[0] for slot in closed)
        return StepRecords(
            step,
            [r for r in records if r.attempt_try == 1 + tries[r.digest]],
            tries=tries,
            entered={r.digest: r for r in records if r.is_intent},
        )
