"""What the store promises, in plain Python: one dict each, no driver, no repeats, no rivals.

Each method does what the contract in ``engine/ports.py`` says of the method of its name, and
returns what that one has to return, as far as it can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from durable_adk.model.activity import Record, slot_of
from durable_adk.model.execution import FAR, Execution, Lease, NewExecution, Status, StepDocument
from durable_adk.model.wait import Frontier, StoredAnswer

LOST = "LeaseLost"
IDLE = (Status.QUEUED, Status.SUSPENDED, Status.STUCK)


@dataclass
class Asked:
    """A frontier as it stands."""

    id: str
    step: int
    token: int
    digests: tuple[str, ...]
    rev: int = 0
    answers: dict[int, str] = field(default_factory=dict)
    """Digests of values, by place."""

    @property
    def open(self) -> int:
        return len(self.digests) - len(self.answers)


@dataclass
class Known:
    """An execution as it stands."""

    new: NewExecution
    turn: int
    status: Status
    token: int
    claim: str | None
    attempt: int
    wake_at: int
    step: int = 1
    last_step: tuple[int, int] | None = None
    frontier: Asked | None = None
    failures: int = 0
    closing: Status | None = None
    cancel: bool = False
    version: str | None = None
    left: tuple[int, str] | None = None

    @property
    def is_active(self) -> bool:
        return not self.status.is_final

    def shown(self) -> tuple[Any, ...]:
        """All of it, to compare with what ``shown_of`` takes from a stored one."""
        asked = self.frontier
        frontier = asked and (asked.id, asked.step, asked.token, asked.digests, asked.rev)
        answers = asked and (asked.open, asked.answers)
        last, lease = self.last_step, (self.token, self.claim, self.wake_at)
        marks = (self.closing, self.cancel, self.version, self.failures)
        counts = (self.turn, self.attempt, self.step)
        return (counts, self.status, lease, last, frontier, answers, marks)


def shown_of(stored: Execution) -> tuple[Any, ...]:
    asked, last = stored.frontier, stored.last_step
    digests = () if asked is None else tuple(wait.digest for wait in asked.waits)
    frontier = asked and (asked.id, asked.step, asked.step_token, digests, asked.rev)
    answers = asked and (asked.open, {i: one.digest for i, one in asked.answers.items()})
    ref = last and (last.step, last.token)
    lease = (stored.token, stored.claim, stored.wake_at)
    marks = (stored.closing, stored.cancel is not None, stored.version, stored.failures)
    counts = (stored.turn, stored.attempt, stored.step)
    return (counts, stored.status, lease, ref, frontier, answers, marks)


@dataclass
class Talk:
    """A session as it stands."""

    nonce: str
    upto: int = 0
    source: str | None = None
    first: str | None = None
    mark: str | None = None
    is_removed: bool = False


def wait_slot(frontier: Frontier, place: int) -> str:
    return slot_of(frontier.step, frontier.waits[place].digest, 1)


class Reference:
    """The whole database."""

    def __init__(self) -> None:
        self.now = 0
        self.sessions: dict[str, Talk] = {}
        self.executions: dict[str, Known] = {}
        self.slots: dict[tuple[str, str], str] = {}
        self.answers: dict[tuple[str, str], str] = {}
        """Wait records: digests of values."""
        self.steps: dict[tuple[str, int, int], str] = {}

    # ------------------------------------------------------------------ sessions and turns

    def turns(self, session: str) -> list[Known]:
        found = [one for one in self.executions.values() if one.new.session_key == session]
        return sorted(found, key=lambda one: one.turn)

    def begin(self, new: NewExecution) -> str:
        there, turns = self.executions.get(new.key), self.turns(new.session_key)
        if not turns:
            talk = self.sessions.setdefault(new.session_key, Talk(nonce=new.nonce))
            if talk.nonce != new.nonce and talk.first not in (None, new.key):
                return "Forked"
        elif turns[-1].is_active and there is None:
            return "Busy"
        if there is None:
            base = self.sessions[new.session_key].upto if not turns else turns[-1].turn
            run = new.run_now
            there = self.executions[new.key] = Known(
                new=new,
                turn=base + 1,
                status=Status.RUNNING if run else Status.QUEUED,
                token=int(run),
                claim=new.nonce if run else None,
                attempt=int(run),
                wake_at=self.now + new.ttl_ms if run else self.now,
                version=new.version,
            )
        inserted = (1, new.nonce) if new.run_now else (0, None)
        is_mine = there.new.nonce == new.nonce and (there.token, there.claim) == inserted
        return "Begun" if is_mine and there.is_active else "Taken"

    def fork(self, key: str, source: str, upto: int, first: str) -> bool:
        if key in self.sessions:
            return False
        self.sessions[key] = Talk(nonce=key, upto=upto, source=source, first=first)
        return True

    def forks_of(self, key: str) -> list[str]:
        return [k for k, talk in self.sessions.items() if self._has_ancestor(talk, key)]

    def _has_ancestor(self, talk: Talk, key: str) -> bool:
        if talk.source is None:
            return False
        return talk.source == key or self._has_ancestor(self.sessions[talk.source], key)

    def past(self, key: str, before: int) -> list[str]:
        """The executions before a turn, those of its ancestors included, oldest first."""
        talk = self.sessions[key]
        own = [one.new.key for one in self.turns(key) if talk.upto < one.turn < before]
        if talk.source is None:
            return own
        return [*self.past(talk.source, min(before, talk.upto + 1)), *own]

    def remove(self, key: str) -> None:
        for one in self.turns(key):
            run = one.new.run
            self.answers = {at: digest for at, digest in self.answers.items() if at[0] != run}
            self.slots = {at: nonce for at, nonce in self.slots.items() if at[0] != run}
            self.steps = {at: nonce for at, nonce in self.steps.items() if at[0] != run}
            del self.executions[one.new.key]
        del self.sessions[key]

    # ------------------------------------------------------------------ leases

    def is_due(self, key: str) -> bool:
        one = self.executions[key]
        waits = one.frontier is not None and one.frontier.open and one.status is Status.SUSPENDED
        return one.is_active and one.wake_at <= self.now and not waits

    def claim(self, key: str, nonce: str, ttl: int, version: str | None, early: bool) -> bool:
        one = self.executions.get(key)
        if one is None:
            return False
        is_due, status = one.wake_at <= self.now, one.status
        other = version is not None and one.version not in (None, version)
        answered = one.frontier is not None and not one.frontier.open
        if (
            (status is Status.QUEUED and (is_due or early))
            or (status is Status.RUNNING and is_due)
            or (status is Status.SUSPENDED and answered and is_due)
            or (status is Status.STUCK and other)
        ):
            self._take(one, nonce, ttl)
            one.version = version or one.version
            return True
        return status is Status.RUNNING and one.claim == nonce

    def claim_to_close(self, key: str, nonce: str, ttl: int, closing: Status) -> bool:
        one = self.executions.get(key)
        if one is None:
            return False
        is_over = one.status is Status.RUNNING and one.wake_at <= self.now
        if one.status in IDLE or is_over:
            self._take(one, nonce, ttl)
            one.closing = closing
            return True
        return one.status is Status.RUNNING and one.claim == nonce

    def _take(self, one: Known, nonce: str, ttl: int) -> None:
        one.token, one.attempt = one.token + 1, one.attempt + 1
        one.claim, one.status, one.wake_at = nonce, Status.RUNNING, self.now + ttl

    def held(self, lease: Lease) -> Known | None:
        one = self.executions.get(lease.key)
        if one is None or one.status is not Status.RUNNING:
            return None
        return one if (one.token, one.claim) == (lease.token, lease.claim) else None

    def renew(self, lease: Lease, ttl: int) -> tuple[bool, bool]:
        one = self.held(lease)
        if one is None:
            return False, False
        one.wake_at = self.now + ttl
        return True, one.cancel

    def _leave(self, one: Known, how: str, status: Status, wake_at: int) -> None:
        one.left, one.claim = (one.token, how), None
        one.status, one.wake_at = status, wake_at

    def release(self, lease: Lease) -> bool:
        one = self.held(lease)
        if one is not None:
            self._leave(one, "release", Status.QUEUED, self.now)
            return True
        return self._left(lease, "release")

    def _left(self, lease: Lease, how: str) -> bool:
        there = self.executions.get(lease.key)
        return there is not None and there.left == (lease.token, how)

    def request_cancel(self, key: str) -> bool:
        one = self.executions.get(key)
        if one is None or one.status is not Status.RUNNING:
            return False
        one.cancel = True
        return True

    def retry(self, key: str) -> bool:
        one = self.executions.get(key)
        if one is None or one.status not in (Status.QUEUED, Status.STUCK):
            return False
        if one.status is Status.STUCK:
            one.version = None  # any worker may be asked to go on
        one.status, one.failures, one.wake_at = Status.QUEUED, 0, self.now
        return True

    # ------------------------------------------------------------------ records

    def insert(self, run: str, records: Iterable[Record]) -> str | None:
        """The nonce of whoever holds a slot first, or None: all are there."""
        for record in records:
            holder = self.slots.setdefault((run, record.slot), record.nonce)
            if holder != record.nonce:
                return holder
        return None

    def put_step(self, document: StepDocument) -> str:
        key = (document.run, document.step, document.token)
        return "" if self.steps.setdefault(key, document.nonce) == document.nonce else LOST

    # ------------------------------------------------------------------ commits

    def commit_frontier(self, lease: Lease, step: StepDocument, frontier: Frontier) -> str:
        one = self.held(lease)
        if one is not None and one.step == step.step:
            digests = tuple(wait.digest for wait in frontier.waits)
            one.frontier = Asked(frontier.id, frontier.step, frontier.step_token, digests)
            self._leave(one, "frontier", Status.SUSPENDED, FAR)
            one.failures = 0
            return ""
        there = self.executions.get(lease.key)
        if there is None:
            return LOST
        if there.frontier is not None and there.frontier.id == frontier.id:
            return "" if there.frontier.token == lease.token else LOST
        return "" if there.last_step == (step.step, lease.token) else LOST

    def commit_end(self, lease: Lease, step: StepDocument, status: Status) -> str:
        one, last = self.held(lease), (step.step, step.token)
        if one is not None and one.step == step.step:
            self._leave(one, "end", status, FAR)
            one.last_step, one.frontier, one.closing = last, None, None
            return ""
        there = self.executions.get(lease.key)
        is_mine = there is not None and (there.status, there.last_step) == (status, last)
        return "" if is_mine else LOST

    def attempt_failed(self, lease: Lease, status: Status, failures: int, backoff: int) -> str:
        one = self.held(lease)
        if one is not None:
            wake_at = self.now + backoff if status is Status.QUEUED else FAR
            self._leave(one, "failed", status, wake_at)
            one.failures = failures
            return ""
        return "" if self._left(lease, "failed") else LOST

    def commit_continue(self, lease: Lease, seen: Execution) -> str:
        frontier = seen.frontier
        if frontier is None:
            return LOST
        for place in range(len(frontier.waits)):
            at = (seen.run, wait_slot(frontier, place))
            self.answers.setdefault(at, frontier.answers[place].digest)
        one = self.held(lease)
        asked = None if one is None else one.frontier
        if one is not None and one.step == seen.step and asked and asked.id == frontier.id:
            one.step, one.last_step = one.step + 1, (frontier.step, frontier.step_token)
            one.frontier = None
            return ""
        there = self.executions.get(lease.key)
        if there is None or (there.token, there.claim) != (lease.token, lease.claim):
            return LOST
        return "" if there.frontier is None or there.frontier.id != frontier.id else LOST

    def put_answers(self, key: str, seen: Frontier, given: Mapping[int, StoredAnswer]) -> bool:
        one = self.executions.get(key)
        asked = None if one is None else one.frontier
        if one is None or asked is None or asked.id != seen.id:
            return self._became_records(one, seen, given)
        if one.status is Status.SUSPENDED and asked.rev == seen.rev:
            asked.answers |= {place: answer.digest for place, answer in given.items()}
            asked.rev += 1
            if not asked.open:
                one.wake_at = 0
            return True
        return all(asked.answers.get(i) == answer.digest for i, answer in given.items())

    def _became_records(
        self, one: Known | None, seen: Frontier, given: Mapping[int, StoredAnswer]
    ) -> bool:
        if one is None:
            return False
        return all(
            self.answers.get((one.new.run, wait_slot(seen, place))) == answer.digest
            for place, answer in given.items()
        )
