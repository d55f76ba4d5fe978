"""Closing an App closes its agents' toolsets, as ADK's runner does."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from google.adk.agents import SequentialAgent
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_toolset import BaseToolset
from google.genai import types

from durable_adk import App
from durable_adk.testing import memory_client
from tests.app import agents
from tests.app.conftest import ON
from tests.sessions.test_runner_parity import message, run, says_text


class Counting(BaseToolset):
    """Counts how often it is closed; compared by value, so that nobody can hash it."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.closed = 0
        self.fails = fails

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counting) and self.closed == other.closed

    __hash__ = None  # type: ignore[assignment]

    async def get_tools(self, readonly_context: Any = None) -> list[Any]:
        return []

    async def close(self) -> None:
        self.closed += 1
        if self.fails:
            raise ConnectionError("no server")


def app_of(root: Any, **named: Any) -> App:
    return App("desk", root_agent=root, config=ON, mongodb=memory_client(), **named)


async def test_closing_an_app_closes_each_toolset_once_wherever_it_is() -> None:
    first, shared, inner = Counting(), Counting(), Counting()
    helper = agents.talker(name="helper", tools=[inner])
    a = agents.talker(name="a", tools=[first, shared])
    b = agents.talker(name="b", tools=[shared, AgentTool(helper)])
    app = app_of(SequentialAgent(name="both", sub_agents=[a, b]))
    async with app:
        await app.invoke(user_id="u", message="go")
        assert [one.closed for one in (first, shared)] == [0, 0]
    await app.close()
    assert [one.closed for one in (first, shared, inner)] == [1, 1, 1]


async def test_one_that_fails_to_close_is_logged_and_the_others_are_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bad, good = Counting(fails=True), Counting()
    with caplog.at_level(logging.WARNING, "durable_adk"):
        async with app_of(agents.talker(tools=[bad, good])):
            pass
    assert (bad.closed, good.closed) == (1, 1)
    assert "toolset Counting failed to close" in caplog.text


async def test_a_toolset_that_another_open_app_uses_is_closed_with_the_last_of_them() -> None:
    toolset = Counting()
    async with app_of(agents.talker(tools=[toolset])):
        async with app_of(agents.talker(tools=[toolset])):
            pass
        assert toolset.closed == 0
    assert toolset.closed == 1


async def test_an_app_and_its_runner_close_a_toolset_once_after_both() -> None:
    toolset = Counting()
    async with app_of(agents.talker(tools=[toolset])) as app:
        await app.invoke(user_id="u", message="go")
        await run(app.runner, says_text())
        await app.runner.close()
        assert toolset.closed == 0
    assert toolset.closed == 1


async def test_an_app_that_is_opened_again_closes_them_again() -> None:
    toolset = Counting()
    app = app_of(agents.talker(tools=[toolset]))
    for times in (1, 2):
        async with app:
            pass
        assert toolset.closed == times


def test_a_call_on_a_loop_of_its_own_leaves_them_open(replica_set_uri: str, database: str) -> None:
    toolset = Counting()
    app = App(
        "desk",
        root_agent=agents.talker(tools=[toolset]),
        config=ON,
        mongodb=replica_set_uri,
        database=database,
    )
    list(app.runner.run(user_id="u", session_id="s", new_message=message(types.Part(text="hi"))))
    assert toolset.closed == 0
