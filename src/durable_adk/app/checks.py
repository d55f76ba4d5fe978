"""Arguments of public calls, checked before anything is read or stored."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from durable_adk.errors import ConfigError, NotFound
from durable_adk.model.identity import checked_id
from durable_adk.model.position import split_activity_id

MAX_PAGE = 1_000
MAX_BY = 1_000
"""Characters; it is stored with each answer."""
MAX_REASON = 10_000
"""Characters; it is stored with the execution, and with every call that it closes."""


def not_yet(name: str, instead: str) -> ConfigError:
    """The refusal of a public name that is reserved and not built."""
    return ConfigError(name, "not yet: the name is reserved", instead)


def checked_message(message: object, *, late_answers: bool = False) -> object:
    """A message that starts an execution: text, or ``types.Content`` with something in it.

    With ``late_answers`` it may answer calls of an earlier turn, which wait for nothing.

    Raises:
        ConfigError: it is neither, it is empty, or it holds calls or answers.
    """
    remedy = "Send text, or types.Content with a part that holds something."
    if isinstance(message, str):
        if not message.strip():
            raise ConfigError("message", "is empty", remedy)
        return message
    if isinstance(message, type) or not hasattr(message, "parts") or not hasattr(message, "role"):
        raise ConfigError(
            "message", f"expected text or types.Content, got {type(message).__name__}", remedy
        )
    parts = message.parts or []
    if not late_answers and any(getattr(part, "function_response", None) for part in parts):
        raise ConfigError(
            "message", "answers a function call", "Use resume(execution_id, {wait id: value})."
        )
    if any(getattr(part, "function_call", None) for part in parts):
        raise ConfigError("message", "holds a function call, which only a model makes", remedy)
    if not any(_holds_something(part) for part in parts):
        raise ConfigError("message", "is empty", remedy)
    return message


def _holds_something(part: Any) -> bool:
    held = part.model_dump(exclude_none=True)
    return any(bool(value.strip()) if isinstance(value, str) else True for value in held.values())


def checked_state(what: str, state: object) -> dict[str, Any] | None:
    """State to set: a mapping with text keys, or None.

    Raises:
        ConfigError: anything else.
    """
    if state is None:
        return None
    if not isinstance(state, Mapping):
        raise ConfigError(
            what, f"expected a mapping, got {type(state).__name__}", "Send {key: value}."
        )
    for key in state:
        if not isinstance(key, str) or not key:
            raise ConfigError(what, f"the key {key!r} is no text", "State keys are text.")
    return dict(state)


def checked_run_config(run_config: object) -> object:
    if run_config is None or callable(getattr(type(run_config), "model_dump", None)):
        return run_config
    raise ConfigError(
        "run_config",
        f"expected google.adk.agents.RunConfig, got {type(run_config).__name__}",
        "Leave it out, or pass one.",
    )


def checked_timeout(timeout: object) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise ConfigError(
            "timeout", f"expected seconds, got {type(timeout).__name__}", "Pass a number or None."
        )
    if not (timeout > 0 and math.isfinite(timeout)):
        raise ConfigError("timeout", f"{timeout} is not a positive number", "Pass None for none.")
    return float(timeout)


def checked_limit(limit: object) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise ConfigError(
            "limit", f"{limit!r} is not a whole number from 1 to {MAX_PAGE}", "Page with cursor=."
        )
    return limit


def checked_text(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise ConfigError(what, f"expected text, got {type(text).__name__}", "Pass text.")
    return text


def checked_short(what: str, text: object, most: int) -> str:
    """Text for people, of at most ``most`` characters.

    Raises:
        ConfigError: it is no text, or longer.
    """
    checked = checked_text(what, text)
    if len(checked) > most:
        raise ConfigError(
            what, f"has {len(checked)} characters", f"Keep it to {most}; nothing was done."
        )
    return checked


def checked_by(by: object) -> str | None:
    """Who answers. ``expiry`` is the library's own: it answers what nobody did in time."""
    if by is None:
        return None
    text = checked_short("by", by, MAX_BY)
    if text == "expiry":
        raise ConfigError("by", "'expiry' is reserved", "Name who answers, or leave it out.")
    return text


def checked_optional_id(what: str, value: object) -> str | None:
    return None if value is None else checked_id(what, value)


def checked_wait_id(wait_id: object) -> tuple[str, str, str]:
    """The wait id, the execution it belongs to, and its digest.

    Raises:
        ConfigError: it is no text.
        NotFound: the text is no wait id.
    """
    text = checked_text("wait_id", wait_id)
    match split_activity_id(text):
        case (execution_id, digest):
            try:
                return text, checked_id("execution id", execution_id), digest
            except ConfigError:
                pass
    raise NotFound(f"wait {text[:300]!r}", "there is no such wait", "Use the id of an open wait.")


def checked_answers(answers: object) -> Mapping[str, object]:
    """A resume map by shape; whether it fits its frontier is the engine's to say."""
    if not isinstance(answers, Mapping):
        raise ConfigError(
            "answers",
            f"expected a mapping of wait id to value, got {type(answers).__name__}",
            "Send {wait.id: value for each open wait}.",
        )
    return answers


def checked_client(mongodb: object) -> object:
    """A connection string that looks like one; what a client is, the store says."""
    if isinstance(mongodb, str) and not mongodb.startswith(("mongodb://", "mongodb+srv://")):
        raise ConfigError(
            "mongodb=",
            "the text is no connection string",
            "It begins with mongodb:// or mongodb+srv://.",
        )
    return mongodb


def checked_database(database: object) -> str:
    if isinstance(database, str) and re.fullmatch(r"[^\s/\\.\"$*<>:|?\x00]{1,63}", database):
        return database
    raise ConfigError(
        "database=", f"{database!r} is no MongoDB database name", "Pass a plain name."
    )
