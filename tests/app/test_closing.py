"""``close()`` while other calls are under way: it gives every lease back, and they end well."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from durable_adk import App, DurableError, Unavailable, WriteUnknown
from durable_adk.engine.recovery import AT_ONCE
from durable_adk.engine.running import Attempts
from durable_adk.model.store_results import Write
from durable_adk.testing import FaultPlan
from tests.app import agents
from tests.app.conftest import ON

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def swept() -> Iterator[None]:
    """The driver does not close a connection that a call holds while its client is closed: it goes
    with the garbage. Here, and not in whatever test comes next."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


DUE = AT_ONCE + 2
MOMENTS = [
    ("before claim", 1),
    ("before claim", DUE),
    ("after claim", AT_ONCE),
    ("in model:scripted", 1),
    ("after end", 2),
]


def attempts_of(app: App) -> Attempts:
    opened = app._lifecycle._opened
    assert opened is not None
    return opened.engine._opened().attempts


async def began(app: App) -> asyncio.Task[None]:
    """``close()``, once it is told that nothing more may start."""
    attempts = attempts_of(app)
    closing = asyncio.create_task(app.close())
    while not attempts.closing:
        await asyncio.sleep(0)
    return closing


async def test_closing_leaves_nothing_running_at_any_moment_of_a_recovery(place: Any) -> None:
    async with App("desk", root_agent=agents.talker(), config=ON, **place) as desk:
        for moment, (point, at) in enumerate(MOMENTS):
            ids = [f"{moment}.{number}" for number in range(DUE)]
            for one in ids:
                await desk.submit(user_id="u", session_id=one, execution_id=one, message="hi")
            plan = FaultPlan()
            held = plan.hold(point, at=at)
            app = await App(
                "desk", root_agent=agents.talker(), config=ON, faults=plan, **place
            ).open()
            recovering = asyncio.create_task(app.recover())
            await held.reached()
            closing = await began(app)
            sent = plan.reached.count("before claim")
            held.release()
            await closing
            claimed = plan.reached.count("before claim")
            found = {one: (await desk.executions.get(one)).status for one in ids}
            with contextlib.suppress(DurableError):  # it says that the App was closed
                assert {out.execution_id for out in await recovering} <= set(ids)
            assert claimed == sent, (point, at)
            assert "running" not in found.values(), (point, at, found)
            left = [one for one in ids if found[one] == "queued"]
            assert {out.execution_id for out in await desk.recover()} == set(left)


async def test_a_recovery_whose_list_comes_after_the_closing_claims_nothing(
    place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with App("desk", root_agent=agents.talker(), config=ON, **place) as desk:
        await desk.submit(user_id="u", execution_id="x", message="hi")
        app = await App("desk", root_agent=agents.talker(), config=ON, **place).open()
        opened = app._lifecycle._opened
        assert opened is not None
        look, looking, found = opened.store.list_due, asyncio.Event(), asyncio.Event()

        async def late(*given: Any, **named: Any) -> Any:
            due = await look(*given, **named)
            looking.set()
            await found.wait()
            return due

        monkeypatch.setattr(opened.store, "list_due", late)
        recovering = asyncio.create_task(app.recover())
        close = opened.store.close

        async def last() -> None:
            await asyncio.wait({recovering})  # it has the store for all that it wants
            await close()

        monkeypatch.setattr(opened.store, "close", last)
        await looking.wait()
        closing = await began(app)
        found.set()
        await closing
        assert await recovering == ()
        record = await desk.executions.get("x")
        assert (record.status, record.attempt) == ("queued", 0)


async def test_what_closing_finds_under_way_says_that_it_was_closed(place: Any) -> None:
    """Held before it is sent, and where it was stored and nobody is told."""
    async with App("desk", root_agent=agents.payer([]), config=ON, **place) as desk:
        out = await desk.invoke(user_id="u", session_id="s", execution_id="x", message="hi")
        (wait,) = out.waits

        async def closed_at(point: str, lost: Write | None, call: str) -> BaseException:
            plan = FaultPlan()
            held = plan.hold(point)
            if lost is not None:
                plan.lose_reply(lost)
            app = await App("desk", config=ON, faults=plan, **place).open()
            calls = {
                "answer": lambda: app.answer(wait.id, {"confirmed": True}),
                "submit": lambda: app.submit(user_id="u", execution_id="y", message="hi"),
            }
            under_way = asyncio.create_task(calls[call]())
            await held.reached()
            await app.close()
            held.release()
            (error,) = await asyncio.gather(under_way, return_exceptions=True)
            plan.assert_all_struck()
            assert isinstance(error, BaseException), error
            return error

        for call, point, write in (
            ("answer", "answer", Write.ANSWER),
            ("submit", "begin", Write.BEGIN),
        ):
            error = await closed_at(f"before {point}", None, call)
            assert isinstance(error, Unavailable), error
            assert "closed" in str(error)
            error = await closed_at(f"after {point}", write, call)
            assert isinstance(error, WriteUnknown), error
            assert "closed" in str(error)
        # The same calls again settle it.
        receipt = await desk.answer(wait.id, {"confirmed": True})
        assert (receipt.open, receipt.runnable) == (0, True)
        again = await desk.submit(user_id="u", execution_id="y", message="hi")
        assert again.status == "queued"
