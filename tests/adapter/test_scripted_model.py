"""The model of users' own tests."""

from __future__ import annotations

import pytest
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from durable_adk.testing import ScriptedModel, says


def _echo(request: LlmRequest, k: int) -> LlmResponse:
    (content,) = request.contents
    assert content.parts is not None
    return says(f"{content.parts[0].text} {k}")


@pytest.mark.parametrize("script", [_echo, [_echo]], ids=["as the script", "as a reply"])
async def test_a_function_gets_the_request_and_the_count(script: object) -> None:
    asked = types.Content(role="user", parts=[types.Part(text="hi")])
    model = ScriptedModel(script=script)
    (reply,) = [one async for one in model.generate_content_async(LlmRequest(contents=[asked]))]
    assert reply.content is not None and reply.content.parts is not None
    assert reply.content.parts[0].text == "hi 0"
