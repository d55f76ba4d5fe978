"""The versions of google-adk that were tested, and the refusal of one that does not fit."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Iterable

from durable_adk.errors import ConfigError
from durable_adk.model.versions import RanUnder

TESTED = ("2.13.0",)


@functools.cache
def _installed(package: str) -> str:
    """Read once: its metadata is a file that is parsed, and every App asks."""
    return importlib.metadata.version(package)


def running(agent: str | None) -> RanUnder:
    """The versions that run here. ``agent`` is ``version`` of ``agent.yaml``."""
    return RanUnder(
        durable_adk=_installed("durable-adk"),
        google_adk=_installed("google-adk"),
        agent=agent,
    )


def unfit(*, because: str) -> ConfigError:
    """What refuses an app under the google-adk that is installed."""
    installed = importlib.metadata.version("google-adk")
    return ConfigError(
        f"google-adk {installed}",
        because,
        f"Install a version this release was tested with: {', '.join(TESTED)}.",
    )


def lacks(names: Iterable[str]) -> ConfigError:
    return unfit(because=f"has no {', '.join(sorted(set(names)))}")
