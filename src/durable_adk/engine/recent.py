"""The newest turns of a session that hold the events somebody asks for, and no others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from durable_adk.engine.ports import Store
from durable_adk.model import codec
from durable_adk.model.execution import Execution, History, StepDocument, Turn
from durable_adk.model.identity import SessionKey

_MOST_AT_ONCE: Final = 64
"""Turns in one read."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events of a session are wanted, as ADK's ``GetSessionConfig`` says it.

    Attributes:
        count: At most so many, the newest ones; None: all.
        since: Seconds since the epoch: none before this time; None: from the beginning.
    """

    count: int | None = None
    since: float | None = None

    @property
    def is_all(self) -> bool:
        return self.count is None and self.since is None

    def is_met_by(self, times: Sequence[float]) -> bool:
        """Whether nothing older than these newest events is wanted."""
        if self.count is not None and len(times) >= self.count:
            return True
        return self.since is not None and any(time < self.since for time in times)

    def of(self, events: Sequence[Any]) -> tuple[Any, ...]:
        """The wanted ones of events in order, as ADK's in-memory service picks them."""
        found = tuple(events)
        if self.count is not None:
            found = found[max(0, len(found) - self.count) :]
        if self.since is not None:
            place = len(found)
            while place and found[place - 1].timestamp >= self.since:
                place -= 1
            found = found[place:]
        return found


async def history_for(store: Store, execution: Execution, *, max_turns: int | None) -> History:
    """What an attempt stands on: all finished turns before its own, or the newest whole ones that
    ``max_turns`` and the ``get_session_config`` of its ``run_config`` allow, at least one."""
    return await newest_turns(
        store,
        execution.session_key,
        before=execution.turn,
        wanted=_wanted_by(execution),
        max_turns=max_turns,
    )


def _wanted_by(execution: Execution) -> Wanted:
    if "get_session_config" not in execution.input:
        return Wanted()
    run_config = codec.decode(execution.input).get("run_config")
    asked = getattr(run_config, "get_session_config", None)
    return Wanted() if asked is None else Wanted(asked.num_recent_events, asked.after_timestamp)


async def newest_turns(
    store: Store,
    key: SessionKey,
    *,
    before: int,
    wanted: Wanted,
    max_turns: int | None = None,
    after: Sequence[float] = (),
) -> History:
    """The newest finished turns before a turn, down to the oldest wanted event; at least one, if
    there is one, for the state after it. Read in pages that grow.

    Args:
        store: Where from.
        key: The session.
        before: Only turns before this one.
        wanted: Which events.
        max_turns: At most so many turns.
        after: Times of newer events that are known already.
    """
    if wanted.is_all:
        return await store.load_history(key, before=before, max_turns=max_turns)
    newest, retained = before, None
    turns: list[Turn] = []  # newest first
    times = list(after)
    size = 1
    while True:
        page = size if max_turns is None else min(size, max_turns - len(turns))
        history = await store.load_history(key, before=before, max_turns=page)
        retained = retained or history.session.retained
        if history.session.retained != retained:  # turns are being removed: begin again
            return await newest_turns(
                store, key, before=newest, wanted=wanted, max_turns=max_turns, after=after
            )
        for turn in reversed(history.turns):
            if turns and wanted.is_met_by(times):
                break
            turns.append(turn)
            times += times_of(turn.steps)
        is_last = len(history.turns) < page or len(turns) == max_turns
        if is_last or wanted.is_met_by(times):
            return dataclasses.replace(history, turns=tuple(reversed(turns)))
        before, size = history.turns[0].execution.turn, min(size * 2, _MOST_AT_ONCE)


def times_of(steps: Iterable[StepDocument]) -> list[float]:
    """When the events of committed steps were appended, in seconds since the epoch."""
    return [_time_of(data) for step in steps for data in codec.decode(step.events)]


def _time_of(envelope: dict[str, Any]) -> float:
    """An event's time: of its JSON, or of itself where it is stored as what it is."""
    whole = envelope.get("typed")
    return float(envelope["e"]["timestamp"] if whole is None else whole.timestamp)
