"""The keeper: leases are renewed from outside the attempts' loop, and what a renewal finds."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from durable_adk.engine.keeper import Keeper
from durable_adk.engine.ports import Store
from durable_adk.engine.settings import EngineSettings
from durable_adk.errors import ConfigError, Unavailable
from durable_adk.model.execution import Lease
from durable_adk.model.identity import ExecutionKey, FencingToken, Nonce
from durable_adk.model.store_results import Renewal
from durable_adk.store.clock import ManualClock

TTL_MS = 3000
EVERY_S = 0.2
"""The keeper's own pause is real time: that it keeps it without the loop is what is tested."""
FOR_EVER_S = 3600.0


class Link:
    """A connection that answers as the test says."""

    def __init__(self) -> None:
        self.renewed: list[Lease] = []
        self.threads: set[int] = set()
        self.answers: list[Renewal | Exception] = []
        self.closed = threading.Event()
        self.on_renew: Callable[[], None] = lambda: None

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Renewal:
        assert ttl_ms == TTL_MS
        self.threads.add(threading.get_ident())
        self.renewed.append(lease)
        self.on_renew()
        answer = self.answers.pop(0) if self.answers else Renewal(held=True)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed.set()


class LinkedStore:
    def __init__(self, link: Link, *, needs_own_loop: bool = True) -> None:
        self.link = link
        self.needs_own_loop = needs_own_loop
        self.refusal: Exception | None = None

    @asynccontextmanager
    async def keeper_link(self) -> AsyncIterator[Link]:
        if self.refusal is not None:
            raise self.refusal
        try:
            yield self.link
        finally:
            await self.link.close()


def lease(name: str = "e") -> Lease:
    return Lease(ExecutionKey(name), FencingToken(1), Nonce("n"))


class Told:
    """What the keeper reports, on which thread."""

    def __init__(self) -> None:
        self.refused = 0
        self.cancelled: list[str] = []
        self.threads: set[int] = set()
        self.event = asyncio.Event()

    def on_refused(self) -> None:
        self.refused += 1
        self._note()

    def on_cancel(self, reason: str) -> None:
        self.cancelled.append(reason)
        self._note()

    def _note(self) -> None:
        self.threads.add(threading.get_ident())
        self.event.set()

    @property
    def callbacks(self) -> dict[str, Any]:
        return {"on_refused": self.on_refused, "on_cancel": self.on_cancel}


@asynccontextmanager
async def keeper_over(
    link: Link, clock: ManualClock | None = None, *, needs_own_loop: bool = True, **settings: Any
) -> AsyncIterator[Keeper]:
    store = LinkedStore(link, needs_own_loop=needs_own_loop)
    keeper = Keeper(
        cast(Store, store),
        clock=clock or ManualClock(),
        settings=EngineSettings(lease_ttl_ms=TTL_MS, **settings),
        renew_every_s=EVERY_S,
    )
    await keeper.start()
    try:
        yield keeper
    finally:
        await keeper.stop()


@pytest.mark.parametrize("needs_own_loop", [True, False])
async def test_a_lease_is_renewed_every_third_of_it_until_it_is_dropped(
    needs_own_loop: bool,
) -> None:
    link, told = Link(), Told()
    async with keeper_over(link, needs_own_loop=needs_own_loop) as keeper:
        started = time.monotonic()
        guard = keeper.hold(lease(), **told.callbacks)
        while len(link.renewed) < 2:
            await asyncio.sleep(0.01)
        assert time.monotonic() - started > 1.8 * EVERY_S
        keeper.drop(guard)
        keeper.drop(guard)
        renewed = len(link.renewed)
        await asyncio.sleep(3.3 * EVERY_S)
        assert len(link.renewed) <= renewed + 1, "but for one that was under way"
    assert link.closed.is_set()
    assert (threading.get_ident() in link.threads) is not needs_own_loop


async def test_it_goes_on_while_a_synchronous_tool_blocks_the_loop() -> None:
    link, told = Link(), Told()
    async with keeper_over(link) as keeper:
        keeper.hold(lease(), **told.callbacks)
        while len(link.renewed) < 3:
            time.sleep(0.01)  # noqa: ASYNC251 - this is the tool


async def test_a_loop_that_does_not_answer_for_too_long_is_not_kept_until_it_answers() -> None:
    link, told = Link(), Told()
    async with keeper_over(link, max_block_s=1.5 * EVERY_S) as keeper:
        keeper.hold(lease(), **told.callbacks)
        while not link.renewed:
            time.sleep(0.01)  # noqa: ASYNC251 - a loop that hangs
        time.sleep(4.5 * EVERY_S)  # noqa: ASYNC251
        assert len(link.renewed) <= 2, "the second was still within max_block"
        renewed = len(link.renewed)
        while len(link.renewed) <= renewed:
            await asyncio.sleep(0.01)


async def test_the_deadline_counts_from_before_the_last_acknowledged_renewal_was_sent() -> None:
    link, told, clock = Link(), Told(), ManualClock()
    good_for_ms = TTL_MS - 1000  # ttl - max(1 s, ttl / 10)
    async with keeper_over(link, clock, needs_own_loop=False) as keeper:
        claimed_at = clock.elapsed()
        clock.advance(500)
        guard = keeper.hold(lease(), since=claimed_at, **told.callbacks)
        clock.advance(good_for_ms - 501)
        assert guard.may_start()
        clock.advance(1)
        assert not guard.may_start(), "counted from before the claim was sent"

        link.on_renew = lambda: clock.advance(300)  # the reply takes its time
        sent_at = clock.elapsed()
        keeper._every_s = FOR_EVER_S  # from the next one on
        while not link.renewed:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert guard.may_start(), "a later renewal gives the right back"
        clock.advance(int(good_for_ms - (clock.elapsed() - sent_at) * 1000) - 1)
        assert guard.may_start()
        clock.advance(1)
        assert not guard.may_start()


def test_a_long_lease_keeps_a_tenth_of_it_in_reserve() -> None:
    async def check() -> None:
        clock = ManualClock()
        keeper = Keeper(
            cast(Store, LinkedStore(Link())),
            clock=clock,
            settings=EngineSettings(lease_ttl_ms=30_000),
        )
        guard = keeper.hold(lease(), **Told().callbacks)
        clock.advance(26_999)
        assert guard.may_start()
        clock.advance(1)
        assert not guard.may_start()

    asyncio.run(check())


async def test_a_failed_renewal_is_tried_again_soon_and_moves_no_deadline() -> None:
    link, told, clock = Link(), Told(), ManualClock()
    link.answers = [Unavailable("no primary"), RuntimeError("a driver's bug")]
    go_on = threading.Event()

    def hold(renewals: int) -> None:
        if renewals == 3:
            go_on.wait()

    link.on_renew = lambda: hold(len(link.renewed))
    async with keeper_over(link, clock) as keeper:
        guard = keeper.hold(lease(), **told.callbacks)
        keeper._every_s = FOR_EVER_S  # what follows does not wait for the next third
        clock.advance(1999)
        while len(link.renewed) < 2:
            await asyncio.sleep(0.01)
        clock.advance(1)
        assert not guard.may_start()
        while len(link.renewed) < 3:
            await asyncio.sleep(0.01)
        assert not guard.may_start()
        go_on.set()
        while not guard.may_start():
            await asyncio.sleep(0.01)
    assert told.refused == 0


@pytest.mark.parametrize("needs_own_loop", [True, False])
async def test_a_refused_renewal_is_reported_on_the_loop_of_the_attempt_and_ends_the_keeping(
    needs_own_loop: bool,
) -> None:
    link, told = Link(), Told()
    link.answers = [Renewal(held=False)]
    async with keeper_over(link, needs_own_loop=needs_own_loop) as keeper:
        keeper.hold(lease(), **told.callbacks)
        await told.event.wait()
        await asyncio.sleep(1.3 * EVERY_S)  # nothing follows
    assert told.refused == 1
    assert told.threads == {threading.get_ident()}
    assert len(link.renewed) == 1


async def test_a_cancellation_that_was_asked_for_is_reported_once() -> None:
    link, told = Link(), Told()
    link.answers = [Renewal(held=True, cancel="stop"), Renewal(held=True, cancel="stop")]
    async with keeper_over(link) as keeper:
        keeper.hold(lease(), **told.callbacks)
        while len(link.renewed) < 3:  # by then the second was heard
            await asyncio.sleep(0.01)
        await told.event.wait()
    assert told.cancelled == ["stop"]
    assert told.threads == {threading.get_ident()}


async def test_what_was_dropped_while_its_renewal_was_under_way_is_told_nothing() -> None:
    link, told = Link(), Told()
    link.answers = [Renewal(held=False)]
    async with keeper_over(link, needs_own_loop=False) as keeper:
        guard = keeper.hold(lease(), **told.callbacks)
        link.on_renew = lambda: keeper.drop(guard)
        while not link.renewed:
            await asyncio.sleep(0.01)
        await asyncio.sleep(EVERY_S / 4)
    assert told.refused == 0


async def test_many_leases_are_kept_by_one_thread() -> None:
    link, told = Link(), Told()
    async with keeper_over(link) as keeper:
        for number in range(200):
            keeper.hold(lease(f"e{number}"), **told.callbacks)
        while len(link.renewed) < 200:
            await asyncio.sleep(0.01)
    assert len({one.key for one in link.renewed}) == 200
    assert len(link.threads) == 1


@pytest.mark.parametrize("needs_own_loop", [True, False])
async def test_a_link_that_cannot_be_made_is_an_error_of_the_start(needs_own_loop: bool) -> None:
    store = LinkedStore(Link(), needs_own_loop=needs_own_loop)
    store.refusal = ConfigError("mongodb", "has no private copy", "Pass a URI.")
    keeper = Keeper(cast(Store, store), clock=ManualClock(), settings=EngineSettings())
    with pytest.raises(ConfigError):
        await keeper.start()
    await keeper.stop()


async def test_it_can_be_stopped_twice_and_started_again() -> None:
    link = Link()
    keeper = Keeper(
        cast(Store, LinkedStore(link)),
        clock=ManualClock(),
        settings=EngineSettings(lease_ttl_ms=TTL_MS),
    )
    for _ in range(2):
        await keeper.start()
        await keeper.start()
        keeper.hold(lease(), **Told().callbacks)
        await keeper.stop()
        await keeper.stop()
    assert link.closed.is_set()
