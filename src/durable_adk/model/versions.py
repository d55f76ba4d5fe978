"""Under which versions an attempt ran, in a few bytes: ``durable-adk google-adk [agent]``.

An execution keeps each such text once, in the order of first use. Which one recorded what is not
kept: it is for people who are told that a history no longer fits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RanUnder:
    """Versions that attempts of an execution ran under.

    Attributes:
        durable_adk, google_adk: Of the packages.
        agent: ``version`` of ``agent.yaml``, or None.
    """

    durable_adk: str
    google_adk: str
    agent: str | None = None

    @property
    def code(self) -> str:
        """As it is stored: ``0.1.0 2.13.0 3``."""
        parts = (self.durable_adk, self.google_adk, self.agent)
        return " ".join(part for part in parts if part is not None)

    @property
    def text(self) -> str:
        """For people."""
        agent = "no agent version" if self.agent is None else f"agent version {self.agent}"
        return f"durable-adk {self.durable_adk}, google-adk {self.google_adk}, {agent}"


def ran_under(code: str) -> RanUnder:
    """Read what ``RanUnder.code`` wrote."""
    durable_adk, _, rest = code.partition(" ")
    google_adk, mark, agent = rest.partition(" ")
    return RanUnder(durable_adk=durable_adk, google_adk=google_adk, agent=agent if mark else None)
