"""``timeout`` bounds the whole call: opening, looking up, queueing and waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from durable_adk import Unavailable
from durable_adk.engine.ports import NoFaults, Write
from durable_adk.engine.service import Engine
from durable_adk.store.mongo import MongoStore
from tests.app import agents
from tests.app.agents import yes
from tests.app.conftest import MakeApp

pytestmark = pytest.mark.timeout(60)


class Hangs(NoFaults):
    """A MongoDB that does not take some kinds of writes."""

    kinds: tuple[Write, ...] = ()

    async def before(self, write: Write) -> None:  # type: ignore[override]
        if write in self.kinds:
            await asyncio.Event().wait()


async def never(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


async def test_an_id_without_a_session_is_looked_up_within_it(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await make_app(agents.payer([])).open()
    monkeypatch.setattr(Engine, "get", never)
    for call in (app.invoke, app.submit):
        with pytest.raises(Unavailable, match="the message: has no outcome within") as late:
            await call(user_id="u", message="hi", execution_id="x", timeout=0.05)
        assert "Nothing was begun" in late.value.remedy


async def test_opening_is_within_it(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(MongoStore, "open", never)
        app = make_app(agents.payer([]))
        with pytest.raises(Unavailable, match="Nothing was begun"):
            await app.invoke(user_id="u", message="hi", timeout=0.05)
    assert (await app.invoke(user_id="u", message="hi")).status == "suspended"


async def test_queueing_and_answering_are_within_it(make_app: MakeApp) -> None:
    faults = Hangs()
    app = make_app(agents.payer([]), faults=faults)
    out = await app.invoke(user_id="u", message="hi", execution_id="a")
    faults.kinds = (Write.BEGIN, Write.ANSWER)
    with pytest.raises(Unavailable, match="same call again"):
        await app.submit(user_id="u", message="hi", execution_id="b", timeout=0.05)
    with pytest.raises(Unavailable, match="execution 'a': has no outcome within"):
        await app.resume("a", yes(*out.waits), timeout=0.05)
    faults.kinds = ()
    assert (await app.resume("a", yes(*out.waits), timeout=60)).status == "completed"
    assert (await app.submit(user_id="u", message="hi", execution_id="b")).status == "queued"
