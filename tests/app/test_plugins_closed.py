"""Closing an App closes its plugins, as ADK's runner does: once, after all else."""

from __future__ import annotations

from typing import Any

import pytest
from google.adk.apps import App as AdkApp
from google.adk.plugins.base_plugin import BasePlugin

from durable_adk import App
from durable_adk.app.runner import DurableRunner
from durable_adk.testing import memory_client
from tests.app import agents
from tests.app.conftest import ON
from tests.app.test_toolsets import Counting
from tests.sessions.test_runner_parity import run, says_text


class Noting(BasePlugin):
    """Notes how often it is closed, and what was closed before."""

    def __init__(self, name: str = "noting", *, after: Counting | None = None, fails: bool = False):
        super().__init__(name)
        self.closed: list[int] = []
        self.after = after or Counting()
        self.fails = fails

    async def close(self) -> None:
        self.closed.append(self.after.closed)
        if self.fails:
            raise ConnectionError("no server")


def app_of(*plugins: Any, root: Any = None, **named: Any) -> App:
    return App(
        "desk",
        root_agent=agents.talker() if root is None else root,
        config={**ON, **named},
        mongodb=memory_client(),
        plugins=plugins,
    )


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("uses", ["app", "runner", "both"])
async def test_an_app_closes_each_plugin_once_after_all_else(uses: str, attempts: int) -> None:
    toolset = Counting()
    plugin, other = Noting(after=toolset), Noting("other", after=toolset)
    root = agents.talker(tools=[toolset])
    app = app_of(plugin, other, root=root, retry={"max_attempts": attempts})
    if uses != "runner":
        await app.invoke(user_id="u", message="go")
    if uses != "app":
        await run(app.runner, says_text())
    assert plugin.closed == []
    await app.close()
    await app.close()
    assert plugin.closed == other.closed == [1]
    await app.invoke(user_id="u", message="go")
    await app.close()
    assert plugin.closed == [1, 2], "it was opened again"


async def test_plugins_of_an_adk_app_are_closed_too() -> None:
    plugin = Noting()
    async with app_of(root=AdkApp(name="desk", root_agent=agents.talker(), plugins=[plugin])) as a:
        await a.invoke(user_id="u", message="go")
    assert plugin.closed == [0]


async def test_a_plugin_that_another_open_app_has_is_closed_with_the_last_of_them() -> None:
    plugin = Noting()
    async with app_of(plugin):
        async with app_of(plugin):
            pass
        assert plugin.closed == []
    assert plugin.closed == [0]


async def test_one_that_fails_to_close_is_told_when_all_is_closed() -> None:
    bad, good = Noting("bad", fails=True), Noting("good")
    app = app_of(bad, good)
    await app.open()
    with pytest.raises(RuntimeError, match="bad"):
        await app.close()
    assert (len(bad.closed), len(good.closed)) == (1, 1)
    assert "closed" in repr(app)


async def test_a_runner_of_its_own_closes_them_itself() -> None:
    plugin = Noting()
    runner = DurableRunner(
        agent=agents.talker(),
        app_name="desk",
        plugins=[plugin],
        mongodb=memory_client(),
        config=ON,
    )
    await run(runner, says_text())
    await runner.close()
    assert plugin.closed == [0]
