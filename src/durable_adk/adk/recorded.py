"""Calls that user code records itself, and values that are the same on every attempt.

Inside an execution each acts on the scope of the running node, callback or tool; outside one
each acts plainly. No ADK is imported here.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
import random as _random
import uuid as _uuid
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast

from durable_adk.adk.scope import Scope, bound, current
from durable_adk.engine.attempt import Call, Replayed
from durable_adk.errors import ConfigError, NotStorable
from durable_adk.model import codec, failure
from durable_adk.model.activity import Kind, Record, RecordStatus

P = ParamSpec("P")
T = TypeVar("T")


async def step(
    name: str, fn: Callable[P, Awaitable[T] | T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call ``fn`` once and record what it returns or raises, under this name in this place.

    A later attempt gets the recorded outcome without calling it, and so does a
    node or tool that asked and is entered again after the answer. The position is the enclosing
    node, agent or tool, the name, and the k-th call of that name there.

    Raises:
        ConfigError: the name is empty, or ``step`` is called inside a ``step``.
        NotStorable: the result cannot be recorded.
    """
    _check_name(name)
    scope = current()
    if scope is None:
        return cast(T, await _call(fn, *args, **kwargs))
    if scope.kind == "recorded":
        raise ConfigError(
            f"step({name!r})",
            f"is called inside step({scope.name!r}), which is recorded as one call",
            "Call the inner function plainly, or record the parts one after the other.",
        )
    return cast(T, await _record(scope, name, fn, args, kwargs))


def _check_name(name: object) -> None:
    if not (isinstance(name, str) and name):
        raise ConfigError("step(name)", f"expected text, got {name!r}")


async def _record(
    scope: Scope, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    stage = scope.stage
    position = stage.position(scope, Kind.STEP, scope.count(f"step:{name}"), label=name)
    done = stage.attempt.recorded.earlier(position) if scope.asked_before else None
    if done is not None:
        return _outcome(scope, done)
    admitted = await stage.attempt.admit(
        Call(
            position=position,
            name=name,
            request=_digest(name, args, kwargs),
            asked=f"step {name}",
            node_path=scope.node_path,
        )
    )
    if isinstance(admitted, Replayed):
        return _outcome(scope, admitted.record)
    body = Scope(
        stage=stage,
        path=scope.path,
        entry=scope.entry,
        kind="recorded",
        name=name,
        node_path=scope.node_path,
        invocation_id=scope.invocation_id,
        parent=scope,
        in_body=True,
        activity_id=stage.activity_id(position),
    )
    try:
        with bound(body):
            result = await _call(fn, *args, **kwargs)
        payload, status = codec.encode(result, where=f"step {name}"), RecordStatus.COMPLETED
    except asyncio.CancelledError:
        await stage.attempt.cancelled(admitted)
        raise
    except Exception as error:
        payload, status = failure.encode_failure(error), RecordStatus.FAILED
        record = await stage.attempt.record(admitted, status, payload)
        scope.handed_out(record.ended_at)
        raise stage.failure_of(record) from error
    return _outcome(scope, await stage.attempt.record(admitted, status, payload))


def _digest(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """What a recorded outcome is compared by; nothing where an argument cannot be stored."""
    try:
        return codec.digest(codec.encode([args, kwargs], where=f"step {name}"))
    except NotStorable:
        return ""


def _outcome(scope: Scope, record: Record) -> Any:
    scope.handed_out(record.ended_at)
    if record.status is RecordStatus.FAILED:
        raise scope.stage.failure_of(record)
    return codec.decode(record.body or "")


async def _call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = fn(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def now() -> dt.datetime:
    """The time, aware, in UTC: the wall clock in a recorded body, elsewhere the end of the last
    record handed out in this scope."""
    scope = current()
    if scope is None:
        return dt.datetime.now(dt.UTC)
    return dt.datetime.fromtimestamp(scope.now(), dt.UTC)


def uuid4() -> _uuid.UUID:
    """A UUID: random outside an execution, derived from scope and count inside."""
    scope = current()
    if scope is None:
        return _uuid.uuid4()
    return _uuid.UUID(_derived(scope, "uuid4"))


def random() -> float:
    """A number in [0, 1): random outside an execution, derived from scope and count inside."""
    scope = current()
    if scope is None:
        return _random.random()
    return _uuid.UUID(_derived(scope, "random")).int / 2**128


def _derived(scope: Scope, what: str) -> str:
    return scope.stage.derive_id(scope.path, str(scope.entry), what, str(scope.count(what)))


def current_activity_id() -> str | None:
    """The id of the recorded call around this point: stable across attempts, usable as an
    idempotency key. None outside a recorded body."""
    scope = current()
    return scope.enclosing_activity() if scope is not None else None


def current_fencing_token() -> int | None:
    """The fencing token of the running attempt, for backends that can check one."""
    scope = current()
    return scope.stage.attempt.execution.token if scope is not None else None
