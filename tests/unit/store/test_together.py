"""Inserts of several callers in one: who goes with whom, and what each is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any

import pytest

from durable_adk.store import together
from durable_adk.store.together import Together

deadline: ContextVar[str] = ContextVar("deadline", default="none")


@pytest.fixture(autouse=True)
def _(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits goes when the one before it ends, however slow the machine is."""
    monkeypatch.setattr(together, "PATIENCE_S", 3600.0)


class Collection:
    """Inserts that end when the test says so; a key that is taken ends one."""

    def __init__(self) -> None:
        self.inserts: list[list[str]] = []
        self.stored: list[str] = []
        self.deadlines: list[str] = []
        self._gates: list[asyncio.Future[None]] = []
        self.together = Together(self.insert, timeout=nullcontext)

    async def insert(self, docs: Sequence[dict[str, Any]]) -> bool:
        self.inserts.append([doc["_id"] for doc in docs])
        self.deadlines.append(deadline.get())
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        await gate
        for doc in docs:
            if doc["_id"] in self.stored:
                return False
            self.stored.append(doc["_id"])
        return True

    def send(self, *keys: str, body: object = "") -> asyncio.Task[bool]:
        docs = [{"_id": key, "body": body} for key in keys]
        return asyncio.get_running_loop().create_task(self.together.insert(docs))

    async def finish(self, error: BaseException | None = None) -> None:
        """End the insert that came first, and let everybody see it."""
        gate = self._gates.pop(0)
        if error is None:
            gate.set_result(None)
        else:
            gate.set_exception(error)
        await settle()


async def settle() -> None:
    for _ in range(8):
        await asyncio.sleep(0)


async def test_what_comes_while_one_is_under_way_goes_together_with_the_next() -> None:
    rows = Collection()
    first, second, third = rows.send("a1"), rows.send("c1", "c2"), rows.send("b1")
    await settle()
    assert rows.inserts == [["a1"]]
    await rows.finish()
    assert rows.inserts == [["a1"], ["b1", "c1", "c2"]]  # each caller's own in its order
    assert first.done()
    assert not second.done()
    await rows.finish()
    assert [await first, await second, await third] == [True, True, True]
    assert sorted(rows.stored) == ["a1", "b1", "c1", "c2"]


async def test_one_caller_alone_inserts_as_ever() -> None:
    rows = Collection()
    token = deadline.set("its own")
    for key in ("a1", "a2"):
        one = rows.send(key)
        await settle()
        await rows.finish()
        assert await one
    deadline.reset(token)
    assert rows.inserts == [["a1"], ["a2"]]
    assert rows.deadlines == ["its own"] * 2


async def test_a_callers_deadline_is_not_that_of_the_others() -> None:
    rows = Collection()
    token = deadline.set("of one")
    sent = [rows.send("a1"), rows.send("b1")]
    await settle()
    await rows.finish()
    deadline.reset(token)
    assert rows.deadlines == ["of one", "none"]
    await rows.finish()
    assert [await one for one in sent] == [True, True]


async def test_at_a_duplicate_each_is_told_of_its_own() -> None:
    rows = Collection()
    rows.stored = ["c1"]
    sent = [rows.send(key) for key in ("a1", "b1", "c1", "d1")]
    await settle()
    await rows.finish()
    assert rows.inserts[1] == ["b1", "c1", "d1"]
    await rows.finish()
    assert rows.inserts[2:] == [["b1"], ["c1"], ["d1"]]
    for _ in range(3):
        await rows.finish()
    # b1 was stored with the others: whoever asks again is told of a duplicate, which is its own.
    assert [await one for one in sent] == [True, False, False, True]
    assert sorted(rows.stored) == ["a1", "b1", "c1", "d1"]


async def test_an_error_reaches_everybody_whose_documents_it_was_about() -> None:
    rows = Collection()
    first, second, third = (rows.send(key) for key in ("a1", "b1", "c1"))
    await settle()
    await rows.finish(OSError("of the first alone"))
    await rows.finish(OSError("of the two"))
    with pytest.raises(OSError, match="first alone"):
        await first
    for one in (second, third):
        with pytest.raises(OSError, match="of the two"):
            await one
    again = rows.send("b1")
    await settle()
    await rows.finish()
    assert await again


async def test_who_is_cancelled_takes_nobody_along() -> None:
    rows = Collection()
    first, gone, third = (rows.send(key) for key in ("a1", "b1", "c1"))
    await settle()
    gone.cancel()
    await settle()
    await rows.finish()
    assert rows.inserts[1] == ["c1"]
    fourth = rows.send("d1")
    third.cancel()  # its insert is under way, and stays so
    await settle()
    await rows.finish()
    await rows.finish()
    assert await first
    assert await fourth
    assert rows.stored == ["a1", "c1", "d1"]


async def test_the_first_of_all_may_be_cancelled_too() -> None:
    rows = Collection()
    first, second = rows.send("a1"), rows.send("b1")
    await settle()
    first.cancel()
    await settle()
    assert rows.inserts == [["a1"], ["b1"]]
    rows._gates.pop(0)
    await rows.finish()
    assert await second


async def test_one_that_hangs_does_not_hold_up_the_others_for_long(monkeypatch) -> None:
    monkeypatch.setattr(together, "PATIENCE_S", 0.0)
    rows = Collection()
    hangs, second = rows.send("a1"), rows.send("b1")
    while len(rows.inserts) < 2:  # by the timer
        await asyncio.sleep(0)
    rows._gates.pop(1).set_result(None)
    assert await second
    assert not hangs.done()
    await rows.finish()
    assert await hangs


async def test_what_is_large_goes_by_itself_and_at_once() -> None:
    rows = Collection()
    sent = [rows.send("a1"), rows.send("b1", body="x" * (together.MOST_CHARACTERS + 1))]
    sent += [rows.send("c1", body={"zip": b"x" * (together.MOST_CHARACTERS + 1), "size": 9})]
    sent += [rows.send(*(f"d{n}" for n in range(together.MOST_DOCUMENTS + 1)))]
    await settle()
    assert [len(each) for each in rows.inserts] == [1, 1, 1, together.MOST_DOCUMENTS + 1]
    for _ in sent:
        await rows.finish()
    assert [await one for one in sent] == [True] * 4


async def test_of_very_many_the_rest_goes_with_the_next_one() -> None:
    rows = Collection()
    sent = [rows.send(f"a{n:03}") for n in range(together.MOST_ATTEMPTS + 11)]
    await settle()
    for _ in range(3):
        await rows.finish()
    assert [len(each) for each in rows.inserts] == [1, together.MOST_ATTEMPTS, 10]
    assert all([await one for one in sent])
