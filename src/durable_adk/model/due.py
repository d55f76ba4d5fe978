"""A moment that the server decides: so long after a write, or a time of its clock."""

from __future__ import annotations

from dataclasses import dataclass

from durable_adk.model.activity import Payload

EXPIRY_MARK = "__durable_expiry__"
"""Attribute of a function or tool that ``durable_tool`` marked: its ``Expiry``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Exactly one of the two, in milliseconds.

    Attributes:
        after: So long after the write that stores it, by the server's clock.
        at: Server time.
    """

    after: int | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """How long an answer to a question is waited for, and which one counts then.

    Attributes:
        after: Milliseconds from the commit of its frontier.
        answer: Payload; None for a confirmation that is denied then.
    """

    after: int
    answer: Payload | None = None
