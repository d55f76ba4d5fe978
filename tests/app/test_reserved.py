"""Public names that are not built yet exist, and say so with a remedy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from durable_adk import App, ConfigError
from tests.app import agents
from tests.app.conftest import ON

NAMES: dict[str, Callable[[App], Any]] = {
    "waits.watch": lambda app: app.waits.watch(),
    "runner.run_live": lambda app: app.runner.run_live(live_request_queue=None),
    "export": lambda app: app.export(),
    "import_": lambda app: app.import_(),
    "executions.export": lambda app: app.executions.export("e"),
}


@pytest.mark.parametrize("name", NAMES)
async def test_a_reserved_name_says_not_yet(name: str) -> None:
    app = App("desk", root_agent=agents.talker(), config=ON, mongodb="mongodb://nowhere")

    async def use() -> None:
        done = NAMES[name](app)
        if isinstance(done, Awaitable):
            await done

    with pytest.raises(ConfigError, match="not yet") as caught:
        await use()
    assert caught.value.remedy
