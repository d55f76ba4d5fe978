"""What happens in an attempt, as it happens."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from google.adk.agents import RunConfig
from google.adk.agents.run_config import StreamingMode

from durable_adk import InvalidAnswer, NotFound, Outcome, SessionBusy, StreamEvent
from durable_adk.testing import calls, says
from tests.app import agents
from tests.app.agents import yes
from tests.app.conftest import MakeApp

STREAMED = RunConfig(streaming_mode=StreamingMode.SSE)


async def all_of(stream: Any) -> list[StreamEvent]:
    return [item async for item in stream]


def kinds(items: list[StreamEvent]) -> list[str]:
    return [item.kind for item in items]


def speaker() -> Any:
    """Streams two pieces of text, then the whole."""
    return agents.talker([says("hel", partial=True), says("lo", partial=True), says("hello")])


async def test_a_stream_has_tokens_events_and_one_last_result(make_app: MakeApp) -> None:
    app = make_app(speaker())
    items = await all_of(app.stream(user_id="u", message="hi", run_config=STREAMED))
    assert kinds(items) == ["token", "token", "event", "result"]
    assert [item.data for item in items[:2]] == ["hel", "lo"]
    out = items[-1].data
    assert isinstance(out, Outcome)
    assert out.response == "hello"
    assert not items[2].data.partial
    assert items[2].data == out.events[-1]


async def test_a_stream_that_suspends_ends_with_the_frontier(make_app: MakeApp) -> None:
    app = make_app(agents.payer([]))
    items = await all_of(app.stream(user_id="u", message="pay"))
    assert kinds(items)[-1] == "suspend"
    out = items[-1].data
    assert len(out.waits) == 1
    again = await all_of(app.resume_stream(out.execution_id, yes(*out.waits), by="me"))
    assert kinds(again)[-1] == "result"
    assert "event" in kinds(again)
    assert again[-1].data.response == "payer done"


async def test_a_stream_that_fails_ends_with_the_error(make_app: MakeApp) -> None:
    app = make_app(agents.talker(ValueError("no luck")))
    items = await all_of(app.stream(user_id="u", message="hi"))
    assert kinds(items)[-1] == "error"
    assert items[-1].data.error.message == "no luck"


async def test_the_events_of_a_stream_are_the_committed_ones(make_app: MakeApp) -> None:
    app = make_app(agents.plain_payer([], calls(("pay", {"amount": 1})), says("paid")))
    items = await all_of(app.stream(user_id="u", message="hi"))
    out = items[-1].data
    shown = [item.data for item in items if item.kind == "event"]
    committed = [event for event in out.events if event.author != "user"]
    assert [event.id for event in shown] == [event.id for event in committed]
    assert shown == committed


async def test_refusals_are_raised_before_the_first_item(make_app: MakeApp) -> None:
    app = make_app(agents.payer([]))
    out = await app.invoke(user_id="u", session_id="s", message="pay")
    with pytest.raises(SessionBusy):
        await anext(app.stream(user_id="u", session_id="s", message="and?"))
    with pytest.raises(InvalidAnswer):
        await anext(app.resume_stream(out.execution_id, {}))
    with pytest.raises(NotFound):
        await anext(app.resume_stream("nobody"))


async def test_the_same_execution_again_gives_only_the_last_item(make_app: MakeApp) -> None:
    app = make_app(agents.talker())
    given: Any = {"user_id": "u", "session_id": "s", "execution_id": "e", "message": "hi"}
    first = await all_of(app.stream(**given))
    again = await all_of(app.stream(**given))
    assert kinds(again) == ["result"]
    assert again[0] == first[-1]


async def test_closing_a_stream_only_detaches(make_app: MakeApp) -> None:
    log: agents.Log = []
    app = make_app(agents.plain_payer(log))
    given: Any = {"user_id": "u", "session_id": "s", "execution_id": "e", "message": "hi"}
    async with contextlib.aclosing(app.stream(**given)) as stream:
        assert (await anext(stream)).kind == "event"
    out = await app.invoke(**given)
    assert (out.response, log) == ("paid", [("pay", 1)])


async def test_a_stream_may_be_closed_by_another_task(make_app: MakeApp) -> None:
    app = make_app(agents.plain_payer([]))
    stream = app.stream(user_id="u", session_id="s", execution_id="e", message="hi")
    await anext(stream)
    await asyncio.create_task(stream.aclose())
    out = await app.invoke(user_id="u", session_id="s", execution_id="e", message="hi")
    assert out.status == "completed"


async def test_attaching_while_it_runs_gives_the_outcome(make_app: MakeApp) -> None:
    agent, go_on = agents.talker(), asyncio.Event()

    async def slow(callback_context: Any) -> None:
        await go_on.wait()

    agent.before_agent_callback = slow
    app = make_app(agent)
    given: Any = {"user_id": "u", "session_id": "s", "execution_id": "e", "message": "hi"}
    first = asyncio.create_task(all_of(app.stream(**given)))
    second = asyncio.create_task(all_of(app.stream(**given)))
    await asyncio.sleep(0)
    go_on.set()
    ends = [(await task)[-1] for task in (first, second)]
    assert ends[0] == ends[1]
