"""The private names of ADK's telemetry and logs that this package touches: the second part of
``_seam``.

Without them an app still runs, and only replayed model calls carry token counts again, and a
workflow that sleeps logs a warning; ``tests/adapter/test_seam_telemetry.py`` fails when ADK does
not call them any more.
"""

from __future__ import annotations

import importlib
from typing import Any

from durable_adk.adk._seam import Private

SCOPE = Private("google.adk.telemetry._instrumentation", "InferenceScope.record_llm_response")
USAGE = Private("google.adk.telemetry.tracing", "_set_usage_metadata_attributes")
DURATION = Private("google.adk.telemetry._metrics", "record_client_operation_duration")

POINTS = (SCOPE, USAGE, DURATION)
"""Called for each model call."""

LEFTOVERS = Private("google.adk.workflow", "Workflow._cleanup_all_tasks")


def owner_of(point: Private) -> tuple[Any, str]:
    """Where a point is looked up, and its name there."""
    holder, _, name = point.path.rpartition(".")
    owner = importlib.import_module(point.module)
    return (getattr(owner, holder) if holder else owner), name
