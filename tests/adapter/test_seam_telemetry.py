"""ADK still counts tokens, and warns, where this package holds that back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.adk.telemetry import tracing
from google.adk.workflow import START, FunctionNode, Workflow
from google.genai import types
from opentelemetry.sdk.trace import TracerProvider

from durable_adk.adk import _seam_telemetry
from durable_adk.adk._seam import Private
from durable_adk.testing import ScriptedModel, says
from tests.adapter.stock import Stock, user


@pytest.mark.parametrize("point", _seam_telemetry.POINTS, ids=lambda point: point.path)
async def test_adk_calls_the_point_for_each_model_call(
    point: Private, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert point.exists()
    owner, name = _seam_telemetry.owner_of(point)
    adks, called = getattr(owner, name), []

    def counting(*args: Any, **kwargs: Any) -> Any:
        called.append(name)
        return adks(*args, **kwargs)

    monkeypatch.setattr(owner, name, counting)
    monkeypatch.setattr(tracing, "tracer", TracerProvider().get_tracer("test"))
    counted = types.GenerateContentResponseUsageMetadata(prompt_token_count=1)
    model = ScriptedModel(script=[says("hello", usage_metadata=counted)])
    runner = InMemoryRunner(agent=LlmAgent(name="a", model=model), app_name="seam")
    session = await runner.session_service.create_session(app_name="seam", user_id="u")
    content = types.Content(role="user", parts=[types.Part(text="hi")])
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=content):
        pass
    assert called == [name]


def test_a_point_that_is_gone_is_left_alone() -> None:
    assert not Private("google.adk.telemetry.tracing", "no_such_point").exists()


async def test_adk_warns_of_what_a_workflow_leaves_but_not_of_what_was_aborted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name = _seam_telemetry.owner_of(_seam_telemetry.LEFTOVERS)
    adks, aborted = getattr(owner, name), []

    async def abort_too(self: Any, left: Any, **named: Any) -> None:
        if aborted:
            named["aborted"] = True
        aborted.append(named.get("aborted", False))
        await adks(self, left, **named)

    entered = asyncio.Event()

    async def hangs(node_input: Any) -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    monkeypatch.setattr(owner, name, abort_too)
    for _ in range(2):
        flow = Workflow(name="flow", edges=[(START, FunctionNode(func=hangs, name="one"))])
        entered.clear()
        with caplog.at_level("INFO"):
            run = asyncio.ensure_future(Stock(flow).run(user("go")))
            await entered.wait()
            run.cancel()
            await asyncio.wait([run])
    assert aborted == [False, True]
    told = [r.levelname for r in caplog.records if "leftover" in r.getMessage()]
    assert told == ["WARNING", "INFO"]
