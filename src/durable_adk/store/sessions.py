"""Sessions, and the insert of an execution as the next turn of one."""

from __future__ import annotations

from durable_adk.errors import CorruptHistory, Unavailable
from durable_adk.model.execution import Execution, NewExecution, SessionRecord
from durable_adk.model.identity import ExecutionKey, Nonce, SessionKey, new_nonce
from durable_adk.model.store_results import Begun, Busy, Forked, Selection, Taken, Write
from durable_adk.store import expiry_filters, filters, session_filters
from durable_adk.store.core import (
    EXECUTIONS,
    INPUT_INLINE,
    SESSIONS,
    Part,
    Session,
    contended,
)
from durable_adk.store.documents import (
    Doc,
    execution_envelopes,
    execution_from,
    forked_execution_fields,
    new_execution_fields,
)
from durable_adk.store.errors import Unsettled
from durable_adk.store.frontiers import stored_frontier
from durable_adk.store.pages import page, place_in
from durable_adk.store.payloads import Envelope, part_nonce
from durable_adk.store.session_documents import (
    SESSION_PAYLOADS,
    session_envelopes,
    session_fields,
    session_from,
)

_MAX_RIVALS = 100
"""How often the next turn may be somebody else's before ``begin`` gives up."""


class Sessions(Part):
    """The ``sessions`` collection, and ``begin``."""

    async def create_session(self, session: SessionRecord) -> SessionRecord | None:
        """Insert a session. The first insert wins; None if it was there before."""
        self._core.check_size("state", session.state)
        nonce = new_nonce()
        doc = await self._put_session(session, nonce)
        if doc["w"] != nonce:
            return None
        return await self._session_of(doc)

    async def get_session(self, key: SessionKey) -> SessionRecord | None:
        found = await self._sessions("a read of a session", filters.by_id(key), [], 1)
        return found[0] if found else None

    async def session_awaiting(self, key: ExecutionKey) -> SessionRecord | None:
        """The fork whose first execution has, or is to have, this key."""
        found = await self._sessions("a read of a session", session_filters.awaiting(key), [], 1)
        return found[0] if found else None

    async def list_sessions(
        self, selection: Selection
    ) -> tuple[tuple[SessionRecord, ...], str | None]:
        """Oldest first, with the cursor of the next page."""
        found = place_in(filters.sessions_of(selection), "created_at", selection, descending=False)
        sort = [("created_at", 1), ("_id", 1)]
        items = await self._sessions("sessions", found, sort, selection.limit + 1)
        return page(items, selection, lambda s: (s.created_at, s.key))

    async def _sessions(
        self, what: str, found: filters.Filter, sort: list[tuple[str, int]], limit: int
    ) -> tuple[SessionRecord, ...]:
        """Documents with their payloads; read again where one went between the two."""
        core = self._core

        async def whole(session: Session) -> tuple[SessionRecord, ...]:
            docs = await core.find(session, SESSIONS, found, sort=sort or None, limit=limit)
            texts = await core.texts(session, [e for doc in docs for e in session_envelopes(doc)])
            return tuple(session_from(doc, texts) for doc in docs)

        async def once(session: Session) -> tuple[SessionRecord, ...]:
            try:
                return await whole(session)
            except CorruptHistory:
                return await whole(session)

        return await core.read(what, once)

    async def _session_of(self, doc: Doc) -> SessionRecord:
        core = self._core

        async def once(session: Session) -> SessionRecord:
            return session_from(doc, await core.texts(session, session_envelopes(doc)))

        return await core.read("a read of a session", once)

    async def _put_session(self, session: SessionRecord, nonce: str) -> Doc:
        """The stored document, whoever inserted it."""
        core = self._core
        stored: dict[str, Envelope] = {}
        base: dict[str, Envelope] = {}
        for name in SESSION_PAYLOADS:
            for where, owner in ((stored, session), (base, session.retained)):
                text = getattr(owner, name)
                if text is not None:
                    part = part_nonce(nonce, name if where is stored else f"base-{name}")
                    where[name] = await core.store(session.key, part, text)
        made = None if session.next is None else session.next.made
        frontier = None
        if made is not None and made.frontier is not None:
            frontier = await stored_frontier(core, session.key, made.frontier, nonce)
        fields = session_fields(session, stored, frontier, nonce, base)

        async def put(driver_session: Session) -> Doc | None:
            times = {"created_at": core.clock.now()}
            return await core.upsert_one(
                driver_session, SESSIONS, filters.absent(session.key), filters.whole(fields, times)
            )

        async def settle(driver_session: Session) -> Doc:
            doc = await core.find_one(driver_session, SESSIONS, filters.by_id(session.key))
            if doc is None:
                raise Unsettled
            return doc

        return await core.write(Write.SESSION, put, settle)

    # ------------------------------------------------------------------ begin

    async def begin(self, new: NewExecution) -> Begun | Taken | Busy | Forked:
        """Insert an execution as the next turn of its session, making the session if new."""
        core = self._core
        core.check_size("input", new.input)
        core.check_size("state", new.initial_state)
        last = await self._last_turn(new.session_key)
        base = 0
        if last is None:
            doc = await self._put_session(
                SessionRecord(
                    key=new.session_key,
                    tenant=new.tenant,
                    user_id=new.user_id,
                    session_id=new.session_id,
                    state=new.initial_state,
                ),
                new.nonce,
            )
            if doc["w"] != new.nonce:
                record = await self._session_of(doc)
                following, base = record.awaited, record.ground
                if following is not None and (following.made or following.key != new.key):
                    return Forked(record)
        stored_input = await core.store(
            new.run, part_nonce(new.nonce, "input"), new.input, inline_up_to=INPUT_INLINE
        )
        for _ in range(_MAX_RIVALS):
            if last is not None and last["active"]:
                return await self._not_inserted(new, last)
            turn = base + 1 if last is None else last["turn"] + 1
            inserted = await self._insert_turn(new, new_execution_fields(new, turn, stored_input))
            if inserted is not None:
                return await self._begun_or_taken(new, inserted)
            last = await self._last_turn(new.session_key)
        raise contended(f"session {new.session_id!r}")

    async def begin_forked(self, execution: Execution, nonce: Nonce) -> Execution:
        """Insert the first execution of a fork that was made inside another one."""
        core, frontier = self._core, execution.frontier
        stored_input = await core.store(
            execution.run, part_nonce(nonce, "input"), execution.input, inline_up_to=INPUT_INLINE
        )
        stored = None
        if frontier is not None:
            stored = await stored_frontier(core, execution.run, frontier, nonce)
        fields = forked_execution_fields(execution, stored_input, stored, nonce)

        async def put(session: Session) -> Doc | None:
            now = core.clock.now()
            times = {"wake_at": execution.wake_at or now, "created_at": now}
            if frontier is not None and stored is not None:
                expiries = expiry_filters.expiries(frontier, now)
                times["frontier"] = expiry_filters.timed(stored, expiries)
                times["wake_at"] = expiry_filters.wakes_at(frontier, expiries) or now
                times["waiting_since"] = now
            return await core.upsert_one(
                session, EXECUTIONS, filters.absent(execution.key), filters.whole(fields, times)
            )

        async def settle(session: Session) -> Doc:
            doc = await core.find_one(session, EXECUTIONS, filters.by_id(execution.key))
            if doc is None:
                raise Unsettled
            return doc

        doc = await core.write(Write.BEGIN, put, settle)

        async def once(session: Session) -> Execution:
            return execution_from(doc, await core.texts(session, execution_envelopes(doc)))

        return await core.read(f"execution {execution.execution_id!r}", once)

    async def _last_turn(self, key: SessionKey) -> Doc | None:
        core = self._core

        async def once(session: Session) -> Doc | None:
            docs = await core.find(
                session, EXECUTIONS, filters.of_session(key), sort=[("turn", -1)], limit=1
            )
            return docs[0] if docs else None

        return await core.read("a read of a session", once)

    async def _insert_turn(self, new: NewExecution, fields: Doc) -> Doc | None:
        """The execution with this id, whoever inserted it; None if the turn is taken."""
        core = self._core

        async def put(session: Session) -> Doc | None:
            now = core.clock.now()
            wake_at = filters.later(now, new.ttl_ms) if new.run_now else now
            times = {"wake_at": wake_at, "created_at": now}
            if new.deadline is not None:
                times["deadline"] = expiry_filters.moment(new.deadline, now)
            return await core.upsert_one(
                session, EXECUTIONS, filters.absent(new.key), filters.whole(fields, times)
            )

        async def settle(session: Session) -> Doc | None:
            return await core.find_one(session, EXECUTIONS, filters.by_id(new.key))

        return await core.write(Write.BEGIN, put, settle)

    async def _not_inserted(self, new: NewExecution, last: Doc) -> Begun | Taken | Busy:
        """The session is busy, perhaps with this very execution; or the id is an older one."""
        core = self._core
        if last["_id"] == new.key:
            return await self._begun_or_taken(new, last)

        async def once(session: Session) -> Doc | None:
            return await core.find_one(session, EXECUTIONS, filters.by_id(new.key))

        older = await core.read(f"execution {new.execution_id!r}", once)
        if older is not None:
            return await self._begun_or_taken(new, older)
        return Busy((await self._begun_or_taken(new, last)).execution)

    async def _begun_or_taken(self, new: NewExecution, doc: Doc) -> Begun | Taken:
        core = self._core
        if doc.get("gone"):
            raise Unavailable(
                f"execution {new.execution_id!r}", "is being removed by retention", "Try again."
            )

        async def once(session: Session) -> Begun | Taken:
            execution = execution_from(doc, await core.texts(session, execution_envelopes(doc)))
            lease = (execution.token, execution.claim)
            inserted = (1, new.nonce) if new.run_now else (0, None)
            if doc["w"] == new.nonce and lease == inserted and execution.is_active:
                return Begun(execution)
            return Taken(execution)

        return await core.read(f"execution {new.execution_id!r}", once)
