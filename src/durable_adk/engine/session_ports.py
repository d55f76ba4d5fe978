"""What the engine needs of a store for sessions as wholes: making, forking, importing, removing.

The rest of the store, and how these docstrings are to be read, is in ``ports.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from durable_adk.model.execution import SessionRecord, Turn
from durable_adk.model.identity import ExecutionKey, Nonce, RunId, SessionKey, Tenant
from durable_adk.model.store_results import Selection


class SessionStore(Protocol):
    """The part of ``Store`` that knows nothing of attempts."""

    async def create_session(self, session: SessionRecord) -> SessionRecord | None:
        """Insert a session.

        Repeat: the first insert wins.
        Returns: the stored one, or None if a session with this key was there before.
        """
        ...

    async def get_session(self, key: SessionKey) -> SessionRecord | None: ...

    async def list_sessions(
        self, selection: Selection
    ) -> tuple[tuple[SessionRecord, ...], str | None]:
        """Sessions of a tenant (and a user), oldest first, with the cursor of the next page."""
        ...

    async def session_awaiting(self, key: ExecutionKey) -> SessionRecord | None:
        """The fork whose first execution has, or is to have, this key."""
        ...

    async def forks_of(self, key: SessionKey) -> tuple[str, ...]:
        """Ids of the sessions that have this one among their ancestors, oldest first."""
        ...

    async def is_held(self, key: ExecutionKey) -> bool:
        """Whether an execution runs under a lease that has not run out. Time: the server's."""
        ...

    async def mark_going(self, key: SessionKey) -> Nonce:
        """Mark a session as being deleted; ``load_history`` refuses it from now on.

        Repeat: a later mark replaces the one before.
        """
        ...

    async def unmark_going(self, key: SessionKey, mark: Nonce) -> None:
        """Take a mark back, if it is still this one."""
        ...

    async def clear_mark(self, key: SessionKey) -> None:
        """Take away the mark that is there, whosever it is, unless its removal was decided."""
        ...

    async def decide_removal(self, key: SessionKey, mark: Nonce) -> bool:
        """Decide that a session goes: no mark can be taken back any more, whoever finishes it.

        Filter: the mark. Repeat: yes. Returns: False if the mark is not this one any more.
        """
        ...

    async def remove_fork(self, fork: SessionRecord) -> None:
        """Remove a fork that nobody was told of, with its first execution; never another session
        that has its key by now. Repeat: yes."""
        ...

    async def runs_of(self, key: SessionKey) -> tuple[RunId, ...]:
        """The prefixes of all that there is of a session's turns, oldest first: of its executions,
        and of what an import left that was cut off."""
        ...

    async def remove_session(self, key: SessionKey, runs: Sequence[RunId]) -> None:
        """Remove a session, its executions and what is recorded of them; its document last.

        Repeat: yes, also when a part of it is gone.
        """
        ...

    async def delete_artifacts(self, tenant: Tenant, user_id: str, session_id: str | None) -> None:
        """Remove all artifacts of a session; with None, those of the user. Repeat: yes."""
        ...

    async def remove_user_scopes(self, tenant: Tenant, user_id: str) -> None:
        """Remove the ``user:`` state of a user. Repeat: yes."""
        ...

    # ---------------------------------------------------------------- import

    async def begin_import(self, session: SessionRecord) -> SessionRecord:
        """Insert a session, with its ``created_at``, as one that is being imported.

        Effect: until ``finish_import`` every ``begin`` on it raises ``Unavailable``.
        Repeat: the first insert of a session wins.
        Returns: the stored one: ``imported`` tells whether it is this import, and done.
        """
        ...

    async def import_turns(self, turns: Sequence[Turn]) -> None:
        """Insert finished turns of the session that is being imported, in order, with their steps.

        Effect: an execution whose id is taken gets the one of ``model.exchange.spare_id``.
        Repeat: yes, also after a part of it, by anybody: keys and content follow from the import.
        """
        ...

    async def finish_import(self, key: SessionKey, digest: str) -> None:
        """The session is whole: it can be read and gone on with. Repeat: yes."""
        ...
