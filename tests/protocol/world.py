"""The words of the protocol model: what is stored, what each process knows, which rules hold.

A *world* is one state of everything: the documents in MongoDB (records, intents, step documents,
wait records, the execution), what each owner and each answering client has in memory, and a
ledger of the bodies that ran. All parts are small tuples, so that worlds can be compared and
kept by the hundred thousand. ``moves.py`` has what may happen next, ``explore.py`` tries
everything in every order and checks the promises.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Word(enum.Enum):
    """A word of the model. Each is one object: it is hashed as such, which costs the least."""

    __hash__ = object.__hash__


class Kind(Word):
    MODEL = "model"
    """May start while earlier outcomes are in flight; handed on when its own is durable."""
    TOOL = "tool"
    """``rerun`` tool, function node or step: starts behind the barrier, handed on at once."""
    FAIL = "fail"
    """A tool that must not run twice: intent first, handed on when durable."""
    ASK = "ask"
    """The same, and somebody is asked what became of it."""


ONCE = (Kind.FAIL, Kind.ASK)
"""Whose bodies are entered by whoever inserted the intent."""


class Fails(Word):
    NEVER = "never"
    RAISES = "raises"
    """Its failure leaves the root and ends the attempt."""
    HANDLED = "handled"
    """The agent goes on with the failure, as with any result."""


class Call(NamedTuple):
    name: str
    kind: Kind
    reads: tuple[str, ...] = ()
    """Calls of other branches whose results it sees if they were handed on by then."""
    fails: Fails = Fails.NEVER


class Step(NamedTuple):
    branches: tuple[tuple[Call, ...], ...]
    """Branches run in parallel; the calls of one run in order, each resting on those before."""
    waits: tuple[str, ...] = ()
    """What it ends with: a frontier of these, or (empty) the end."""

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(call for branch in self.branches for call in branch)


class Answerer(NamedTuple):
    """A client that answers one frontier: a single wait, or a whole map."""

    step: int
    values: tuple[tuple[str, str], ...]
    is_map: bool = False
    by_expiry: bool = False


@dataclass(frozen=True, eq=False)
class Program:
    """What runs, and what may go wrong while it does.

    Attributes:
        owners: How many processes compete. One that crashed, or lost, is gone.
        answerers: Clients that answer.
        may_cancel: Somebody may cancel it, once.
        good_clocks: An owner notices that its lease is over, and starts nothing more.
        lost_replies: Any write may be stored without its writer being told.
        releases: How often owners may give their lease back, as workers do that stop.
        may_stick: A failed attempt may leave it stuck, until somebody retries or closes it.
        expires: The waits of its frontiers expire, some time.
        settlers: Clients that each say once what became of a call in doubt.
        reconciles: Owners may find that out by themselves.
        failures: How many bodies may fail in all.
        max_attempts: Failed attempts after which the execution fails.
    """

    steps: tuple[Step, ...]
    owners: int = 2
    answerers: tuple[Answerer, ...] = ()
    may_cancel: bool = False
    good_clocks: bool = False
    lost_replies: bool = False
    releases: int = 0
    may_stick: bool = False
    expires: bool = False
    settlers: tuple[str, ...] = ()
    reconciles: bool = False
    failures: int = 0
    max_attempts: int = 3

    @cached_property
    def calls(self) -> dict[str, Call]:
        return {call.name: call for step in self.steps for call in step.calls}

    @cached_property
    def followers(self) -> dict[str, tuple[str, ...]]:
        """For each call, those behind it in its branch."""
        return {
            call.name: tuple(each.name for each in branch[place + 1 :])
            for step in self.steps
            for branch in step.branches
            for place, call in enumerate(branch)
        }

    @cached_property
    def read_by_others(self) -> frozenset[str]:
        return frozenset(name for call in self.calls.values() for name in call.reads)

    def step(self, number: int) -> Step:
        return self.steps[number - 1]


class Rules(NamedTuple):
    """The rules of ``PROTOCOLS.md``. A mutation switches one off."""

    ordered_log: bool = True
    barrier: bool = True
    nonce: bool = True
    """Off: an intent that is already there counts as one's own, because its content is equal."""
    doubt_takes_slot: bool = True
    token_in_step_key: bool = True
    token_filter: bool = True
    rev_guard: bool = True
    frontier_guard: bool = True
    whole_frontier: bool = True
    """Off: the waits of a frontier are committed one after the other."""
    whole_map: bool = True
    """Off: the answers of a map are stored one after the other."""
    closing_mark: bool = True
    """Off: who takes an execution in order to end it does not write that down."""
    insert_only: bool = True
    """Off: an outcome replaces the one that is there."""
    doubt_ordinal: bool = True
    """Off: every frontier of doubts of one step has the same id."""
    doubt_keeps_step: bool = True
    """Off: a frontier of doubts ends its step, as others do."""
    doubt_records_first: bool = True
    """Off: the frontier goes before its answers are records."""
    next_try: bool = True
    """Off: what was not done is tried again in the slot that its verdict has."""
    done_takes_slot: bool = True
    """Off: the result of what was done is read where it was answered."""
    reconcile_fenced: bool = True
    """Off: what an owner found out is inserted as the answer's record at once."""
    may_start: bool = True
    """Off: whoever knows that its lease is over starts bodies."""
    release_stops: bool = True
    """Off: the lease is given back while the bodies go on."""
    expiry_by_server: bool = True
    """Off: whoever answers decides by its own clock whether a wait has expired."""
    voids: str = "cause"
    """Which failed outcomes an attempt that failed gives up: of the call whose failure left the
    root (``cause``), of every call that nothing recorded follows in its branch (``unfollowed``),
    or ``all``."""


# ------------------------------------------------------------------------------- stored


class Result(NamedTuple):
    """An outcome as it is handed on. Two runs of one body never give the same value: the token
    of the attempt that ran it stands for it."""

    call: str
    attempt_try: int
    token: int
    status: str
    """``ok``, ``failed`` or ``doubt``."""


class Record(NamedTuple):
    """An outcome slot's content. Its token is the write nonce too: an attempt writes each slot
    at most once."""

    result: Result
    rests_on: frozenset[Result]

    @property
    def slot(self) -> tuple[str, int]:
        return self.result.call, self.result.attempt_try


class Intent(NamedTuple):
    call: str
    attempt_try: int
    token: int


class Document(NamedTuple):
    """A step document. Without a token in its key, ``key`` is 0 for everybody."""

    step: int
    key: int
    results: tuple[Result, ...]


class Committed(NamedTuple):
    """What a commit names: the document that counts and the records that belong to it."""

    step: int
    key: int
    records: frozenset[Result]


class Answer(NamedTuple):
    wait: str
    value: str
    by: int
    meant: str = ""
    """The wait that whoever gave it had read; empty: this one."""


class Frontier(NamedTuple):
    committed: Committed
    waits: tuple[str, ...]
    rev: int
    answers: tuple[Answer, ...]
    doubts: int = 0
    """The how-manyeth frontier of calls in doubt it is in its step; 0: of waits, it ends the step.
    Its ``waits`` are then ``call?try``."""

    @property
    def step(self) -> int:
        return self.committed.step

    @property
    def is_answered(self) -> bool:
        return len(self.answers) == len(self.waits)

    def value_of(self, wait: str) -> str | None:
        return next((answer.value for answer in self.answers if answer.wait == wait), None)


class Execution(NamedTuple):
    """The one document that is compared and set. It has no lease: one may have run out at any
    moment, so whoever is idle may take a running execution over."""

    status: str = "queued"
    token: int = 0
    step: int = 1
    committed: tuple[Committed, ...] = ()
    frontier: Frontier | None = None
    voided: frozenset[tuple[str, int]] = frozenset()
    failed_attempts: int = 0
    closing: bool = False
    cancel: bool = False
    unknown: frozenset[str] = frozenset()
    """Calls that the end says nobody can know about."""
    given_up: bool = False
    """Somebody took it in order to end it."""
    stale_commit: bool = False
    """A commit of an owner without the current token went through."""

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")


# ------------------------------------------------------------------------------- in memory


class Phase(Word):
    IDLE = "idle"
    CONTINUING = "continuing"
    RUNNING = "running"
    FAILING = "failing"
    ASKING = "asking"
    """Its verdicts stand; it finds out, or asks, what became of these calls."""
    LOADING = "loading"
    """It has closed the doubts, or found them closed, and loads what stands."""
    RELEASING = "releasing"
    CLOSING = "closing"
    UNSURE = "unsure"
    """It has sent a commit and knows nothing of it."""
    DEAD = "dead"
    """Crashed, or out of the race. What it had sent may still arrive."""


class Body(NamedTuple):
    """A body that is running."""

    call: str
    attempt_try: int
    rests_on: frozenset[Result]


class Owner(NamedTuple):
    phase: Phase = Phase.IDLE
    token: int = 0
    step: int = 0
    knows_lease_over: bool = False
    loaded: frozenset[Result] = frozenset()
    voided: frozenset[tuple[str, int]] = frozenset()
    doubtful: frozenset[str] = frozenset()
    """Calls with an intent and no outcome: each gets its verdict before anything else."""
    handed: tuple[Result, ...] = ()
    running: frozenset[Body] = frozenset()
    log: tuple[Record, ...] = ()
    """Outcomes that are not durable yet, as far as it knows."""
    cause: Result | None = None
    ends_as: str = ""
    found: tuple[Answer, ...] = ()
    """What it found out of the calls in doubt."""


class Client(NamedTuple):
    """An answerer's memory. ``seen`` is the (step, rev, answers) that it read."""

    state: str = "idle"
    """``idle``, ``seen``, ``accepted``, ``conflict`` or ``closed``."""
    seen: tuple[int, int, tuple[Answer, ...]] | None = None


class Settler(NamedTuple):
    """The memory of whoever says what became of a call. ``seen``: (step, frontier, rev, place)."""

    state: str = "idle"
    """``idle``, ``seen`` or ``accepted``."""
    seen: tuple[int, int, int, int] | None = None
    wait: str = ""


class Start(NamedTuple):
    """A line of the ledger: a body was entered."""

    call: str
    attempt_try: int
    token: int
    rests_on: frozenset[Result]


class World(NamedTuple):
    records: frozenset[Record]
    intents: frozenset[Intent]
    documents: frozenset[Document]
    wait_records: frozenset[tuple[int, str, str]]
    execution: Execution
    owners: tuple[Owner, ...]
    clients: tuple[Client, ...]
    starts: frozenset[Start]
    failures: int = 0
    settlers: tuple[Settler, ...] = ()
    told: frozenset[Answer] = frozenset()
    """What became of calls in doubt: records of the open step, one for each ``call?try``."""
    released: int = 0
    expired: bool = False
    """By the server's clock."""

    @property
    def settled(self) -> frozenset[tuple[str, int]]:
        """The slots whose doubt is settled."""
        return frozenset(doubted(answer.wait) for answer in self.told)

    def at(self, slot: tuple[str, int]) -> Record | None:
        """What stands in an outcome slot."""
        for record in self.records:
            if record.result[:2] == slot:
                return record
        return None


def first_world(program: Program) -> World:
    return World(
        records=frozenset(),
        intents=frozenset(),
        documents=frozenset(),
        wait_records=frozenset(),
        execution=Execution(),
        owners=(Owner(),) * program.owners,
        clients=(Client(),) * len(program.answerers),
        starts=frozenset(),
        settlers=(Settler(),) * len(program.settlers),
    )


def doubted(wait: str) -> tuple[str, int]:
    """The slot that a wait ``call?try`` is about."""
    call, _, attempt_try = wait.partition("?")
    return call, int(attempt_try)


def try_of(name: str, voided: frozenset[tuple[str, int]]) -> int:
    """The slot that is open for a call: behind every voided one."""
    return 1 + sum(1 for call, _ in voided if call == name)
