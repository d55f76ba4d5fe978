"""What a durable run leaves is what plain ADK leaves, where plain ADK gets it right.

Plain ADK is resumed with one event per branch. The cases left out are those that it gets wrong
even so; ``tests/adk_bugs`` pins each.
"""

from __future__ import annotations

import collections
import json
import re
from typing import Any

import pytest
from google.adk.events import Event
from google.genai import types

from durable_adk import App
from durable_adk.testing import memory_client
from tests.adapter.stock import Stock, user
from tests.faults.catalogue import CASES
from tests.support.lives import Case, Ledger, default_answer

SAME = ["ten tools", "review loop", "nested workflow", "two turns with a long-running tool"]


def shape(event: Event) -> Any:
    """An event without ids and times."""
    content = event.content.model_dump(mode="json", exclude_none=True) if event.content else {}
    for part in content.get("parts", ()):
        for key in ("function_call", "function_response"):
            part.get(key, {}).pop("id", None)
    text = json.dumps(
        [
            event.author,
            event.node_info.path,
            event.branch,
            content,
            event.output,
            event.actions.model_dump(mode="json", exclude_none=True),
            len(event.long_running_tool_ids or ()),
        ],
        sort_keys=True,
        default=str,
    )
    return re.sub(r"adk-[0-9a-f-]{18,}", "(id)", text)


def places(events: Any) -> dict[Any, list[str]]:
    found: dict[Any, list[str]] = collections.defaultdict(list)
    for event in events:
        found[event.node_info.path, event.branch].append(shape(event))
    return dict(found)


async def plain(case: Case, ledger: Ledger) -> Stock:
    stock = Stock(case.build(ledger))
    for turn, message in enumerate(case.messages):
        invocation_id = f"e{turn}"
        await stock.run(user(message), invocation_id)
        for _ in range(10):
            session = await stock.session()
            answered = {r.id for e in session.events for r in e.get_function_responses()}
            asked = [(c, e) for c, e in stock.open_calls() if c.id not in answered]
            if not asked:
                break
            for call, event in asked:
                await stock.service.append_event(session, answer_event(case, call, event))
            await stock.run(None, invocation_id)
    return stock


def answer_event(case: Case, call: types.FunctionCall, asked: Event) -> Event:
    confirms = "confirmation" in str(call.name)
    args = call.args or {}
    about = args.get("originalFunctionCall") or {}
    signs_in = "credential" in str(call.name)
    wait = {
        "kind": str(call.name) if confirms or signs_in else "adk_request_input",
        "payload": args.get("authConfig"),
        "message": args.get("message", ""),
        "response_schema": args.get("response_schema"),
        "tool_call": {"args": about.get("args", {})},
    }
    value = (case.answer or default_answer)(wait)
    if signs_in:
        pass  # the AuthConfig itself
    elif not confirms:
        is_input = call.name == "adk_request_input"
        value = {"result": json.dumps(value) if is_input else value}
    else:
        value = {"confirmed": value["confirmed"], "payload": value.get("payload")}
    response = types.FunctionResponse(id=call.id, name=call.name, response=value)
    return Event(
        invocation_id=asked.invocation_id,
        author="user",
        branch=asked.branch,
        isolation_scope=asked.isolation_scope,
        content=types.Content(role="user", parts=[types.Part(function_response=response)]),
    )


@pytest.mark.parametrize("name", SAME)
async def test_a_durable_run_leaves_what_plain_adk_leaves(name: str, tmp_path: Any) -> None:
    case = CASES[name]
    theirs, ours = Ledger(tmp_path / "theirs"), Ledger(tmp_path / "ours")
    stock = await plain(case, theirs)
    session = await stock.session()
    config = {"features": {"durable_workflow": True}}
    root = case.build(ours)
    async with App("stock", root_agent=root, config=config, mongodb=memory_client()) as app:
        for message in case.messages:
            out = await app.invoke(user_id="u", session_id="s", message=message)
            while out.status == "suspended":
                give = case.answer or default_answer
                answers = {wait.id: give(wait.to_dict()) for wait in out.waits}
                out = await app.resume(out.execution_id, answers)
            assert out.status == "completed"
        events = await app.sessions.events(user_id="u", session_id="s")
        state = (await app.sessions.get(user_id="u", session_id="s")).state
    assert collections.Counter(ours.rows()) == collections.Counter(theirs.rows())
    assert places(events) == places(session.events)
    assert state == {k: v for k, v in session.state.items() if not k.startswith("temp:")}


async def test_a_request_that_plain_adk_sends_is_the_one_we_send(tmp_path: Any) -> None:
    """The prompt of every model turn, ids aside, in a run without waits."""
    case = CASES["ten tools"]
    prompts: dict[str, list[str]] = {"plain": [], "ours": []}

    def watched(which: str) -> Any:
        root = case.build(Ledger(tmp_path / which))

        def note(callback_context: Any, llm_request: Any) -> None:
            contents = []
            for content in llm_request.contents:
                data = content.model_dump(mode="json", exclude_none=True)
                for part in data.get("parts", ()):
                    for key in ("function_call", "function_response"):
                        part.get(key, {}).pop("id", None)
                contents.append(data)
            prompts[which].append(json.dumps(contents, sort_keys=True))

        root.before_model_callback = note
        return root

    await Stock(watched("plain")).run(user("go"))
    config = {"features": {"durable_workflow": True}}
    root = watched("ours")
    async with App("stock", root_agent=root, config=config, mongodb=memory_client()) as app:
        await app.invoke(user_id="u", message="go")
    assert prompts["ours"] == prompts["plain"]
