"""Artifacts of a session that was forked: its own over those that its source had at the cut.

Nothing is copied. A fork's own versions are stored under its own id from 0 and go on, as shown,
after the source's newest version at the cut; what the source saves later is never seen, and a
fork writes nothing to its source.

A file that a fork deletes and that its source has stays with the source: the fork's own versions
are removed, and an own version that says so (empty, as ADK's rewind saves, and marked in its
metadata) hides the source's. What a session deletes is gone for its forks, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.adk.artifacts import artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, ensure_part
from google.genai import types

from durable_adk.model import codec
from durable_adk.model.execution import SessionRecord

USER_PREFIX = "user:"
MAX_REMEMBERED = 256
"""Sessions that one attempt remembers; its own and its ancestors are there as long as it runs."""

_MARK = "durable_adk.fork"
_DELETED = "deleted"

SessionLookup = Callable[[str, str, str], Awaitable[SessionRecord | None]]
"""Takes app name, user id and session id; None if that is no session of the store."""


def is_of_session(filename: str) -> bool:
    """Whether a file belongs to its session: the user's files are never rewound."""
    return not filename.startswith(USER_PREFIX)


class Passing:
    """Wraps a service and passes for one of its class."""

    def __init__(self, service: Any) -> None:
        self._service = service

    @property  # type: ignore[misc]  # read-only, as on every object but for what isinstance asks
    def __class__(self) -> Any:
        """What ``isinstance`` sees."""
        return self._service.__class__

    def __getattr__(self, name: str) -> Any:
        if name == "_service":  # while it is copied there is none yet
            raise AttributeError(name)
        return getattr(self._service, name)


@dataclass(frozen=True, slots=True)
class _Cut:
    """What a session has from its source. ``versions`` is ``{file name: newest version}``."""

    source: str = ""
    versions: Mapping[str, int] | None = None

    def base(self, filename: str) -> int:
        """How many numbers of a file the source had used; 0 if it did not have the file."""
        return (self.versions or {}).get(filename, -1) + 1


_NO_FORK = _Cut()


@dataclass(frozen=True, slots=True)
class _Own:
    """A fork's own versions of a file that its source had.

    Attributes:
        visible: Those after the last deletion, as the service numbers them.
        hides: Whether the file was deleted, and so the source's versions are not shown.
    """

    visible: tuple[ArtifactVersion, ...]
    hides: bool


class _Remembered:
    """A lookup that asks once for each session that it has found."""

    def __init__(self, lookup: SessionLookup) -> None:
        self._lookup = lookup
        self._found: dict[tuple[str, str, str], SessionRecord] = {}

    async def find(self, app_name: str, user_id: str, session_id: str) -> SessionRecord | None:
        key = (app_name, user_id, session_id)
        known = self._found.get(key)
        if known is not None:
            return known
        record = await self._lookup(*key)
        if record is not None and len(self._found) < MAX_REMEMBERED:
            self._found[key] = record
        return record


class LineageArtifacts(Passing):
    """Any artifact service, with sessions that read through to what they were forked from.

    Sessions that are no forks, sessions that the lookup does not know, and ``user:`` files go
    straight to the service.
    """

    def __init__(self, service: Any, lookup: SessionLookup) -> None:
        super().__init__(service)
        self._lookup = lookup

    def remembering(self) -> LineageArtifacts:
        """The same for one attempt: looks each session up once."""
        return LineageArtifacts(self._service, _Remembered(self._lookup).find)

    # ------------------------------------------------------------------ ADK's methods

    async def save_artifact(
        self, *, filename: str, artifact: types.Part | dict[str, Any], **given: Any
    ) -> int:
        """Save under the session's own id; the number goes on after the source's at the cut."""
        cut = await self._cut(filename, given)
        if cut.versions:
            artifact = await self._resolved(artifact, given)
        version: int = await self._service.save_artifact(
            filename=filename, artifact=artifact, **given
        )
        return cut.base(filename) + version

    async def load_artifact(
        self, *, filename: str, version: int | None = None, **given: Any
    ) -> types.Part | None:
        """The fork's own content, or its source's at the cut."""
        at = await self._located(filename, version, given)
        if at is None:
            return None
        where, number = at
        found: types.Part | None = await self._service.load_artifact(
            filename=filename, version=number, **where
        )
        return found

    async def get_artifact_version(
        self, *, filename: str, version: int | None = None, **given: Any
    ) -> ArtifactVersion | None:
        """As ``load_artifact``, with the number that this session shows."""
        if not (await self._cut(filename, given)).base(filename):
            found: ArtifactVersion | None = await self._service.get_artifact_version(
                filename=filename, version=version, **given
            )
            return found
        shown = await self._versions(filename, given)
        if version is None:
            return shown[-1] if shown else None
        return next((one for one in shown if one.version == version), None)

    async def list_artifact_versions(self, *, filename: str, **given: Any) -> list[ArtifactVersion]:
        """The source's versions up to the cut, then the fork's own."""
        return await self._versions(filename, given)

    async def list_versions(self, *, filename: str, **given: Any) -> list[int]:
        """The numbers of ``list_artifact_versions``."""
        if not (await self._cut(filename, given)).base(filename):
            found: list[int] = await self._service.list_versions(filename=filename, **given)
            return found
        return [one.version for one in await self._versions(filename, given)]

    async def list_artifact_keys(self, **given: Any) -> list[str]:
        """The session's own files and those that its source had at the cut; sorted."""
        names = set(await self._service.list_artifact_keys(**given))
        cut = await self._cut("", given)
        if not cut.versions:
            return sorted(names)
        for name, newest in cut.versions.items():
            if name in names:
                own = await self._own(name, given)
                if own.hides and not own.visible:
                    names.discard(name)
            elif await self._newest_upto(name, newest, cut, given) is not None:
                names.add(name)
        return sorted(names)

    async def delete_artifact(self, *, filename: str, **given: Any) -> None:
        """Remove the file from this session; its source keeps it. Repeat: yes."""
        if not (await self._cut(filename, given)).base(filename):
            await self._service.delete_artifact(filename=filename, **given)
            return
        own = await self._own(filename, given)
        if own.hides and not own.visible:
            return
        await self._service.delete_artifact(filename=filename, **given)
        await self._service.save_artifact(
            filename=filename,
            artifact=types.Part(
                inline_data=types.Blob(mime_type="application/octet-stream", data=b"")
            ),
            custom_metadata={_MARK: _DELETED},
            **given,
        )

    # ------------------------------------------------------------------ lineage

    async def _cut(self, filename: str, given: Mapping[str, Any]) -> _Cut:
        session_id = given.get("session_id")
        if not isinstance(session_id, str) or not is_of_session(filename):
            return _NO_FORK
        record = await self._lookup(given["app_name"], given["user_id"], session_id)
        if record is None or not record.lineage:
            return _NO_FORK
        versions = codec.decode(record.artifacts) if record.artifacts else {}
        return _Cut(record.lineage[-1].session_id, versions)

    async def _own(self, filename: str, given: Mapping[str, Any]) -> _Own:
        found = await self._service.list_artifact_versions(filename=filename, **given)
        for place in range(len(found) - 1, -1, -1):
            if found[place].custom_metadata.get(_MARK) == _DELETED:
                return _Own(tuple(found[place + 1 :]), hides=True)
        return _Own(tuple(found), hides=False)

    async def _versions(self, filename: str, given: Mapping[str, Any]) -> list[ArtifactVersion]:
        """All versions that a session shows, with the numbers that it shows."""
        cut = await self._cut(filename, given)
        base = cut.base(filename)
        if not base:
            found: list[ArtifactVersion] = await self._service.list_artifact_versions(
                filename=filename, **given
            )
            return found
        own = await self._own(filename, given)
        shown: list[ArtifactVersion] = []
        if not own.hides:
            of_source = await self._versions(filename, _in(cut.source, given))
            shown = [one for one in of_source if one.version < base]
            shown = [_shown(one, one.version, filename, given) for one in shown]
        return shown + [_shown(one, one.version + base, filename, given) for one in own.visible]

    async def _located(
        self, filename: str, version: int | None, given: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], int | None] | None:
        """In which session a version is stored, and under which number; None if it is hidden."""
        cut = await self._cut(filename, given)
        base = cut.base(filename)
        if not base:
            return given, version
        own = await self._own(filename, given)
        if version is None and own.visible:
            return given, own.visible[-1].version
        if version is not None and version >= base:
            is_visible = any(one.version + base == version for one in own.visible)
            return (given, version - base) if is_visible else None
        if own.hides:
            return None
        if version is None:
            version = await self._newest_upto(filename, base - 1, cut, given)
            if version is None:
                return None
        return await self._located(filename, version, _in(cut.source, given))

    async def _newest_upto(
        self, filename: str, newest: int, cut: _Cut, given: Mapping[str, Any]
    ) -> int | None:
        """The source's newest version of those at the cut; another than ``newest`` only if the
        source has deleted the file since."""
        numbers = await self.list_versions(filename=filename, **_in(cut.source, given))
        return max((number for number in numbers if number <= newest), default=None)

    async def _resolved(
        self, artifact: types.Part | dict[str, Any], given: Mapping[str, Any]
    ) -> types.Part:
        """What a reference to a file of this fork holds: the service would look for the number
        that is shown, in the fork alone."""
        part = ensure_part(artifact)
        uri = part.file_data.file_uri if part.file_data else None
        if not uri or not artifact_util.is_artifact_ref(part):
            return part
        target = artifact_util.parse_artifact_uri(uri)
        if target is None or target.session_id is None:
            return part
        where = {"app_name": target.app_name, "user_id": target.user_id}
        if {**where, "session_id": target.session_id} != {key: given.get(key) for key in _PLACE}:
            return part
        if not (await self._cut(target.filename, given)).base(target.filename):
            return part
        content = await self.load_artifact(
            filename=target.filename,
            version=target.version,
            **{key: given[key] for key in _PLACE},
        )
        return part if content is None else content


_PLACE = ("app_name", "user_id", "session_id")


def _in(session_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
    return {**given, "session_id": session_id}


def _shown(
    found: ArtifactVersion, number: int, filename: str, given: Mapping[str, Any]
) -> ArtifactVersion:
    """With the number that a session shows. A URI that can be referred to leads there; any other
    one says where the content is."""
    changed: dict[str, Any] = {"version": number}
    if artifact_util.parse_artifact_uri(found.canonical_uri) is not None:
        changed["canonical_uri"] = artifact_util.get_artifact_uri(
            given["app_name"], given["user_id"], filename, number, given["session_id"]
        )
    return found.model_copy(update=changed)


def through_lineage(service: Any, lookup: SessionLookup) -> Any:
    """An artifact service whose forks read what they were forked from; None stays None."""
    return None if service is None else LineageArtifacts(service, lookup)
