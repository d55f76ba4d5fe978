"""A page of waits while an execution is answered and waits again: it has what is open now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google.adk.tools.function_tool import FunctionTool

from durable_adk import App
from durable_adk.app.waiting import page_of_waits
from durable_adk.model.store_results import Selection
from durable_adk.testing import calls, memory_client, says
from tests.app import agents
from tests.app.agents import yes
from tests.app.conftest import ON


class Scan:
    """A store whose scan meets executions page by page, as given."""

    def __init__(self, *pages: tuple[Any, ...]) -> None:
        self.pages = pages

    async def list_waiting(self, selection: Selection) -> tuple[tuple[Any, ...], str | None]:
        number = int(selection.cursor or 0)
        following = number + 1
        return self.pages[number], str(following) if following < len(self.pages) else None


async def test_it_is_on_a_page_once_whatever_pages_of_executions_it_was_met_on() -> None:
    def pay(amount: int) -> dict[str, Any]:
        """Pay somebody."""
        return {"paid": amount}

    script = [calls(("pay", {"amount": n})) for n in (1, 2)]
    root = agents.talker(
        *script, says("done"), tools=[FunctionTool(pay, require_confirmation=True)]
    )
    app = App("desk", root_agent=root, config=ON, mongodb=memory_client())
    async with app:
        engine = (await app._lifecycle.opened()).engine
        asked = await app.invoke(user_id="u", message="go", execution_id="e")
        before = await engine.get("e")
        await app.invoke(user_id="u", message="go", execution_id="other")
        other = await engine.get("other")
        again = await app.resume("e", yes(*asked.waits))
        after = await engine.get("e")
        assert after.waiting_since >= other.waiting_since >= before.waiting_since
        store: Any = Scan((before, other), (after,))
        selection = Selection(app._lifecycle.tenant, limit=9)
        page = await page_of_waits(store, selection, None)
        assert [one.execution_id for one in page] == ["other", "e"]
        assert page.items[1].id == again.waits[0].id
        found, cursor = [], None
        while not found or cursor is not None:
            page = await page_of_waits(store, replace(selection, limit=1), cursor)
            found += page.items
            cursor = page.cursor
        assert [one.execution_id for one in found] == ["e", "other", "e"]
