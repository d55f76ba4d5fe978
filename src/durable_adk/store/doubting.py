"""The commit of a frontier that ends no step: calls that are in doubt."""

from __future__ import annotations

from typing import Any

from durable_adk.model.execution import Lease
from durable_adk.model.identity import Nonce, RunId
from durable_adk.model.store_results import Write
from durable_adk.model.wait import Frontier
from durable_adk.store import doubt_filters, expiry_filters, filters
from durable_adk.store.committing import Committing
from durable_adk.store.documents import Doc
from durable_adk.store.frontiers import stored_frontier


class Doubting(Committing):
    """As ``Committing``, without a step document."""

    async def commit_doubts(
        self, lease: Lease, *, run: RunId, frontier: Frontier, nonce: Nonce
    ) -> None:
        """Suspend on in-doubt waits, or put down what settled them. Raises: LeaseLost."""
        stored = await stored_frontier(self._core, run, frontier, nonce)
        update: Any = doubt_filters.settled(stored)
        if frontier.open:
            update = filters.suspended(
                lease,
                self._core.clock.now(),
                frontier={"$literal": stored},
                wake_at=expiry_filters.wakes_at(frontier, {}),
                scopes_due=False,
            )

        def is_mine(doc: Doc) -> bool:
            found = doc.get("frontier") or {}
            return (found.get("id"), found.get("token")) == (frontier.id, lease.token)

        await self._commit(
            Write.DOUBTS, lease, filters.held_in(lease, frontier.step), update, is_mine
        )
