"""How long a text is that is kept for people to read."""

from __future__ import annotations

LONGEST = 10_000
"""Characters. What is longer is no message any more, and would weigh on every list."""

_NOTE = 60
"""Room for saying so."""


def cut(text: str, longest: int | None = LONGEST) -> str:
    """The beginning of a long text, and how much is left out, in ``longest`` characters together:
    what is cut is not cut again. None: any length."""
    if longest is None or len(text) <= longest:
        return text
    kept = longest - _NOTE
    return f"{text[:kept]}... ({len(text) - kept} more characters are left out)"
