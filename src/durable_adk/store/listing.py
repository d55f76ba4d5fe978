"""Reads for people, workers and recovery."""

from __future__ import annotations

from durable_adk.model.execution import Execution
from durable_adk.model.identity import ExecutionKey, SessionKey, Tenant, session_key
from durable_adk.model.store_results import Selection
from durable_adk.store import code_filters, expiry_filters, filters
from durable_adk.store.core import EXECUTIONS, Part, Session
from durable_adk.store.documents import execution_envelopes, execution_from
from durable_adk.store.indexes import CREATED, STATUS, TURNS
from durable_adk.store.outlines import shown
from durable_adk.store.pages import each_once, page, place_in
from durable_adk.store.retention_filters import NOT_GONE


class Listing(Part):
    """Executions by key, session, status, due time and open waits."""

    async def get_execution(self, key: ExecutionKey) -> Execution | None:
        found = await self._executions(
            "a read of an execution", {**filters.by_id(key), **NOT_GONE}, [], 1
        )
        return found[0] if found else None

    async def latest_execution(self, key: SessionKey) -> Execution | None:
        """The session's last turn, active or not."""
        of_session = {**filters.of_session(key), **NOT_GONE}
        found = await self._executions("a read of a session", of_session, [("turn", -1)], 1)
        return found[0] if found else None

    async def list_executions(
        self, selection: Selection
    ) -> tuple[tuple[Execution, ...], str | None]:
        """Newest first, with the cursor of the next page.

        Along an index whose keys never change: a scan gives way to writers now and then, and passes
        by a document that one of them moves meanwhile to where it has been.
        """
        wanted, along, field = executions_of(selection)
        found = place_in(wanted, field, selection, descending=True)
        sort = [(field, -1)] if along == TURNS else [(field, -1), ("_id", -1)]
        items = await self._executions(
            "executions", found, sort, selection.limit + 1, outlines=True, along=along
        )
        return page(items, selection, lambda e: (getattr(e, field), e.key))

    async def list_waiting(self, selection: Selection) -> tuple[tuple[Execution, ...], str | None]:
        """Suspended executions with open waits, oldest first; one that cannot be read without its
        frontier. One that is answered and waits again while the index is scanned may be met at both
        places: a page has it once, and is followed by what comes after all that was met."""
        found = place_in(filters.waiting(selection), "waiting_since", selection, descending=False)
        sort = [("waiting_since", 1), ("_id", 1)]
        items = await self._executions(
            "open waits", found, sort, selection.limit + 1, outlines=True
        )
        met, following = page(items, selection, lambda e: (e.waiting_since or 0, e.key))
        return each_once(met, lambda e: e.key), following

    async def list_due(
        self, tenant: Tenant, *, version: str | None, limit: int
    ) -> tuple[ExecutionKey, ...]:
        """What ``claim`` would take now, longest due first, stuck ones of other versions last.

        Without a version every version is served.
        """
        core = self._core

        async def once(session: Session) -> tuple[ExecutionKey, ...]:
            found = filters.due_of(tenant, core.clock.now(), version) | core.sealing.readable()
            wanted = {"_id": 1}
            sort = [("wake_at", 1)]
            docs = await core.find(
                session, EXECUTIONS, found, sort=sort, limit=limit, fields=wanted
            )
            if version is not None and len(docs) < limit:
                stuck = filters.stuck_of(tenant, version) | core.sealing.readable()
                room = limit - len(docs)
                docs += await core.find(session, EXECUTIONS, stuck, limit=room, fields=wanted)
            return tuple(dict.fromkeys(ExecutionKey(doc["_id"]) for doc in docs))

        return () if limit < 1 else await core.read("due executions", once)

    async def list_expired_elsewhere(
        self, tenant: Tenant, *, version: str, limit: int
    ) -> tuple[Execution, ...]:
        """What is suspended under another version, with an open wait that may have expired; one
        that cannot be read without its frontier."""
        core = self._core
        found = expiry_filters.expired_elsewhere(tenant, version, core.clock.now())
        found |= core.sealing.readable()
        sort = [("wake_at", 1)]
        return await self._executions("expired waits", found, sort, limit, outlines=True)

    async def list_scopes_due(self, tenant: Tenant, *, limit: int) -> tuple[Execution, ...]:
        """Executions whose last committed step has shared state that is not applied."""
        found = filters.scopes_due_of(tenant) | self._core.sealing.readable()
        return await self._executions("due shared state", found, [], limit, outlines=True)

    async def next_wake(self, tenant: Tenant) -> int | None:
        """The earliest ``wake_at`` of active executions, or None."""
        core = self._core

        async def once(session: Session) -> int | None:
            docs = await core.find(
                session,
                EXECUTIONS,
                filters.waking(tenant),
                sort=[("wake_at", 1)],
                limit=1,
                fields={"wake_at": 1},
            )
            return int(docs[0]["wake_at"]) if docs else None

        return await core.read("next wake-up", once)

    async def _executions(
        self,
        what: str,
        found: filters.Filter,
        sort: list[tuple[str, int]],
        limit: int,
        *,
        outlines: bool = False,
        along: str | None = None,
    ) -> tuple[Execution, ...]:
        core = self._core
        if limit < 1:
            return ()

        async def once(session: Session) -> tuple[Execution, ...]:
            if outlines:
                cursor = core.collection(EXECUTIONS).find(found, session=session)
                cursor = cursor.sort(sort) if sort else cursor
                cursor = cursor.hint(along) if along else cursor
                return await shown(core, session, await cursor.limit(limit).to_list(None))
            docs = await core.find(session, EXECUTIONS, found, sort=sort or None, limit=limit)
            texts = await core.texts(session, [e for d in docs for e in execution_envelopes(d)])
            return tuple(execution_from(doc, texts) for doc in docs)

        return await core.read(what, once)


def executions_of(selection: Selection) -> tuple[filters.Filter, str, str]:
    """The filter of a list of executions, the index to walk, and the field that is its order."""
    wanted = {**filters.sessions_of(selection), **NOT_GONE}
    if selection.version is not None:
        wanted |= code_filters.ran_under_agent(filters.text("version", selection.version))
    if selection.status is not None:
        wanted["status"] = selection.status.value
    if selection.user_id is not None and selection.session_id is not None:
        key = session_key(selection.tenant, selection.user_id, selection.session_id)
        return wanted | filters.of_session(key), TURNS, "turn"
    return wanted, CREATED if selection.status is None else STATUS, "created_at"
