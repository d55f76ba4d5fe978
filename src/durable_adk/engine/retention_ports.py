"""What retention needs of a store: part of ``ports.Store``, with contracts as there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from durable_adk.model.activity import Payload
from durable_adk.model.execution import SessionRecord
from durable_adk.model.identity import Nonce, RunId, SessionKey, Tenant
from durable_adk.model.retention import TurnMark


class RetentionStore(Protocol):
    """Turns that go, oldest first. Whoever moves a session's floor sets its mark first, then looks
    for what depends on it; whoever begins to depend on it inserts, then looks for the mark.
    """

    async def sessions_after(
        self, tenant: Tenant, after: str, *, limit: int
    ) -> tuple[SessionRecord, ...]:
        """Sessions of a tenant in the order of their keys, without payloads."""
        ...

    async def forks_from(self, key: SessionKey) -> tuple[SessionRecord, ...]:
        """The sessions that have this one among their ancestors, without payloads."""
        ...

    async def oldest_turns(
        self, record: SessionRecord, *, upto: int, age_ms: int, limit: int
    ) -> tuple[TurnMark, ...]:
        """Finished turns from the one after ``record.floor`` to ``upto``, those of ancestors
        included, that ended ``age_ms`` ago or earlier; oldest first. Time: the server's."""
        ...

    async def turns_below(self, key: SessionKey, floor: int, *, limit: int) -> tuple[TurnMark, ...]:
        """Turns of the session itself, up to ``floor``, that are still stored; oldest first."""
        ...

    async def mark_expiring(self, key: SessionKey, *, upto: int) -> None:
        """Mark the turns of a session up to one, unless some are marked.

        Time: the mark has the server's. Repeat: yes.
        """
        ...

    async def unmark_expiring(self, key: SessionKey, *, upto: int) -> None:
        """Take that mark back, if it still says ``upto``. Repeat: yes."""
        ...

    async def begin_cut(self, key: SessionKey, *, upto: int, grace_ms: int, nonce: Nonce) -> bool:
        """Say that the floor is about to move to ``upto``.

        Effect: ``cutting`` = nonce, whoever's was there.
        Time: the mark must be ``grace_ms`` old by the server's clock.
        Repeat: with the same nonce, yes.
        Returns: False if it is not marked up to ``upto``, not for long enough, or being deleted.
        """
        ...

    async def commit_cut(
        self,
        key: SessionKey,
        *,
        nonce: Nonce,
        upto: int,
        state: Payload | None,
        artifacts: Payload | None,
    ) -> bool:
        """Move the floor: one update, filter ``cutting`` = nonce. The turns up to it are not part
        of the session from now on; nothing of them is removed yet.

        Repeat: with the same nonce, yes.
        Returns: False if the mark is not ours any more.
        """
        ...

    async def stop_cut(self, key: SessionKey, mark: str) -> None:
        """Take a ``cutting`` mark off, if it is still this one. Repeat: yes."""
        ...

    async def sweep_scopes(self, tenant: Tenant, *, grace_ms: int, limit: int) -> int:
        """Remove the chunks of shared state that was overwritten, of so many keys at most.

        Effect: only chunks of writes that are older than the stored value: whoever repeats such a
            write loses. The first overwriting since the last sweep left a mark on the document.
        Time: the mark must be ``grace_ms`` old by the server's clock: who read the old value has
            finished by then.
        Repeat: yes, and by several at once.
        Returns: how many keys there were to look at; ``limit``: there may be more.
        """
        ...

    async def remove_turns(self, key: SessionKey, runs: Sequence[RunId]) -> None:
        """Remove finished turns below the floor: chunks, records, steps, the executions last.

        Effect: first they are marked; from then on no read gives them.
        Repeat: yes, also when a part of it is gone, and by several at once.
        """
        ...
