"""How a program that uses ADK's runner talks to it: messages in, answers to what it asks."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import Any

from google.adk.apps import App as AdkApp
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from durable_adk import DurableRunner
from tests.samples.sample import Asked, Sample
from tests.support.lives import Ledger

ANSWERS_AT_MOST = 12


@dataclass
class Told:
    """What came of a conversation.

    Attributes:
        last: The last text or output.
        by_author: Texts and outputs of each author, in order.
        waits: How many questions were open, each time.
        rows: The ledger.
    """

    last: Any = None
    by_author: dict[str, list[Any]] = field(default_factory=dict)
    waits: tuple[int, ...] = ()
    state: dict[str, Any] = field(default_factory=dict)
    rows: collections.Counter[tuple[Any, ...]] = field(default_factory=collections.Counter)


def parts_of(sample: Sample, ledger: Ledger) -> dict[str, Any]:
    """What a program gives its runner: the root and the services."""
    root = sample.build(ledger)
    named = {"app": root} if isinstance(root, AdkApp) else {"app_name": "lives", "node": root}
    return {**named, **(sample.services(ledger) if sample.services else {})}


async def plain(sample: Sample, ledger: Ledger) -> Told:
    runner = Runner(**parts_of(sample, ledger), session_service=InMemorySessionService())
    return await talk(runner, sample, ledger)


async def durable(sample: Sample, ledger: Ledger, **place: Any) -> Told:
    runner = DurableRunner(**parts_of(sample, ledger), **place)
    return await talk(runner, sample, ledger)


async def talk(runner: Any, sample: Sample, ledger: Ledger) -> Told:
    """The conversation of a sample with a runner, from its first message to its end."""
    told = Told()
    async with runner:
        sessions = runner.session_service
        named = {"app_name": runner.app_name, "user_id": "u", "session_id": "s"}
        await sessions.create_session(**named)
        for message in sample.messages:
            content = types.Content(role="user", parts=[types.Part(text=message)])
            for _ in range(ANSWERS_AT_MOST):
                found = runner.run_async(
                    user_id="u",
                    session_id="s",
                    new_message=content,
                    run_config=sample.run_config() if sample.run_config else None,
                )
                events = [event async for event in found]
                _note(told, events)
                open_calls = _asked(events)
                if not open_calls:
                    break
                told.waits += (len(open_calls),)
                parts = [_answered(call, sample) for call in open_calls]
                content = types.Content(role="user", parts=parts)
            else:
                raise AssertionError(f"it asks without end: {told}")
        session = await sessions.get_session(**named)
        told.state = dict(session.state)
    told.rows = collections.Counter(ledger.rows())
    return told


def _note(told: Told, events: list[Any]) -> None:
    """Keep texts and outputs; an output that was just said as text is kept once."""
    for event in events:
        if event.partial or event.author == "user":
            continue
        parts = event.content.parts if event.content else None
        text = "".join(part.text or "" for part in parts or () if not part.thought)
        said = text or event.output
        if said is not None and said != "":
            told.by_author.setdefault(event.author, []).append(said)
            told.last = said


def _asked(events: list[Any]) -> list[types.FunctionCall]:
    """The calls that wait for an answer, each once."""
    found = {
        call.id: call
        for event in events
        for call in event.get_function_calls()
        if not event.partial and call.id in (event.long_running_tool_ids or ())
    }
    return list(found.values())


def _answered(call: types.FunctionCall, sample: Sample) -> types.Part:
    args = call.args or {}
    if call.name == "adk_request_confirmation":
        shown = args["toolConfirmation"]
        tool = args["originalFunctionCall"]
        response = sample.replied(
            Asked(
                kind=call.name,
                text=shown.get("hint") or "",
                payload=shown.get("payload"),
                tool=tool["name"],
                args=tool.get("args") or {},
            )
        )
    elif call.name == "adk_request_input":
        text, payload = args.get("message") or "", args.get("payload")
        value = sample.replied(Asked(kind=call.name, text=text, payload=payload))
        response = {"result": value}
    else:
        response = sample.replied(Asked(kind="adk_request_input", tool=call.name or "", args=args))
    answer = types.FunctionResponse(id=call.id, name=call.name, response=response)
    return types.Part(function_response=answer)
