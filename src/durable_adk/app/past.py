"""What is stored of sessions, read for people: only what is shown of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from durable_adk.app import checks, show
from durable_adk.app.lifecycle import Lifecycle, Opened
from durable_adk.app.outcome import ExecutionRecord, Page, SessionInfo, SessionNode
from durable_adk.app.trees import forest
from durable_adk.engine import recent
from durable_adk.engine.reads import moment, shown_steps
from durable_adk.errors import ConfigError, NotFound
from durable_adk.model.codec import decode
from durable_adk.model.execution import Execution, SessionRecord, StepDocument
from durable_adk.model.identity import SessionKey, checked_id, session_key
from durable_adk.model.store_results import Selection

_CURSOR = re.compile(r"t(\d{1,9})")
_NO_TURN = 2**31
"""More than any turn's number."""


@dataclass(frozen=True, slots=True)
class Past:
    """A session with what its executions committed.

    Attributes:
        state: After its last finished turn, with the shared ``user:`` and ``app:`` entries.
        events: The committed ones that were asked for.
        updated_at: Server milliseconds of the last change.
        pending: Id of the first execution of a fork, if there is no such execution yet.
    """

    record: SessionRecord
    state: dict[str, Any]
    events: tuple[Any, ...]
    updated_at: int
    pending: str | None = None

    def info(self) -> SessionInfo:
        return replace(
            info_of(self.record, pending=self.pending),
            state=self.state,
            updated_at=moment(self.updated_at),
        )


def info_of(record: SessionRecord, *, pending: str | None = None) -> SessionInfo:
    """A session without its state."""
    return SessionInfo(
        id=record.session_id,
        user_id=record.user_id,
        created_at=moment(record.created_at),
        forked_from=record.lineage[-1].session_id if record.lineage else None,
        base_turns=record.base,
        pending=pending,
    )


async def find(lifecycle: Lifecycle, user_id: str, session_id: str) -> tuple[Opened, SessionRecord]:
    """A session that can be used.

    Raises:
        NotFound: the user has no such session.
        Unavailable: its import has not ended.
    """
    user, session = checked_id("user_id", user_id), checked_id("session_id", session_id)
    opened = await lifecycle.opened()
    record = await opened.store.get_session(session_key(lifecycle.tenant, user, session))
    if record is None:
        raise _not_found(user, session)
    record.check_whole()
    return opened, record


def _not_found(user: str, session: str) -> NotFound:
    return NotFound(
        f"session {session!r} of user {user!r}",
        "there is no such session",
        "invoke() makes it, or sessions.create().",
    )


async def load_past(
    lifecycle: Lifecycle,
    user_id: str,
    session_id: str,
    *,
    num_recent_events: int | None,
    after_timestamp: float | datetime | None,
) -> Past:
    """``Sessions.past``."""
    wanted = recent.Wanted(_checked_count(num_recent_events), _checked_time(after_timestamp))
    opened, record = await find(lifecycle, user_id, session_id)
    store, key = opened.store, record.key
    shared, _stamp = await store.load_scopes(lifecycle.tenant, record.user_id)
    latest = await store.latest_execution(key)
    steps: Sequence[StepDocument] = ()
    before, pending, updated_at = record.ground + 1, None, record.created_at
    if latest is not None:
        before = latest.turn if latest.is_active else latest.turn + 1
        moments = (latest.created_at, latest.ended_at or 0, latest.waiting_since or 0)
        updated_at = max(updated_at, *moments)
    elif record.awaited is not None:
        pending = record.awaited.execution_id
    if latest is not None and latest.is_active:
        steps = await shown_steps(store, latest)
    history = await recent.newest_turns(
        store, key, before=before, wanted=wanted, after=recent.times_of(steps)
    )
    turns: list[tuple[Execution, Sequence[StepDocument]]]
    turns = [(turn.execution, turn.steps) for turn in history.turns]
    if latest is not None and steps:
        turns.append((latest, steps))
    state = _state_after(history.session, turns)
    state |= {name: decode(value) for name, value in shared.items()}
    events = wanted.of(_events(opened, turns) if wanted.count != 0 else ())
    return Past(record, state, events, updated_at, pending)


async def list_turns(
    lifecycle: Lifecycle, user_id: str, session_id: str, *, limit: int, cursor: str | None
) -> Page[ExecutionRecord]:
    """``Sessions.turns``."""
    before = _NO_TURN if cursor is None else _turn_in(checks.checked_text("cursor", cursor))
    count = checks.checked_limit(limit)
    opened, record = await find(lifecycle, user_id, session_id)
    found = await opened.store.list_turns(record, before=before, limit=count + 1)
    shown = found[:count]
    following = f"t{shown[-1].turn}" if len(found) > count else None
    return Page(tuple(show.record_of(execution) for execution in shown), following)


async def load_tree(
    lifecycle: Lifecycle, user_id: str, session_id: str | None
) -> tuple[SessionNode, ...]:
    """``Sessions.tree``."""
    user = checked_id("user_id", user_id)
    session = checks.checked_optional_id("session_id", session_id)
    opened = await lifecycle.opened()
    records: list[SessionRecord] = []
    place = Selection(tenant=lifecycle.tenant, user_id=user, limit=checks.MAX_PAGE)
    while True:
        found, following = await opened.store.list_sessions(place)
        records += found
        if following is None:
            break
        place = replace(place, cursor=following)
    infos = await infos_of(opened, records)
    roots = forest([record for record in records if record.key in infos], infos)
    if session is None:
        return roots
    for root in roots:
        if any(node.info.id == session for node in root.walk()):
            return (root,)
    raise _not_found(user, session)


async def infos_of(
    opened: Opened, records: Iterable[SessionRecord]
) -> dict[SessionKey, SessionInfo]:
    """Whole sessions as they are listed, by key; one more read for the forks among them."""
    whole = [one for one in records if one.imported is None or one.imported.is_whole]
    following = {r.key: r.awaited for r in whole if r.awaited is not None}
    keys = [one.key for one in following.values()]
    there = await opened.store.existing_executions(keys)
    pending = {key: one.execution_id for key, one in following.items() if one.key not in there}
    return {record.key: info_of(record, pending=pending.get(record.key)) for record in whole}


_Steps = Sequence[tuple[Execution, Sequence[StepDocument]]]


def _state_after(session: SessionRecord, turns: _Steps) -> dict[str, Any]:
    """The session's own state after these turns, its newest ones."""
    states = [step.state for _execution, steps in turns for step in steps if step.state is not None]
    payload = states[-1] if states else session.first_state
    return decode(payload) if payload else {}


def _events(opened: Opened, turns: _Steps) -> list[Any]:
    return [
        event
        for execution, steps in turns
        for event in opened.program.decode_events(execution, steps)
    ]


def _turn_in(cursor: str) -> int:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise ConfigError("cursor", "is not one that a page returned", "Start without a cursor.")
    return int(match[1])


def _checked_count(count: object) -> int | None:
    if count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 0):
        return count
    raise ConfigError(
        "num_recent_events", f"{count!r} is not a whole number from 0", "Pass None for all."
    )


def _checked_time(time: object) -> float | None:
    """Seconds since the epoch."""
    if time is None:
        return None
    if isinstance(time, datetime) and time.tzinfo is not None:
        return time.timestamp()
    is_number = isinstance(time, int | float) and not isinstance(time, bool)
    if isinstance(time, int | float) and is_number and math.isfinite(time):
        return float(time)
    raise ConfigError(
        "after_timestamp",
        f"{time!r} is no time",
        "Pass seconds since the epoch, or a datetime with a time zone.",
    )
