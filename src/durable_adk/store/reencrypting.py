"""Writing what is stored again, under the key that encrypts now.

Value by value, in place: an update matches only while the value is what was read, so that it never
undoes what somebody else wrote meanwhile. What is under the current key already is left alone:
cut off, it is called again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from durable_adk.errors import ConfigError
from durable_adk.model.identity import Tenant
from durable_adk.model.store_results import Reencrypted, Write
from durable_adk.store import filters
from durable_adk.store.core import (
    ACTIVITIES,
    ARTIFACTS,
    EXECUTIONS,
    PAYLOADS,
    SCOPES,
    SESSIONS,
    STEPS,
    Part,
    Session,
    contended,
)
from durable_adk.store.documents import Doc
from durable_adk.store.payloads import content_digest
from durable_adk.store.unfinished import runs_left

_AT_ONCE: Final = {PAYLOADS: 2, ARTIFACTS: 20, STEPS: 20}
_OF_OTHERS: Final = 50
_TRIES: Final = 20


class Reencrypting(Part):
    """One pass over everything of a tenant."""

    async def reencrypt(self, tenant: Tenant) -> Reencrypted:
        """Write every value that is plain, or under another key, again under the current one.

        Repeat: yes. Safe beside running workers.

        Raises:
            ConfigError: there is no key.
            KeyMissing: a value is under a key that is not here.
            CorruptHistory: a value was changed or moved.
        """
        if not self._core.sealing.is_on:
            raise ConfigError(
                "encryption.keys",
                "names no key to encrypt with",
                "Give encryption.keys an id and 32 bytes in base64 (openssl rand -base64 32).",
            )
        seen = rewritten = 0
        async for name, doc in self._all_of(tenant):
            seen += 1
            rewritten += await self._rewrite(name, doc)
        return Reencrypted(seen=seen, rewritten=rewritten)

    async def _all_of(self, tenant: Tenant) -> AsyncIterator[tuple[str, Doc]]:
        for name in (SESSIONS, SCOPES, ARTIFACTS, EXECUTIONS):
            async for doc in self._pages(name, filters.of_tenant(tenant), ""):
                yield name, doc
                is_run = name == EXECUTIONS
                owner = doc["run"] if is_run else doc["_id"]
                if name == ARTIFACTS:
                    owner = owner.rpartition(":")[0]
                for inner in (ACTIVITIES, STEPS, PAYLOADS) if is_run else (PAYLOADS,):
                    async for part in self._pages(inner, {}, f"{owner}:"):
                        yield inner, part
                for run in await runs_left(self._core, doc) if name == SESSIONS else ():
                    for inner in (STEPS, PAYLOADS):
                        async for part in self._pages(inner, {}, f"{run}:"):
                            yield inner, part

    async def _pages(self, name: str, found: filters.Filter, prefix: str) -> AsyncIterator[Doc]:
        """Stored documents as they are, by id."""
        limit, after = _AT_ONCE.get(name, _OF_OTHERS), prefix
        end = filters.starting_with(prefix)["_id"] if prefix else {}
        while True:
            where = {**found, "_id": {**end, "$gt": after}}
            docs = await self._raw(name, where, limit)
            for doc in docs:
                yield doc
            if len(docs) < limit:
                return
            after = docs[-1]["_id"]

    async def _raw(self, name: str, found: filters.Filter, limit: int) -> list[Doc]:
        core, by_id = self._core, [("_id", 1)]

        async def once(session: Session) -> list[Doc]:
            # Along no other index: one with a status in it would be walked past what changes its.
            cursor = core.collection(name).find(found, session=session).hint(by_id)
            docs: list[Doc] = await cursor.sort(by_id).limit(limit).to_list(None)
            return docs

        return await core.read(name, once)

    async def _rewrite(self, name: str, doc: Doc) -> bool:
        """Whether it had something to write again."""
        core, current = self._core, [doc]
        for tries in range(_TRIES):
            if not current:
                return False  # it is gone
            stored = current[0]
            old: dict[str, Any] = {}
            new: dict[str, Any] = {}
            for path, was, value in core.sealing.resealed(name, stored):
                place = ".".join(path)
                whole = await self._with_digest(value)
                old[place] = was
                new[place] = core.sealing.sealed(name, stored["_id"], path, whole)
            if not new:
                return tries > 0
            if await self._put(name, {"_id": stored["_id"], **old}, {"$set": new}):
                return True
            current = await self._raw(name, filters.by_id(stored["_id"]), 1)
        raise contended(f"{name} {doc['_id']}")

    async def _put(self, name: str, found: filters.Filter, update: filters.Update) -> bool:
        core = self._core

        async def put(session: Session) -> bool | None:
            result = await core.collection(name).update_one(found, update, session=session)
            return True if result.matched_count else None

        async def settle(_: Session) -> bool:
            return False  # somebody wrote it, perhaps this write: it is read again

        return await core.write(Write.REENCRYPT, put, settle)

    async def _with_digest(self, value: Any) -> Any:
        """A payload in chunks with the digest of its bytes, which a plain one does not have."""
        if not isinstance(value, dict) or "ref" not in value or "sha" in value:
            return value
        core = self._core

        async def once(session: Session) -> str:
            return (await core.texts(session, [value])).of(value)

        text = await core.read(f"payload {value['ref']}", once)
        return {**value, "sha": content_digest(text.encode())}
