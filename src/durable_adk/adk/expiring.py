"""Which questions expire, when, and what counts then.

A tool says so by a mark or in the configuration; a ``RequestInput`` by ``expiring``, which puts it
into the request itself, so that it is on record with the event that asks.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from google.adk.events.request_input import RequestInput
from google.adk.tools.base_tool import BaseTool
from google.adk.workflow import BaseNode

from durable_adk._expiries import checked_expiry
from durable_adk.adk import _seam, tree
from durable_adk.engine.answers import problem_with
from durable_adk.errors import ConfigError
from durable_adk.model.codec import decode, encode
from durable_adk.model.due import EXPIRY_MARK, Expiry
from durable_adk.model.wait import WaitKind, WaitRequest

if TYPE_CHECKING:
    from durable_adk.adk.stage import Stage

ARG = "expires"
"""The argument of ADK's call that carries it: ``{"after": milliseconds, "answer": value}``."""

DENIED = encode({"confirmed": False})


class _ExpiringRequest(RequestInput):
    """A request whose event tells when it expires."""

    expires: dict[str, Any]


def expiring(request: Any, after: float | str | dt.timedelta, answer: Any) -> Any:
    """A ``RequestInput`` that is answered with ``answer`` when nobody has answered it in time.

    Args:
        request: What to yield otherwise; not changed.
        after: Seconds, a ``timedelta``, or text with a unit (``90m``, ``24h``); counted from the
            moment that the question becomes visible, by the server's clock.
        answer: Any JSON value but null that the request's schema accepts.

    Raises:
        ConfigError: no ``RequestInput``, no duration, or not such an answer.
    """
    what = "durable_adk.expiring"
    if not isinstance(request, RequestInput):
        raise ConfigError(
            what, f"expected a RequestInput, got {type(request).__name__}", "Wrap what you yield."
        )
    expiry = checked_expiry(what, after, answer)
    if expiry is None or expiry.answer is None:
        raise ConfigError(what, "needs a time and an answer", "Give both; null is no answer.")
    made = _ExpiringRequest(
        interrupt_id=request.interrupt_id,
        payload=request.payload,
        message=request.message,
        response_schema=request.response_schema,
        expires={"after": expiry.after, "answer": decode(expiry.answer)},
    )
    schema = request.response_schema
    shown = None if schema is None else _seam.JSON_SCHEMA.get()(schema)
    content = encode({"response_schema": shown}, where="response_schema")
    _check(_wait(WaitKind.INPUT, content), expiry, what)
    return made


def marked(*things: object) -> Expiry | None:
    """The mark of ``durable_tool`` on the first of these that has one."""
    marks = (getattr(one, EXPIRY_MARK, None) for one in things)
    return next((mark for mark in marks if isinstance(mark, Expiry)), None)


def of_tool(tool: BaseTool, named: Mapping[str, Expiry]) -> Expiry | None:
    """How the questions about a tool, or asked by it, expire."""
    return named.get(tool.name) or marked(tool, getattr(tool, "func", None))


# ---------------------------------------------------------------- waits


def note(stage: Stage, path: str, call_id: str, tool: BaseTool) -> None:
    """Remember how the questions of a call expire."""
    expiry = of_tool(tool, stage.expiries)
    if expiry is not None:
        stage.call_expiries[path, call_id] = (expiry, tool.is_long_running)


def with_expiry(stage: Stage, wait: WaitRequest, args: Mapping[str, Any]) -> WaitRequest:
    """The wait with its expiry, if it has one.

    Raises:
        ConfigError: there is no answer for that case, or none that it accepts.
    """
    expiry = _expiry_of(stage, wait, args)
    if expiry is None:
        return wait
    what = f"the expiry of {wait.call_name} at {wait.operation_path}"
    _check(wait, expiry, what)
    return replace(wait, expires_after=expiry.after, on_expiry=expiry.answer)


def _expiry_of(stage: Stage, wait: WaitRequest, args: Mapping[str, Any]) -> Expiry | None:
    said = args.get(ARG)
    if wait.call_name == WaitKind.INPUT.value and isinstance(said, Mapping):
        return Expiry(after=said["after"], answer=encode(said["answer"]))
    if wait.call_name == WaitKind.INPUT.value:  # a tool node asks for a confirmation so
        found = stage.call_expiries.get((wait.operation_path, ""))
        return None if found is None else _confirmed(*found)
    call = decode(wait.content)["tool_call"] or {}
    found = stage.call_expiries.get((wait.operation_path, call.get("id") or ""))
    if found is None and call.get("name") in stage.expiries:
        found = (stage.expiries[call["name"]], wait.kind is not WaitKind.CONFIRMATION)
    if found is None:
        return None
    return _confirmed(*found) if wait.kind is WaitKind.CONFIRMATION else found[0]


def _confirmed(expiry: Expiry, is_long_running: bool) -> Expiry:
    """As it is for a confirmation; that of a tool which then runs long is denied."""
    if expiry.answer is None or is_long_running:
        return replace(expiry, answer=DENIED)
    return expiry


def _check(wait: WaitRequest, expiry: Expiry, what: str) -> None:
    if expiry.answer is None:
        raise ConfigError(
            what, "has no answer for the case that nobody answers in time", "Give on_expiry."
        )
    problem = problem_with(wait, decode(expiry.answer))
    if problem:
        raise ConfigError(
            what, f"its answer would be refused: {problem}", "Give an answer that is accepted."
        )


def _wait(kind: WaitKind, content: str) -> WaitRequest:
    """A wait to check answers with."""
    return WaitRequest(
        digest="",
        position="",
        kind=kind,
        call_name="",
        call_id="",
        node_path="",
        operation_path="",
        branch=None,
        isolation_scope=None,
        author="",
        content=content,
    )


# ---------------------------------------------------------------- before the first call


def check_tools(root: BaseNode, named: Mapping[str, Expiry]) -> None:
    """Refuse an expiry whose answer the questions of its tool would not take.

    Raises:
        ConfigError: at the first of them.
    """
    for node, _path in tree.nodes(root, root.name, set()):
        for tool in (*getattr(node, "tools", ()), _seam.tool_of(node)):
            name = getattr(tool, "name", None) or getattr(tool, "__name__", None)
            expiry = marked(tool, getattr(tool, "func", None)) if tool is not None else None
            expiry = named.get(name or "") or expiry
            if expiry is None:
                continue
            runs_long = bool(getattr(tool, "is_long_running", False))
            kind = WaitKind.INPUT if runs_long else WaitKind.CONFIRMATION
            given = expiry if runs_long else _confirmed(expiry, is_long_running=False)
            _check(_wait(kind, encode({})), given, f"the expiry of tool {name}")
