"""Descriptions of programs, drawn by hypothesis: random agents and workflows as plain data.

Left out by construction, since plain ADK gets it wrong or we differ on purpose:

==================================  ==============================================================
never drawn                         why
==================================  ==============================================================
a function node without output      ADK runs it again on resume
in a program that asks
SequentialAgent, ParallelAgent,     ADK takes an answer for the output of such a node; as roots
LoopAgent                           their tails never run after an answer
a transfer back in a program        ADK begins the agent's path again after an answer, and loses
that asks                           the third hand-over
a single-turn sub-agent that asks   ADK runs the next node before the answer; as the only call of
in a workflow, or beside others     a root's turn it is right, and drawn
a task below a transfer             ADK refuses it when it runs: "must have rerun_on_resume=True"
a long-running tool with a value    ADK takes its node for one that waits for ever: nothing after
in a node of a workflow, in a task  it runs, and a task that asks as well is never resumed
``max_concurrency`` where           ADK fails on resume: "Replay divergence detected: Timed out
something asks                      waiting for sequence key"
an AgentTool whose agent has a      here its agent runs in the session, so that it may wait
tool with a context, or asks
gathered children that ask          two of one name on one branch are refused here; ADK gives each
                                    the answers of both
one interrupt id for all items      refused here: ADK never goes on
of a parallel worker
``None`` as an answer               refused here: it is no answer
errors beside other work            what was in flight is cut off at a random place
==================================  ==============================================================
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

Step = dict[str, Any]

VALUES = st.sampled_from(["blue", 42, "42", {"ok": True}, ["a", 1], True, ""])
OUTPUTS = st.sampled_from(["text", 7, {"a": [1, None]}, ["x"], False, 0, ""])
PLAIN_TOOLS = ("look", "slow", "slow", "nothing", "soft")
TOOLS = {
    "quiet": PLAIN_TOOLS,
    "node": (*PLAIN_TOOLS, "note"),
    "chat": (*PLAIN_TOOLS, "note", "tell"),
}


class Drawing:
    """One program while it is drawn: names are counted, so that none is given twice."""

    def __init__(self, draw: DrawFn, *, asks: bool, parallel: bool) -> None:
        self.draw = draw
        self.asks = asks
        self.parallel = parallel
        self._count = 0

    def name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def one_of(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def chance(self) -> bool:
        return bool(self.draw(st.booleans()))

    def up_to(self, most: int, least: int = 0) -> range:
        return range(self.draw(st.integers(least, most)))

    # Agents

    def call(self, role: str) -> Step:
        if self.asks and role != "quiet" and self.chance():
            self._count += 1
            tool = self.one_of("pay", "spend")
            return {"tool": tool, "amount": 10 * self._count, "approve": self.chance()}
        tool = self.one_of(*TOOLS[role])
        return {"tool": tool, "name": self.name(tool[0])}

    def turn(self, role: str) -> Step:
        if self.asks and role != "quiet" and self.one_of(0, 0, 1):
            return {"calls": [{"tool": "later", "name": self.name("l"), "value": self.value()}]}
        count = self.up_to(3 if self.parallel else 1, 1)
        return {"calls": [self.call(role) for _ in count]}

    def value(self) -> Any:
        return self.draw(VALUES)

    def agent(self, *, mode: str | None = None, role: str = "node") -> Step:
        """An agent that calls tools, turn by turn, and then speaks or finishes its task.

        A quiet one has no tool that could ask.
        """
        name = self.name("agent")
        turns = [self.turn(role) for _ in self.up_to(2)]
        turns.append({"finish": f"{name} is done"} if mode == "task" else {"says": f"{name} done"})
        made: Step = {"kind": "agent", "name": name, "turns": turns, "quiet": role == "quiet"}
        if mode:
            made["mode"] = mode
        elif self.chance():
            made["output_key"] = f"out_{name}"
        return made

    def team(self, depth: int = 0) -> Step:
        """A chat agent that may hand over to others, or have them do something."""
        root = self.agent(role="chat")
        kinds = ["single", "agent tool"]
        kinds += ["alone", "asks itself"] if self.asks else ["there and back"]
        kinds += ["transfer"] * (depth < 2) + ["task"] * (depth == 0)
        kind = self.one_of(*kinds)
        if kind == "transfer":
            sub = self.team(depth + 1)
            root["turns"][-1] = {"transfer": sub["name"]}
            root["subs"] = [sub]
        elif kind == "there and back":
            sub = self.agent(role="chat")
            sub["turns"][-1] = {"transfer": root["name"]}
            root["turns"].insert(-1, {"transfer": sub["name"]})
            root["subs"] = [sub]
        elif kind == "task":
            self.delegate(root, "subs", self.agent(mode="task"))
        elif kind == "single":
            self.delegate(root, "subs", self.agent(mode="single_turn"))
        elif kind == "agent tool":
            self.delegate(root, "agent_tools", self.agent(role="quiet"))
        elif kind == "asks itself":
            self._count += 1
            call = {"tool": "book", "amount": 10 * self._count, "approve": self.chance()}
            root["turns"][-1:] = [{"calls": [call]}, {"says": "asked"}, root["turns"][-1]]
        return root

    def delegate(self, root: Step, kept: str, sub: Step) -> None:
        """Call a sub-agent in a turn of its own, or twice at once where nothing asks."""
        call = {"tool": sub["name"], "request": "do it"}
        twice = self.parallel and not self.asks and sub.get("mode") != "task" and self.chance()
        root["turns"].insert(-1, {"calls": [call, call] if twice else [call]})
        root[kept] = [sub]

    # Workflows

    def flow(self, depth: int = 0) -> Step:
        steps = self.chain(depth, 3 if depth == 0 else 2)
        name, at_once = self.name("flow"), None if self.asks else self.one_of(None, 1, 2)
        return {"kind": "flow", "name": name, "steps": steps, "at_once": at_once}

    def chain(self, depth: int, most: int, loop: str = "") -> list[Step]:
        return [self.step(depth, loop) for _ in self.up_to(most, 1)]

    def step(self, depth: int, loop: str = "") -> Step:
        kinds = ["fn", "fn", "agent", "dynamic", "worker"]
        if self.asks:
            kinds += ["ask", "ask", "gate"]
        if depth < 2:
            kinds += ["flow", "loop", "choice"] + ["fan", "fan"] * self.parallel
        kind = self.one_of(*kinds)
        if kind in ("fn", "ask", "gate", "agent"):
            return self.leaf(kind, loop)
        return getattr(self, kind)(depth + 1) if kind != "loop" else self.loop(depth + 1, loop)

    def leaf(self, kind: str, loop: str = "") -> Step:
        if kind == "agent":
            return self.agent(mode=self.one_of(None, None, "task"))
        step: Step = {"kind": kind, "name": self.name(kind)}
        if kind == "ask":
            step |= {"value": self.value(), "keyed": self.chance(), "loop": loop}
        elif kind == "gate":
            step["value"] = {"confirmed": self.chance()}
        else:
            step["out"] = None if not self.asks and self.one_of(0, 0, 1) else self.draw(OUTPUTS)
            step["state"] = {f"s_{step['name']}": self.value()} if self.chance() else {}
            step["form"] = self.one_of("async", "sync", "generator")
            step["fails"] = self.one_of(0, 0, 1, 2)
            step["retries"] = step["fails"] > 0
        return step

    def simple(self, loop: str = "") -> Step:
        kinds = ("fn", "agent", "ask") if self.asks else ("fn", "agent")
        return self.leaf(self.one_of(*kinds), loop)

    def fan(self, depth: int) -> Step:
        branches = [
            [self.simple(), *(self.step(depth) for _ in self.up_to(1))] for _ in self.up_to(3, 2)
        ]
        return {"kind": "fan", "name": self.name("join"), "branches": branches}

    def loop(self, depth: int, outer: str) -> Step:
        name = self.name("loop")
        # In a loop in a loop the outer count does not tell the rounds apart.
        body = [self.simple(name), *(self.step(2, name) for _ in self.up_to(1))]
        return {"kind": "loop", "name": name, "rounds": self.one_of(1, 2, 3), "body": body}

    def choice(self, depth: int) -> Step:
        routes = {
            route: [self.simple(), *(self.step(depth) for _ in self.up_to(1))] for route in "ab"
        }
        name, taken = self.name("choice"), self.one_of("a", "b")
        return {"kind": "choice", "name": name, "taken": taken, "routes": routes}

    def dynamic(self, depth: int) -> Step:
        children = [self.simple() for _ in self.up_to(2)]
        if depth < 2 and self.chance():
            children.append(self.flow(2))
        gathered = len(self.up_to(3)) if self.parallel else 0
        name = self.name("runner")
        return {"kind": "dynamic", "name": name, "children": children, "gathered": gathered}

    def worker(self, depth: int) -> Step:
        items = [f"i{n}" for n in self.up_to(3 if self.parallel else 1, 1)]
        child = self.simple()
        if child["kind"] == "agent":
            child = {**self.agent(), "items": items}
        elif child["kind"] == "ask":
            child["keyed"] = False
        at_once = self.one_of(None, 1, 2)
        name = self.name("worker")
        return {"kind": "worker", "name": name, "items": items, "child": child, "at_once": at_once}


@st.composite
def programs(draw: DrawFn) -> dict[str, Any]:
    """A program: its root, and the messages of its turns."""
    kind = draw(st.sampled_from(["asks", "asks alone", "asks nothing", "fails"]))
    if kind == "fails":
        return draw(failing_programs())
    drawing = Drawing(draw, asks=kind != "asks nothing", parallel=kind != "asks alone")
    root = drawing.flow() if draw(st.sampled_from([True, True, False])) else drawing.team()
    return {"root": root, "messages": draw(st.sampled_from([["go"], ["go", "again"]]))}


@st.composite
def failing_programs(draw: DrawFn) -> dict[str, Any]:
    """One that ends in an error: nothing beside it, since what was in flight would be cut off."""
    drawing = Drawing(draw, asks=draw(st.booleans()), parallel=False)
    if draw(st.booleans()):
        root = drawing.agent(role="chat")
        root["turns"].insert(-1, {"calls": [{"tool": "boom", "name": drawing.name("b")}]})
    else:
        root = drawing.flow()
        root["steps"].append(drawing.leaf("fn") | {"fails": 9, "retries": draw(st.booleans())})
    return {"root": root, "messages": ["go"]}
