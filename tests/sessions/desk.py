"""One agent whose answers depend on all that it was told, and how its sessions are compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import bson
from google.adk.agents import LlmAgent
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

from durable_adk import current_activity_id
from durable_adk.testing import ScriptedModel, calls, says

Ledger = list[Any]


def desk(ledger: Ledger, *more_tools: Any) -> LlmAgent:
    """Does what a message says: ``note <key> <value>`` sets state, ``pay <cents> ...`` pays after a
    confirmation each, ``do <tool> <argument>`` calls one of ``more_tools``; then, or at once, it
    says how much it has heard so far."""

    def note(key: str, value: str, tool_context: ToolContext) -> str:
        """Set a key of the state."""
        ledger.append(("note", key, value))
        tool_context.state[key] = value
        return f"{key} is {value}"

    def pay(cents: int, tool_context: ToolContext) -> dict[str, int]:
        """Pay somebody."""
        ledger.append(("pay", cents, current_activity_id()))
        paid = tool_context.state.get("paid", 0)
        tool_context.state["paid"] = paid + cents
        return {"paid": paid + cents}

    def reply(request: LlmRequest, _batch: int) -> LlmResponse:
        last = request.contents[-1].parts or []
        if not any(part.function_response for part in last):
            match (last[0].text or "").split():
                case ["note", key, value]:
                    return calls(("note", {"key": key, "value": value}))
                case ["pay", *amounts]:
                    return calls(*(("pay", {"cents": int(cents)}) for cents in amounts))
                case ["do", name, value]:
                    return calls((name, {"value": value}))
        return says(f"heard {heard(request)}")

    return LlmAgent(
        name="desk",
        model=ScriptedModel(script=reply),
        tools=[note, FunctionTool(pay, require_confirmation=True), *more_tools],
    )


def heard(request: LlmRequest) -> str:
    """All texts and results of a prompt, in order, as one short text."""
    parts = [part for content in request.contents for part in content.parts or ()]
    said = [
        part.text or str(part.function_response.response if part.function_response else "")
        for part in parts
        if not part.function_call
    ]
    return " | ".join(text[:40] for text in said)


def shown(events: Iterable[Any]) -> list[dict[str, Any]]:
    """Events without what is new in each session: ids and times; ids of calls by their order."""
    known: dict[str, str] = {}

    def named(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {k: named(v, k) for k, v in value.items()}
        if key == "long_running_tool_ids":
            return sorted(known.get(item, item) for item in value)  # a set: in no order
        if isinstance(value, list):
            return [named(item, key) for item in value]
        if key in ("id", "function_call_id") and isinstance(value, str):
            return known.setdefault(value, f"call {len(known)}")
        return value

    def named_id(call_id: str) -> str:
        return known.get(call_id, call_id)

    found = []
    for event in events:
        data = event.model_dump(mode="json", exclude_none=True)
        for key in ("id", "timestamp", "invocation_id"):
            data.pop(key, None)
        content = named(data.pop("content", None))
        asked = data.get("actions", {}).pop("requested_tool_confirmations", None)
        found.append(
            {**named(data), "content": content, "asked": sorted(map(named_id, asked or ()))}
        )
    return found


Documents = dict[tuple[str, Any], bytes]


async def documents(database: Any) -> Documents:
    """Every document of a database, byte for byte, by collection and id."""
    found: Documents = {}
    for name in await database.list_collection_names():
        async for doc in database[name].find():
            found[name, doc["_id"]] = bson.encode(doc)
    return found


def new_documents(before: Documents, after: Documents) -> list[str]:
    """The collections of what was added; fails if anything that was there changed."""
    changed = [key for key, data in before.items() if after.get(key) != data]
    assert not changed, f"changed: {changed}"
    return sorted(name for name, _id in after.keys() - before.keys())
