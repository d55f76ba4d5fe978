"""Shared state: ``user:`` and ``app:`` keys, one document each, the newest stamp winning."""

from __future__ import annotations

import json

from durable_adk.model.activity import Payload
from durable_adk.model.execution import Execution, StepDocument
from durable_adk.model.identity import Tenant, scope_key
from durable_adk.model.store_results import Write
from durable_adk.store import filters, scope_filters
from durable_adk.store.core import EXECUTIONS, PAYLOADS, SCOPES, Part, Session
from durable_adk.store.documents import SCHEMA_VERSION, Doc, current

USER_PREFIX = "user:"


class Scopes(Part):
    """The ``scopes`` collection."""

    async def apply_scopes(self, execution: Execution, step: StepDocument) -> None:
        """Apply a step's shared state key by key, older stamps losing, then say so."""
        if step.scopes is not None and step.stamp:
            await self.put_scopes(
                execution.tenant, execution.user_id, step.scopes, stamp=step.stamp
            )
        core = self._core

        async def put(session: Session) -> bool:
            found = filters.scopes_due_from(execution.key, step.step, step.token)
            await core.update_one(session, EXECUTIONS, found, filters.SCOPES_APPLIED)
            return True

        async def settle(_: Session) -> bool:
            return True

        await core.write(Write.SCOPES, put, settle)

    async def put_scopes(
        self, tenant: Tenant, user_id: str, scopes: Payload, *, stamp: str
    ) -> None:
        """Set shared state key by key, older stamps losing; as of ``StepDocument``. Repeat: yes."""
        for key, value in json.loads(scopes).items():
            await self._put_scope(
                tenant, user_id if key.startswith(USER_PREFIX) else "", key, value, stamp
            )

    async def _put_scope(
        self, tenant: Tenant, user_id: str, key: str, value: object, stamp: str
    ) -> None:
        core = self._core
        document_key = scope_key(tenant, user_id, key)
        fields: Doc = {
            "v": SCHEMA_VERSION,
            **filters.of_tenant(tenant),
            "user": user_id,
            "key": key,
            "at": stamp,
            "value": None,
            "deleted": value is None,
        }
        if value is not None:
            text = json.dumps(
                value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
            )
            nonce = scope_filters.chunk_nonce(stamp, key)
            fields["value"] = await core.store(document_key, nonce, text)
        has_chunks = isinstance(fields["value"], dict) and "ref" in fields["value"]
        found = filters.scope_before(document_key, stamp)

        async def put(session: Session) -> bool | None:
            update = scope_filters.put(fields, stamp, core.clock.now())
            doc = await core.upsert_one(session, SCOPES, found, update)
            return None if doc is None else True

        async def settle(session: Session) -> bool:
            # Taken: by a newer value, which stays, or by an older one inserted just now.
            now = core.clock.now()
            await core.update_one(session, SCOPES, found, scope_filters.put(fields, stamp, now))
            if has_chunks:
                newer = scope_filters.newer_unmarked(document_key, stamp)
                await core.update_one(session, SCOPES, newer, scope_filters.marked(now))
            return True

        await core.write(Write.SCOPES, put, settle)

    async def load_scopes(self, tenant: Tenant, user_id: str) -> tuple[dict[str, Payload], str]:
        """Shared state seen now, by key with its prefix, and its newest stamp."""
        core = self._core

        async def once(session: Session) -> tuple[dict[str, Payload], str]:
            docs = await core.find(session, SCOPES, filters.scopes_of(tenant, user_id))
            docs = [current(doc) for doc in docs]
            texts = await core.texts(session, [doc["value"] for doc in docs])
            values = {doc["key"]: texts.of(doc["value"]) for doc in docs if not doc["deleted"]}
            return values, max((doc["at"] for doc in docs), default="")

        return await core.read("shared state", once)

    # ------------------------------------------------------------------ overwritten values

    async def sweep_scopes(self, tenant: Tenant, *, grace_ms: int, limit: int) -> int:
        """Remove the chunks of values that were overwritten long enough ago."""
        core = self._core

        async def once(session: Session) -> list[Doc]:
            found = scope_filters.left_over(tenant, core.clock.now(), grace_ms)
            sort = [("left.since", 1)]
            return await core.find(
                session, SCOPES, found, sort=sort, limit=limit, fields={"left": 1}
            )

        docs = await core.read("overwritten shared state", once)
        for doc in docs:
            await self._sweep(doc["_id"], doc["left"]["since"], doc["left"]["upto"])
        return len(docs)

    async def _sweep(self, document_key: str, since: int, upto: str) -> None:
        core = self._core

        async def put(session: Session) -> bool:
            older = scope_filters.chunks_before(document_key, upto)
            await core.collection(PAYLOADS).delete_many(older, session=session)
            found = scope_filters.left_since(document_key, since, upto)
            await core.update_one(
                session, SCOPES, found, scope_filters.swept(upto, core.clock.now())
            )
            return True

        async def settle(_: Session) -> bool:
            return True

        await core.write(Write.SWEPT, put, settle)
