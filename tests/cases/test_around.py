"""What surrounds agents: code executors, artifacts, compaction, and ADK's ``App``."""

from __future__ import annotations

import asyncio
import collections
import copy
import random
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from google.adk.agents import LlmAgent, RunConfig
from google.adk.apps import App as AdkApp
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.artifacts import BaseArtifactService, FileArtifactService, InMemoryArtifactService
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult
from google.adk.plugins.save_files_as_artifacts_plugin import SaveFilesAsArtifactsPlugin
from google.adk.workflow import START, FunctionNode, JoinNode, RetryConfig, Workflow
from google.genai import types

from durable_adk import App
from durable_adk.adk import _seam, artifacts
from durable_adk.adk.scripted_model import ScriptedModel, calls, says
from durable_adk.testing import memory_client
from tests.adapter.stock import Stock, user
from tests.adapter.test_stock import answer_event, places
from tests.cases.conftest import approve
from tests.faults.catalogue import Tools, agent
from tests.faults.differences import differences
from tests.shapes.around import CSV, PNG, SHAPES, Sandbox, by_outputs, code, texts
from tests.shapes.shape import Shape, wrong
from tests.support.lives import Ledger, Life, World, default_answer, points_of

pytestmark = pytest.mark.timeout(600)

KILLED = [
    "code in a sandbox",
    "code of two agents at once",
    "code that the model runs",
    "artifacts that callbacks save",
    "summaries of turns",
    "summaries by tokens",
    "summaries of one's own",
]
AROUND = ("Sandbox", "save_artifact", "summary", "Counting")
"""What the names of the bodies of these have in them."""


def without_times(life: Life) -> Life:
    for event in life.events:
        for field in ("start_timestamp", "end_timestamp"):
            event.get("actions", {}).get("compaction", {}).pop(field, None)
    return life


def without_versions(life: Life) -> Life:
    """A save of which nobody knows whether it was done is done again: another version."""
    for event in life.events:
        made = event.get("actions", {}).get("artifact_delta", {})
        made.update(dict.fromkeys(made, 0))
        event.get("actions", {}).get("state_delta", {}).pop("version", None)
    life.state.pop("version", None)
    return life


@pytest.mark.parametrize("mode", ["restore", "walk"])
@pytest.mark.parametrize("name", KILLED)
def test_a_kill_around_what_is_recorded_changes_nothing(
    name: str,
    mode: str,
    replica_set_uri: str,
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Before, in and after the body of a code executor, a save, a summary. Every such point with
    ``--all-points``, else some."""
    world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
    shape = SHAPES[name]
    undisturbed = without_times(world.live(shape))
    assert wrong(shape, undisturbed) == []
    everywhere = [(a, p) for a, got in enumerate(undisturbed.reached, 1) for p in points_of(got)]
    ours = [one for one in everywhere if any(part in one[1][0] for part in AROUND)]
    draw = random.Random(f"{request.config.getoption('--fault-seed')} {name} {mode}")
    if request.config.getoption("--all-points"):
        chosen = everywhere
    else:
        chosen = draw.sample(ours, min(2, len(ours)))
    bad, kills = [], 0
    for attempt, point in sorted(chosen):
        life, expected = without_times(world.live(shape, kill=(attempt, point))), undisturbed
        kills += life.killed_at is not None
        if shape.bumps:  # a save of another branch may be in flight wherever the kill is
            life, expected = without_versions(life), without_versions(copy.deepcopy(expected))
        bad += [f"{attempt}: {point}: {d}" for d in differences(shape, expected, life, point[0])]
    assert not bad, "\n".join(bad)
    assert kills


# ---------------------------------------------------------------- held against plain ADK


SAME = [
    "code in a sandbox",
    "code that keeps its state",
    "code in a local process",
    "code that the model runs",
    "artifacts that callbacks save",
    "artifacts that tools save",
    "summaries by the agent's model",
    "summaries of one's own",
    "summaries of turns",
    "a planner",
    "a model that thinks",
    "instructions that are functions",
    "typed input and output",
    "a state schema",
    "state scopes",
    "memory",
]


async def plain(shape: Shape, ledger: Ledger) -> Stock:
    named = dict(shape.app(ledger)) if shape.app is not None else {}
    stock = Stock(shape.build(ledger), **named)
    for turn, message in enumerate(shape.messages):
        await stock.run(user(message), f"e{turn}")
        for _ in range(5):
            session = await stock.session()
            answered = {r.id for e in session.events for r in e.get_function_responses()}
            asked = [(c, e) for c, e in stock.open_calls() if c.id not in answered]
            if not asked:
                break
            for call, event in asked:
                await stock.service.append_event(session, answer_event(shape, call, event))
            await stock.run(None, f"e{turn}")
    return stock


def timeless(events: Any) -> dict[Any, list[str]]:
    for event in events:
        if event.actions.compaction is not None:
            event.actions.compaction.start_timestamp = event.actions.compaction.end_timestamp = 0.0
    return places(events)


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")  # ADK's own AgentTool
@pytest.mark.parametrize("name", SAME)
async def test_a_durable_run_leaves_what_plain_adk_leaves(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    theirs, ours = Ledger(tmp_path / "theirs"), Ledger(tmp_path / "ours")
    session = await (await plain(shape, theirs)).session()
    config = {"features": {"durable_workflow": True}}
    named = dict(shape.app(ours)) if shape.app is not None else {}
    root = shape.build(ours)
    async with App("t", root_agent=root, config=config, mongodb=memory_client(), **named) as app:
        for message in shape.messages:
            out = await app.invoke(user_id="u", session_id="s", message=message)
            while out.status == "suspended":
                answers = {wait.id: default_answer(wait.to_dict()) for wait in out.waits}
                out = await app.resume(out.execution_id, answers)
            assert out.status == "completed"
        events = await app.sessions.events(user_id="u", session_id="s")
        state = (await app.sessions.get(user_id="u", session_id="s")).state
    without_ids = [collections.Counter(row[:2] for row in one.rows()) for one in (ours, theirs)]
    assert without_ids[0] == without_ids[1]
    assert timeless(events) == timeless(session.events)
    assert state == {k: v for k, v in session.state.items() if not k.startswith("temp:")}


# ---------------------------------------------------------------- code executors


def coder(ledger: Ledger, *script: Any, **fields: Any) -> LlmAgent:
    sandbox = Sandbox(ledger=str(ledger.path), **fields)
    return by_outputs(ledger, "coder", *script, code_executor=sandbox)


def down_once(llm: LlmAgent, at: str) -> LlmAgent:
    """Let the model fail the first time that it is asked with this text."""
    model: Any = llm.model
    given, fails = model.script, [RuntimeError("down")]

    def script(request: Any, turn: int) -> Any:
        if fails and at in texts(request):
            return fails.pop()
        return given(request, turn) if callable(given) else given[min(turn, len(given) - 1)]

    model.script = script
    return llm


async def recovered(app: App, clock: Any) -> Any:
    clock.advance(60_000)
    (out,) = await app.recover()
    assert out.status == "completed", out.error
    return out


async def test_a_file_of_the_message_is_explored_once(make_app, ledger, clock) -> None:
    root = down_once(coder(ledger, says("done"), optimize_data_file=True), "ran explore")
    app = make_app(root, artifact_service=InMemoryArtifactService())
    parts = [types.Part(text="go"), types.Part.from_bytes(data=CSV, mime_type="text/csv")]
    out = await app.invoke(user_id="u", message=types.Content(role="user", parts=parts))
    assert out.status == "queued"
    out = await recovered(app, clock)
    assert [row for row in ledger.rows() if row[0] == "code"] == [
        ("code", "explore", "data_1_2.csv", None)
    ]
    deltas = [event.actions.artifact_delta for event in out.events]
    assert {"explore.png": 0} in deltas


async def test_files_that_code_leaves_come_back_as_bytes(make_app, ledger, clock) -> None:
    kept = InMemoryArtifactService()
    app = make_app(
        down_once(coder(ledger, code("one"), says("done")), "ran one"), artifact_service=kept
    )
    await app.invoke(user_id="u", session_id="s", message="go")
    await recovered(app, clock)
    where = {"app_name": "cases", "user_id": "u", "session_id": "s", "filename": "one.png"}
    assert await kept.list_versions(**where) == [0]
    part = await kept.load_artifact(**where)
    assert part is not None
    assert part.inline_data is not None
    assert part.inline_data.data == PNG


async def test_code_that_fails_is_an_outcome(make_app, ledger, clock) -> None:
    """ADK lets the model try again twice; a later attempt runs none of it again."""
    root = coder(ledger, code("a"), code("b"), says("gave up"), fails=True)
    app = make_app(down_once(root, "no such name"), artifact_service=InMemoryArtifactService())
    await app.invoke(user_id="u", message="go")
    out = await recovered(app, clock)
    assert [row[1] for row in ledger.rows() if row[0] == "code"] == ["a", "b"]
    assert out.response == "gave up"


class Raises(Sandbox):
    def execute_code(self, invocation_context: Any, code_execution_input: Any) -> Any:
        super().execute_code(invocation_context, code_execution_input)
        raise KeyError("no sandbox")


async def test_an_executor_that_raises_fails_the_turn_as_in_plain_adk(make_app, ledger) -> None:
    root = by_outputs(ledger, "coder", code("a"), code_executor=Raises(ledger=str(ledger.path)))
    stock = Stock(root, artifact_service=InMemoryArtifactService())
    with pytest.raises(KeyError, match="no sandbox"):
        await stock.run(user("go"))
    app = make_app(
        root, artifact_service=InMemoryArtifactService(), config={"retry": {"max_attempts": 1}}
    )
    out = await app.invoke(user_id="u", message="go")
    assert (out.status, out.error.type) == ("failed", "KeyError")


def test_an_executor_that_must_not_run_twice_does_not(
    replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)
    shape = SHAPES["code in a sandbox"]
    policy = {"tools": {"Sandbox": {"on_unknown_outcome": "fail"}}}
    shape = Shape(build=shape.build, feature="", app=shape.app, config=policy)
    life = world.live(shape, kill=(1, ("in: tool Sandbox", 1)))
    assert life.status == ["failed"]
    life = world.live(shape, kill=(1, ("ran: tool Sandbox", 1)))
    assert life.status == ["failed"]
    assert life.ledger["code", "one", "", None] == 1


async def test_an_agent_with_an_executor_as_a_node_fails_in_plain_adk(tmp_path: Path) -> None:
    """A fault of ADK: the answer with code and the one after it are both the node's output."""
    ledger = Ledger(tmp_path / "ledger")
    flow = Workflow(name="flow", edges=[(START, coder(ledger, code("one"), says("done")))])
    stock = Stock(flow, artifact_service=InMemoryArtifactService())
    with pytest.raises(ValueError, match="Output already set"):
        await stock.run(user("go"))


async def test_a_cancelled_execution_leaves_no_outcome_of_code(make_app, ledger, clock) -> None:
    """Its thread goes on, as in plain ADK; what it returns is nobody's."""
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Sandbox):
        def execute_code(self, invocation_context: Any, code_execution_input: Any) -> Any:
            entered.set()
            go_on.wait()
            return CodeExecutionResult(stdout="late")

    root = by_outputs(ledger, "coder", code("a"), code_executor=Slow(ledger=str(ledger.path)))
    app = make_app(root, artifact_service=InMemoryArtifactService())
    run = asyncio.create_task(app.invoke(user_id="u", message="go", execution_id="x"))
    while not entered.is_set():
        await asyncio.sleep(0.01)
    await app.close()
    go_on.set()
    await asyncio.gather(run, return_exceptions=True)
    kinds = [a.name for a in await make_app(root).executions.activities("x")]
    assert "Slow" not in kinds


# ---------------------------------------------------------------- artifacts


async def versions(kept: Any, name: str) -> list[int]:
    return await kept.list_versions(app_name="cases", user_id="u", session_id="s", filename=name)


def failing_once(ledger: Ledger, **fields: Any) -> LlmAgent:
    return down_once(agent(ledger, "root", says("done"), **fields), "go")


async def test_files_of_a_message_are_saved_once(make_app, ledger, clock) -> None:
    """By ADK's plugin, which is called again; the message stays the same, too."""
    kept = InMemoryArtifactService()
    app = make_app(
        failing_once(ledger), plugins=[SaveFilesAsArtifactsPlugin()], artifact_service=kept
    )
    blob = types.Blob(data=PNG, mime_type="image/png", display_name="a.png")
    parts = [types.Part(text="go"), types.Part(inline_data=blob)]
    message = types.Content(role="user", parts=parts)
    await app.invoke(user_id="u", session_id="s", message=message)
    await recovered(app, clock)
    assert await versions(kept, "a.png") == [0]


async def test_blobs_that_the_run_config_has_saved_are_saved_once(make_app, ledger, clock) -> None:
    kept = InMemoryArtifactService()
    app = make_app(failing_once(ledger), artifact_service=kept)
    blob = types.Blob(data=PNG, mime_type="image/png")
    message = types.Content(
        role="user", parts=[types.Part(text="go"), types.Part(inline_data=blob)]
    )
    await app.invoke(
        user_id="u",
        session_id="s",
        message=message,
        run_config=RunConfig(save_input_blobs_as_artifacts=True),
    )
    await recovered(app, clock)
    names = await kept.list_artifact_keys(app_name="cases", user_id="u", session_id="s")
    assert [await versions(kept, name) for name in names] in ([], [[0]])


async def test_what_a_callback_saves_is_saved_once_and_its_failure_is_kept(
    make_app, ledger, clock
) -> None:
    kept, seen = InMemoryArtifactService(), []

    async def save(callback_context: Any) -> None:
        part = types.Part.from_bytes(data=b"x", mime_type="text/plain")
        seen.append(await callback_context.save_artifact("note.txt", part))

    app = make_app(failing_once(ledger, before_agent_callback=save), artifact_service=kept)
    await app.invoke(user_id="u", session_id="s", message="go")
    await recovered(app, clock)
    assert seen == [0, 0]
    assert await versions(kept, "note.txt") == [0]


def test_the_artifact_service_passes_for_the_users_own(tmp_path: Path) -> None:
    own = FileArtifactService(root_dir=tmp_path)
    seen = artifacts.recorded(own)
    assert isinstance(seen, FileArtifactService)
    assert isinstance(seen, BaseArtifactService)
    assert seen.root_dir == own.root_dir
    assert artifacts.recorded(None) is None


# ---------------------------------------------------------------- compaction


def compacted(ledger: Ledger, *replies: Any) -> AdkApp:
    script = list(replies)

    def summary(_request: Any, _turn: int) -> Any:
        ledger.add("summary")
        return script.pop(0)

    config = EventsCompactionConfig(
        summarizer=LlmEventSummarizer(llm=ScriptedModel(model="summary", script=summary)),
        compaction_interval=1,
        overlap_size=0,
    )
    tools = Tools(ledger)
    script_of_root = [calls(("pay", {"amount": 1})), says("done")]
    root = agent(ledger, "root", *script_of_root, tools=[tools.confirmed_pay])
    return AdkApp(name="cases", root_agent=root, events_compaction_config=config)


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_summary_that_fails_is_an_outcome_and_the_turn_goes_on(
    make_app, ledger, mode
) -> None:
    """As in plain ADK, which logs it; a walked attempt does not ask again."""
    adk_app = compacted(ledger, RuntimeError("down"), says("in short"))
    out = await make_app(adk_app).invoke(user_id="u", message="go")
    assert out.status == "suspended"
    out = await make_app(adk_app, mode=mode).resume(out.execution_id, approve(out))
    assert (out.status, out.response) == ("completed", "done")
    assert ledger.rows().count(("summary",)) == 2
    assert [e.actions.compaction is not None for e in out.events].count(True) == 1


async def test_a_summary_is_a_model_call_of_the_execution(make_app, ledger) -> None:
    app = make_app(compacted(ledger, says("one"), says("two")))
    out = await app.invoke(user_id="u", message="go")
    await app.resume(out.execution_id, approve(out))
    made = [a for a in await app.executions.activities(out.execution_id) if a.name == "summary"]
    assert [(a.kind, a.status, a.step) for a in made] == [
        ("model", "completed", 1),
        ("model", "completed", 2),
    ]


async def test_the_settings_of_an_adk_app_stay_as_they_are(make_app, ledger) -> None:
    """ADK puts its summarizer into them: here into a copy."""
    config = EventsCompactionConfig(compaction_interval=1, overlap_size=0)
    root = agent(ledger, "root", says("done"))
    adk_app = AdkApp(name="cases", root_agent=root, events_compaction_config=config)
    out = await make_app(adk_app).invoke(user_id="u", message="go")
    assert (out.status, out.response) == ("completed", "done")
    assert config.summarizer is None
    assert adk_app.plugins == []


# ---------------------------------------------------------------- E7: models that fail


def flaky_flow(ledger: Ledger, fails: Callable[[], bool]) -> Workflow:
    """A model that fails, under its node's ``retry_config``, beside a node that does not."""

    def script(_request: Any, _turn: int) -> Any:
        ledger.add("model")
        return RuntimeError("down") if fails() else says("up")

    def sibling(node_input: Any) -> str:
        ledger.add("sibling")
        return "sibling"

    retry = RetryConfig(max_attempts=3, initial_delay=0.2, backoff_factor=1.0, jitter=0.0)
    model = ScriptedModel(model="flaky", script=script)
    flaky = LlmAgent(name="flaky", model=model, retry_config=retry)
    beside = FunctionNode(func=sibling, name="sibling")
    join = JoinNode(name="join")
    return Workflow(name="flow", edges=[(START, (flaky, beside)), ((flaky, beside), join)])


async def test_a_model_that_fails_twice_is_called_three_times(make_app, ledger) -> None:
    """E7: one call for each entry of the node, the sibling once."""
    flow = flaky_flow(ledger, lambda: ledger.rows().count(("model",)) <= 2)
    out = await make_app(flow).invoke(user_id="u", message="go")
    assert out.status == "completed"
    assert collections.Counter(ledger.rows()) == {("model",): 3, ("sibling",): 1}


async def test_no_delay_of_a_retry_is_served_twice(
    make_app, ledger, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E7: the first attempt fails for good after three calls and two delays. The second goes over
    the first two failures without calling or waiting, and calls once where the third was."""
    flow = flaky_flow(ledger, lambda: ledger.rows().count(("model",)) <= 3)
    app = make_app(flow)
    await app.open()
    owner, served = _seam.owner_of("_get_retry_delay"), []
    ours = owner._get_retry_delay

    def delay(*args: Any, **kwargs: Any) -> float:
        served.append(ours(*args, **kwargs))
        return 0.0

    monkeypatch.setattr(owner, "_get_retry_delay", delay)
    out = await app.invoke(user_id="u", message="go")
    assert out.status == "queued"
    assert served == [0.2, 0.2]
    served.clear()
    await recovered(app, clock)
    assert served == [0.0, 0.0]
    assert collections.Counter(ledger.rows()) == {("model",): 4, ("sibling",): 1}


def test_a_kill_between_two_tries_of_a_model_repeats_neither(
    replica_set_uri: str, database: str, tmp_path: Path
) -> None:
    """E7, killed in the third call: that one is made again, the failed ones are not."""
    world = World(uri=replica_set_uri, database=database, folder=tmp_path)

    def build(ledger: Ledger) -> Workflow:
        return flaky_flow(ledger, lambda: ledger.rows().count(("model",)) <= 2)

    shape = Shape(build=build, feature="")
    undisturbed = world.live(shape)
    assert undisturbed.ledger == {("model",): 3, ("sibling",): 1}
    life = world.live(shape, kill=(1, ("in: model flaky", 3)))
    assert life.killed_at
    assert life.status == ["completed"]
    assert life.ledger == {("model",): 3, ("sibling",): 1}, "killed before its body began"
    life = world.live(shape, kill=(1, ("ran: model flaky", 3)))
    assert life.ledger == {("model",): 4, ("sibling",): 1}


# ---------------------------------------------------------------- contracts with ADK


async def test_adk_runs_code_through_the_thread_function_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both before a model call (a file) and after one (code in its answer)."""
    ledger = Ledger(tmp_path / "ledger")
    owner, ran = _seam.owner_of("asyncio"), []
    before = owner.asyncio

    async def to_thread(func: Any, *args: Any) -> Any:
        ran.append((func.__name__, type(func.__self__), type(args[1])))
        return await before.to_thread(func, *args)

    counting = ModuleType("asyncio")
    vars(counting).update(vars(before), to_thread=to_thread)
    monkeypatch.setattr(owner, "asyncio", counting)
    root = coder(ledger, says("unused"), code("one"), says("done"), optimize_data_file=True)
    parts = [types.Part(text="go"), types.Part.from_bytes(data=CSV, mime_type="text/csv")]
    stock = Stock(root, artifact_service=InMemoryArtifactService())
    await stock.run(types.Content(role="user", parts=parts))
    assert ran == [("execute_code", Sandbox, CodeExecutionInput)] * 2


@pytest.mark.parametrize(
    "settings",
    [
        {"compaction_interval": 1, "overlap_size": 0},
        {"token_threshold": 1, "event_retention_size": 2},
    ],
)
async def test_adk_makes_every_summary_through_one_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, int]
) -> None:
    owner, asked = _seam.owner_of("_summarize_events_with_trace"), []
    before = owner._summarize_events_with_trace

    async def summarize(*, config: Any, **given: Any) -> Any:
        asked.append(_seam.model_of(config.summarizer))
        return await before(config=config, **given)

    monkeypatch.setattr(owner, "_summarize_events_with_trace", summarize)
    ledger = Ledger(tmp_path / "ledger")
    model = ScriptedModel(model="summary", script=[says("in short")])
    config = EventsCompactionConfig(summarizer=LlmEventSummarizer(llm=model), **settings)
    tools = Tools(ledger)
    root = agent(ledger, "root", calls(("look", {"q": "a"})), says("done"), tools=[tools.look])
    stock = Stock(AdkApp(name="t", root_agent=root, events_compaction_config=config))
    await stock.run(user("go"))
    assert asked
    assert all(llm is model for llm in asked)
    made = [e.actions.compaction for e in (await stock.session()).events if e.actions.compaction]
    assert len(made) == len(asked)
