"""ADK's artifact service over the store; where the store comes from is up to the subclass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from google.adk.artifacts import BaseArtifactService, artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from durable_adk.model import codec
from durable_adk.model.activity import Payload
from durable_adk.model.artifact import ArtifactInfo, ArtifactName, ArtifactScope, NewArtifact
from durable_adk.model.identity import Tenant

USER_PREFIX = "user:"
MAX_REFERENCES = 5
"""How many ``artifact://`` references one load follows, as ADK's own services do."""

_ABSENT = (
    types.Part(),
    # What ADK's rewind saves to remove a file; each of its services loads it as absent.
    types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b"")),
)


class ArtifactStore(Protocol):
    """The shape that the service needs of the store."""

    async def save_artifact(self, new: NewArtifact) -> ArtifactInfo: ...

    async def load_artifact(
        self, file: ArtifactName, version: int | None
    ) -> tuple[ArtifactInfo, Payload] | None: ...

    async def find_artifact(
        self, file: ArtifactName, version: int | None
    ) -> ArtifactInfo | None: ...

    async def artifact_versions(self, file: ArtifactName) -> tuple[ArtifactInfo, ...]: ...

    async def artifact_names(self, scope: ArtifactScope) -> tuple[str, ...]: ...

    async def delete_artifact(self, file: ArtifactName) -> None: ...


class StoredArtifacts(BaseArtifactService):
    """Answers as ADK's ``InMemoryArtifactService`` does, from the store.

    Versions of a file are numbered from 0; concurrent saves get different numbers and none is
    overwritten. A name that begins with ``user:`` belongs to the user, in every session.
    """

    @abstractmethod
    async def _store(self) -> tuple[ArtifactStore, str]:
        """The open store and the namespace that the files are in."""

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Store the next version of a file; returns its number.

        Raises:
            InputValidationError: ADK's; no name or session, or a part without content.
            NotStorable: the metadata, or a part of the content, cannot be recorded.
            Unavailable, WriteUnknown: MongoDB; after ``WriteUnknown`` the version may be there.
        """
        part = ensure_part(artifact)
        mime_type = _mime_type(
            part, {"app_name": app_name, "user_id": user_id, "session_id": session_id}
        )
        content = codec.encode(part, where=f"artifact {filename}")
        metadata = None
        if custom_metadata:
            metadata = codec.encode(custom_metadata, where=f"artifact {filename}: custom_metadata")
        store, namespace = await self._store()
        saved = await store.save_artifact(
            NewArtifact(
                file=_file(namespace, app_name, user_id, session_id, filename),
                content=content,
                mime_type=mime_type,
                metadata=metadata,
            )
        )
        return saved.version

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """A version's content, a fresh object; references to other artifacts are followed.

        Raises:
            InputValidationError: ADK's; a reference that leads out of the session, or too far.
            CorruptHistory: a part of what was stored is missing.
        """
        store, namespace = await self._store()
        for left in range(MAX_REFERENCES, -1, -1):
            file = _file(namespace, app_name, user_id, session_id, filename)
            found = await store.load_artifact(file, version)
            if found is None:
                return None
            part: types.Part = codec.decode(found[1])
            uri = part.file_data.file_uri if part.file_data else None
            if uri is None or not artifact_util.is_artifact_ref(part):
                return None if part in _ABSENT else part
            target = artifact_util.resolve_artifact_reference(
                file_uri=uri,
                app_name=app_name,
                user_id=user_id,
                session_id=session_id,
                remaining_depth=left,
            )
            session_id, filename, version = target.session_id, target.filename, target.version
        return None

    async def list_artifact_keys(
        self, *, app_name: str, user_id: str, session_id: str | None = None
    ) -> list[str]:
        """The names of the user's files and, with a session, of the session's; sorted."""
        store, namespace = await self._store()
        tenant = Tenant(namespace, _checked("app_name", app_name))
        names: set[str] = set()
        for one in {None, session_id}:
            scope = ArtifactScope(
                tenant=tenant, user_id=_checked("user_id", user_id), session_id=one
            )
            names.update(await store.artifact_names(scope))
        return sorted(names)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Remove all versions of a file. Repeat: yes."""
        store, namespace = await self._store()
        await store.delete_artifact(_file(namespace, app_name, user_id, session_id, filename))

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """The numbers of a file's versions, in order."""
        store, namespace = await self._store()
        file = _file(namespace, app_name, user_id, session_id, filename)
        return [info.version for info in await store.artifact_versions(file)]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """A file's versions without their content, in order."""
        store, namespace = await self._store()
        file = _file(namespace, app_name, user_id, session_id, filename)
        return [_shown(file, info) for info in await store.artifact_versions(file)]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """A version (by default the newest) without its content."""
        store, namespace = await self._store()
        file = _file(namespace, app_name, user_id, session_id, filename)
        found = await store.find_artifact(file, version)
        return None if found is None else _shown(file, found)


def _file(
    namespace: str, app_name: str, user_id: str, session_id: str | None, filename: str
) -> ArtifactName:
    _checked("filename", filename)
    if filename.startswith(USER_PREFIX):
        session_id = None
    elif session_id is None:
        raise InputValidationError(
            f"Session ID must be provided for session-scoped artifacts: {filename!r}."
        )
    else:
        _checked("session_id", session_id)
    scope = ArtifactScope(
        tenant=Tenant(namespace, _checked("app_name", app_name)),
        user_id=_checked("user_id", user_id),
        session_id=session_id,
    )
    return ArtifactName(scope=scope, name=filename)


def _checked(what: str, value: object) -> str:
    """Return a text that can be stored.

    Raises:
        InputValidationError: as ADK's own services do.
    """
    if not isinstance(value, str) or not value.strip():
        raise InputValidationError(f"{what} must be a text that is not empty, got {value!r}.")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputValidationError(f"{what} {value!r} is no valid Unicode.") from None
    return value


def _mime_type(part: types.Part, place: Mapping[str, Any]) -> str | None:
    """What ADK's services show as the type of a part.

    Raises:
        InputValidationError: a part without content, or a reference out of its scope.
    """
    if part.inline_data is not None:
        return part.inline_data.mime_type
    if part.text is not None:
        return "text/plain"
    if part.file_data is None:
        raise InputValidationError(
            "Not supported artifact type: expected inline_data, text or file_data."
        )
    if not artifact_util.is_artifact_ref(part):
        return part.file_data.mime_type
    uri = part.file_data.file_uri or ""
    target = artifact_util.parse_artifact_uri(uri)
    if target is None:
        raise InputValidationError(f"Invalid artifact reference URI: {uri}")
    artifact_util.validate_artifact_reference_scope(**place, parsed_uri=target)
    return None


def _shown(file: ArtifactName, info: ArtifactInfo) -> ArtifactVersion:
    scope = file.scope
    return ArtifactVersion(
        version=info.version,
        canonical_uri=artifact_util.get_artifact_uri(
            scope.tenant.app, scope.user_id, file.name, info.version, scope.session_id
        ),
        custom_metadata={} if info.metadata is None else codec.decode(info.metadata),
        create_time=info.created_at / 1000,
        mime_type=info.mime_type,
    )
