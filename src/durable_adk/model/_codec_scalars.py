"""Values without parts to JSON: as they are, or as tagged objects."""

from __future__ import annotations

import base64
import math
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

from durable_adk.model._codec_classes import Refused

TAG = "$t"
"""The one reserved key: an object that has it is a tagged value."""


def tagged(tag: str, content: object, **more: object) -> dict[str, object]:
    return {TAG: tag, **more, "v": content}


def is_plain_text(text: str) -> bool:
    """Whether text is valid Unicode; one with surrogates is not, and BSON refuses it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def from_text(value: str) -> object:
    if is_plain_text(value):
        return value
    return tagged("str", base64.b64encode(value.encode("utf-8", "surrogatepass")).decode())


def from_int(value: int) -> object:
    return value if -(2**63) <= value < 2**63 else tagged("int", hex(value))


def from_float(value: float) -> object:
    if not math.isfinite(value):
        raise Refused(f"{value} is not a finite number")
    return value


def from_decimal(value: Decimal) -> object:
    if not value.is_finite():
        raise Refused(f"{value} is not a finite number")
    return tagged("decimal", str(value))


def from_bytes(value: bytes | bytearray) -> object:
    return tagged(type(value).__name__, base64.b64encode(value).decode())


def from_timedelta(value: timedelta) -> object:
    return tagged("timedelta", [value.days, value.seconds, value.microseconds])


def from_moment(value: datetime | time) -> object:
    zone = value.tzinfo
    more: dict[str, object] = {"fold": 1} if value.fold else {}
    if isinstance(zone, ZoneInfo):
        if zone.key is None:
            raise Refused("its time zone was read from a file and has no key")
        more["zone"] = zone.key
        value = value.replace(tzinfo=None)
    elif zone is not None:
        offset = _fixed_offset(zone)
        more |= _fixed_name(zone)
        if offset.microseconds:  # Python does not read all of these back
            more["offset"] = offset // timedelta(microseconds=1)
        value = value.replace(tzinfo=None if offset.microseconds else timezone(offset))
    return tagged(type(value).__name__, value.isoformat(), **more)


def _fixed_offset(zone: tzinfo) -> timedelta:
    """The offset of a zone where it is the same at all times.

    Many libraries have a class of their own for that (pydantic, bson, dateutil): they become
    ``datetime.timezone``, which is equal.
    """
    try:
        offset = zone.utcoffset(None)
    except Exception:  # a zone of another library that needs a moment
        offset = None
    if offset is None:
        raise Refused(
            f"its time zone is a {type(zone).__name__}: use datetime.timezone or zoneinfo"
        )
    return offset


def _fixed_name(zone: tzinfo) -> dict[str, object]:
    """The name of a ``datetime.timezone`` that was given one."""
    if type(zone) is timezone and zone.tzname(None) != timezone(_fixed_offset(zone)).tzname(None):
        return {"name": from_text(zone.tzname(None))}
    return {}


def from_date(value: date) -> object:
    return tagged("date", value.isoformat())


def from_uuid(value: UUID) -> object:
    return tagged("uuid", str(value))
