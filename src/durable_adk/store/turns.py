"""A session's turns without what they committed: for lists and trees."""

from __future__ import annotations

from collections.abc import Sequence

from durable_adk.model.execution import Execution, SessionRecord
from durable_adk.model.identity import ExecutionKey
from durable_adk.store import filters, session_filters
from durable_adk.store.core import EXECUTIONS, Part, Session
from durable_adk.store.documents import Doc, execution_envelopes, execution_from
from durable_adk.store.loading import stretches


class Turns(Part):
    """Executions along the lineage of a session."""

    async def list_turns(
        self, record: SessionRecord, *, before: int, limit: int
    ) -> tuple[Execution, ...]:
        """Turns before one, newest first, at most so many; its ancestors' included."""
        core = self._core

        async def once(session: Session) -> tuple[Execution, ...]:
            docs: list[Doc] = []
            for key, after, upto in reversed(stretches(record)):
                end = before if upto is None else min(before, upto + 1)
                if len(docs) < limit and end > after + 1:
                    found = session_filters.turns_between(key, after, end)
                    room = limit - len(docs)
                    docs += await core.find(
                        session, EXECUTIONS, found, sort=[("turn", -1)], limit=room
                    )
            texts = await core.texts(session, [e for doc in docs for e in execution_envelopes(doc)])
            return tuple(execution_from(doc, texts) for doc in docs)

        return await core.read(f"session {record.session_id!r}", once)

    async def existing_executions(self, keys: Sequence[ExecutionKey]) -> frozenset[ExecutionKey]:
        """Which of these executions there are."""
        core = self._core

        async def once(session: Session) -> frozenset[ExecutionKey]:
            found = filters.by_ids(list(keys))
            docs = await core.find(session, EXECUTIONS, found, fields={"_id": 1})
            return frozenset(ExecutionKey(doc["_id"]) for doc in docs)

        return frozenset() if not keys else await core.read("executions", once)
