"""What the engine writes of calls that are in doubt: part of ``ports.Store``."""

from __future__ import annotations

from typing import Protocol

from durable_adk.model.execution import Lease
from durable_adk.model.identity import Nonce, RunId
from durable_adk.model.wait import Frontier


class DoubtStore(Protocol):
    """Contracts and errors as in ``ports.Store``."""

    async def commit_doubts(
        self, lease: Lease, *, run: RunId, frontier: Frontier, nonce: Nonce
    ) -> None:
        """Commit a frontier of in-doubt waits only: one update, filter token, ``running``, step.

        Effect: the frontier whole, with the answers that it has. With an open wait it suspends as
            ``commit_frontier`` does, without a step document: ``suspended``, ``waiting``,
            ``waiting_since`` = NOW, ``wake_at`` FAR, no claim, ``failures`` = 0. With none it stays
            ``running`` under the same lease, to be closed by ``commit_continue``.
        Repeat: yes, with the same nonce: this frontier under this token means it is committed.
        Raises:
            LeaseLost: somebody else owns it. Nothing was written.
        """
        ...
