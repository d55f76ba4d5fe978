"""Random calls of a store, by owners whose lease may be gone, beside the plain reference.

Replies are lost and calls are repeated, also long after. After each call the store shows what the
reference does, and what must never change has not.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from durable_adk.errors import LeaseLost, Unavailable
from durable_adk.model.activity import Record, RecordStatus
from durable_adk.model.execution import (
    Ancestor,
    Execution,
    Lease,
    NewExecution,
    NextExecution,
    Status,
    StepDocument,
    StepRef,
)
from durable_adk.model.identity import Tenant, execution_key, new_nonce
from durable_adk.model.store_results import Write
from durable_adk.model.wait import Frontier
from tests.conformance.bench import (
    COLLECTIONS,
    TTL_MS,
    Bench,
    answer,
    answered_of,
    failure,
    frontier_of,
    intent,
    lease_of,
    record,
    step_of,
    verdict,
    wait,
)
from tests.races.reference import LOST, Reference, shown_of

R = TypeVar("R")

IDS = tuple(f"e{number}" for number in range(1, 9))
SESSIONS = ("s1", "s2")
VERSIONS = (None, None, "v1", "v2")
ENDS = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)

T = TypeVar("T")


class Draw(NamedTuple):
    """What one move may choose with."""

    which: int
    other: int
    flag: bool
    lost: bool

    def of(self, choices: Sequence[T]) -> T:
        return choices[self.which % len(choices)]

    def too(self, choices: Sequence[T]) -> T:
        return choices[self.other % len(choices)]


def weighted(weights: str) -> list[str]:
    """``a*2 b``: each name as often as it says."""
    pairs = [one.partition("*") for one in weights.split()]
    return [name for name, _, times in pairs for _ in range(int(times or 1))]


OF_OWNERS = weighted("suspends*4 goes_on*5 ends records_some*3 renews*2 releases fails")
OF_OTHERS = weighted(
    "begins_one*2 begins_again begins_in_a_fork*2 forks*2 reads_the_past*2 begins_to_delete"
    " takes_a_mark_back decides_and_removes claims*6 claims_to_close is_asked_to_cancel is_retried"
    " records_again is_seen is_answered*5 time_passes*3"
)
"""What may happen, and how often it is drawn."""


class Owner(NamedTuple):
    """What a process knows of an execution that it has claimed, once."""

    seen: Execution
    step: StepDocument

    @property
    def may_go_on(self) -> bool:
        return self.seen.frontier is not None and not self.seen.frontier.open

    @property
    def lease(self) -> Lease:
        return lease_of(self.seen)


class StoreMachine(RuleBasedStateMachine):
    """One example: a tenant of its own. ``bench`` and ``runner`` are shared by all."""

    bench: Bench
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        self.bench.tenant = Tenant(f"ns-{new_nonce()}", "app")
        self.known = Reference()
        self.known.now = self.bench.clock.now()
        self.begins: list[NewExecution] = []
        self.owners: list[Owner] = []
        self.nonces: list[str] = [new_nonce()]
        self.records: list[tuple[str, Record]] = []
        self.frontiers: list[tuple[str, Frontier]] = []
        self.marks: list[tuple[str, str]] = []
        self.finished: dict[str, Any] = {}
        self.tokens: dict[str, int] = {}
        for execution, session in zip(IDS, SESSIONS, strict=False):
            self._begin(self.bench.new(execution, session), False)

    def teardown(self) -> None:
        """A database in memory looks at every document: with those of all examples, each one would
        take longer than the one before."""
        self.runner.run(self._emptied())

    async def _emptied(self) -> None:
        for name in COLLECTIONS:
            await self.bench.collection(name).delete_many({})

    @rule(dice=st.randoms(use_true_random=True))
    def moves(self, dice: Random) -> None:
        """An owner, new or stale, or anybody else. Drawn with dice: Hypothesis repeats itself."""
        draw = Draw(
            dice.randrange(60), dice.randrange(60), dice.random() < 0.5, dice.random() < 0.3
        )
        is_owner = bool(self.owners) and dice.random() < 0.5
        what = dice.choice(OF_OWNERS if is_owner else OF_OTHERS)
        note(f"{what} {draw}")
        if not is_owner:
            getattr(self, what)(draw)
            return
        latest = list({owner.seen.key: owner for owner in self.owners}.values())
        chosen = dice.choice([latest, latest, self.owners[-5:], self.owners])
        if what == "goes_on":
            chosen = [owner for owner in self.owners if owner.may_go_on][-4:] or chosen
        getattr(self, what)(draw.of(chosen), draw)

    # ------------------------------------------------------------------ doing

    def do(self, what: Coroutine[Any, Any, R]) -> R:
        return self.runner.run(what)

    def losing(self, write: Write, what: Coroutine[Any, Any, R], *, is_lost: bool) -> R:
        """A call whose first reply may be lost, if there is one."""
        faults = self.bench.faults
        faults._lose.clear()
        if is_lost:
            faults.lose(write)
        try:
            return self.do(what)
        finally:
            faults._lose.clear()

    def fenced(self, write: Write, what: Coroutine[Any, Any, Any], *, is_lost: bool) -> str:
        try:
            self.losing(write, what, is_lost=is_lost)
        except LeaseLost:
            return LOST
        return ""

    def own(self, claimed: Execution) -> None:
        step = step_of(claimed, state="{}")
        self.owners.append(Owner(claimed, step))
        if claimed.frontier is not None:
            self.frontiers.append((claimed.key, claimed.frontier))

    def check(self) -> None:
        """Everything that is stored, against what is known, and against what was before."""
        self.do(self._check())

    async def _check(self) -> None:
        bench, known = self.bench, self.known
        docs = await bench.raw("executions", {"ns": bench.tenant.namespace})
        assert {doc["_id"] for doc in docs} == known.executions.keys()
        active = [doc["sk"] for doc in docs if doc["active"]]
        assert len(active) == len(set(active)), "two active executions in one session"
        for doc in docs:
            key = doc["_id"]
            assert doc["token"] >= self.tokens.get(key, 0), "a token went back"
            self.tokens[key] = doc["token"]
            before = self.finished.get(key)
            assert before in (None, doc), "a finished execution changed"
            if not doc["active"]:
                self.finished[key] = doc
                continue
            stored = await bench.store.get_execution(key)
            assert stored is not None
            assert shown_of(stored) == known.executions[key].shown()
        self.finished = {k: doc for k, doc in self.finished.items() if k in known.executions}

    # ------------------------------------------------------------------ sessions and turns

    def begins_one(self, draw: Draw) -> None:
        new = self.bench.new(draw.of(IDS), draw.too(SESSIONS), run_now=draw.flag)
        self._begin(new, draw.lost)

    def begins_again(self, draw: Draw) -> None:
        if self.begins:
            self._begin(draw.of(self.begins), draw.lost)

    def _begin(self, new: NewExecution, lost: bool) -> None:
        self.begins.append(new)
        begun = self.losing(Write.BEGIN, self.bench.store.begin(new), is_lost=lost)
        assert type(begun).__name__ == self.known.begin(new)
        execution = getattr(begun, "execution", None)
        if type(begun).__name__ == "Begun" and execution.claim is not None:
            self.own(execution)
        self.check()

    def forks(self, draw: Draw) -> None:
        sid, upto = draw.of(SESSIONS), draw.other % 3
        source = self.bench.session(sid)
        ended = [one for one in self.known.turns(source.key) if not one.is_active]
        if source.key not in self.known.sessions or len(ended) < upto:
            return
        fork = dataclasses.replace(
            self.bench.session(f"{sid}-fork"),
            lineage=(Ancestor(key=source.key, session_id=sid, upto=upto),),
            next=NextExecution(key=execution_key(self.bench.tenant, "e4"), execution_id="e4"),
        )
        made = self.losing(Write.SESSION, self.bench.store.create_session(fork), is_lost=draw.lost)
        first = execution_key(self.bench.tenant, "e4")
        assert (made is not None) == self.known.fork(fork.key, source.key, upto, first)

    def begins_in_a_fork(self, draw: Draw) -> None:
        sid = draw.of(SESSIONS)
        eid = draw.too(("e1", "e4", "e4"))
        if self.bench.session(f"{sid}-fork").key in self.known.sessions:
            self._begin(self.bench.new(eid, f"{sid}-fork"), draw.lost)

    def reads_the_past(self, draw: Draw) -> None:
        sid = draw.of(SESSIONS)
        key = self.bench.session(f"{sid}-fork" if draw.flag else sid).key
        talk = self.known.sessions.get(key)
        if talk is None:
            return
        turns = self.known.turns(key)
        before = turns[-1].turn + (not turns[-1].is_active) if turns else talk.upto + 1
        reading = self.bench.store.load_history(key, before=before, max_turns=None)
        if talk.mark is not None or talk.is_removed:
            try:
                self.do(reading)
            except Unavailable:
                return
            raise AssertionError("the past of a marked session was loaded")
        history = self.do(reading)
        assert [turn.execution.key for turn in history.turns] == self.known.past(key, before)

    # ------------------------------------------------------------------ deletion

    def begins_to_delete(self, draw: Draw) -> None:
        key = self.bench.session(draw.of(SESSIONS)).key
        mark = self.losing(Write.DELETE, self.bench.store.mark_going(key), is_lost=draw.lost)
        self.marks.append((key, mark))
        if key in self.known.sessions:
            self.known.sessions[key].mark = mark

    def takes_a_mark_back(self, draw: Draw) -> None:
        if not self.marks:
            return
        (key, mark), clears, lost = draw.of(self.marks), draw.flag, draw.lost
        store, talk = self.bench.store, self.known.sessions.get(key)
        if clears:
            self.losing(Write.DELETE, store.clear_mark(key), is_lost=lost)
        else:
            self.losing(Write.DELETE, store.unmark_going(key, mark), is_lost=lost)
        is_his = talk is not None and (talk.mark == mark or (clears and not talk.is_removed))
        if talk is not None and is_his:
            talk.mark = None

    def decides_and_removes(self, draw: Draw) -> None:
        if not self.marks:
            return
        (key, mark), lost = draw.of(self.marks), draw.lost
        talk, store = self.known.sessions.get(key), self.bench.store
        forks = self.do(store.forks_of(key))
        assert len(forks) == len(self.known.forks_of(key)) if talk else True
        if forks or talk is None:
            return
        decided = self.losing(Write.DELETE, store.decide_removal(key, mark), is_lost=lost)
        assert decided == (talk.mark == mark or talk.is_removed)
        if decided:
            talk.is_removed = True
            self.losing(
                Write.DELETE,
                store.remove_session(key, self.do(store.runs_of(key))),
                is_lost=lost,
            )
            self.known.remove(key)
            self.tokens.clear()
            self.check()

    # ------------------------------------------------------------------ leases

    def time_passes(self, draw: Draw) -> None:
        self.bench.clock.advance(draw.of((1, 500, TTL_MS + 1)))
        self.known.now = self.bench.clock.now()

    def claims(self, draw: Draw) -> None:
        due = [key for key in self.known.executions if self.known.is_due(key)]
        key = draw.of(due) if due and draw.other % 4 else self._key(draw)
        nonce, lost = self._nonce(draw), draw.lost
        version, early = draw.too(VERSIONS), draw.other % 2 == 0
        claimed = self.losing(
            Write.CLAIM,
            self.bench.store.claim(key, nonce=nonce, ttl_ms=TTL_MS, version=version, early=early),
            is_lost=lost,
        )
        assert (claimed is not None) == self.known.claim(key, nonce, TTL_MS, version, early)
        if claimed is not None:
            self.own(claimed)
        self.check()

    def claims_to_close(self, draw: Draw) -> None:
        key, nonce, lost = self._key(draw), self._nonce(draw), draw.lost
        closing = draw.too((Status.CANCELLED, Status.FAILED))
        closes = self.bench.store.claim_to_close(
            key, closing=closing, reason="enough", nonce=nonce, ttl_ms=TTL_MS
        )
        claimed = self.losing(Write.CLAIM, closes, is_lost=lost)
        assert (claimed is not None) == self.known.claim_to_close(key, nonce, TTL_MS, closing)
        if claimed is not None:
            self.own(claimed)
        self.check()

    def _nonce(self, draw: Draw) -> str:
        """A fresh one, or one of a claim that was made, or was not."""
        if draw.flag and draw.other % 2:
            return draw.too(self.nonces)
        self.nonces.append(new_nonce())
        return self.nonces[-1]

    def _key(self, draw: Draw) -> Any:
        """An execution, mostly one that there is."""
        absent = execution_key(self.bench.tenant, "absent")
        return draw.of(list(self.known.executions)) if self.known.executions else absent

    def renews(self, owner: Owner, draw: Draw) -> None:
        lease, lost = owner.lease, draw.lost
        renewal = self.losing(
            Write.RENEW, self.bench.store.renew(lease, ttl_ms=TTL_MS), is_lost=lost
        )
        assert (renewal.held, renewal.cancel is not None) == self.known.renew(lease, TTL_MS)
        self.check()

    def releases(self, owner: Owner, draw: Draw) -> None:
        lease = owner.lease
        released = self.losing(Write.RELEASE, self.bench.store.release(lease), is_lost=draw.lost)
        assert released == self.known.release(lease)
        self.check()

    def is_asked_to_cancel(self, draw: Draw) -> None:
        key, lost = self._key(draw), draw.lost
        asked = self.losing(
            Write.CANCEL, self.bench.store.request_cancel(key, "enough"), is_lost=lost
        )
        assert asked == self.known.request_cancel(key)
        self.check()

    def is_retried(self, draw: Draw) -> None:
        key, lost = self._key(draw), draw.lost
        found = self.losing(Write.RETRY, self.bench.store.retry(key), is_lost=lost)
        assert (found is not None) == self.known.retry(key)
        self.check()

    # ------------------------------------------------------------------ records

    def records_some(self, owner: Owner, draw: Draw) -> None:
        seen, kind = owner.seen, draw.too((record, record, intent, verdict))
        first, count = draw.other % 4, 1 if kind is not record else 1 + draw.which % 3
        places = [1 + (first + i) % 4 for i in range(count)]
        made = [kind(ordinal, step=seen.step, token=seen.token) for ordinal in places]
        self.records += [(seen.run, one) for one in made]
        self._insert(seen.run, made, draw.lost)

    def records_again(self, draw: Draw) -> None:
        if self.records:
            run, one = draw.of(self.records)
            self._insert(run, [one], draw.lost)

    def _insert(self, run: Any, made: list[Record], lost: bool) -> None:
        store, one = self.bench.store, made[0]
        holder = self.known.insert(run, made)
        if one.is_intent:
            is_ours = self.losing(Write.INTENT, store.insert_intent(run, one), is_lost=lost)
            assert is_ours == (holder is None)
        elif one.status is RecordStatus.IN_DOUBT:
            there = self.losing(Write.VERDICT, store.insert_verdict(run, one), is_lost=lost)
            assert there.nonce == (holder or one.nonce)
        else:
            rival = self.losing(Write.OUTCOMES, store.insert_outcomes(run, made), is_lost=lost)
            assert (rival and rival.nonce) == holder
        stored = self.do(store.load_records(run, from_step=1))
        expected = {slot: nonce for (of, slot), nonce in self.known.slots.items() if of == run}
        answers = {slot for of, slot in self.known.answers if of == run}
        found = {each.slot: each.nonce for each in stored if each.slot not in answers}
        assert found == expected, "a slot was lost or overwritten"

    # ------------------------------------------------------------------ commits

    def _put_step(self, owner: Owner) -> bool:
        put = self.fenced(Write.STEP, self.bench.store.put_step(owner.step), is_lost=False)
        assert put == self.known.put_step(owner.step)
        return put == ""

    def suspends(self, owner: Owner, draw: Draw) -> None:
        waits, lost = 1 + draw.other % 3, draw.lost
        # Whoever claims an answered frontier, or one that is to be closed, never asks it again.
        if owner.seen.frontier is not None or not self._put_step(owner):
            return
        asked = [wait(ordinal + 1, step=owner.seen.step) for ordinal in range(waits)]
        frontier = frontier_of(owner.seen, asked)
        commit = self.bench.store.commit_frontier(owner.lease, step=owner.step, frontier=frontier)
        done = self.fenced(Write.FRONTIER, commit, is_lost=lost)
        assert done == self.known.commit_frontier(owner.lease, owner.step, frontier)
        self._see(owner.seen.key)
        self.check()

    def ends(self, owner: Owner, draw: Draw) -> None:
        status, lost = draw.too(ENDS), draw.lost
        if not self._put_step(owner):
            return
        commit = self.bench.store.commit_end(
            owner.lease, step=owner.step, status=status, result=None, error=None
        )
        done = self.fenced(Write.END, commit, is_lost=lost)
        assert done == self.known.commit_end(owner.lease, owner.step, status)
        self.check()

    def fails(self, owner: Owner, draw: Draw) -> None:
        lease, failures, lost = owner.lease, draw.other % 4, draw.lost
        status = Status.STUCK if draw.flag else Status.QUEUED
        commit = self.bench.store.attempt_failed(
            lease, status=status, error=failure(), failures=failures, voided=(), backoff_ms=600
        )
        done = self.fenced(Write.ATTEMPT_FAILED, commit, is_lost=lost)
        assert done == self.known.attempt_failed(lease, status, failures, 600)
        self.check()

    def goes_on(self, owner: Owner, draw: Draw) -> None:
        if not owner.may_go_on or owner.seen.key not in self.known.executions:
            return
        commit = self.bench.store.commit_continue(owner.lease, owner.seen, answered_of(owner.seen))
        done = self.fenced(Write.CONTINUE, commit, is_lost=draw.lost)
        assert done == self.known.commit_continue(owner.lease, owner.seen)
        if done == "":
            frontier = owner.seen.frontier
            assert frontier is not None
            changes = {"step": frontier.step + 1, "frontier": None}
            last = StepRef(frontier.step, frontier.step_token)
            later = dataclasses.replace(owner.seen, last_step=last, **changes)
            self.own(later)
        self.check()

    def is_seen(self, draw: Draw) -> None:
        self._see(self._key(draw))

    def _see(self, key: Any) -> None:
        """A client reads a frontier, to answer it some time."""
        found = self.do(self.bench.store.get_execution(key))
        if found is not None and found.frontier is not None:
            self.frontiers.append((key, found.frontier))

    def is_answered(self, draw: Draw) -> None:
        if not self.frontiers:
            return
        keys = [k for k, one in self.known.executions.items() if one.frontier]
        seen = self.frontiers
        if keys:
            self._see(draw.too(keys))
            seen = [(key, one) for key, one in seen if key == seen[-1][0]]
        key, frontier = draw.of(seen[-2:] if draw.which % 2 else seen)
        value, whole, lost = draw.too(('"yes"', '"no"')), draw.flag or draw.other % 2, draw.lost
        missing = [i for i in range(len(frontier.waits)) if i not in frontier.answers]
        given = {place: answer(value) for place in (missing if whole else missing[:1])}
        if not given:
            return
        put = self.bench.store.put_answers(key, frontier, given)  # type: ignore[arg-type]
        stored = self.losing(Write.ANSWER, put, is_lost=lost)
        assert stored == self.known.put_answers(key, frontier, given)
        self._see(key)
        self.check()
