"""Versions of artifacts: one document each, the first insert of a version wins.

``_id`` is ``<scope>:<file>:<version, ten digits>``, so that the versions of a file and the files
of a scope are ranges of it; chunks of theirs begin in the same way. Names of files are values of
users: they are digested in keys and shown in ``name``.
"""

from __future__ import annotations

from collections.abc import Sequence

from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Payload
from durable_adk.model.artifact import ArtifactInfo, ArtifactName, ArtifactScope, NewArtifact
from durable_adk.model.identity import Nonce, Tenant, artifact_scope, new_nonce
from durable_adk.model.store_results import Write
from durable_adk.store import filters
from durable_adk.store.core import ARTIFACTS, PAYLOADS, Part, Session, contended
from durable_adk.store.documents import SCHEMA_VERSION, Doc, current, reading
from durable_adk.store.errors import Unsettled
from durable_adk.store.payloads import Texts, chunk_ids, part_nonce

CONTENT_INLINE = 16 * 1024
"""Contents above this many bytes are chunks: lists read the documents."""
_MAX_RIVALS = 1000
"""How often the next version may be somebody else's before a save gives up."""
_AT_ONCE = 500
_WITHOUT_CONTENT = {"body": 0}


class Artifacts(Part):
    """The ``artifacts`` collection."""

    async def save_artifact(self, new: NewArtifact) -> ArtifactInfo:
        """Store the next version of a file, from 0, without gaps among concurrent saves.

        Repeat: makes another version.
        """
        core, nonce, owner = self._core, new_nonce(), new.file.key
        scope = new.file.scope
        core.check_size(f"artifact {new.file.name}", new.content)
        core.check_size(f"artifact {new.file.name}: custom_metadata", new.metadata)
        body = await core.store(
            owner, part_nonce(nonce, "body"), new.content, inline_up_to=CONTENT_INLINE
        )
        metadata = None
        if new.metadata is not None:
            metadata = await core.store(
                owner, part_nonce(nonce, "meta"), new.metadata, inline_up_to=CONTENT_INLINE
            )
        fields: Doc = {
            "v": SCHEMA_VERSION,
            **filters.of_tenant(scope.tenant),
            "user": scope.user_id,
            "session": scope.session_id,
            "name": new.file.name,
            "mime": new.mime_type,
            "meta": metadata,
            "body": body,
            "w": nonce,
        }
        newest = await self._newest_version(new.file)
        version = 0 if newest is None else _version_of(newest) + 1
        for _ in range(_MAX_RIVALS):
            doc = await self._put_version(new.file, version, fields, nonce)
            if doc is not None:
                return await self._artifact_info(doc)
            version += 1
        raise contended(f"artifact {new.file.name!r}")

    async def _put_version(
        self, file: ArtifactName, version: int, fields: Doc, nonce: Nonce
    ) -> Doc | None:
        """The document under this number if it is ours; None if the number is taken."""
        core, key = self._core, _key(file, version)

        async def put(session: Session) -> Doc | None:
            times = {"created_at": core.clock.now()}
            return await core.upsert_one(
                session,
                ARTIFACTS,
                filters.absent(key),
                filters.whole({**fields, "version": version}, times),
            )

        async def settle(session: Session) -> Doc:
            doc = await core.find_one(session, ARTIFACTS, filters.by_id(key))
            if doc is None:
                raise Unsettled
            return doc

        doc = await core.write(Write.ARTIFACT, put, settle)
        return doc if doc["w"] == nonce else None

    # ------------------------------------------------------------------ reads

    async def load_artifact(
        self, file: ArtifactName, version: int | None
    ) -> tuple[ArtifactInfo, Payload] | None:
        """A version, by default the newest one, with its content; None if it is not there.

        Raises:
            CorruptHistory: a chunk of it is missing.
        """
        doc = await self._find_version(file, version)
        if doc is None:
            return None
        with reading("artifact", doc):
            body = current(doc)["body"]
            chunks: dict[str, bytes] = {}
            for key in chunk_ids([body]):  # one by one: each read stays within its timeout
                chunk = await self._artifact_document(PAYLOADS, key)
                if chunk is None:
                    break
                chunks[key] = chunk["b"]
            try:
                content = Texts(chunks).of(body)
            except CorruptHistory:
                if await self._artifact_document(ARTIFACTS, doc["_id"]) is None:
                    return None  # it was deleted while it was read
                raise
        return await self._artifact_info(doc), content

    async def find_artifact(self, file: ArtifactName, version: int | None) -> ArtifactInfo | None:
        """A version, by default the newest one, without its content."""
        doc = await self._find_version(file, version)
        return None if doc is None else await self._artifact_info(doc)

    async def artifact_versions(self, file: ArtifactName) -> tuple[ArtifactInfo, ...]:
        """All versions of a file, oldest first. One range read."""
        core = self._core

        async def once(session: Session) -> tuple[ArtifactInfo, ...]:
            docs = await core.find(
                session,
                ARTIFACTS,
                filters.starting_with(f"{file.key}:"),
                sort=[("_id", 1)],
                fields=_WITHOUT_CONTENT,
            )
            texts = await core.texts(session, [doc["meta"] for doc in docs])
            return tuple(_info_from(doc, texts) for doc in docs)

        return await core.read(f"artifact {file.name!r}", once)

    async def artifact_names(self, scope: ArtifactScope) -> tuple[str, ...]:
        """The names of a scope's files, sorted. One range read."""
        core = self._core

        async def once(session: Session) -> tuple[str, ...]:
            found = filters.starting_with(f"{scope.key}:")
            docs = await core.find(session, ARTIFACTS, found, fields={"name": 1})
            return tuple(sorted({doc["name"] for doc in docs}))

        return await core.read("artifacts", once)

    async def _find_version(self, file: ArtifactName, version: int | None) -> Doc | None:
        if version is None:
            return await self._newest_version(file)
        if version < 0:
            return None
        return await self._artifact_document(ARTIFACTS, _key(file, version))

    async def _newest_version(self, file: ArtifactName) -> Doc | None:
        core = self._core

        async def once(session: Session) -> Doc | None:
            found = filters.starting_with(f"{file.key}:")
            docs = await core.find(session, ARTIFACTS, found, sort=[("_id", -1)], limit=1)
            return docs[0] if docs else None

        return await core.read(f"artifact {file.name!r}", once)

    async def _artifact_document(self, name: str, key: str) -> Doc | None:
        core = self._core

        async def once(session: Session) -> Doc | None:
            return await core.find_one(session, name, filters.by_id(key))

        return await core.read(f"a read of {name}", once)

    async def _artifact_info(self, doc: Doc) -> ArtifactInfo:
        core = self._core

        async def once(session: Session) -> ArtifactInfo:
            return _info_from(doc, await core.texts(session, [doc["meta"]]))

        return await core.read(f"artifact {doc['name']!r}", once)

    # ------------------------------------------------------------------ deletion

    async def delete_artifact(self, file: ArtifactName) -> None:
        """Remove the versions that a file has now, then their chunks. Repeat: yes."""
        core = self._core

        async def once(session: Session) -> list[Doc]:
            found = filters.starting_with(f"{file.key}:")
            return await core.find(session, ARTIFACTS, found, fields={"body": 1, "meta": 1})

        docs = await core.read(f"artifact {file.name!r}", once)
        chunks = chunk_ids(envelope for doc in docs for envelope in (doc["body"], doc["meta"]))
        # By their ids: a version that is saved meanwhile keeps its chunks.
        await self._drop_all(ARTIFACTS, [doc["_id"] for doc in docs])
        await self._drop_all(PAYLOADS, chunks)

    async def delete_artifacts(self, tenant: Tenant, user_id: str, session_id: str | None) -> None:
        """Remove every file of a session (None: of the user), and what interrupted saves have
        left, before its own document is removed. Repeat: yes."""
        scope = artifact_scope(tenant, user_id, session_id)
        found = filters.starting_with(f"{scope}:")
        await self._drop(ARTIFACTS, found)
        await self._drop(PAYLOADS, found)

    async def _drop_all(self, name: str, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _AT_ONCE):
            await self._drop(name, filters.by_ids(keys[start : start + _AT_ONCE]))

    async def _drop(self, name: str, found: filters.Filter) -> None:
        core = self._core

        async def put(session: Session) -> bool:
            await core.collection(name).delete_many(found, session=session)
            return True

        async def settle(_: Session) -> bool:
            return True

        await core.write(Write.DELETE, put, settle)


def _key(file: ArtifactName, version: int) -> str:
    return f"{file.key}:{version:010d}"


def _version_of(doc: Doc) -> int:
    version: int = current(doc)["version"]
    return version


def _info_from(doc: Doc, texts: Texts) -> ArtifactInfo:
    with reading("artifact", doc):
        doc = current(doc)
        return ArtifactInfo(
            name=doc["name"],
            version=doc["version"],
            mime_type=doc["mime"],
            metadata=texts.optional(doc["meta"]),
            created_at=doc["created_at"],
        )
