"""Calls that were entered and left no outcome: what is told of one, and how it is settled.

The wait of a doubt has a position of its own, made from the position and the try that are in
doubt, so that whoever reads its record knows what it settled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Kind, Payload, UnknownOutcome
from durable_adk.model.codec import decode, encode
from durable_adk.model.position import Position

RECONCILE_MARK = "__durable_reconcile__"
"""Attribute of a function or tool that ``durable_tool`` marked: its ``reconcile`` callback."""

_LABEL = "in_doubt."


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A call of which nobody knows whether it happened, as a ``reconcile`` callback is told of it.

    Attributes:
        activity_id: What ``current_activity_id()`` gave in its body: the idempotency key.
        kind: ``tool``, ``node`` or ``step``.
        name: Of the tool, the node or the ``step()``.
        args: Of a tool its arguments; of a node ``{"node_input": ...}``; of a ``step()``
            ``{"args": [...], "kwargs": {...}}``.
        attempt: The number of the attempt that entered it.
        started_at: When it did, by the clock of its process; None if that is not known.
        lease_ended_at: When the lease of the last owner ended, by the server's clock: its body may
            still be running. None if it was cancelled by its own process.
    """

    activity_id: str
    kind: str
    name: str
    args: Mapping[str, Any]
    execution_id: str
    user_id: str
    session_id: str
    attempt: int
    started_at: datetime | None
    lease_ended_at: datetime | None


# ---------------------------------------------------------------- positions


def wait_position(position: Position, attempt_try: int) -> Position:
    """Where the wait of a doubt about one try of a position is."""
    label = f"{_LABEL}{position.kind.value}.{position.ordinal}.{position.label}"
    return Position(position.step, position.path, position.entry, Kind.WAIT, attempt_try, label)


def doubted(wait: Position) -> tuple[Position, int] | None:
    """The position and the try that the wait of a doubt is about; None for any other wait."""
    if wait.kind is not Kind.WAIT or not wait.label.startswith(_LABEL):
        return None
    match wait.label.removeprefix(_LABEL).split(".", 2):
        case [kind, ordinal, label] if ordinal.isdecimal():
            found = Position(wait.step, wait.path, wait.entry, Kind(kind), int(ordinal), label)
            return found, wait.ordinal
        case _:
            raise CorruptHistory(f"position {wait.text!r}", "names no call that is in doubt")


# ---------------------------------------------------------------- payloads


def intent_body(
    policy: UnknownOutcome,
    args: Mapping[str, Any],
    marked: str,
    *,
    call_id: str = "",
    returns: Mapping[str, Any] | None = None,
    names: Sequence[str] = (),
    fit: Mapping[str, Any] | None = None,
) -> Payload:
    """What an intent holds so that its doubt can be told of: the policy that it was entered under,
    the arguments, and where the function with the ``reconcile`` callback is (or nothing); as far as
    there is one, ADK's id of the function call, a JSON schema of what the function returns, of
    a tool how the arguments fit its parameters (``{"fits", "lacks"}``), of a ``step()`` the names
    of the parameters that take arguments by place, that of the rest with a ``*``."""
    told: dict[str, Any] = {"policy": policy.value, "args": dict(args), "reconcile": marked}
    if call_id:
        told["call_id"] = call_id
    if returns is not None:
        told["returns"] = dict(returns)
    if names:
        told["names"] = list(names)
    if fit is not None:
        told["fit"] = dict(fit)
    return encode(told)


@dataclass(frozen=True, slots=True)
class Terms:
    """What an intent says. One without a body is of a ``fail`` call, and says no more."""

    policy: UnknownOutcome = UnknownOutcome.FAIL
    args: Mapping[str, Any] | None = None
    marked: str = ""
    call_id: str = ""
    returns: Mapping[str, Any] | None = None
    names: tuple[str, ...] = ()
    fit: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, body: Payload | None) -> Terms:
        if body is None:
            return cls()
        found = decode(body)
        return cls(
            UnknownOutcome(found["policy"]),
            found["args"],
            found["reconcile"],
            found.get("call_id", ""),
            found.get("returns"),
            tuple(found.get("names", ())),
            found.get("fit"),
        )


SETTLED = "settled"
"""In a node's record: the output that an answer gave it."""


@dataclass(frozen=True, slots=True)
class Told:
    """In the record of a ``step()``: what an answer says that its function returned, plain JSON."""

    result: Any


UNFIT = "unfit"
"""In a tool's record: it had no parameters of the names that it was called with."""


def settled_body(kind: Kind, result: object, fit: Mapping[str, Any] | None = None) -> Payload:
    """A result that an answer gave, as the body of a record of this kind. ``fit``: as in an
    intent."""
    match kind:
        case Kind.TOOL:
            is_unfit = fit is not None and not fit["fits"]
            return encode({"result": result, **({UNFIT: True} if is_unfit else {})})
        case Kind.NODE:
            return encode({SETTLED: result})
        case _:
            return encode(Told(result))
