"""Versions of files that an agent saves, as the store keeps them."""

from __future__ import annotations

from dataclasses import dataclass

from durable_adk.model.activity import Payload
from durable_adk.model.identity import Tenant, artifact_scope, artifact_series


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactScope:
    """Whose files: a session's, or with ``session_id`` None the user's, in every session."""

    tenant: Tenant
    user_id: str
    session_id: str | None

    @property
    def key(self) -> str:
        """What the keys of all its documents and chunks begin with."""
        return artifact_scope(self.tenant, self.user_id, self.session_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactName:
    """One file of a scope, with all its versions."""

    scope: ArtifactScope
    name: str

    @property
    def key(self) -> str:
        """What the keys of its versions and their chunks begin with."""
        return artifact_series(self.scope.key, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewArtifact:
    """A version before it has its number.

    Attributes:
        content: Payload of what was saved.
        metadata: Payload of the caller's own metadata, or None.
    """

    file: ArtifactName
    content: Payload
    mime_type: str | None = None
    metadata: Payload | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactInfo:
    """A stored version without its content. ``created_at`` is in server milliseconds."""

    name: str
    version: int
    mime_type: str | None
    metadata: Payload | None
    created_at: int
