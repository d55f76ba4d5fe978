"""Code executors: what one runs is an activity, like a tool's body.

ADK calls ``execute_code`` through ``asyncio.to_thread`` in one module, and this stands in the
place of that function there: before the thread is started, so that a recorded result needs no
thread, and the end of an attempt finds the call where cancellation reaches it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

from google.adk.code_executors import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import (
    CodeExecutionInput,
    CodeExecutionResult,
)

from durable_adk.adk.outcomes import below, is_recording, once
from durable_adk.adk.scope import Scope, current
from durable_adk.model.activity import Kind


def wrap(adk_asyncio: Any) -> ModuleType:
    """``asyncio`` as ADK's code execution sees it; outside an attempt it does the same."""

    async def to_thread(func: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        async def run() -> Any:
            return await adk_asyncio.to_thread(func, *args, **kwargs)

        scope, executor = current(), getattr(func, "__self__", None)
        given = next((arg for arg in args if isinstance(arg, CodeExecutionInput)), None)
        if scope is None or not is_recording(scope) or not isinstance(executor, BaseCodeExecutor):
            return await run()
        return await _recorded(scope, executor, given, run)

    seen = ModuleType(adk_asyncio.__name__)
    vars(seen).update(vars(adk_asyncio), to_thread=to_thread)
    return seen


async def _recorded(
    scope: Scope, executor: BaseCodeExecutor, given: CodeExecutionInput | None, run: Any
) -> Any:
    name = type(executor).__name__
    code = given.code if given is not None else ""
    asked = given
    if given is not None:  # ADK puts the session's id there, and a fork has another one
        asked = dataclasses.replace(given, execution_id=None)
    terms = scope.stage.policy_of(name, {"code": code}, executor)
    return await once(
        scope,
        below(scope, "code", Kind.TOOL),
        run,
        name=name,
        request=[name, asked],
        asked=f"{name}({code if len(code) <= 200 else code[:197] + '...'})",
        terms=terms,
        decode=_result_of,
    )


def _result_of(body: Any) -> Any:
    """The result; what a person says that the code gave is its fields, or what it printed."""
    result = body["result"]
    if isinstance(result, CodeExecutionResult):
        return result
    is_text = isinstance(result, dict) and all(isinstance(one, str) for one in result.values())
    if is_text and result.keys() <= {"stdout", "stderr"}:
        return CodeExecutionResult(**result)
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return CodeExecutionResult(stdout=text)
