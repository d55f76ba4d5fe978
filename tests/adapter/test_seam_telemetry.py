"""ADK still counts tokens where this package holds replayed ones back."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.adk.telemetry import tracing
from google.genai import types
from opentelemetry.sdk.trace import TracerProvider

from durable_adk.adk import _seam_telemetry
from durable_adk.adk._seam import Private
from durable_adk.testing import ScriptedModel, says


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
