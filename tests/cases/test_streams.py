"""Rows E5, E6 and W6 of the case list: streams of models, read while they run."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.utils.streaming_utils import StreamingResponseAggregator
from google.adk.workflow import START, RetryConfig, Workflow
from google.genai import types
from pydantic import ConfigDict

from durable_adk import App
from durable_adk.adk.scripted_model import calls, says
from tests.adapter.stock import Stock, confirmed
from tests.faults.catalogue import Tools
from tests.support.lives import (
    DIED,
    LEASE_PASSED_MS,
    Case,
    KillAt,
    Ledger,
    Point,
    World,
    default_answer,
    in_fork,
    points_of,
)

pytestmark = pytest.mark.timeout(600)

DIE = "die"
WORDS = ["so ", "it ", "is ", "all ", "done"]
MODES = pytest.mark.parametrize("mode", ["restore", "walk"])


def streamed() -> RunConfig:
    return RunConfig(streaming_mode=StreamingMode.SSE)


def spoken(*words: str) -> list[Any]:
    """A model's stream: the words, then all of them."""
    return [*(says(word, partial=True) for word in words), says("".join(words))]


def partly(response: LlmResponse) -> LlmResponse:
    return response.model_copy(update={"partial": True}, deep=True)


def called(*named: tuple[str, dict[str, Any]]) -> list[LlmResponse]:
    """A model's stream: each call in a partial of its own, then all of them; no ids."""
    return [*(partly(calls(one)) for one in named), calls(*named)]


class Streams(BaseLlm):
    """Streams ``streams[k]``, k = how many batches of tool responses the request holds.

    ``DIE`` in a stream ends the process the first time it is reached. What is yielded is noted
    in the ledger before and after.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: str = "streams"
    streams: Any = ()
    ledger: Any = None

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        turn = sum(
            any(part.function_response for part in content.parts or ())
            for content in llm_request.contents
        )
        self.ledger.add("model", os.getpid(), turn)
        for place, item in enumerate(self.streams[min(turn, len(self.streams) - 1)]):
            if isinstance(item, Exception):
                raise item
            if item == DIE:
                await asyncio.sleep(0.02)  # whoever reads the stream gets what came before
                if ("died", turn) not in self.ledger.rows():
                    self.ledger.add("died", turn)
                    os._exit(DIED)
                continue
            self.ledger.add("made", turn, place)
            yield item
            await asyncio.sleep(0.002)


def speaker(ledger: Ledger, *streams: Sequence[Any], **fields: Any) -> LlmAgent:
    return LlmAgent(name="root", model=Streams(streams=streams, ledger=ledger), **fields)


@dataclass
class Process:
    """What one process showed to the listener of its stream, in order."""

    items: list[tuple[str, Any]] = field(default_factory=list)
    waits: list[Mapping[str, Any]] = field(default_factory=list)
    status: str = ""
    models: list[int] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)
    error: Any = None
    response: str | None = None

    def of(self, kind: str) -> list[Any]:
        return [data for found, data in self.items if found == kind]


@dataclass
class Listened:
    """Processes that stream one execution, one after the other."""

    world: World
    case: Case
    ledger: Ledger
    processes: list[Process] = field(default_factory=list)
    late_ms: int = 0
    namespace: str = field(default_factory=lambda: f"n{os.urandom(6).hex()}")

    def process(
        self, answers: Mapping[str, Any] | None = None, kill_at: Point | None = None
    ) -> Process:
        """One process that streams the message, or the answers."""
        number, faults = len(self.processes), KillAt(kill_at)

        async def listen() -> dict[str, Any]:
            app = self.world.app(self.ledger, self.case, self.namespace, faults, self.late_ms)
            async with app, aclosing(_stream(app, answers)) as stream:
                async for item in stream:
                    if item.kind in ("token", "event"):
                        shown = item.data if item.kind == "token" else _text(item.data)
                        self.ledger.add("shown", number, item.kind, shown)
                    else:
                        return {"end": item.data.to_dict(), "reached": faults.reached}
            raise AssertionError("a stream without an end")

        seen = len(self.ledger.rows())
        code, found = in_fork(listen)
        assert code in (0, DIED), found
        rows = self.ledger.rows()[seen:]
        end = found.get("end", {"status": "died", "waits": []})
        process = Process(
            items=[row[2:] for row in rows if row[0] == "shown"],
            waits=end["waits"],
            status=end["status"],
            models=[row[2] for row in rows if row[0] == "model"],
            reached=found.get("reached", []),
            error=end.get("error"),
            response=end.get("response"),
        )
        if code == DIED:
            self.late_ms += LEASE_PASSED_MS
        self.processes.append(process)
        return process

    def shown_by_runner(self) -> list[tuple[bool, list[str]]]:
        """One process that reads ADK's events: of those with calls, whether it is a partial and
        the ids of its calls; a call that runs long must be marked as such in each."""

        async def listen() -> dict[str, Any]:
            app = self.world.app(self.ledger, self.case, self.namespace, KillAt(), self.late_ms)
            async with app:
                message = types.Content(role="user", parts=[types.Part(text="go")])
                events = app.runner.run_async(
                    user_id="u",
                    session_id="s",
                    invocation_id="x",
                    new_message=message,
                    run_config=streamed(),
                )
                async for event in events:
                    found = [one for one in event.get_function_calls() if one.name == "pay"]
                    if found:
                        self.ledger.add("calls", bool(event.partial), [one.id for one in found])
            return {}

        seen = len(self.ledger.rows())
        code, found = in_fork(listen)
        assert code in (0, DIED), found
        self.late_ms += LEASE_PASSED_MS if code == DIED else 0
        return [row[1:] for row in self.ledger.rows()[seen:] if row[0] == "calls"]

    def live(self, kill: tuple[int, Point] | None = None) -> list[Process]:
        """Until the end, every process listening; the one of that number is killed."""
        answers: dict[str, Any] | None = None
        for number in range(12):
            killed = kill[1] if kill is not None and kill[0] == number else None
            process = self.process(answers, killed)
            if process.status == "suspended":
                answers = {wait["id"]: default_answer(wait) for wait in process.waits}
            elif process.status != "died":
                return self.processes
        raise AssertionError("no end")


def _stream(app: App, answers: Mapping[str, Any] | None) -> AsyncGenerator[Any, None]:
    if answers is not None:
        return app.resume_stream("x", answers)
    return app.stream(
        user_id="u", session_id="s", execution_id="x", message="go", run_config=streamed()
    )


def _text(event: Any) -> str:
    parts = event.content.parts if event.content else None
    return "".join(part.text or "*" for part in parts or ())


@pytest.fixture
def listened(replica_set_uri: str, database: str, tmp_path: Path) -> Any:
    count = iter(range(1000))

    def make(build: Any, mode: str = "restore") -> Listened:
        world = World(uri=replica_set_uri, database=database, folder=tmp_path, mode=mode)
        return Listened(world, Case(build=build), Ledger(tmp_path / f"ledger{next(count)}"))

    return make


# ---------------------------------------------------------------- E5: kills


def test_partials_reach_the_listener_before_the_stream_ends(listened: Any) -> None:
    run = listened(lambda ledger: speaker(ledger, spoken(*WORDS)))
    (process,) = run.live()
    assert process.of("token") == WORDS
    assert process.of("event") == ["".join(WORDS)]
    order = [row for row in run.ledger.rows() if row[0] in ("made", "shown")]
    first_shown = order.index(("shown", 0, "token", WORDS[0]))
    assert first_shown < order.index(("made", 0, 2))  # two chunks ahead, at most


@MODES
def test_half_a_stream_is_no_outcome(listened: Any, mode: str) -> None:
    """E5: five chunks, killed after the third: asked again, and all of it is said again."""
    half = [*spoken(*WORDS)[:3], DIE, *spoken(*WORDS)[3:]]
    killed, after = listened(lambda ledger: speaker(ledger, half), mode).live()
    assert (killed.items, killed.status) == ([("token", word) for word in WORDS[:3]], "died")
    assert after.items == [*(("token", word) for word in WORDS), ("event", "".join(WORDS))]
    assert (killed.models, after.models, after.status) == ([0], [0], "completed")


@MODES
def test_a_stream_that_ended_is_no_outcome_before_its_record(listened: Any, mode: str) -> None:
    """E5: killed after the final response, before it was recorded."""
    run = listened(lambda ledger: speaker(ledger, spoken(*WORDS)), mode)
    killed, after = run.live((0, ("ran: model streams", 1)))
    assert killed.items == [("token", word) for word in WORDS]  # no event: nothing is certain
    assert after.items == [*(("token", word) for word in WORDS), ("event", "".join(WORDS))]
    assert after.models == [0]


@MODES
def test_a_recorded_stream_is_shown_as_its_event_only(listened: Any, mode: str) -> None:
    """E5: killed after the record: no token comes again, and the model is not asked."""
    run = listened(lambda ledger: speaker(ledger, spoken(*WORDS)), mode)
    killed, after = run.live((0, ("after: outcomes are recorded", 1)))
    assert killed.of("token") == WORDS
    assert after.items == [("event", "".join(WORDS))]
    assert (after.models, after.status) == ([], "completed")


def asks_in_between(ledger: Ledger) -> LlmAgent:
    """Speaks, asks for a payment, and speaks on when it was confirmed."""
    tools = Tools(ledger)
    first = [*spoken("let ", "me ", "pay ")[:-1], *called(("pay", {"amount": 1}))]
    first[-1].content.parts.insert(0, types.Part(text="let me pay "))
    second = [*spoken("and ", "look ")[:-1], calls(("slow", {"q": "a"}))]
    second[-1].content.parts.insert(0, types.Part(text="and look "))
    streams = (first, second, spoken(*WORDS))
    return speaker(ledger, *streams, tools=[tools.confirmed_pay, tools.slow])


SAID = ["let me pay *", "and look *", "".join(WORDS)]


@MODES
def test_text_before_a_committed_frontier_never_comes_again(listened: Any, mode: str) -> None:
    asked, answered = listened(asks_in_between, mode).live()
    assert asked.of("token") == ["let ", "me ", "pay "]
    assert answered.of("token") == ["and ", "look ", *WORDS]
    assert [text for text in answered.of("event") if text != "*"] == SAID[1:]


@MODES
def test_killed_anywhere_a_listener_reads_no_text_twice(
    listened: Any, mode: str, request: pytest.FixtureRequest
) -> None:
    """E5: at points of both attempts (all with ``--all-points``). Tokens come from a model that is
    asked, in full when it is asked again; what is recorded comes as its event, once; what is
    committed never."""
    undisturbed = listened(asks_in_between, mode).live()
    points = [
        (number, point)
        for number, process in enumerate(undisturbed)
        for point in points_of(process.reached)
    ]
    if not request.config.getoption("--all-points"):
        points = random.Random(f"{request.config.getoption('--fault-seed')} {mode}").sample(
            points, 7
        )
    tokens = [["let ", "me ", "pay "], ["and ", "look "], WORDS]
    for kill in points:
        processes = listened(asks_in_between, mode).live(kill)
        said = f"killed at {kill}: {processes[-1].error}"
        assert processes[-1].status == "completed", said
        committed = 0
        for one in processes:
            expected = [word for turn in one.models for word in tokens[turn]]
            shown = one.of("token")
            assert shown == expected[: len(shown)], said
            assert one.status == "died" or shown == expected, said
            texts = [text for text in one.of("event") if text in SAID]
            assert texts == SAID[committed : committed + len(texts)], said
            if one.status == "suspended":
                committed = 1
        last = [text for text in processes[-1].of("event") if text in SAID]
        assert last in ([], SAID[1:]), said  # nothing: the commit itself was through


# ---------------------------------------------------------------- E6: streams of other kinds


def gone_wrong(**fields: Any) -> LlmResponse:
    return LlmResponse(error_code="SAFETY", error_message="not this", **fields)


def stopped(*parts: types.Part) -> LlmResponse:
    content = types.Content(role="model", parts=list(parts))
    return LlmResponse(content=content, finish_reason=types.FinishReason.STOP)


KINDS: dict[str, list[Any]] = {
    "only partials": spoken("a", "b")[:-1],
    "only partials with calls": called(("slow", {"q": "a"}))[:-1],
    "nothing": [],
    "an error response": [gone_wrong()],
    "an error after partials": [*spoken("a", "b")[:-1], gone_wrong()],
    "a partial error": [gone_wrong(partial=True)],
    "an error with text": [says("as far as", error_code="MAX_TOKENS")],
    "no parts": [stopped()],
    "blank text": [stopped(types.Part(text=" "))],
    "only thoughts": [stopped(types.Part(text="hm", thought=True))],
    "only usage": [LlmResponse(usage_metadata=says("x").usage_metadata)],
    "interrupted": [*spoken("a", "b")[:-1], LlmResponse(interrupted=True)],
    "a turn that is complete": [*spoken("a", "b"), LlmResponse(turn_complete=True)],
    "text, then a call": [says("first"), *called(("slow", {"q": "a"}))],
}


def of_kind(kind: str) -> Any:
    def build(ledger: Ledger) -> LlmAgent:
        streams = (KINDS[kind], spoken("x", "y"))
        return speaker(ledger, *streams, tools=[Tools(ledger).slow], output_key="out")

    return build


def look_of(event: Any) -> Any:
    shown = event.model_dump(
        mode="json",
        exclude_none=True,
        exclude={"id": True, "timestamp": True, "invocation_id": True, "usage_metadata": True},
    )
    for part in shown.get("content", {}).get("parts") or ():
        for key in ("function_call", "function_response"):
            part.get(key, {}).pop("id", None)
    return shown


@dataclass
class Turns:
    """Two messages under a runner: what it yielded, and what the session has."""

    yielded: list[Any]
    events: list[Any]
    state: dict[str, Any]


async def two_turns(runner: Any, sse: bool) -> Turns:
    named = {"user_id": "u", "session_id": "s"}
    yielded = []
    for text in ("one", "two"):
        message = types.Content(role="user", parts=[types.Part(text=text)])
        config = streamed() if sse else None
        async for event in runner.run_async(**named, new_message=message, run_config=config):
            yielded.append(look_of(event))
    found = await runner.session_service.get_session(app_name=runner.app_name, **named)
    return Turns(yielded, [look_of(event) for event in found.events], dict(found.state))


@pytest.mark.parametrize("sse", [True, False], ids=["sse", "at once"])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_of_any_kind_does_what_it_does_in_plain_adk(
    kind: str, sse: bool, make_app: Any, ledger: Ledger
) -> None:
    """E6: the same events to the caller and in the session, the same state, over two turns."""
    stock = Stock(of_kind(kind)(Ledger(ledger.path.with_suffix(".stock"))))
    await stock.session()
    plain = await two_turns(stock.runner, sse)
    ours = await two_turns(make_app(of_kind(kind)(ledger)).runner, sse)
    if kind == "text, then a call":
        # ADK hands a response on before the stream has ended, and partials after it in their
        # place; here it comes after its record, which comes after the stream.
        plain.yielded = ours.yielded = []
    assert ours == plain


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_of_any_kind_is_one_recorded_outcome(kind: str, listened: Any) -> None:
    """E6: killed after its record, the model is not asked again and the end is the same."""
    undisturbed = listened(of_kind(kind))
    (whole,) = undisturbed.live()
    again = listened(of_kind(kind))
    killed, after = again.live((0, ("after: outcomes are recorded", 1)))
    assert (killed.models, 0 in after.models) == ([0], False)
    assert (after.status, after.response) == (whole.status, whole.response)
    assert after.of("event") == whole.of("event")


@MODES
def test_a_model_that_raises_in_mid_stream_is_asked_again_by_a_new_attempt_only(
    listened: Any, mode: str
) -> None:
    """Its failure is the outcome; what it had said is not."""
    failing = [*spoken("a", "b")[:-1], ValueError("cut off"), *spoken("a", "b")[-1:]]
    run = listened(lambda ledger: speaker(ledger, failing), mode)
    run.case = Case(build=run.case.build, config={"retry": {"max_attempts": 1}})
    (process,) = run.live()
    assert (process.status, process.error["message"]) == ("failed", "cut off")
    assert process.of("token") == ["a", "b"]
    assert process.models == [0]


# ---------------------------------------------------------------- nothing after half a stream


async def test_a_stream_that_is_closed_or_cancelled_is_no_outcome(
    make_app: Any, ledger: Ledger
) -> None:
    """A node with a time limit cancels the agent in mid-stream; its retry asks the model again."""
    slow = [*spoken(*WORDS)[:2], "wait", *spoken(*WORDS)[2:]]

    class Stalls(Streams):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            first = not any(row[0] == "model" for row in ledger.rows())
            ledger.add("model")
            for item in slow:
                if item != "wait":
                    yield item
                elif first:
                    try:
                        await asyncio.sleep(30)
                    finally:
                        ledger.add("cut off")

    inner = LlmAgent(name="root", model=Stalls(streams=(), ledger=ledger))
    inner.timeout = 0.2
    inner.retry_config = RetryConfig(max_attempts=2, initial_delay=0.01)
    app = make_app(Workflow(name="flow", edges=[(START, inner)]))
    out = await app.invoke(user_id="u", session_id="s", message="go", run_config=streamed())
    assert (out.status, out.response) == ("completed", "".join(WORDS))
    assert ledger.rows() == [("model",), ("cut off",), ("model",)]


async def test_a_cancelled_execution_records_nothing_of_half_a_stream(
    make_app: Any, ledger: Ledger
) -> None:
    half = [*spoken(*WORDS)[:2], "wait"]

    class Stalls(Streams):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            for item in half:
                if item == "wait":
                    await asyncio.sleep(30)
                yield item

    app = make_app(LlmAgent(name="root", model=Stalls(streams=(), ledger=ledger)))
    shown = []
    async with aclosing(_stream(app, None)) as stream:
        async for item in stream:
            shown.append((item.kind, item.data))
            if len(shown) == 2:
                await app.cancel("x", reason="enough")
    assert shown[:2] == [("token", WORDS[0]), ("token", WORDS[1])]
    assert shown[-1][1].status == "cancelled"
    activities = await app.executions.activities("x")
    assert [one for one in activities if one.kind == "model"] == []


# ---------------------------------------------------------------- W6: ids of calls


def two_pays() -> list[Any]:
    return called(("pay", {"amount": 1}), ("pay", {"amount": 2}))


def growing_pays() -> list[Any]:
    """Arguments that grow, in partials that do not say so."""
    steps = [{}, {"amount": 1}]
    notes = [{"amount": 2, "note": text} for text in ("", "f", "for b")]
    partials = [partly(calls(("pay", args))) for args in (*steps, *notes)]
    return [*partials, calls(("pay", {"amount": 1}), ("pay", {"amount": 2, "note": "for b"}))]


def alike() -> list[Any]:
    return called(("pay", {"amount": 1}), ("pay", {"amount": 1}))


class Gemini(Streams):
    """The stream of an API that sends arguments in pieces, through ADK's own aggregator."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        inner = super().generate_content_async(llm_request, stream)
        aggregator = StreamingResponseAggregator()
        async with aclosing(inner) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, LlmResponse):
                    yield chunk
                    continue
                async for response in aggregator.process_response(chunk):
                    yield response
        last = aggregator.close()
        if last is not None:
            yield last


def chunk(*found: types.FunctionCall) -> types.GenerateContentResponse:
    parts = [types.Part(function_call=one) for one in found]
    content = types.Content(role="model", parts=parts)
    return types.GenerateContentResponse(candidates=[types.Candidate(content=content)])


def in_pieces() -> list[Any]:
    def amount(value: int) -> types.PartialArg:
        return types.PartialArg(json_path="$.amount", number_value=value)

    return [
        chunk(types.FunctionCall(name="pay", will_continue=True)),
        chunk(types.FunctionCall(partial_args=[amount(1)], will_continue=True)),
        chunk(types.FunctionCall(will_continue=False)),
        chunk(types.FunctionCall(name="pay", args={"amount": 2})),
    ]


W6 = {
    "each in a partial": (Streams, two_pays),
    "growing": (Streams, growing_pays),
    "equal arguments": (Streams, alike),
    "in pieces": (Gemini, in_pieces),
}


def pays(kind: str, *, long_running: bool) -> Any:
    def build(ledger: Ledger) -> LlmAgent:
        def pay(amount: int, note: str = "") -> dict[str, Any] | None:
            """Pay."""
            ledger.add("pay", amount)
            return None if long_running else {"paid": amount}

        model, stream = W6[kind]
        tool = LongRunningFunctionTool(pay) if long_running else confirmed(pay)
        streams = ([*stream(), DIE], spoken("paid"))
        return LlmAgent(name="root", model=model(streams=streams, ledger=ledger), tools=[tool])

    return build


@pytest.mark.parametrize("long_running", [False, True], ids=["confirmed", "long-running"])
@pytest.mark.parametrize("kind", W6)
def test_ids_of_calls_are_those_of_their_partials_on_every_attempt(
    kind: str, long_running: bool, listened: Any
) -> None:
    """W6: killed in mid-stream, then up to the waits, then killed again and answered."""
    run = listened(pays(kind, long_running=long_running))
    first, second = run.shown_by_runner(), run.shown_by_runner()
    whole = next(ids for partial, ids in second if not partial)
    assert len(set(whole)) == 2
    for shown in (first, second):
        found = [ids for partial, ids in shown if partial]
        assert {one for ids in found for one in ids} == set(whole)
        assert [ids for ids in found if len(ids) == 1] == found
        assert found[0] == [whole[0]]
        assert found[-1] == [whole[1]]
    waits = run.process().waits
    assert len(waits) == 2
    assert [wait["tool_call"]["id"] for wait in waits] == whole
    answers = {wait["id"]: default_answer(wait) for wait in waits}
    killed = run.process(answers, ("in: model streams", 1))
    after = run.process(answers)
    assert (killed.status, after.status, after.response) == ("died", "completed", "paid")
    amounts = [wait["tool_call"]["args"]["amount"] for wait in waits]
    assert [row[1] for row in run.ledger.rows() if row[0] == "pay"] == amounts
