"""Who owns an execution: claim, renew, release, and asking the owner to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from durable_adk.errors import CorruptHistory, KeyMissing
from durable_adk.model.execution import Execution, Lease, Status
from durable_adk.model.identity import ExecutionKey, Nonce, new_nonce
from durable_adk.model.store_results import Renewal, Unread, Write
from durable_adk.store import code_filters, doubt_filters, expiry_filters, filters
from durable_adk.store.core import EXECUTIONS, Core, Part, Session
from durable_adk.store.documents import Doc, execution_envelopes, execution_from, printable
from durable_adk.store.outlines import outline_of


async def renew_in(
    core: Core, collection: Any, lease: Lease, *, ttl_ms: int, session: Session = None
) -> Renewal:
    """Move the lease's end; the same for the store and for a keeper's connection."""
    options = {} if session is None else {"session": session}
    doc = await collection.find_one_and_update(
        filters.held_under(lease),
        filters.renewed(core.clock.now(), ttl_ms),
        projection={"cancel": 1, "deadline": 1, "wake_at": 1},
        return_document=True,
        **options,
    )
    if doc is None:
        return Renewal(held=False)
    cancel = core.sealing.opened(EXECUTIONS, doc).get("cancel")
    deadline = doc.get("deadline")
    return Renewal(
        held=True,
        cancel=None if cancel is None else cancel["reason"],
        overdue=deadline is not None and deadline <= doc["wake_at"] - ttl_ms,
    )


# The error of what a person ended, by name, as where it ran then.
_ENDED_BY = {Status.CANCELLED: "Cancelled", Status.FAILED: "GivenUp"}


class KeeperLink:
    """Renews leases over a connection of its own; each renewal is bounded by one timeout."""

    def __init__(self, core: Core, collection: Any) -> None:
        self._core = core
        self._collection = collection

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Renewal:
        core = self._core
        await core.sending(Write.RENEW)

        async def once() -> Renewal:
            renewal = await renew_in(core, self._collection, lease, ttl_ms=ttl_ms)
            await core.stored(Write.RENEW)
            return renewal

        return await core.repeated(Write.RENEW, once, deadline_s=0)

    async def close(self) -> None:
        """Nothing: the context that gave this link closes its client."""


class Leases(Part):
    """Everything that changes who may commit."""

    async def claim(
        self,
        key: ExecutionKey,
        *,
        nonce: Nonce,
        ttl_ms: int,
        version: str | None = None,
        code: str = "",
        early: bool = False,
    ) -> Execution | None:
        """Take an execution that is due; see ``engine.ports.Store.claim``."""
        now = self._core.clock.now()
        due = filters.due(key, now, version=version, early=early)
        found = expiry_filters.due_or_overdue(due, now)
        extra = {} if version is None else {"version": version}
        return await self._taken(
            key, found, nonce=nonce, ttl_ms=ttl_ms, extra=extra, ends_overdue=True, code=code
        )

    async def claim_to_close(
        self, key: ExecutionKey, *, closing: Status, reason: str, nonce: Nonce, ttl_ms: int
    ) -> Execution | None:
        """Take what nobody runs, in order to end it as ``closing``."""
        name = _ENDED_BY[closing]
        error = {"type": name, "message": printable(reason), "position": "", "remedy": ""}
        extra = {"closing": closing.value, "error": error, "waiting": False}
        found = filters.unowned(key, self._core.clock.now())
        return await self._taken(key, found, nonce=nonce, ttl_ms=ttl_ms, extra=extra)

    async def _taken(
        self,
        key: ExecutionKey,
        found: filters.Filter,
        *,
        nonce: Nonce,
        ttl_ms: int,
        extra: Mapping[str, Any],
        ends_overdue: bool = False,
        code: str = "",
    ) -> Execution | None:
        core = self._core
        found = found | core.sealing.readable()  # never take what cannot be read

        async def whole(session: Session, reading: Awaitable[Doc | None]) -> Execution | None:
            try:
                doc = await reading
                if doc is None:
                    return None
                return execution_from(doc, await core.texts(session, execution_envelopes(doc)))
            except (CorruptHistory, KeyMissing) as error:
                mine = filters.claimed_as(key, nonce)
                doc = await core.collection(EXECUTIONS).find_one(mine, session=session)
                outline = None if doc is None else outline_of(doc, error)
                if outline is None:
                    raise
                raise Unread(outline) from error

        async def put(session: Session) -> Execution | None:
            now = core.clock.now()
            update = filters.take(now, nonce=nonce, ttl_ms=ttl_ms, extra=extra)
            if ends_overdue:
                update = expiry_filters.ending_overdue(update, now)
            before = code_filters.taking(extra.get("version"))
            noted = code_filters.ran_under(code)
            update = [*before, *doubt_filters.keeping_lease_end(update), *noted]
            taking = core.find_one_and_update(session, EXECUTIONS, found, update)
            return await whole(session, taking)

        async def settle(session: Session) -> Execution | None:
            mine = filters.claimed_as(key, nonce)
            return await whole(session, core.find_one(session, EXECUTIONS, mine))

        return await core.write(Write.CLAIM, put, settle)

    async def renew(self, lease: Lease, *, ttl_ms: int) -> Renewal:
        """Move the lease's end, by the server's clock."""
        core = self._core

        async def put(session: Session) -> Renewal | None:
            collection = core.collection(EXECUTIONS)
            return await renew_in(core, collection, lease, ttl_ms=ttl_ms, session=session)

        async def settle(_: Session) -> Renewal:
            return Renewal(held=False)

        return await core.write(Write.RENEW, put, settle)

    async def release(self, lease: Lease) -> bool:
        """Give a running execution back, due at once. False: it was not ours any more."""
        core = self._core

        async def put(session: Session) -> bool | None:
            update = filters.released(lease, core.clock.now())
            return await core.update_one(session, EXECUTIONS, filters.held_under(lease), update)

        async def settle(session: Session) -> bool:
            found = filters.left_by(lease.key, lease.token, "release")
            return await core.find_one(session, EXECUTIONS, found) is not None

        return await core.write(Write.RELEASE, put, settle)

    async def request_cancel(self, key: ExecutionKey, reason: str) -> bool:
        """Ask the owner of a running execution to end it. False: it is not running."""
        core, nonce = self._core, new_nonce()

        async def put(session: Session) -> bool | None:
            update = filters.cancel_asked(printable(reason), nonce)
            return await core.update_one(session, EXECUTIONS, filters.is_running(key), update)

        async def settle(session: Session) -> bool:
            doc = await core.find_one(session, EXECUTIONS, filters.by_id(key))
            cancel = None if doc is None else doc.get("cancel")
            return cancel is not None and cancel["w"] == nonce

        return await core.write(Write.CANCEL, put, settle)

    async def retry(self, key: ExecutionKey) -> Execution | None:
        """Make a stuck or backing-off execution due at once. None: it is neither."""
        core, nonce = self._core, new_nonce()

        async def whole(session: Session, doc: Doc) -> Execution:
            return execution_from(doc, await core.texts(session, execution_envelopes(doc)))

        async def put(session: Session) -> Execution | None:
            update = filters.retried(core.clock.now(), nonce)
            found = filters.is_waiting_to_run(key)
            doc = await core.find_one_and_update(session, EXECUTIONS, found, update)
            return None if doc is None else await whole(session, doc)

        async def settle(session: Session) -> Execution | None:
            doc = await core.find_one(session, EXECUTIONS, filters.by_id(key))
            if doc is None or doc.get("retry") != nonce:
                return None
            return await whole(session, doc)

        return await core.write(Write.RETRY, put, settle)
