"""Retention: the oldest finished turns of a session go, by age and by count.

One look at a session does at most one thing of each: remove what is below its floor already,
move the floor to a mark that is old enough, set the next mark. So whatever cut the last look off,
the next one goes on from what it left.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from typing import Final

from durable_adk.engine.ports import Store
from durable_adk.engine.reads import committed_steps
from durable_adk.engine.settings import EngineSettings
from durable_adk.errors import CorruptHistory, KeyMissing, NotFound
from durable_adk.model.execution import Execution, SessionRecord
from durable_adk.model.identity import ExecutionKey, SessionKey, Tenant, new_nonce
from durable_adk.model.retention import removable_for

logger = logging.getLogger("durable_adk.engine")

GRACE_MS: Final = 3_600_000
"""Between the mark and the cut: whoever reads these turns has finished by then."""

NAMED_AT_MOST: Final = 20
"""A pass over all sessions names so many of the executions that keep turns."""

SESSIONS_AT_ONCE: Final = 100
KEYS_AT_ONCE: Final = 100
"""Of shared state."""
_MARKED_AT_ONCE: Final = 2_000
"""The most old turns that one mark takes in; the next one takes the rest."""
_REMOVED_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a session keeps. A turn goes when either says so.

    Attributes:
        turns: The newest so many finished turns; None: however many.
        age_ms: Those that ended less than so many milliseconds ago; None: however old.
    """

    turns: int | None = None
    age_ms: int | None = None

    @property
    def is_set(self) -> bool:
        return self.turns is not None or self.age_ms is not None


def policy_of(settings: EngineSettings) -> Policy:
    return Policy(turns=settings.retention_turns, age_ms=settings.retention_age_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What looks at sessions did.

    Attributes:
        sessions: How many were looked at.
        removed: Turns that are gone.
        expiring: Turns that are marked: they go an hour after the mark.
        blocked: Of those, the ones that stay as long as an execution of their session is active.
        blocked_by: Ids of such executions, ``NAMED_AT_MOST`` of them.
        forked: Turns that would go, and stay because forks stand on them.
    """

    sessions: int = 0
    removed: int = 0
    expiring: int = 0
    blocked: int = 0
    blocked_by: tuple[str, ...] = ()
    forked: int = 0

    def __add__(self, other: Swept) -> Swept:
        return Swept(
            sessions=self.sessions + other.sessions,
            removed=self.removed + other.removed,
            expiring=self.expiring + other.expiring,
            blocked=self.blocked + other.blocked,
            blocked_by=(*self.blocked_by, *other.blocked_by)[:NAMED_AT_MOST],
            forked=self.forked + other.forked,
        )


class Retention:
    """Applies one policy to the sessions of a tenant."""

    def __init__(self, store: Store, tenant: Tenant, policy: Policy) -> None:
        self._store = store
        self._tenant = tenant
        self._policy = policy
        self._after = secrets.token_hex(16)  # several processes begin at different places

    async def all_sessions(self) -> Swept:
        """One look at each session."""
        swept, after = Swept(), ""
        while True:
            found = await self._store.sessions_after(self._tenant, after, limit=SESSIONS_AT_ONCE)
            swept += await self._look(found)
            if len(found) < SESSIONS_AT_ONCE:
                return swept
            after = found[-1].key

    async def some_sessions(self) -> bool:
        """A look at the next few. Returns: False at the end: the next call begins again."""
        found = await self._store.sessions_after(self._tenant, self._after, limit=SESSIONS_AT_ONCE)
        await self._look(found)
        is_end = len(found) < SESSIONS_AT_ONCE
        self._after = "" if is_end else found[-1].key
        return not is_end

    async def _look(self, records: tuple[SessionRecord, ...]) -> Swept:
        swept = Swept()
        for record in records:
            try:
                swept += await self.session(record)
            except (
                CorruptHistory,
                KeyMissing,
            ) as error:  # it stays as it is
                logger.warning("no retention: %s", error, extra={"session_id": record.session_id})
        return swept

    async def session(self, record: SessionRecord) -> Swept:
        """One look at a session.

        Raises:
            CorruptHistory: its turns are not all there; nothing more is removed.
        """
        store, key = self._store, record.key
        removed = await self._remove_below(record) if record.floor else 0
        if record.is_going or (record.imported is not None and not record.imported.is_whole):
            return Swept(sessions=1, removed=removed)
        latest = await store.latest_execution(key)
        wanted, forked = await self._wanted(record, latest)
        swept = Swept(sessions=1, removed=removed, forked=forked)
        marked = record.retained.expiring
        if marked and marked > wanted:
            await store.unmark_expiring(key, upto=marked)
        elif marked and await self._cut(record, marked):
            cut = await store.get_session(key)
            return swept + Swept(removed=0 if cut is None else await self._remove_below(cut))
        elif marked:
            return _kept(marked - record.floor, latest) + swept
        if wanted > record.floor:
            await store.mark_expiring(key, upto=wanted)
        return _kept(max(0, wanted - record.floor), latest) + swept

    async def _wanted(self, record: SessionRecord, latest: Execution | None) -> tuple[int, int]:
        """The turn up to which the policy, and the forks, let turns go; and how many more would go
        without the forks."""
        store, policy = self._store, self._policy
        if latest is None:
            return record.floor, 0  # it had no turn yet, or a fork waits for its first one
        finished = latest.turn - latest.is_active
        over = record.floor if policy.turns is None else max(record.floor, finished - policy.turns)
        if policy.age_ms is not None:
            old = await store.oldest_turns(
                record, upto=finished, age_ms=policy.age_ms, limit=_MARKED_AT_ONCE
            )
            over = max(over, old[-1].turn if old else record.floor)
        limit = await self._limit(record)
        wanted = over if limit is None else max(record.floor, min(over, limit))
        return wanted, over - wanted

    async def _limit(self, record: SessionRecord) -> int | None:
        """Up to which turn its forks do without; None: they need none of its turns."""
        limits = [removable_for(f, record.key) for f in await self._store.forks_from(record.key)]
        return min((limit for limit in limits if limit is not None), default=None)

    async def _cut(self, record: SessionRecord, upto: int) -> bool:
        """Move the floor, unless somebody depends on what is below it."""
        store, key, nonce = self._store, record.key, new_nonce()
        if not await store.begin_cut(key, upto=upto, grace_ms=GRACE_MS, nonce=nonce):
            return False
        latest, limit = await store.latest_execution(key), await self._limit(record)
        if latest is None or latest.is_active or (limit is not None and limit < upto):
            await store.stop_cut(key, nonce)
            return False
        try:
            history = await store.load_history(key, before=upto + 1, max_turns=1)
        except CorruptHistory:
            await store.stop_cut(key, nonce)
            raise
        last = history.turns[-1].steps[-1]
        return await store.commit_cut(
            key, nonce=nonce, upto=upto, state=last.state, artifacts=last.artifacts
        )

    async def _remove_below(self, record: SessionRecord) -> int:
        """Remove what a cut left. Returns: how many turns."""
        store, key, removed = self._store, record.key, 0
        while True:
            found = await store.turns_below(key, record.floor, limit=_REMOVED_AT_ONCE)
            # Read after them: the session may have been deleted and made again since.
            again = await store.get_session(key) if found else None
            floor = 0 if again is None else again.floor
            found = tuple(mark for mark in found if mark.turn <= floor)
            if not found:
                return removed
            for mark in found:
                if mark.scopes_due:
                    await self._apply_shared(mark.key)
            await store.remove_turns(key, [mark.run for mark in found])
            removed += len(found)

    async def _apply_shared(self, key: ExecutionKey) -> None:
        """What a turn wrote to shared state is committed, and stays."""
        execution = await self._store.get_execution(key)
        if execution is None:
            return
        try:
            steps = await committed_steps(self._store, execution)
        except NotFound:
            return  # another look was faster: it applied it before it removed the steps
        await self._store.apply_scopes(execution, steps[-1])


def _kept(expiring: int, latest: Execution | None) -> Swept:
    """Turns that are marked, and whether an active execution keeps them."""
    if not expiring or latest is None or not latest.is_active:
        return Swept(expiring=expiring)
    return Swept(expiring=expiring, blocked=expiring, blocked_by=(latest.execution_id,))


async def sweep_shared(store: Store, tenant: Tenant) -> None:
    """Remove what overwritten ``user:`` and ``app:`` state has left, an hour after."""
    while await store.sweep_scopes(tenant, grace_ms=GRACE_MS, limit=KEYS_AT_ONCE) == KEYS_AT_ONCE:
        pass


async def prune_session(
    store: Store, tenant: Tenant, key: SessionKey, policy: Policy, shown: str
) -> Swept:
    """One look at one session.

    Raises:
        NotFound: there is no such session.
        CorruptHistory: as ``Retention.session``.
    """
    record = await store.get_session(key)
    if record is None:
        raise NotFound(
            f"session {shown}",
            "there is no such session",
            "app.sessions.list(user_id=...) shows those there are.",
        )
    record.check_whole()
    return await Retention(store, tenant, policy).session(record)
