"""Small programs that between them meet every rule."""

from __future__ import annotations

from tests.protocol.world import Answerer, Call, Fails, Kind, Program, Step

MODEL, TOOL, FAIL, ASK = Kind.MODEL, Kind.TOOL, Kind.FAIL, Kind.ASK

ONE_BRANCH = Program(
    steps=(Step(((Call("m1", MODEL), Call("t1", TOOL), Call("m2", MODEL), Call("t2", TOOL)),)),),
    lost_replies=True,
)
"""An agent that calls its model and a tool, twice."""

TWO_BRANCHES = Program(
    steps=(Step(((Call("m1", MODEL), Call("t1", TOOL)), (Call("n2", TOOL, reads=("t1",)),))),),
)
"""A node beside an agent; it reads state that the agent's tool sets."""

FAIL_TOOL = Program(
    steps=(Step(((Call("m1", MODEL), Call("f1", FAIL)),)),),
    lost_replies=True,
)
"""An agent whose tool must not run twice."""

FAIL_TOOL_BESIDE = Program(
    steps=(Step(((Call("f1", FAIL),), (Call("n2", TOOL, fails=Fails.RAISES),))),),
    failures=1,
)
"""The same beside a node that may fail, and then cancels it."""

RIVALS = Program(
    steps=(
        Step(((Call("t1", TOOL),),), waits=("w1", "w2")),
        Step(((Call("t2", TOOL),),)),
    ),
    answerers=(
        Answerer(1, (("w1", "yes"),)),
        Answerer(1, (("w2", "yes"),)),
        Answerer(1, (("w1", "no"), ("w2", "yes")), is_map=True),
    ),
    lost_replies=True,
)
"""Two steps; single answers and a map that contradicts one of them, all at once."""

TWO_FRONTIERS = Program(
    steps=(Step((), waits=("w",)), Step((), waits=("w",)), Step(())),
    answerers=(
        Answerer(1, (("w", "yes"),)),
        Answerer(1, (("w", "no"),)),
        Answerer(2, (("w", "later"),)),
    ),
)
"""Two frontiers with waits of the same name: an answer may arrive one frontier too late."""

CANCELLED = Program(
    steps=(
        Step(((Call("m1", MODEL), Call("f1", FAIL)),), waits=("w",)),
        Step(((Call("t2", TOOL),),)),
    ),
    answerers=(Answerer(1, (("w", "yes"),)),),
    may_cancel=True,
)
"""Cancelled at any point: while it runs, while it waits, after its owner died."""

FAILING = Program(
    steps=(
        Step(
            (
                (
                    Call("t1", TOOL, fails=Fails.HANDLED),
                    Call("m2", MODEL, fails=Fails.RAISES),
                    Call("f3", FAIL, fails=Fails.RAISES),
                ),
            )
        ),
    ),
    failures=2,
    max_attempts=2,
)
"""One branch in which anything may fail; the agent handles the first failure itself."""

BOTH_FAIL = Program(
    steps=(
        Step(((Call("t1", TOOL, fails=Fails.RAISES),), (Call("n2", TOOL, fails=Fails.RAISES),))),
    ),
    failures=2,
    max_attempts=2,
)
"""Two branches whose failures both leave the root; one of them is first."""

HANDLED_BESIDE = Program(
    steps=(
        Step(
            (
                (Call("n1", TOOL, fails=Fails.HANDLED), Call("n2", TOOL)),
                (Call("n3", TOOL, fails=Fails.RAISES),),
            )
        ),
    ),
    failures=2,
    max_attempts=2,
)
"""A node's failure is handled and followed by an effect; a sibling's failure ends the attempt."""

ASKED = Program(
    steps=(Step(((Call("a1", ASK), Call("t2", TOOL)),)),),
    owners=3,
    settlers=("not_done", "done"),
)
"""A call that somebody is asked about, twice, and an effect that rests on it."""

ASKED_BESIDE = Program(
    steps=(Step(((Call("a1", ASK),), (Call("a2", ASK),))),),
    settlers=("done", "not_done"),
    good_clocks=True,
)
"""Two calls in doubt at once."""

FOUND_OUT = Program(
    steps=(Step(((Call("a1", ASK), Call("t2", TOOL)),)),),
    owners=3,
    settlers=("done",),
    reconciles=True,
)
"""Owners find out, or ask; a slow one finds out while somebody answers."""

ASKED_AND_WAITS = Program(
    steps=(Step(((Call("a1", ASK),),), waits=("w",)), Step(())),
    settlers=("done",),
    answerers=(Answerer(1, (("w", "yes"),)),),
    may_cancel=True,
)
"""A frontier of doubts, then one of waits, in one step; cancelled at any point."""

RELEASED = Program(
    steps=(Step(((Call("m1", MODEL), Call("f1", FAIL)),), waits=("w",)), Step(())),
    answerers=(Answerer(1, (("w", "yes"),)),),
    releases=1,
    good_clocks=True,
)
"""Given back at any point: while it runs, ends, goes on."""

RELEASED_AND_CLOSED = Program(
    steps=(Step(((Call("t1", TOOL, fails=Fails.RAISES),),)),),
    releases=1,
    may_cancel=True,
    may_stick=True,
    failures=1,
)
"""Given up, retried, cancelled and given back, also by whoever ends it."""

EXPIRING = Program(
    steps=(Step((), waits=("w1", "w2")), Step(())),
    answerers=(
        Answerer(1, (("w1", "yes"),)),
        Answerer(1, (("w1", "yes"), ("w2", "yes")), is_map=True),
        Answerer(1, (("w1", "expired"), ("w2", "expired")), by_expiry=True),
    ),
    expires=True,
    lost_replies=True,
)
"""Answers and the expiry of their waits, all at once, by clients whose clocks say anything."""
