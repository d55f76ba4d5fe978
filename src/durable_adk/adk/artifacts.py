"""Artifacts that are saved between recorded calls: by ADK, a callback or a plugin.

Those run again on a later attempt over recorded calls, and another save would make another
version. So a save outside of a recorded body is recorded: its version comes back. What a tool or
a node saves is part of its own record.
"""

from __future__ import annotations

from typing import Any

from durable_adk.adk.outcomes import is_recording, once
from durable_adk.adk.scope import current
from durable_adk.model.activity import Kind


class AttemptArtifacts:
    """The user's artifact service as an attempt sees it; it passes for one of its class."""

    def __init__(self, service: Any) -> None:
        self._service = service

    @property  # type: ignore[misc]  # read-only, as on every object but for what isinstance asks
    def __class__(self) -> Any:
        """What ``isinstance`` sees."""
        return type(self._service)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    async def save_artifact(self, **given: Any) -> Any:
        """Save, or hand out the version that was made of it before."""
        scope = current()
        if scope is None or not is_recording(scope):
            return await self._service.save_artifact(**given)
        filename = given.get("filename")
        label = f"save_artifact {filename}"
        position = scope.stage.position(scope, Kind.STEP, scope.count(f"step:{label}"), label=label)
        return await once(
            scope,
            position,
            lambda: self._service.save_artifact(**given),
            name=label,
            request=filename,
            asked=label,
            durable=True,  # done again it would be another version
        )


def recorded(service: Any) -> Any:
    """An artifact service for attempts; None stays None."""
    return None if service is None else AttemptArtifacts(service)
