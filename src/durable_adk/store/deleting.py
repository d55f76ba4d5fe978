"""Removing a session with everything that belongs to it.

The mark comes first: a fork, or an attempt, that begins after it finds it. What was begun before
is found by whoever deletes. Then the removal is decided, by an update that still finds that mark:
another deletion, or a fork that waited, may have taken it away. Then everything below the session
goes, and its document last, so that a deletion that was cut off can be begun again.
"""

from __future__ import annotations

from collections.abc import Sequence

from durable_adk.model.execution import SessionRecord
from durable_adk.model.identity import ExecutionKey, Nonce, RunId, SessionKey, Tenant, new_nonce
from durable_adk.model.store_results import Write
from durable_adk.store import filters, session_filters
from durable_adk.store.core import (
    ACTIVITIES,
    EXECUTIONS,
    PAYLOADS,
    SCOPES,
    SESSIONS,
    STEPS,
    Part,
    Session,
)
from durable_adk.store.documents import Doc
from durable_adk.store.payloads import chunk_ids
from durable_adk.store.session_documents import session_envelopes
from durable_adk.store.unfinished import runs_left


class Deleting(Part):
    """Removals. None touches what another session could refer to: see ``forks_of``."""

    async def forks_of(self, key: SessionKey) -> tuple[str, ...]:
        """Ids of the sessions that have this one among their ancestors, oldest first."""
        core = self._core

        async def once(session: Session) -> tuple[str, ...]:
            docs = await core.find(
                session,
                SESSIONS,
                session_filters.forks_of(key),
                sort=[("created_at", 1)],
                fields={"session": 1},
            )
            return tuple(doc["session"] for doc in docs)

        return await core.read("the forks of a session", once)

    async def is_held(self, key: ExecutionKey) -> bool:
        """Whether an execution runs under a lease that has not run out, by the server's clock."""
        core = self._core

        async def once(session: Session) -> bool:
            found = session_filters.held(key, core.clock.now())
            return bool(await core.find(session, EXECUTIONS, found, limit=1, fields={"_id": 1}))

        return await core.read("the lease of an execution", once)

    async def mark_going(self, key: SessionKey) -> Nonce:
        """Mark a session as being deleted. The mark is the caller's until it is taken back."""
        nonce = new_nonce()
        await self._update(filters.by_id(key), session_filters.going(nonce))
        return nonce

    async def unmark_going(self, key: SessionKey, mark: Nonce) -> None:
        """Take a mark back, if it is still this one."""
        await self._update(session_filters.going_as(key, mark), session_filters.going(None))

    async def clear_mark(self, key: SessionKey) -> None:
        """Take away the mark that is there, unless its removal was decided."""
        await self._update(session_filters.not_decided(key), session_filters.going(None))

    async def decide_removal(self, key: SessionKey, mark: Nonce) -> bool:
        """Decide that a session goes. False: the mark is not this one any more."""
        core, found = self._core, session_filters.going_as(key, mark)

        async def put(session: Session) -> bool | None:
            return await core.update_one(session, SESSIONS, found, session_filters.REMOVED)

        async def settle(session: Session) -> bool:
            doc = await core.find_one(session, SESSIONS, filters.by_id(key))
            return doc is None or "removed" in doc

        return await core.write(Write.DELETE, put, settle)

    async def remove_fork(self, fork: SessionRecord) -> None:
        """Remove a fork that nobody was told of, with its first execution."""
        if fork.next is None:
            raise ValueError(f"session {fork.session_id!r} is no fork")
        core, first = self._core, filters.by_id(fork.next.key)

        async def once(session: Session) -> list[Doc]:
            return await core.find(session, EXECUTIONS, first, fields={"run": 1})

        for doc in await core.read(f"the first execution of {fork.session_id!r}", once):
            await self._remove_run(doc["run"])
        await self._remove(EXECUTIONS, first)
        ours = session_filters.forked_as(fork.key, fork.next.key)

        async def stored(session: Session) -> list[Doc]:
            return await core.find(session, SESSIONS, ours)

        docs = await core.read(f"session {fork.session_id!r}", stored)
        # By their names: another fork may be made under the same key meanwhile. After the document:
        # whoever finds that is to find them too.
        chunks = chunk_ids(e for doc in docs for e in session_envelopes(doc))
        await self._remove(SESSIONS, ours)
        if chunks:
            await self._remove(PAYLOADS, filters.by_ids(chunks))

    async def _remove_run(self, run: str) -> None:
        for name in (PAYLOADS, ACTIVITIES, STEPS):
            await self._remove(name, filters.starting_with(f"{run}:"))

    async def _update(self, found: filters.Filter, update: filters.Update) -> None:
        core = self._core

        async def put(session: Session) -> bool | None:
            return await core.update_one(session, SESSIONS, found, update)

        async def settle(_session: Session) -> bool:
            return True  # it is not there, or not ours

        await core.write(Write.DELETE, put, settle)

    async def runs_of(self, key: SessionKey) -> tuple[RunId, ...]:
        """The prefixes of all that there is of a session's turns, oldest first."""
        core = self._core

        async def once(session: Session) -> tuple[RunId, ...]:
            docs = await core.find(
                session,
                EXECUTIONS,
                filters.of_session(key),
                sort=[("turn", 1)],
                fields={"run": 1},
            )
            return tuple(RunId(doc["run"]) for doc in docs)

        async def stored(session: Session) -> Doc | None:
            return await core.find_one(session, SESSIONS, filters.by_id(key))

        runs = await core.read("the executions of a session", once)
        doc = await core.read("a session", stored)
        return runs if doc is None else (*runs, *await runs_left(core, doc))

    async def remove_session(self, key: SessionKey, runs: Sequence[RunId]) -> None:
        """Remove a session, its executions and what is recorded of them.

        Repeat: yes; also after a part of it is gone.
        """
        for run in runs:
            await self._remove_run(run)
        await self._remove(PAYLOADS, filters.starting_with(f"{key}:"))
        await self._remove(EXECUTIONS, filters.of_session(key))
        await self._remove(SESSIONS, filters.by_id(key))
        await self._remove(EXECUTIONS, filters.of_session(key))  # begun in the last moment

    async def remove_user_scopes(self, tenant: Tenant, user_id: str) -> None:
        """Remove a user's shared state; not that of the app."""
        core, found = self._core, filters.scopes_of_user(tenant, user_id)

        async def once(session: Session) -> list[Doc]:
            return await core.find(session, SCOPES, found, fields={"_id": 1})

        for doc in await core.read(f"shared state of user {user_id!r}", once):
            await self._remove(PAYLOADS, filters.starting_with(f"{doc['_id']}:"))
        await self._remove(SCOPES, found)

    async def _remove(self, name: str, found: filters.Filter) -> None:
        core = self._core

        async def put(session: Session) -> bool | None:
            await core.collection(name).delete_many(found, session=session)
            return True

        async def settle(_session: Session) -> bool:
            return True

        await core.write(Write.DELETE, put, settle)
