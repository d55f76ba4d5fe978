"""Runs of a described program under plain ADK and under ours, and what they left."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.adk.events import Event
from google.genai import types

from durable_adk import App
from tests.adapter.stock import Stock, user
from tests.generated.programs import Data, build, waits_of
from tests.support.lives import Ledger

ROUNDS_AT_MOST = 20


@dataclass
class Left:
    """What a run left, ids and times aside.

    ``frontiers`` lists what each step asked; ``order`` the whole list of events.
    """

    status: list[str] = field(default_factory=list)
    output: list[Any] = field(default_factory=list)
    frontiers: list[list[str]] = field(default_factory=list)
    events: list[Any] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    ledger: list[str] = field(default_factory=list)


def without_ids(text: str) -> str:
    text = re.sub(r"adk-[0-9a-f-]{18,}", "(id)", text)
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "(id)", text)


def shape(event: Event) -> str:
    """An event without ids and times."""
    content = event.content.model_dump(mode="json", exclude_none=True) if event.content else {}
    for part in content.get("parts", ()):
        for key in ("function_call", "function_response"):
            part.get(key, {}).pop("id", None)
    if event.author == "user":  # the answers of one branch, in any order
        content.get("parts", []).sort(key=lambda part: json.dumps(part, sort_keys=True))
    actions = event.actions.model_dump(mode="json", exclude_none=True)
    asked = actions.pop("requested_tool_confirmations", {})  # by call id
    told = [
        event.author,
        event.node_info.path,
        event.branch,
        event.isolation_scope,
        content,
        event.output,
        event.error_code,
        event.error_message,
        actions,
        sorted(json.dumps(one, sort_keys=True) for one in asked.values()),
        len(event.long_running_tool_ids or ()),
    ]
    return without_ids(json.dumps(told, sort_keys=True, default=str))


def by_place(events: Any) -> list[Any]:
    """Events in order within each place. Places that differ by an id only are a multiset."""
    found: dict[Any, list[str]] = collections.defaultdict(list)
    for event in events:
        found[event.node_info.path, event.branch, event.author].append(shape(event))
    return sorted([without_ids(str(place)), shapes] for place, shapes in found.items())


def _is_closing(event: Event) -> bool:
    """Whether it answers what a failed turn left open, so that the next turn finds it closed."""
    return any(
        (response.response or {}).get("status") == "closed"
        for response in event.get_function_responses()
    )


def rows(ledger: Ledger) -> list[str]:
    return sorted(json.dumps(row) for row in ledger.rows())


def frontier(waits: list[Mapping[str, Any]]) -> list[str]:
    return sorted(
        json.dumps([wait["kind"], wait["message"], (wait["tool_call"] or {}).get("args")])
        for wait in waits
    )


async def plain(program: Data, folder: Path) -> Left:
    """Plain ADK, answered with one event per branch."""
    left, ledger = Left(), Ledger(folder)
    root = build(program, ledger)
    stock = Stock(root)
    for turn, message in enumerate(program["messages"]):
        seen = len(stock.events)
        try:
            await _turn(stock, left, program, f"e{turn}", message)
            left.status.append("completed")
        except ValueError:
            left.status.append("failed")
        left.output.append(_output(stock.events[seen:], root.name))
    session = await stock.session()
    left.events, left.order = by_place(session.events), [shape(e) for e in session.events]
    left.state = {k: v for k, v in session.state.items() if not k.startswith("temp:")}
    left.ledger = rows(ledger)
    return left


async def _turn(stock: Stock, left: Left, program: Data, invocation_id: str, message: str) -> None:
    answer = waits_of(program)
    await stock.run(user(message), invocation_id)
    for _ in range(ROUNDS_AT_MOST):
        session = await stock.session()
        asked = _asked(session.events, invocation_id)
        if not asked:
            return
        left.frontiers.append(frontier([_as_wait(call) for call, _ in asked]))
        branches: dict[Any, list[Any]] = collections.defaultdict(list)
        for call, event in asked:
            branches[event.branch, event.isolation_scope].append(_reply(call, answer))
        for (branch, isolation_scope), parts in branches.items():
            event = Event(
                invocation_id=invocation_id,
                author="user",
                branch=branch,
                isolation_scope=isolation_scope,
                content=types.Content(role="user", parts=parts),
            )
            await stock.service.append_event(session, event)
        await stock.run(None, invocation_id)
    raise AssertionError(f"no end after {ROUNDS_AT_MOST} rounds of plain ADK")


def _asked(events: list[Event], invocation_id: str) -> list[tuple[types.FunctionCall, Event]]:
    """Long-running calls of an invocation that none of its later events answers."""
    asked: dict[str, tuple[types.FunctionCall, Event]] = {}
    for event in events:
        if event.invocation_id != invocation_id:
            continue
        for response in event.get_function_responses():
            asked.pop(str(response.id), None)
        for call in event.get_function_calls():
            if call.id in (event.long_running_tool_ids or ()):
                asked[str(call.id)] = (call, event)
    return list(asked.values())


def _as_wait(call: types.FunctionCall) -> dict[str, Any]:
    args = call.args or {}
    if call.name == "adk_request_confirmation":
        about = args["originalFunctionCall"]
        shown = {"args": about["args"]}
        message = args["toolConfirmation"].get("hint") or ""
        return {"kind": call.name, "message": message, "tool_call": shown}
    if call.name == "adk_request_input":
        return {"kind": call.name, "message": args.get("message") or "", "tool_call": None}
    return {"kind": "adk_request_input", "message": "", "tool_call": {"args": args}}


def _reply(call: types.FunctionCall, answer: Any) -> types.Part:
    value = answer(_as_wait(call))
    if call.name == "adk_request_input":
        value = {"result": json.dumps(value)}
    elif not isinstance(value, dict):
        value = {"result": value}
    response = types.FunctionResponse(id=call.id, name=call.name, response=value)
    return types.Part(function_response=response)


def _output(events: list[Event], root: str) -> Any:
    """What the last event that speaks for the root gives as its output."""
    found = None
    for event in events:
        speaks_for = event.node_info.output_for or [event.node_info.path]
        if f"{root}@1" not in speaks_for:
            continue
        if event.output is not None:
            found = event.output
        elif event.node_info.message_as_output and event.content:
            found = "".join(part.text or "" for part in event.content.parts or ())
    return found


async def durable(program: Data, folder: Path, **app: Any) -> Left:
    """Ours, in this process."""
    left, ledger = Left(), Ledger(folder)
    answer = waits_of(program)
    named = {"user_id": "u", "session_id": "s"}
    async with App("t", root_agent=build(program, ledger), **app) as made:
        for message in program["messages"]:
            out = await made.invoke(message=message, **named)
            while out.status == "suspended":
                waits = [wait.to_dict() for wait in out.waits]
                left.frontiers.append(frontier(waits))
                out = await made.resume(out.execution_id, {w["id"]: answer(w) for w in waits})
            left.status.append(out.status)
            left.output.append(out.output)
        events = await made.sessions.events(**named)
        events = [event for event in events if not _is_closing(event)]
        left.state = (await made.sessions.get(**named)).state
    left.events, left.order = by_place(events), [shape(event) for event in events]
    left.ledger = rows(ledger)
    return left
