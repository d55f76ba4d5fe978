"""Small programs that between them meet every rule."""

from __future__ import annotations

from tests.protocol.world import Answerer, Call, Fails, Kind, Program, Step

MODEL, TOOL, FAIL = Kind.MODEL, Kind.TOOL, Kind.FAIL

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
