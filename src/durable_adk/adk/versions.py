"""The versions of google-adk that were tested, and the refusal of one that does not fit."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from durable_adk.errors import ConfigError

TESTED = ("2.13.0",)


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
