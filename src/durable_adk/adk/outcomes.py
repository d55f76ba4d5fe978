"""One recorded call around a function: what it returned or raised comes back on later attempts.

For the user's ``step()``, and for what ADK itself does on the way and must not do again. No ADK is
imported here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from durable_adk.adk.scope import Scope, bound
from durable_adk.engine.attempt import Call, Replayed
from durable_adk.engine.calls import AGAIN, Entering
from durable_adk.errors import NotStorable
from durable_adk.model import codec
from durable_adk.model.activity import Kind, Record, RecordStatus
from durable_adk.model.position import Position, join


def is_recording(scope: Scope | None) -> bool:
    """Whether a call here needs a record of its own: it is in no body that is recorded whole."""
    return scope is not None and scope.kind != "recorded" and not scope.in_body


def below(scope: Scope, what: str, kind: Kind) -> Position:
    """The place of the next ``what`` in a scope: a segment of its own, so that calls of the same
    kind there keep their numbers. It begins like a tool call's: closing a turn leaves it alone."""
    path = join(scope.path, f":{what}{scope.count(what)}")
    return Position(scope.stage.step, path, scope.entry, kind, 1)


async def once(
    scope: Scope,
    position: Position,
    run: Callable[[], Awaitable[Any]],
    *,
    name: str,
    request: object,
    asked: str,
    terms: Entering = AGAIN,
    durable: bool = False,
    encode: Callable[[Any], Any] = lambda result: {"result": result},
    decode: Callable[[Any], Any] = lambda body: body["result"],
) -> Any:
    """Hand out what is recorded at a position, or run it once and record that.

    ``request`` is compared with the recorded one as far as it can be stored; ``encode`` and
    ``decode`` make the record's body of the result and back; ``durable`` waits for the write;
    ``terms`` are those of a call that must not run twice.

    Raises:
        NotStorable: the result cannot be recorded.
    """
    stage = scope.stage
    admitted = await stage.admit(
        scope,
        Call(
            position=position,
            name=name,
            request=digest_of(request, asked),
            alike=alike(scope, request, asked),
            asked=asked,
            node_path=scope.node_path,
            policy=terms.policy,
            intent=terms.intent,
            reconcile=terms.reconcile,
        ),
    )
    if isinstance(admitted, Replayed):
        return decode(body_of(scope, admitted.record))
    body = Scope(
        stage=stage,
        path=position.path,
        entry=position.entry,
        kind="recorded",
        name=name,
        node_path=scope.node_path,
        invocation_id=scope.invocation_id,
        parent=scope,
        in_body=True,
        activity_id=stage.activity_id(position),
    )
    try:
        admitted.enter()
        with bound(body):
            result = await run()
        payload, status = stage.encode(encode(result), where=asked), RecordStatus.COMPLETED
        await stage.attempt.leave(admitted)
    except asyncio.CancelledError:
        await stage.attempt.cancelled(admitted)
        raise
    except Exception as error:
        payload = stage.encode_failure(error)
        record = await stage.attempt.record(admitted, RecordStatus.FAILED, payload)
        scope.handed_out(record.ended_at)
        raise stage.failure_of(record) from error
    record = await stage.attempt.record(admitted, status, payload, durable=durable)
    return decode(body_of(scope, record))


def digest_of(request: object, asked: str) -> str:
    """What a call is compared by; nothing where that cannot be stored."""
    try:
        return codec.digest_of(request, where=asked)
    except NotStorable:
        return ""


def alike(scope: Scope, request: object, asked: str) -> tuple[str, ...]:
    """What it is compared by too, where the session was forked inside this turn."""
    lineage = scope.stage.lineage
    if not lineage.sources:
        return ()
    try:
        return lineage.alike(codec.encode(request, where=asked))
    except NotStorable:
        return ()


def body_of(scope: Scope, record: Record) -> Any:
    """What a record holds; raises what it says was raised."""
    scope.handed_out(record.ended_at)
    if record.status is RecordStatus.FAILED:
        raise scope.stage.failure_of(record)
    return codec.decode(record.body or "")
