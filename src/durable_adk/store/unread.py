"""Executions whose content is gone: what is left of them, and their end."""

from __future__ import annotations

from durable_adk.errors import CorruptHistory
from durable_adk.model.execution import Execution, Lease, Status, StoredError
from durable_adk.model.identity import ExecutionKey
from durable_adk.model.store_results import Write
from durable_adk.store import filters
from durable_adk.store.committing import Committing
from durable_adk.store.core import EXECUTIONS, Session
from durable_adk.store.documents import Doc, error_document, execution_envelopes, execution_from
from durable_adk.store.outlines import outline_of
from durable_adk.store.retention_filters import NOT_GONE


class Unreadable(Committing):
    """See ``engine.unread_ports``."""

    async def get_outline(self, key: ExecutionKey) -> Execution | None:
        core = self._core

        async def once(session: Session) -> Execution | None:
            found = {**filters.by_id(key), **NOT_GONE}
            stored = await core.collection(EXECUTIONS).find_one(found, session=session)
            if stored is None:
                return None
            try:
                doc = core.sealing.opened(EXECUTIONS, stored)
                return execution_from(doc, await core.texts(session, execution_envelopes(doc)))
            except CorruptHistory as error:
                outline = outline_of(stored, error) if error.is_gone else None
                if outline is None:
                    raise
                return outline

        return await core.read("a read of an execution", once)

    async def end_unread(self, lease: Lease, *, status: Status, error: StoredError) -> None:
        fields = {"error": error_document(error), "scopes_due": False}
        update = filters.ended(
            lease, self._core.clock.now(), status=status, last_step=None, fields=fields
        )

        def is_mine(doc: Doc) -> bool:
            left = doc.get("left") == {"token": lease.token, "how": "end"}
            return left and doc.get("last_step") is None

        await self._commit(Write.END, lease, filters.held_under(lease), update, is_mine)
