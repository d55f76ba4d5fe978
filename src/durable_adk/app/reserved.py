"""Public names that are not built yet: they exist, and say so."""

from __future__ import annotations

import datetime as dt
from typing import Any

from durable_adk.app.checks import not_yet


async def sleep(seconds: float | None = None, *, until: dt.datetime | None = None) -> None:
    """Reserved: a wait for a time that holds nothing.

    Raises:
        ConfigError: always.
    """
    raise not_yet("durable_adk.sleep", "Ask with RequestInput and answer from a scheduler.")


def expiring(request: object, after: object = None, answer: object = None) -> Any:
    """Reserved: a ``RequestInput`` that is answered by itself after a while.

    Raises:
        ConfigError: always.
    """
    raise not_yet("durable_adk.expiring", "Yield the RequestInput itself.")
