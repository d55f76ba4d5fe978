"""Calls that user code records itself, and values that are the same on every attempt.

Inside an execution each acts on the scope of the running node, callback or tool; outside one
each acts plainly. No ADK is imported here.
"""

from __future__ import annotations

import datetime as dt
import inspect
import random as _random
import uuid as _uuid
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, cast

from durable_adk.adk import outcomes
from durable_adk.adk.returned import rebuilt
from durable_adk.adk.scope import Scope, current
from durable_adk.errors import ConfigError
from durable_adk.model import codec
from durable_adk.model.activity import Kind
from durable_adk.model.doubt import Told

P = ParamSpec("P")
T = TypeVar("T")


async def step(
    name: str, fn: Callable[P, Awaitable[T] | T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call ``fn`` once and record what it returns or raises, under this name in this place.

    A later attempt gets the recorded outcome without calling it, and so does a node, a tool or an
    agent of one's own that asked and is entered again after the answer, if the arguments are the
    same. The position is the enclosing node, agent or tool, the name, and the k-th call of that
    name there. Hooks of an ``LlmAgent`` are called anew after an answer, and record anew. The mark
    that ``durable_tool`` puts on a function counts here too.

    Raises:
        ConfigError: the name is empty or no Unicode text, or ``step`` is called inside a ``step``.
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
        raise ConfigError("step(name)", f"expected text, got {name!r}", "Name what is recorded.")
    if not codec.is_text(name):
        raise ConfigError(
            f"step({name[:300]!r})",
            "has a character that is no Unicode text (a lone surrogate)",
            "Name what is recorded.",
        )


async def _record(
    scope: Scope, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    stage = scope.stage
    position = stage.position(scope, Kind.STEP, scope.count(f"step:{name}"), label=name)
    request = [args, kwargs]
    digest = outcomes.digest_of(request, f"step {name}")

    def decode(body: Any) -> Any:
        return rebuilt(fn, body.result) if isinstance(body, Told) else body

    if scope.asked_before:
        for known in (digest, *outcomes.alike(scope, request, f"step {name}")):
            done = stage.attempt.recorded.earlier(position, known)
            if done is not None:
                return decode(outcomes.body_of(scope, done))
    given = {"args": list(args), "kwargs": kwargs} if digest else {}
    terms = stage.policy_of("", given, fn, in_order=bool(args))
    return await outcomes.once(
        scope,
        position,
        lambda: _call(fn, *args, **kwargs),
        name=name,
        request=request,
        asked=f"step {name}",
        terms=terms,
        durable=True,  # its caller acts on it at once
        encode=_unchanged,
        decode=decode,
    )


def _unchanged(value: Any) -> Any:
    return value


async def _call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = fn(*args, **kwargs)
    return await result if inspect.isawaitable(result) else result


def now() -> dt.datetime:
    """The time, aware, in UTC: the wall clock in a recorded body, elsewhere the end of the last
    record handed out in this scope.

    A body that was cut off is entered again and sees another time: call it in the function that
    ``step()`` records there, not for that function's arguments."""
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
    return scope.stage.draw_id(scope, what, str(scope.count(what)))


def current_activity_id() -> str | None:
    """The id of the recorded call around this point: stable across attempts, usable as an
    idempotency key. None outside a recorded body.

    It begins with the execution id and is unique within one App and namespace. Where several of
    them use one backend and may give an execution the same id, put a prefix of yours before it.
    """
    scope = current()
    return scope.enclosing_activity() if scope is not None else None


def current_fencing_token() -> int | None:
    """The fencing token of the running attempt, for backends that can check one."""
    scope = current()
    return scope.stage.attempt.execution.token if scope is not None else None
