"""Names of parametrized tests: the same in every process, so that several can share the work."""

from __future__ import annotations

import re


def shown(value: object) -> str:
    """``repr`` without addresses."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
