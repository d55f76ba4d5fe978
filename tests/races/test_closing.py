"""An answer that comes while an execution is being closed."""

from __future__ import annotations

from typing import Any

import pytest

from durable_adk import App, WaitClosed
from durable_adk.testing import memory_client
from tests.app.agents import Log, payer, yes
from tests.app.conftest import ON


async def test_an_answer_to_what_is_being_cancelled_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log: Log = []
    client = memory_client()
    one, two = (App("desk", root_agent=payer(log), mongodb=client, config=ON) for _ in range(2))
    out = await one.invoke(user_id="u", message="pay")
    store = (await one._lifecycle.opened()).store
    commit_end = store.commit_end
    refused: list[Any] = []

    async def later(*args: Any, **named: Any) -> Any:
        with pytest.raises(WaitClosed) as of_map:
            await two.resume(out.execution_id, yes(*out.waits))
        with pytest.raises(WaitClosed) as of_one:
            await two.answer(out.waits[0].id, {"confirmed": True})
        refused.extend((of_map, of_one))
        return await commit_end(*args, **named)

    monkeypatch.setattr(store, "commit_end", later)
    await one.cancel(out.execution_id, "enough")

    assert len(refused) == 2
    assert log == []
    await one.close()
    await two.close()
