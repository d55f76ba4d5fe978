"""How long tools wait for people (marks, registered tools, ``agent.yaml``), and deadlines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from durable_adk._config_keys import MOST_DAYS, Refused, duration_ms
from durable_adk.errors import ConfigError, NotStorable
from durable_adk.model.codec import encode, plain
from durable_adk.model.due import Due, Expiry

LONGEST_DAYS = MOST_DAYS
MOST_ANSWER = 16 * 1024
"""Characters of an expiry answer: renewals rewrite the document that holds it."""


def checked_expiry(what: str, expires_after: object, on_expiry: object) -> Expiry | None:
    """The expiry that two arguments say, if they say one.

    Raises:
        ConfigError: no duration, an answer without one, or no plain JSON value.
    """
    if expires_after is None:
        if on_expiry is not None:
            raise ConfigError(
                f"{what}: on_expiry", "is given without expires_after", "Say when it expires."
            )
        return None
    milliseconds = checked_duration(f"{what}: expires_after", expires_after)
    try:
        stored = None if on_expiry is None else encode(plain(on_expiry, where="on_expiry"))
    except NotStorable as error:
        raise ConfigError(f"{what}: {error.path}", error.reason, "Give plain JSON.") from None
    if stored is not None and len(stored) > MOST_ANSWER:
        raise ConfigError(
            f"{what}: on_expiry",
            f"has {len(stored)} characters, and {MOST_ANSWER} may be kept",
            "Answer with a reference, such as the id of a document.",
        )
    return Expiry(after=milliseconds, answer=stored)


def checked_duration(what: str, value: object) -> int:
    """Milliseconds of seconds, a ``timedelta`` or text with a unit; from one to 100 years.

    Raises:
        ConfigError: anything else.
    """
    if isinstance(value, dt.timedelta):
        value = value.total_seconds()
    try:
        milliseconds = duration_ms(value, most_days=MOST_DAYS)
    except Refused as rule:
        raise ConfigError(what, str(rule), 'Give seconds, or text such as "24h".') from None
    if milliseconds < 1:
        raise ConfigError(what, f"{value!r} is over at once", "Give a positive duration.")
    return milliseconds


def checked_deadline(deadline: object) -> Due | None:
    """When an execution has to be done: a duration from its beginning, or an aware ``datetime``.

    Raises:
        ConfigError: anything else.
    """
    if isinstance(deadline, dt.datetime):
        if deadline.tzinfo is None:
            raise ConfigError("deadline", f"{deadline} has no time zone", "Give an aware datetime.")
        return Due(at=round(deadline.timestamp() * 1000))
    return None if deadline is None else Due(after=checked_duration("deadline", deadline))


def expiries(
    registered: Mapping[str, Expiry], configured: Mapping[str, Mapping[str, Any]], *, source: str
) -> dict[str, Expiry]:
    """The expiry by tool name, of the registered tools and of ``tools.<name>``.

    Raises:
        ConfigError: the code and the configuration say different things about one tool.
    """
    found = dict(registered)
    for name, keys in configured.items():
        where = f"{source}: tools.{name}"
        expiry = checked_expiry(where, keys.get("expires_after"), keys.get("on_expiry"))
        if expiry is None:
            continue
        if found.get(name, expiry) != expiry:
            raise ConfigError(
                f"{where}.expires_after",
                "says something else than the code",
                "Say it in one place.",
            )
        found[name] = expiry
    return found
