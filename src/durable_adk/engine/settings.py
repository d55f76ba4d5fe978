"""The numbers and choices that the engine runs by. ``config.py`` fills them from ``agent.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from durable_adk.errors import ConfigError

SHORTEST_LEASE_MS = 3000
"""Below this a renewal every third of a lease has no room for one slow reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How long ownership lasts, how often to try again, what replay tolerates.

    Attributes:
        lease_ttl_ms: How long a claim or a renewal is good for, by the server's clock.
        max_block_s: The keeper stops renewing when the loop has not answered for this long.
        max_attempts: Attempts that may fail in a row without a new record; then ``failed``.
        backoff_ms: Pause before the second attempt; doubles each time.
        backoff_max_ms: The longest such pause.
        mode: How an attempt reaches the point where the record ends.
        model_mismatch: What a recorded model response under another prompt is: logged or refused. A
            recorded tool, node, step or wait result under another input is always refused.
        max_turns: How many finished turns of a session are loaded; None for all.
        version: The agent version that is served here, or None.
        code: The versions that run here, as ``Execution.codes`` has them; empty: not recorded.
        retention_turns, retention_age_ms: What a worker leaves of sessions; None: everything.
        redact: Names of fields whose values people are not shown.
        payload_max: Bytes of the largest answer; None for any.
        poll_s: Seconds between two looks for work, and between the first looks at an execution
            that runs elsewhere.
        grace_s: Seconds that ``close`` lets attempts go on before it releases them.
    """

    lease_ttl_ms: int = 30_000
    max_block_s: float = 600.0
    max_attempts: int = 5
    backoff_ms: int = 1000
    backoff_max_ms: int = 60_000
    mode: Literal["restore", "walk"] = "restore"
    model_mismatch: Literal["warn", "error"] = "warn"
    max_turns: int | None = None
    version: str | None = None
    code: str = ""
    retention_turns: int | None = None
    retention_age_ms: int | None = None
    redact: frozenset[str] = frozenset()
    payload_max: int | None = None
    poll_s: float = 0.04
    grace_s: float = 10.0

    def __post_init__(self) -> None:
        if self.lease_ttl_ms < SHORTEST_LEASE_MS:
            raise ConfigError(
                "lease.ttl",
                f"is {self.lease_ttl_ms} ms",
                f"Use at least {SHORTEST_LEASE_MS} ms.",
            )
        if self.max_attempts < 1:
            raise ConfigError("retry.max_attempts", f"is {self.max_attempts}", "Use at least 1.")
        for key, value in (("poll", self.poll_s), ("lease.max_block", self.max_block_s)):
            if value <= 0:
                raise ConfigError(key, f"is {value} s", "Use a positive duration.")

    def backoff_after(self, failures: int) -> int:
        """Milliseconds to wait after the ``failures``-th failed attempt in a row (from 1)."""
        # The shift is capped: a large count must not make a number of a million bits.
        return min(self.backoff_ms << min(max(failures, 1) - 1, 30), self.backoff_max_ms)
