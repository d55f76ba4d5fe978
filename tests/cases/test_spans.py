"""R7: what was paid for is counted once, whatever is replayed: in records, spans and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import compaction
from google.adk.flows.llm_flows.tools import _batch_executor
from google.adk.telemetry import _metrics, node_tracing, tracing
from google.adk.tools.function_tool import FunctionTool
from google.adk.workflow import START, FunctionNode, Workflow
from google.genai import types
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from durable_adk.adk import spans
from durable_adk.adk.scripted_model import calls, says
from durable_adk.testing import FaultPlan, ScriptedModel
from tests.cases.conftest import approve

PAID = (10, 200, 3_000)
"""Prompt tokens of the three model calls."""


class Died(BaseException):
    """Nothing tidies up after it, as after a kill."""


class Seen:
    """The spans of one attempt after the other, and ADK's own counts of tokens."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tokens: list[tuple[int, str]] = []
        self.durations = 0

    def taken(self) -> tuple[ReadableSpan, ...]:
        found = self.exporter.get_finished_spans()
        self.exporter.clear()
        return found


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """An exporter for this test only: a provider that is set stays for the whole process."""
    seen = Seen()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(seen.exporter))
    for module in (tracing, node_tracing, _batch_executor, compaction):
        monkeypatch.setattr(module, "tracer", provider.get_tracer("gcp.vertex.agent"))
    monkeypatch.setattr(spans, "_tracer", provider.get_tracer("durable_adk"))

    class Tokens:
        def record(self, amount: int, attributes: Any = None, **_: Any) -> None:
            seen.tokens.append((amount, attributes["gen_ai.token.type"]))

    class Durations:
        def record(self, *_: Any, **__: Any) -> None:
            seen.durations += 1

    monkeypatch.setattr(_metrics, "_client_token_usage", Tokens())
    monkeypatch.setattr(_metrics, "_client_operation_duration", Durations())
    yield seen
    provider.shutdown()


def spent(prompt: int) -> types.GenerateContentResponseUsageMetadata:
    return types.GenerateContentResponseUsageMetadata(
        prompt_token_count=prompt,
        candidates_token_count=2,
        thoughts_token_count=1,
        cached_content_token_count=4,
        total_token_count=prompt + 3,
    )


def with_usage(response: Any, prompt: int) -> Any:
    response.usage_metadata = spent(prompt)
    return response


def payer(*, confirmed: bool = False) -> LlmAgent:
    """Three model calls, two tools."""

    def look(q: str) -> dict[str, str]:
        """Look."""
        return {"found": q}

    def pay(amount: int) -> dict[str, int]:
        """Pay."""
        return {"paid": amount}

    script = [
        with_usage(calls(("look", {"q": "x"})), PAID[0]),
        with_usage(calls(("pay", {"amount": 5})), PAID[1]),
        with_usage(says("done"), PAID[2]),
    ]
    return LlmAgent(
        name="payer",
        model=ScriptedModel(script=script),
        tools=[look, FunctionTool(pay, require_confirmation=confirmed)],
    )


def flow() -> Workflow:
    def first(node_input: Any) -> str:
        return "go"

    start = FunctionNode(func=first, name="first")
    return Workflow(name="flow", edges=[(START, start), (start, payer())])


def usage_in(found: tuple[ReadableSpan, ...], name: str = "generate_content") -> list[int]:
    return [
        span.attributes["gen_ai.usage.input_tokens"]
        for span in found
        if span.attributes and "gen_ai.usage.input_tokens" in span.attributes
        if span.name.startswith(name)
    ]


def marks(found: tuple[ReadableSpan, ...], name: str) -> list[bool]:
    return [
        bool(span.attributes["durable_adk.replayed"])
        for span in found
        if span.attributes and span.name.startswith(name)
    ]


@pytest.mark.parametrize("schema", ["2", "1"])
@pytest.mark.parametrize("root", [payer, flow])
async def test_three_attempts_count_each_model_call_once(
    make_app, clock, seen: Seen, monkeypatch, root, schema: str
) -> None:
    monkeypatch.setenv("ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN", schema)
    attempts: list[tuple[ReadableSpan, ...]] = []
    # The first dies in the first tool, the second in the second one.
    for point in ("ran tool:look", "ran tool:pay"):
        app = make_app(root(), faults=FaultPlan().fail(point, Died()))
        with pytest.raises(Died):
            if not attempts:
                await app.invoke(user_id="u", message="hi", execution_id="e")
            else:
                await app.recover()
                raise Died  # recover() goes on with the others after one that broke off
        attempts.append(seen.taken())
        clock.advance(31_000)
    app = make_app(root())
    [out] = await app.recover()
    assert out.status == "completed"
    attempts.append(seen.taken())

    assert [usage_in(found) for found in attempts] == [[10], [200], [3_000]]
    assert [marks(found, "generate_content") for found in attempts] == [
        [False],
        [True, False],
        [True, True, False],
    ]
    assert [marks(found, "execute_tool") for found in attempts] == [
        [False],
        [False, False],
        [True, False],
    ]
    legacy = [usage_in(found, "call_llm") for found in attempts]
    assert legacy == ([[10], [200], [3_000]] if schema == "1" else [[], [], []])
    assert [one for one in seen.tokens if one[1] == "input"] == [(n, "input") for n in PAID]
    assert seen.durations == 3
    for number, found in enumerate(attempts, 1):
        for span in found:
            attributes = span.attributes or {}
            if "durable_adk.replayed" in attributes:
                assert attributes["durable_adk.attempt"] == number
                assert attributes["durable_adk.execution.id"] == "e"
                assert attributes["durable_adk.step"] == 1
            if span.name.startswith(("generate_content", "execute_tool", "call_llm")):
                assert "durable_adk.replayed" in attributes, span.name
        [around] = [span for span in found if span.name == "durable_adk.attempt"]
        assert (around.attributes or {})["durable_adk.attempt"] == number

    known = {one.id: one for one in await app.executions.activities("e")}
    for span in attempts[-1]:
        if span.name.startswith(("generate_content", "execute_tool")):
            activity = known[str((span.attributes or {})["durable_adk.activity.id"])]
            path = (span.attributes or {})["durable_adk.operation.path"]
            assert activity.operation_path == path

    usage = (await make_app(root()).executions.get("e")).usage
    assert usage == {
        "model_calls": 3,
        "prompt_tokens": sum(PAID),
        "output_tokens": 6,
        "total_tokens": sum(PAID) + 9,
        "cached_tokens": 12,
        "thoughts_tokens": 3,
        "tool_prompt_tokens": 0,
    }
    assert (await app.executions.list()).items[0].usage is None


@pytest.mark.parametrize("mode", ["restore", "walk"])
async def test_a_resume_and_a_fork_count_their_own_calls_only(make_app, seen: Seen, mode) -> None:
    app = make_app(payer(confirmed=True), mode=mode)
    out = await app.invoke(user_id="u", session_id="s", message="hi")
    assert usage_in(seen.taken()) == [10, 200]
    done = await app.resume(out.execution_id, approve(out))
    found = seen.taken()
    assert usage_in(found) == [3_000]
    assert marks(found, "generate_content") == ([True, True, False] if mode == "walk" else [False])
    assert (await app.executions.get(done.execution_id)).usage["model_calls"] == 3

    fork = await app.sessions.fork("u", "s", before=out.waits[0].id)
    assert (await app.executions.get(fork.execution_id)).usage["model_calls"] == 0
    asked = await app.executions.outcome(fork.execution_id)
    await app.resume(fork.execution_id, approve(asked))
    assert usage_in(seen.taken()) == [3_000]
    usage = (await app.executions.get(fork.execution_id)).usage
    assert (usage["model_calls"], usage["prompt_tokens"]) == (1, 3_000)


async def test_a_replayed_node_is_marked(make_app, clock, seen: Seen) -> None:
    app = make_app(flow(), faults=FaultPlan().fail("before end", Died()))
    with pytest.raises(Died):
        await app.invoke(user_id="u", message="hi")
    first = seen.taken()
    clock.advance(31_000)
    await make_app(flow()).recover()
    second = seen.taken()
    assert [marks(found, "invoke_node first") for found in (first, second)] == [[False], [True]]


async def test_outside_an_attempt_adk_counts_as_ever(seen: Seen) -> None:
    from google.adk.runners import InMemoryRunner

    runner = InMemoryRunner(agent=payer(), app_name="stock")
    session = await runner.session_service.create_session(app_name="stock", user_id="u")
    content = types.Content(role="user", parts=[types.Part(text="hi")])
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=content):
        pass
    found = seen.taken()
    assert usage_in(found) == list(PAID)
    assert not any("durable" in key for span in found for key in span.attributes or {})
    assert seen.durations == 3
