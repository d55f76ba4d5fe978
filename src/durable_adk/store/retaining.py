"""Removing the oldest turns of a session: a mark, the cut, then what is recorded of them.

The cut is one update of the session's document: it puts ``base`` in place of the turns, so that no
reader looks for them any more. What was marked before it and is met after it by somebody who
depends on these turns, an attempt or a fork, loses the update its filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from durable_adk.model.activity import Payload
from durable_adk.model.execution import SessionRecord
from durable_adk.model.identity import ExecutionKey, Nonce, RunId, SessionKey, Tenant
from durable_adk.model.retention import TurnMark
from durable_adk.model.store_results import Write
from durable_adk.store import filters, retention_filters, session_filters
from durable_adk.store.core import (
    ACTIVITIES,
    EXECUTIONS,
    PAYLOADS,
    SESSIONS,
    STEPS,
    Part,
    Session,
)
from durable_adk.store.documents import Doc
from durable_adk.store.loading import stretches
from durable_adk.store.payloads import Envelope
from durable_adk.store.session_documents import session_from

_FIELDS = {"turn": 1, "run": 1, "sk": 1, "scopes_due": 1}


class Retaining(Part):
    """See ``engine.retention_ports.RetentionStore``."""

    async def sessions_after(
        self, tenant: Tenant, after: str, *, limit: int
    ) -> tuple[SessionRecord, ...]:
        """Sessions in the order of their keys, without payloads."""
        found = retention_filters.sessions_after(tenant, after)
        return await self._light("sessions", found, limit)

    async def forks_from(self, key: SessionKey) -> tuple[SessionRecord, ...]:
        """The sessions with this one among their ancestors, without payloads."""
        return await self._light(f"forks of session {key}", session_filters.forks_of(key), 0)

    async def _light(
        self, what: str, found: filters.Filter, limit: int
    ) -> tuple[SessionRecord, ...]:
        core = self._core

        async def once(session: Session) -> tuple[SessionRecord, ...]:
            docs = await core.find(
                session,
                SESSIONS,
                found,
                sort=[("_id", 1)],
                limit=limit,
                fields=retention_filters.LIGHT,
            )
            none = await core.texts(session, ())
            return tuple(session_from(doc, none) for doc in docs)

        return await core.read(what, once)

    async def oldest_turns(
        self, record: SessionRecord, *, upto: int, age_ms: int, limit: int
    ) -> tuple[TurnMark, ...]:
        """Finished turns that ended so long ago, oldest first, its ancestors' included."""
        core = self._core

        async def once(session: Session) -> tuple[TurnMark, ...]:
            docs: list[Doc] = []
            for key, after, end in stretches(record):
                last = upto if end is None else min(upto, end)
                if len(docs) < limit and last > after:
                    found = retention_filters.ended_between(
                        key, after, last, core.clock.now(), age_ms
                    )
                    docs += await self._marks(session, found, limit - len(docs))
            return tuple(_mark_of(doc) for doc in docs)

        return await core.read(f"turns of session {record.session_id!r}", once)

    async def turns_below(self, key: SessionKey, floor: int, *, limit: int) -> tuple[TurnMark, ...]:
        """Turns of the session itself that are below its floor and still stored."""

        async def once(session: Session) -> tuple[TurnMark, ...]:
            found = retention_filters.turns_upto(key, floor)
            return tuple(_mark_of(doc) for doc in await self._marks(session, found, limit))

        return await self._core.read("a read of turns", once)

    async def _marks(self, session: Session, found: filters.Filter, limit: int) -> list[Doc]:
        return await self._core.find(
            session, EXECUTIONS, found, sort=[("turn", 1)], limit=limit, fields=_FIELDS
        )

    # ------------------------------------------------------------------ the mark and the cut

    async def mark_expiring(self, key: SessionKey, *, upto: int) -> None:
        """Mark turns, unless some are marked."""
        now = self._core.clock.now()
        update = retention_filters.expiring(upto, now)
        await self._set_mark(Write.EXPIRING, retention_filters.unmarked(key), update)

    async def unmark_expiring(self, key: SessionKey, *, upto: int) -> None:
        """Take the mark back."""
        found = retention_filters.expiring_upto(key, upto)
        await self._set_mark(Write.EXPIRING, found, retention_filters.NOT_EXPIRING)

    async def begin_cut(self, key: SessionKey, *, upto: int, grace_ms: int, nonce: Nonce) -> bool:
        """Say that the floor is about to move."""
        core = self._core

        async def put(session: Session) -> bool | None:
            found = retention_filters.expired(key, upto, core.clock.now(), grace_ms)
            return await core.update_one(session, SESSIONS, found, retention_filters.cutting(nonce))

        async def settle(session: Session) -> bool:
            doc = await core.find_one(session, SESSIONS, filters.by_id(key))
            return doc is not None and doc.get("cutting") == nonce

        return await core.write(Write.CUTTING, put, settle)

    async def commit_cut(
        self,
        key: SessionKey,
        *,
        nonce: Nonce,
        upto: int,
        state: Payload | None,
        artifacts: Payload | None,
    ) -> bool:
        """Move the floor, under the mark. Chunks that an earlier base had are removed."""
        core = self._core
        base: dict[str, Envelope | int | str] = {"upto": upto, "w": nonce}
        place = f"{_BASE}{upto:010d}-{nonce}"
        for name, value in (("state", state), ("artifacts", artifacts)):
            if value is not None:
                base[name] = await core.store(key, f"{place}-{name}", value)

        async def put(session: Session) -> bool | None:
            found = retention_filters.cutting_as(key, nonce)
            return await core.update_one(session, SESSIONS, found, retention_filters.cut(base))

        async def settle(session: Session) -> bool:
            doc = await core.find_one(session, SESSIONS, filters.by_id(key))
            return doc is not None and (doc.get("base") or {}).get("w") == nonce

        is_ours = await core.write(Write.CUT, put, settle)
        if is_ours:
            older = retention_filters.ids_between(f"{key}:{_BASE}", f"{key}:{place}")
            await self._delete(PAYLOADS, older)
        return is_ours

    async def stop_cut(self, key: SessionKey, mark: str) -> None:
        """Take a mark off, if it is still this one."""
        found = retention_filters.cutting_as(key, mark)
        await self._set_mark(Write.CUTTING, found, retention_filters.cutting(None))

    async def _set_mark(self, kind: Write, found: filters.Filter, update: Any) -> None:
        core = self._core

        async def put(session: Session) -> bool | None:
            return await core.update_one(session, SESSIONS, found, update)

        async def settle(_session: Session) -> bool:
            return True  # somebody else's mark stands, or none

        await core.write(kind, put, settle)

    # ------------------------------------------------------------------ removal

    async def remove_turns(self, key: SessionKey, runs: Sequence[RunId]) -> None:
        """Remove turns below the floor; the executions last, so that a rest is found again."""
        core, found = self._core, retention_filters.of_runs(key, runs)

        async def put(session: Session) -> bool:
            update = retention_filters.GONE
            await core.collection(EXECUTIONS).update_many(found, update, session=session)
            return True

        async def settle(_session: Session) -> bool:
            return True

        await core.write(Write.REMOVED, put, settle)
        for run in runs:
            for name in (PAYLOADS, ACTIVITIES, STEPS):
                await self._delete(name, filters.starting_with(f"{run}:"))
        await self._delete(EXECUTIONS, found)

    async def _delete(self, name: str, found: filters.Filter) -> None:
        core = self._core

        async def put(session: Session) -> bool:
            await core.collection(name).delete_many(found, session=session)
            return True

        async def settle(_session: Session) -> bool:
            return True

        await core.write(Write.REMOVED, put, settle)


_BASE = "base"
"""Begins the names of the chunks of a base."""


def _mark_of(doc: Doc) -> TurnMark:
    return TurnMark(
        key=ExecutionKey(doc["_id"]),
        session=SessionKey(doc["sk"]),
        turn=doc["turn"],
        run=RunId(doc["run"]),
        scopes_due=bool(doc.get("scopes_due")),
    )
