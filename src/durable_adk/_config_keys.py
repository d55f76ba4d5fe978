"""The table of configuration keys: which exist, what each may be, which field it fills.

A parser takes the value as YAML or the caller gave it, and returns the field's value or
raises ``Refused`` with the rule. ``config.py`` adds the file and the key.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping

MIN_LEASE_MS = 3_000
MIN_SPILL, MAX_SPILL = 1_024, 8 * 1024 * 1024
MAX_PAYLOAD = 1_024 * 1024 * 1024


class Refused(Exception):
    """A value breaks the rule of its key; the reader adds file and key."""


class FromEnvironment(str):
    """Text that a ``${NAME}`` gave. It may stand for a number or a switch; quoted text may not."""

    __slots__ = ()


Parse = Callable[[object], object]


def named(value: object) -> str:
    return "nothing" if value is None else type(value).__name__


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(f"expected text, got {named(value)}")
    if not value.strip() or not value.isprintable():
        raise Refused(f"expected printable text, got {value!r}")
    return value


def _version(value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise Refused(f"expected text, got the number {value}: put it in quotes")
    return _text(value)


def _namespace(value: object) -> str:
    text = _text(value)
    if len(text) > 256 or "~" in text:
        raise Refused("expected 1 to 256 characters without '~'")
    return text


def _database(value: object) -> str:
    text = _text(value)
    if len(text.encode()) > 63 or re.search(r'[/\\. "$*<>:|?]', text):
        raise Refused(f"{text!r} is no MongoDB database name")
    return text


def _prefix(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", value):
        return value
    raise Refused(
        f"{value!r} is no prefix: a letter or '_', then at most 63 letters, digits, '_' or '-'"
    )


def checked_uri(value: object) -> str:
    if not isinstance(value, str):
        raise Refused(f"expected text, got {named(value)}")
    if not value.startswith(("mongodb://", "mongodb+srv://")):
        raise Refused("expected text that begins with mongodb:// or mongodb+srv://")
    return value


def _switch(value: object) -> bool:
    if isinstance(value, FromEnvironment) and value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise Refused(f"expected true or false, got {named(value)}")
    return value


def _count(low: int, high: int = 2**31 - 1) -> Parse:
    def parse(value: object) -> int:
        if isinstance(value, FromEnvironment) and re.fullmatch(r"-?[0-9]{1,18}", value):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refused(f"expected a whole number, got {named(value)}")
        if not low <= value <= high:
            raise Refused(f"{value} is not between {low} and {high}")
        return value

    return parse


_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 24 * 3_600_000}
_DAY_MS = _UNITS_MS["d"]
MOST_DAYS = 36_525
"""100 years."""


def duration_ms(value: object, *, most_days: int = 366) -> int:
    """Milliseconds of ``500ms``, ``30s``, ``10m``, ``1h``, ``7d``, or a number of seconds."""
    rule = "expected text with a unit (500ms, 30s, 10m, 1h, 7d) or seconds"
    if isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h|d|)\s*", value)
        if not match:
            raise Refused(f"{rule}, got {value!r}")
        amount = float(match[1]) * _UNITS_MS[match[2] or "s"]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        amount = value * 1_000.0
    else:
        raise Refused(f"{rule}, got {named(value)}")
    if not (math.isfinite(amount) and 0 <= amount <= most_days * _DAY_MS):
        raise Refused(f"{value!r} is not between 0 and {most_days} days")
    return round(amount)


def retention_age(value: object) -> int:
    """Milliseconds of a duration that may also be in days (``90d``): from 1h to 100 years."""
    rule = "expected text with a unit (12h, 90d) or seconds"
    days = re.fullmatch(r"\s*([0-9]{1,6})\s*d\s*", value) if isinstance(value, str) else None
    if days is None and not isinstance(value, str | int | float):
        raise Refused(f"{rule}, got {named(value)}")
    amount = duration_ms(value) if days is None else int(days[1]) * _DAY_MS
    if not _UNITS_MS["h"] <= amount <= MOST_DAYS * _DAY_MS:
        raise Refused(f"{value!r} is not between 1h and {MOST_DAYS}d")
    return amount


def _at_least(low_ms: int, rule: str) -> Parse:
    def parse(value: object) -> int:
        amount = duration_ms(value)
        if amount < low_ms:
            raise Refused(f"{value!r} is too short: {rule}")
        return amount

    return parse


def _seconds(low_ms: int, rule: str) -> Parse:
    parse_ms = _at_least(low_ms, rule)

    def parse(value: object) -> float:
        return float(str(parse_ms(value))) / 1_000

    return parse


def _bytes(low: int, high: int, rule: str, *, off: bool = False) -> Parse:
    """A size in bytes; with ``off`` also ``never``, which is None."""
    expected = "expected bytes, or text with a unit (512KB, 2MB)" + (", or never" if off else "")

    def parse(value: object) -> int | None:
        if off and value == "never":
            return None
        if isinstance(value, str):
            match = re.fullmatch(r"\s*([0-9]{1,9})\s*(B|KB|MB|)\s*", value)
            if not match:
                raise Refused(f"{expected}, got {value!r}")
            value = int(match[1]) * {"": 1, "B": 1, "KB": 1_024, "MB": 1_024 * 1_024}[match[2]]
        if isinstance(value, bool) or not isinstance(value, int):
            raise Refused(f"{expected}, got {named(value)}")
        if not low <= value <= high:
            raise Refused(f"{value} bytes is not between {rule}")
        return value

    return parse


_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _keys(value: object) -> dict[str, bytes]:
    """Keys by id, in order. No message shows one."""
    if not isinstance(value, Mapping):
        raise Refused(f"expected key ids with a key each, got {named(value)}")
    if not value:
        raise Refused("holds no key, so nothing would be encrypted: give one, or leave it out")
    keys: dict[str, bytes] = {}
    for name, text in value.items():
        if not isinstance(name, str) or not _KEY_ID.fullmatch(name):
            raise Refused(f"{name!r} is no key id: at most 64 letters, digits, '.', '_' or '-'")
        rule = f"{name}: expected 32 bytes in base64"
        if not isinstance(text, str):
            raise Refused(f"{rule}, got {named(text)}")
        try:
            keys[name] = base64.b64decode(text.strip().translate(_URL_SAFE), validate=True)
        except ValueError:
            raise Refused(f"{rule}, got text that is not base64") from None
        if len(keys[name]) != 32:
            raise Refused(f"{rule}, got {len(keys[name])} bytes")
    if len(set(keys.values())) < len(keys):
        raise Refused("two ids have the same key")
    return keys


_URL_SAFE = str.maketrans("-_", "+/")


def _names(value: object) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise Refused(f"expected a list of names of fields, got {named(value)}")
    return frozenset(value)


def _choice(*allowed: str, later: tuple[str, ...] = (), why: str = "") -> Parse:
    def parse(value: object) -> str:
        if value in later:
            raise Refused(f"{value!r}: not yet; use {' or '.join(allowed)}")
        if not isinstance(value, str) or value not in allowed:
            raise Refused(f"expected {' or '.join(allowed)}, got {value!r}{why}")
        return value

    return parse


def _duration(value: object) -> float:
    """Seconds."""
    amount = duration_ms(value)
    if amount < 1:
        raise Refused(f"{value!r} is over at once")
    return amount / 1_000


def _answer(value: object) -> object:
    if value is None:
        raise Refused("null is no answer")
    return str(value) if isinstance(value, FromEnvironment) else value


def _not_yet(_value: object) -> object:
    raise Refused("not yet: remove the key")


_NEVER = ": a recorded result is never attached to other arguments"

KEYS: Mapping[str, tuple[str, Parse]] = {
    "version": ("version", _version),
    "namespace": ("namespace", _namespace),
    "mongodb.uri": ("uri", checked_uri),
    "mongodb.database": ("database", _database),
    "mongodb.collection_prefix": ("collection_prefix", _prefix),
    "mongodb.create_indexes": ("create_indexes", _switch),
    "features.durable_workflow": ("durable_workflow", _switch),
    "lease.ttl": ("lease_ttl_ms", _at_least(MIN_LEASE_MS, "at least 3s")),
    "lease.max_block": ("max_block_s", _seconds(1_000, "at least 1s")),
    "retry.max_attempts": ("max_attempts", _count(1)),
    "retry.runner_attempts": ("runner_attempts", _count(1)),
    "retry.backoff": ("backoff_ms", duration_ms),
    "retry.backoff_max": ("backoff_max_ms", duration_ms),
    "replay.mode": ("mode", _choice("restore", "walk")),
    "replay.input_mismatch.model": ("model_mismatch", _choice("warn", "error")),
    "replay.input_mismatch.tool": ("tool_mismatch", _choice("error", why=_NEVER)),
    "replay.input_mismatch.wait": ("wait_mismatch", _choice("error", why=_NEVER)),
    "session.max_turns": ("max_turns", _count(1)),
    "record_requests": ("", _not_yet),
    "redact": ("redact", _names),
    "payload.compress_above": (
        "compress_above",
        _bytes(0, MAX_SPILL, "0 and 8MB", off=True),
    ),
    "payload.spill_above": ("spill_above", _bytes(MIN_SPILL, MAX_SPILL, "1KB and 8MB")),
    "payload.max": ("payload_max", _bytes(MIN_SPILL, MAX_PAYLOAD, "1KB and 1024MB", off=True)),
    "encryption.keys": ("encryption_keys", _keys),
    "encryption.read_plain": ("read_plain", _switch),
    "retention.turns": ("retention_turns", _count(1)),
    "retention.age": ("retention_age_ms", retention_age),
    "shutdown.grace": ("grace_s", _seconds(0, "")),
}
"""Every key but ``tools.<name>``: the field it fills, and what its value may be."""

TOOL_KEYS: Mapping[str, Parse] = {
    "on_unknown_outcome": _choice("rerun", "fail", "ask"),
    "expires_after": _duration,
    "on_expiry": _answer,
}

GROUPS = frozenset(
    ".".join(key.split(".")[:depth]) for key in KEYS for depth in range(1, key.count(".") + 1)
)
"""The keys that only hold other keys."""
