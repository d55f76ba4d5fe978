"""A model that answers from a script, for tests, demos and benchmarks: no key, no network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import ConfigDict

Reply = LlmResponse | Exception | Sequence[LlmResponse]


def says(text: str, **fields: Any) -> LlmResponse:
    """A text response."""
    content = types.Content(role="model", parts=[types.Part(text=text)])
    return LlmResponse(content=content, **fields)


def calls(*named: tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], str]) -> LlmResponse:
    """A response of function calls: ``(name, arguments)`` or ``(name, arguments, call id)``."""
    parts = [
        types.Part(
            function_call=types.FunctionCall(
                name=one[0], args=one[1], id=one[2] if len(one) > 2 else None
            )
        )
        for one in named
    ]
    return LlmResponse(content=types.Content(role="model", parts=parts))


class ScriptedModel(BaseLlm):
    """Answers with ``script[k]``, k = how many batches of tool responses the request holds.

    Attributes:
        script: Replies in order; the last one repeats. A reply is a response, several of them
            (a stream), or an exception to raise. A function in the place of a reply, or of the
            whole script, gets the request and k, and returns a reply.
        on_call: Called with k at each call: a place for a ledger.
        delay: Seconds that a call takes.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    model: str = "scripted"
    script: Any = ()
    on_call: Callable[[int], None] | None = None
    delay: float = 0.0

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        turn = sum(
            1
            for content in llm_request.contents
            if any(part.function_response for part in content.parts or ())
        )
        if self.on_call is not None:
            self.on_call(turn)
        if self.delay:
            await asyncio.sleep(self.delay)
        found = self.script
        if not callable(found):
            found = found[min(turn, len(found) - 1)]
        reply: Reply = found(llm_request, turn) if callable(found) else found
        if isinstance(reply, Exception):
            raise reply
        for response in [reply] if isinstance(reply, LlmResponse) else reply:
            yield response if response.partial else _with_usage(response, llm_request)


def _with_usage(response: LlmResponse, request: LlmRequest) -> LlmResponse:
    """A copy that reports words as tokens, as models report theirs; ADK complains without."""
    if response.usage_metadata is not None:
        return response
    prompt = sum(_words(content) for content in request.contents)
    answer = _words(response.content)
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=prompt,
        candidates_token_count=answer,
        total_token_count=prompt + answer,
    )
    return response.model_copy(update={"usage_metadata": usage})


def _words(content: types.Content | None) -> int:
    parts = (content.parts if content else None) or ()
    return sum(len((part.text or "a call").split()) for part in parts)
