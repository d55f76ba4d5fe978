"""Shared state: ``user:`` and ``app:`` keys, one document each, the newest stamp winning."""

from __future__ import annotations

import json

from durable_adk.model.activity import Payload
from durable_adk.model.execution import Execution, StepDocument
from durable_adk.model.identity import Tenant, scope_key
from durable_adk.model.store_results import Write
from durable_adk.store import filters
from durable_adk.store.core import EXECUTIONS, SCOPES, Part, Session
from durable_adk.store.documents import SCHEMA_VERSION, Doc, current
from durable_adk.store.payloads import part_nonce

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
            fields["value"] = await core.store(document_key, part_nonce(stamp, key), text)
        found = filters.scope_before(document_key, stamp)

        async def put(session: Session) -> bool | None:
            doc = await core.upsert_one(session, SCOPES, found, {"$set": fields})
            return None if doc is None else True

        async def settle(session: Session) -> bool:
            # Taken: by a newer value, which stays, or by an older one inserted just now.
            await core.update_one(session, SCOPES, found, {"$set": fields})
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
