"""Rows R11, R12, E8, W14 and S3 of the case list, and toolsets that cannot be listed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, Workflow
from google.genai import types

from durable_adk.adk.scripted_model import calls, says
from tests.cases.conftest import approve
from tests.faults.catalogue import agent
from tests.faults.differences import differences
from tests.shapes.tools import PNG, SHAPES, mcp_toolset
from tests.support.lives import DIED, Case, Ledger, Life, World, points_of

pytestmark = pytest.mark.timeout(600)

MODES = pytest.mark.parametrize("mode", ["restore", "walk"])


@pytest.fixture
def world_of(replica_set_uri: str, database: str, tmp_path: Path) -> Callable[[str], World]:
    return lambda mode: World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)


def killed(world: World, case: Case, *, at_most: int) -> tuple[Life, list[tuple[str, Life]]]:
    """The undisturbed life, and lives that were cut off at points spread over all of it."""
    undisturbed = world.live(case)
    points = [
        (attempt, point)
        for attempt, reached in enumerate(undisturbed.reached, 1)
        for point in points_of(reached)
    ]
    chosen = points[:: -(-len(points) // at_most)]
    return undisturbed, [
        (f"{attempt}: {point}", world.live(case, kill=(attempt, point)))
        for attempt, point in chosen
    ]


# ---------------------------------------------------------------- R11: cached and fresh lists


class Listed(BaseToolset):
    """Keeps its list as a client of a remote server does; listing takes a moment."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(tool_name_prefix="far")
        self._use_invocation_cache = False
        self._ledger = ledger
        self.kept: list[BaseTool] | None = None

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        if self.kept is None:
            await asyncio.sleep(0.01)
            self.kept = self.made()
        return self.kept

    def made(self) -> list[BaseTool]:
        async def look(q: str) -> str:
            """Look."""
            self._ledger.add("tool", "look", q)
            await asyncio.sleep(0.002)
            return q

        def pay(amount: int) -> str:
            """Pay."""
            self._ledger.add("tool", "pay", amount)
            return "paid"

        return [FunctionTool(look), FunctionTool(pay, require_confirmation=True)]


def far(ledger: Ledger, warm: Callable[[int], bool]) -> Any:
    attempt = sum(row == ("attempt",) for row in ledger.rows())
    ledger.add("attempt")
    toolset = Listed(ledger)
    if warm(attempt):
        toolset.kept = toolset.made()
    return agent(
        ledger,
        "root",
        calls(("far_look", {"q": "a"}), ("far_look", {"q": "b"})),
        calls(("far_pay", {"amount": 1}), ("far_look", {"q": "c"})),
        says("done"),
        tools=[toolset],
    )


@pytest.mark.parametrize("first", ["warm", "cold"])
@MODES
def test_a_cached_tool_list_and_a_fresh_one_lead_to_the_same_positions(
    world_of: Callable[[str], World], mode: str, first: str
) -> None:
    """R11: warm then cold, and cold then warm."""

    def warm(attempt: int) -> bool:
        return (attempt % 2 == 0) == (first == "warm")

    case = Case(build=lambda ledger: far(ledger, warm), in_flight=4)
    undisturbed, lives = killed(world_of(mode), case, at_most=5)
    assert undisturbed.status == ["completed"]
    for where, life in lives:
        for ledger in (life.ledger, undisturbed.ledger):
            del ledger[("attempt",)]
        assert differences(case, undisturbed, life, where) == [], where


# ---------------------------------------------------------------- R12 and S3


@MODES
def test_what_a_tool_did_to_the_session_comes_back_with_its_record(
    world_of: Callable[[str], World], mode: str
) -> None:
    """R12: state, an artifact, a transfer and a skipped summary; no version twice."""
    case = SHAPES["tools that act on the session"]
    undisturbed, lives = killed(world_of(mode), case, at_most=9)
    assert undisturbed.state["saved"] == ["a", "b"]
    assert undisturbed.state["user:last"] == "b"
    assert undisturbed.ledger[("tool", "show", "b", "a", "b")] == 1
    assert versions(undisturbed) == [0, 0]
    for where, life in lives:
        bodies = [life.ledger[("tool", "save", name)] for name in "ab"]
        assert versions(life) == [ran - 1 for ran in bodies], where
        if max(bodies) == 1:  # it died where no save was under way
            assert differences(case, undisturbed, life, where) == [], where
    assert sum(max(versions(life)) == 0 for _, life in lives) > len(lives) / 2


def versions(life: Life) -> list[int]:
    """The version that the events name, by file."""
    found: dict[str, int] = {}
    for event in life.events:
        found.update(event.get("actions", {}).get("artifact_delta", {}))
    return [found["a.txt"], found["b.txt"]]


@MODES
def test_a_loop_that_a_tool_ended_stays_ended(world_of: Callable[[str], World], mode: str) -> None:
    """R12: ``escalate`` comes back with the record of the tool that set it."""
    case = SHAPES["a tool that ends a loop"]
    undisturbed, lives = killed(world_of(mode), case, at_most=5)
    assert undisturbed.state["rounds"] == 2
    for where, life in lives:
        assert life.status == ["completed"], where
        assert life.state == undisturbed.state, where
        assert not set(life.ledger) - set(undisturbed.ledger), where


@MODES
def test_parallel_tools_in_parallel_branches_keep_all_their_state(
    world_of: Callable[[str], World], mode: str
) -> None:
    """S3."""
    case = SHAPES["parallel tools in parallel branches write state"]
    undisturbed, lives = killed(world_of(mode), case, at_most=5)
    keys = {f"{branch}{n}" for branch in "ab" for n in (1, 2, 3)}
    assert keys <= set(undisturbed.state)
    for where, life in lives:
        assert life.state == undisturbed.state, where


# ---------------------------------------------------------------- E8: record first


class Watches(BasePlugin):
    """Ends the process in a hook, the first time."""

    def __init__(self, ledger: Ledger, hook: str) -> None:
        super().__init__("watches")
        self._hook = hook
        self._ledger = ledger

    async def after_tool_callback(self, **named: Any) -> None:
        if self._hook == "after_tool":
            await dies(self._ledger, named["tool_args"])

    async def on_tool_error_callback(self, **named: Any) -> dict[str, Any] | None:
        if self._hook == "on_tool_error":
            await dies(self._ledger, named["tool_args"])
        return {"error": "seen"}


async def dies(ledger: Ledger, args: dict[str, Any]) -> None:
    """The end of the process, once: at once, so that nothing is written meanwhile."""
    is_first = ("hook", args["how"]) not in ledger.rows()
    ledger.add("hook", args["how"])
    if args["how"] == "last" and is_first:
        os._exit(DIED)
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("who", ["agent", "plugin"])
@pytest.mark.parametrize("hook", ["after_tool", "on_tool_error"])
@MODES
def test_what_a_hook_after_the_tool_sees_is_recorded(
    world_of: Callable[[str], World], mode: str, hook: str, who: str
) -> None:
    """E8: the process dies in the hook; the body is not entered again."""

    def build(ledger: Ledger) -> Any:
        async def act(how: str) -> str:
            """Act."""
            ledger.add("tool", how)
            if hook == "on_tool_error":
                raise ValueError(how)
            return how

        async def after(tool: Any, args: Any, tool_context: Any, tool_response: Any) -> None:
            await dies(ledger, args)

        async def failed(tool: Any, args: Any, tool_context: Any, error: Any) -> Any:
            await dies(ledger, args)
            return {"error": str(error)}

        hooks: dict[str, Any] = {}
        if who == "agent":
            hooks = {"after_tool_callback": after} if hook == "after_tool" else {}
            hooks = hooks or {"on_tool_error_callback": failed}
        script = [calls(("act", {"how": "first"})), calls(("act", {"how": "last"})), says("done")]
        return agent(ledger, "root", *script, tools=[act], **hooks)

    def app(ledger: Ledger) -> dict[str, Any]:
        return {"plugins": [Watches(ledger, hook)]} if who == "plugin" else {}

    life = world_of(mode).live(Case(build=build, app=app), kill=(1, ("in the hook", 1)))
    assert life.killed_at is not None
    assert life.status == ["completed"]
    assert life.ledger[("tool", "first")] == life.ledger[("tool", "last")] == 1
    assert life.ledger[("hook", "last")] == 2


# ---------------------------------------------------------------- W14: declined


@MODES
def test_the_body_of_a_declined_tool_never_runs(
    world_of: Callable[[str], World], mode: str
) -> None:
    case = SHAPES["a tool that is declined"]
    undisturbed, lives = killed(world_of(mode), case, at_most=5)
    for where, life in [("undisturbed", undisturbed), *lives]:
        assert life.status == ["completed"], where
        assert ("tool", "weigh", "ring") not in life.ledger, where
        assert differences(case, undisturbed, life, where) == [], where


# ---------------------------------------------------------------- toolsets that fail to list


class Shaky(BaseToolset):
    """One tool, listed anew for each model turn, or not."""

    def __init__(
        self,
        ledger: Ledger,
        tool: str = "look",
        *,
        fails: Callable[[int], bool],
        asks: bool = False,
    ) -> None:
        super().__init__()
        self._use_invocation_cache = False
        self._ledger, self._tool, self._fails, self._asks = ledger, tool, fails, asks

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        listing = sum(row[:2] == ("list", self._tool) for row in self._ledger.rows())
        self._ledger.add("list", self._tool, listing)
        await asyncio.sleep(0.002)
        if self._fails(listing):
            raise ConnectionError(f"no server for {self._tool}")

        def tool(q: str) -> str:
            """Look."""
            self._ledger.add("tool", self._tool, q)
            return q

        tool.__name__ = self._tool
        return [FunctionTool(tool, require_confirmation=self._asks)]


def bodies(ledger: Ledger) -> list[tuple[Any, ...]]:
    return [row for row in ledger.rows() if row[0] == "tool"]


async def invoke(app: Any, **named: Any) -> Any:
    return await app.invoke(user_id="u", session_id="s", message="go", execution_id="x", **named)


@MODES
async def test_a_toolset_with_recorded_calls_that_cannot_be_listed_ends_the_attempt(
    make_app: Any, ledger: Ledger, clock: Any, mode: str
) -> None:
    """The second turn's listing fails three times; then the server is back."""
    toolset = Shaky(ledger, fails=lambda listing: listing in (1, 2, 3))
    root = agent(
        ledger, "root", calls(("look", {"q": "a"})), calls(("look", {"q": "b"})), says("done"),
        tools=[toolset],
    )  # fmt: skip
    app = make_app(root, mode=mode)
    for _ in range(3):
        out = await invoke(app)
        assert (out.status, out.error.type) == ("queued", "Unavailable")
        assert "Shaky" in out.error.message
        assert "no server for look" in out.error.message
        assert "look" in out.error.message.rpartition("called")[2]
    out = await invoke(app)
    assert (out.status, out.response) == ("completed", "done")
    assert bodies(ledger) == [("tool", "look", "a"), ("tool", "look", "b")]
    models = [row for row in ledger.rows() if row[0] == "model"]
    assert models == [("model", "root", 0), ("model", "root", 1), ("model", "root", 2)]


async def test_an_attempt_that_ends_so_backs_off_and_a_worker_goes_on(
    make_app: Any, ledger: Ledger, clock: Any
) -> None:
    toolset = Shaky(ledger, fails=lambda listing: listing == 1)
    root = agent(ledger, "root", calls(("look", {"q": "a"})), says("done"), tools=[toolset])
    app = make_app(root)
    assert (await invoke(app)).status == "queued"
    await app.recover()
    assert (await app.executions.get("x")).status == "queued", "it is not due yet"
    clock.advance(60_000)
    await app.recover()
    assert (await app.executions.get("x")).status == "completed"
    assert bodies(ledger) == [("tool", "look", "a")]


async def test_another_toolset_that_cannot_be_listed_is_left_out_as_in_adk(
    make_app: Any, ledger: Ledger
) -> None:
    """Also if the model has called something that nobody has."""
    used = Shaky(ledger, fails=lambda _: False)
    broken = Shaky(ledger, "other", fails=lambda _: True)
    root = agent(
        ledger, "root", calls(("look", {"q": "a"}), ("nowhere", {"q": "b"})), says("done"),
        tools=[used, broken],
    )  # fmt: skip
    out = await invoke(make_app(root))
    assert (out.status, out.response) == ("completed", "done")
    assert bodies(ledger) == [("tool", "look", "a")]


async def test_of_two_toolsets_of_a_class_only_the_one_that_was_called_counts(
    make_app: Any, ledger: Ledger
) -> None:
    unused = Shaky(ledger, "other", fails=lambda listing: listing >= 1)
    used = Shaky(ledger, fails=lambda _: False)
    root = agent(ledger, "root", calls(("look", {"q": "a"})), says("done"), tools=[unused, used])
    assert (await invoke(make_app(root))).status == "completed"


@MODES
async def test_an_approved_tool_whose_toolset_cannot_be_listed_waits_for_it(
    make_app: Any, ledger: Ledger, mode: str
) -> None:
    """ADK fails: the tool that was approved "is not registered"."""
    toolset = Shaky(ledger, fails=lambda listing: listing == 1, asks=True)
    root = agent(ledger, "root", calls(("look", {"q": "a"})), says("done"), tools=[toolset])
    app = make_app(root)
    out = await invoke(app)
    assert out.status == "suspended"
    out = await app.resume("x", approve(out))
    assert (out.status, out.error.type) == ("queued", "Unavailable")
    assert bodies(ledger) == []
    out = await invoke(app)
    assert (out.status, out.response) == ("completed", "done")
    assert bodies(ledger) == [("tool", "look", "a")]


@MODES
def test_a_call_that_was_cut_off_waits_for_its_toolset(
    world_of: Callable[[str], World], mode: str
) -> None:
    """Killed in the body: the call is recorded with the model's response, an outcome is not."""

    def build(ledger: Ledger) -> Any:
        toolset = Shaky(ledger, fails=lambda listing: listing == 1)
        return agent(ledger, "root", calls(("look", {"q": "a"})), says("done"), tools=[toolset])

    life = world_of(mode).live(Case(build=build), kill=(1, ("in: tool look", 1)))
    assert life.status == ["completed"]
    (answer,) = (
        part["function_response"]["response"]
        for event in life.events
        for part in event.get("content", {}).get("parts", ())
        if "function_response" in part
    )
    assert answer == {"result": "a"}, "not 'tool not found'"


async def test_turns_that_restore_skips_need_no_server(make_app: Any, ledger: Ledger) -> None:
    toolset = Shaky(ledger, fails=lambda listing: listing >= 2)

    async def ask(ctx: Any, node_input: Any) -> Any:
        from google.adk.events import RequestInput

        if "q1" in ctx.resume_inputs:
            yield "answered"
            return
        yield RequestInput(interrupt_id="q1", message="?")

    looker = agent(ledger, "looker", calls(("look", {"q": "a"})), says("done"), tools=[toolset])
    asker = FunctionNode(func=ask, name="ask", rerun_on_resume=True)
    root = Workflow(name="flow", edges=[(START, looker), (looker, asker)])
    out = await invoke(make_app(root))
    assert out.status == "suspended"
    listings = len(ledger.rows())
    out = await make_app(root).resume("x", approve(out))
    assert out.status == "completed"
    assert len(ledger.rows()) == listings, "nothing is listed, and nothing runs"


async def test_walking_over_turns_needs_the_server(make_app: Any, ledger: Ledger) -> None:
    toolset = Shaky(ledger, fails=lambda listing: listing == 2)
    plain = Shaky(ledger, "pay", fails=lambda _: False, asks=True)
    root = agent(
        ledger, "root", calls(("look", {"q": "a"})), calls(("pay", {"q": "b"})), says("done"),
        tools=[toolset, plain],
    )  # fmt: skip
    out = await invoke(make_app(root, mode="walk"))
    assert out.status == "suspended"
    out = await make_app(root, mode="walk").resume("x", approve(out))
    assert (out.status, out.error.type) == ("queued", "Unavailable")
    out = await invoke(make_app(root, mode="walk"))
    assert out.status == "completed"
    assert bodies(ledger) == [("tool", "look", "a"), ("tool", "pay", "b")]


def test_an_mcp_server_that_is_gone_is_waited_for(world_of: Callable[[str], World]) -> None:
    """A real one on stdio: killed after its call, its server then ends at once, twice."""

    def build(ledger: Ledger) -> Any:
        closed = Path(f"{ledger.path}.closed")
        attempt = sum(row == ("attempt",) for row in ledger.rows())
        ledger.add("attempt")
        if attempt in (1, 2):
            closed.touch()
        else:
            closed.unlink(missing_ok=True)
        script = [calls(("weigh", {"thing": "a"})), calls(("weigh", {"thing": "bb"})), says("done")]
        return agent(ledger, "root", *script, tools=[mcp_toolset(ledger)])

    life = world_of("restore").live(Case(build=build), kill=(1, ("in: tool weigh", 2)))
    assert life.status == ["completed"]
    assert life.ledger[("attempt",)] >= 4
    assert life.ledger[("mcp", "weigh", "a")] == life.ledger[("mcp", "weigh", "bb")] == 1


# ---------------------------------------------------------------- media


async def test_media_that_a_tool_returns_is_the_same_live_and_on_replay(
    make_app: Any, ledger: Ledger
) -> None:
    """ADK takes parts out of the result and hands them to the model as such."""
    seen: list[Any] = []
    fails = [RuntimeError("once")]

    def draw(q: str) -> Any:
        """Draw."""
        ledger.add("tool", "draw", q)
        return {"text": q, "image": types.Part.from_bytes(data=PNG, mime_type="image/png")}

    def choose(request: Any, turn: int) -> Any:
        if turn == 0:
            return calls(("draw", {"q": "a"}))
        (response,) = (
            part.function_response
            for content in request.contents
            for part in content.parts
            if part.function_response
        )
        seen.append((response.response, [part.inline_data.data for part in response.parts]))
        return fails.pop() if fails else says("done")

    made = agent(ledger, "root", tools=[draw])
    model: Any = made.model
    model.script = choose
    app = make_app(made, config={"retry": {"backoff": "1ms"}})
    out = await invoke(app)
    assert out.status == "queued"
    assert (await invoke(app)).status == "completed"
    assert seen == [({"text": "a"}, [PNG])] * 2
    assert bodies(ledger) == [("tool", "draw", "a")]
