"""Where plain ADK goes wrong with a shape, though it is resumed with one event per branch.

Each shape says how (``stock``). One that says nothing must run every body as often under plain
ADK as it does durably; one that says something must not: when ADK has mended it, this fails, and
the remedy may go.
"""

from __future__ import annotations

import asyncio
import collections
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import BaseAgent, LlmAgent
from google.adk.events import Event
from google.genai import types

from durable_adk import App
from durable_adk.testing import memory_client
from tests.adapter.stock import Stock, user
from tests.adapter.test_stock import answer_event
from tests.shapes import resumable
from tests.shapes.all_shapes import SHAPES
from tests.shapes.shape import Shape
from tests.support.lives import Ledger, default_answer

STEPS_AT_MOST = 12
STUCK_AFTER_S = 10.0


Rows = collections.Counter[tuple[Any, ...]]


def rows_of(shape: Shape, ledger: Ledger) -> Rows:
    """What ran, but for bodies that are entered again by design."""
    again = set(shape.reentered)
    return collections.Counter(r for r in ledger.rows() if not {r[:1], r[:2]} & again)


def _run_config(shape: Shape) -> Any:
    return shape.run_config() if shape.run_config is not None else None


async def durably(shape: Shape, ledger: Ledger) -> Rows:
    config = {"features": {"durable_workflow": True}, **shape.config}
    services = shape.app(ledger) if shape.app is not None else {}
    root = shape.build(ledger)
    client = memory_client()
    async with App("plain", root_agent=root, config=config, mongodb=client, **services) as app:
        for turn, message in enumerate(shape.messages):
            out = await app.invoke(
                user_id="u",
                session_id="s",
                message=message,
                execution_id=f"e{turn}",
                run_config=_run_config(shape),
            )
            while out.status == "suspended":
                give = shape.answer or default_answer
                answers = {wait.id: give(wait.to_dict()) for wait in out.waits}
                out = await app.resume(out.execution_id, answers)
            assert out.status == "completed", out.error
    return rows_of(shape, ledger)


async def under_plain_adk(shape: Shape, ledger: Ledger) -> Rows | str:
    """What ran under plain ADK; text if it came to no end."""
    services = shape.app(ledger) if shape.app is not None else {}
    stock = Stock(shape.build(ledger), **services)
    stock.run_config = _run_config(shape)
    for turn, message in enumerate(shape.messages):
        invocation_id = f"e{turn}"
        await stock.run(user(message), invocation_id)
        for _ in range(STEPS_AT_MOST):
            answers = await _answers(shape, stock)
            if not answers:
                break
            await _resume(stock, answers, invocation_id)
        else:
            return "it asks for ever"
    return rows_of(shape, ledger)


async def _answers(shape: Shape, stock: Stock) -> list[Event]:
    session = await stock.session()
    answered = {r.id for e in session.events for r in e.get_function_responses()}
    grouped: dict[Any, list[Event]] = {}
    for call, asked in stock.open_calls():
        if call.id not in answered:
            event = answer_event(shape, call, asked)
            grouped.setdefault((event.branch, event.isolation_scope), []).append(event)
    return [_joined(events) for events in grouped.values()]


def _joined(events: list[Event]) -> Event:
    first = events[0]
    parts = [part for event in events for part in (event.content.parts if event.content else ())]
    first.content = types.Content(role="user", parts=parts)
    return first


async def _resume(stock: Stock, answers: list[Event], invocation_id: str) -> None:
    root = stock.runner.agent
    by_message = isinstance(root, BaseAgent) and not isinstance(root, LlmAgent)
    last = answers.pop() if by_message else None
    session = await stock.session()
    for event in answers:
        await stock.service.append_event(session, event)
    await stock.run(last.content if last is not None else None, invocation_id)


async def plain_outcome(shape: Shape, ledger: Ledger) -> Rows | str:
    try:
        return await asyncio.wait_for(under_plain_adk(shape, ledger), STUCK_AFTER_S)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


OF_OURS = {"tools in threads"}
"""Rows of these say what only a durable call knows."""
COMPARED = [name for name in SHAPES if name not in resumable.SHAPES and name not in OF_OURS]
"""Plain ADK starts no resumable app with an invocation id of ours (the last test here)."""


@pytest.mark.parametrize("name", COMPARED)
async def test_plain_adk_differs_where_a_shape_says_so(name: str, tmp_path: Path) -> None:
    shape = SHAPES[name]
    ours = await durably(shape, Ledger(tmp_path / "ours"))
    theirs = await plain_outcome(shape, Ledger(tmp_path / "theirs"))
    if shape.stock:
        assert theirs != ours, f"plain ADK does it right now, no longer: {shape.stock}"
    else:
        assert theirs == ours


async def test_a_resumable_app_takes_an_invocation_id_for_one_to_resume(tmp_path: Path) -> None:
    """Remedy: ``adk/runner.py`` gives ours to a new invocation."""
    shape = resumable.SHAPES["sequence as root, waiting, resumable"]
    wrong = await plain_outcome(shape, Ledger(tmp_path / "ledger"))
    assert "no events to resume" in str(wrong)
