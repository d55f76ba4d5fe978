"""``durable_adk.sleep``: a wait for a time that holds nothing. No ADK is imported here."""

from __future__ import annotations

import asyncio
import datetime as dt
import math

from durable_adk._expiries import LONGEST_DAYS, checked_duration
from durable_adk.adk.scope import Scope, current
from durable_adk.engine.attempt import Call, Replayed
from durable_adk.errors import ConfigError
from durable_adk.model import codec
from durable_adk.model.activity import Kind, RecordStatus
from durable_adk.model.due import Due

LONGEST_MS = LONGEST_DAYS * 24 * 3_600_000


async def sleep(
    seconds: float | str | dt.timedelta | dt.datetime | None = None,
    *,
    until: dt.datetime | None = None,
) -> None:
    """Sleep for seconds, a ``timedelta`` or text (``24h``), or until an aware ``datetime``.

    In an execution nothing is held meanwhile: when everything else has gone quiet, the execution
    suspends, and a worker or ``recover()`` goes on with it when it is due by the server's clock.
    The body is entered again from its top and goes past the sleep at once: record with ``step()``
    what must not be done twice before it. The position is the enclosing node, agent, tool or
    callback and the k-th sleep there; how long it takes is settled when it begins. Outside of an
    execution this is a plain ``asyncio.sleep``.

    Raises:
        ConfigError: not a time; inside a ``step()`` or a model; or in a body that must not run
            twice (``on_unknown_outcome``), which ends the execution.
    """
    due = checked_due("durable_adk.sleep", until if seconds is None else seconds)
    if seconds is not None and until is not None:
        raise ConfigError("durable_adk.sleep", "got seconds and until", "Give one of them.")
    scope = current()
    if scope is None:
        if due.at is None:
            await asyncio.sleep((due.after or 0) / 1000)
        else:
            await asyncio.sleep(max(0.0, due.at / 1000 - dt.datetime.now(dt.UTC).timestamp()))
        return
    if scope.kind == "recorded" or scope.asks_model:
        inside = (
            f"step({scope.name!r})" if scope.kind == "recorded" else f"the model of {scope.name}"
        )
        raise ConfigError(
            "durable_adk.sleep",
            f"is called inside {inside}, which is recorded as one call",
            "Sleep before or after it.",
        )
    await _recorded(scope, due)


async def _recorded(scope: Scope, due: Due) -> None:
    stage, attempt = scope.stage, scope.stage.attempt
    position = stage.position(scope, Kind.TIMER, scope.count("timer"))
    done = attempt.recorded.earlier(position, "") if scope.asked_before else None
    if done is not None:
        scope.handed_out(done.ended_at)
        return
    # How long is not compared: a body that is entered again may count from another moment.
    call = Call(position=position, name="sleep", asked="sleep", node_path=scope.node_path)
    admitted = await stage.admit(scope, call)
    if isinstance(admitted, Replayed):
        scope.handed_out(admitted.record.ended_at)
        return
    try:
        if not attempt.has_slept(position):
            refused = attempt.refuse_sleep(scope.path)
            if refused is not None:
                await attempt.halt(refused)
            await stage.sleepers.sleep(scope, position, due)
    except asyncio.CancelledError:
        await attempt.cancelled(admitted)
        raise
    body = codec.encode(None)
    record = await attempt.record(admitted, RecordStatus.COMPLETED, body, durable=True)
    scope.handed_out(record.ended_at)


def checked_due(what: str, value: object) -> Due:
    """A moment: seconds, a ``timedelta`` or text with a unit from now, or an aware ``datetime``.

    Raises:
        ConfigError: anything else.
    """
    remedy = (
        'Give seconds, text such as "24h", a datetime.timedelta, or an aware datetime.datetime.'
    )
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise ConfigError(what, f"{value} has no time zone", remedy)
        return Due(at=math.ceil(value.timestamp() * 1000))
    if isinstance(value, str):
        return Due(after=checked_duration(what, value))
    if isinstance(value, dt.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(what, f"expected a time, got {type(value).__name__}", remedy)
    if not (math.isfinite(value) and 0 <= value * 1000 <= LONGEST_MS):
        raise ConfigError(what, f"{value} is not between 0 s and 100 years", remedy)
    return Due(after=math.ceil(value * 1000))
