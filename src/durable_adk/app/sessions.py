"""``app.sessions``: conversations, their state and their events."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from durable_adk.app import checks, deleting, exchange, forking, retaining, sources
from durable_adk.app.lifecycle import Lifecycle
from durable_adk.app.outcome import (
    ExecutionRecord,
    Page,
    Pruned,
    SessionFork,
    SessionImport,
    SessionInfo,
    SessionNode,
)
from durable_adk.app.past import Past, info_of, infos_of, list_turns, load_past, load_tree
from durable_adk.errors import ConfigError, InputConflict
from durable_adk.model.codec import decode, encode
from durable_adk.model.execution import SessionRecord
from durable_adk.model.identity import checked_id, session_key
from durable_adk.model.store_results import Selection

_ELSEWHERE = ("user:", "app:", "temp:")


class Sessions:
    """The sessions of this App and namespace."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle

    async def create(
        self,
        user_id: str,
        session_id: str | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> SessionInfo:
        """Make a session, with some state to begin with.

        ``invoke`` makes a missing session by itself; this is for an initial state.

        Raises:
            ConfigError: an id or the state is malformed.
            InputConflict: the user has a session with this id.
            NotStorable: a value of the state cannot be recorded.
        """
        user = checked_id("user_id", user_id)
        session = checks.checked_optional_id("session_id", session_id) or str(uuid.uuid4())
        given = checks.checked_state("state", state) or {}
        for key in given:
            if key.startswith(_ELSEWHERE):
                raise ConfigError(
                    f"state: {key!r}",
                    "does not belong to one session",
                    "Set user: and app: state with state_delta= of invoke, or in the agent.",
                )
        payload = encode(given, where="state") if given else None
        opened = await self._lifecycle.opened()
        record = await opened.store.create_session(
            SessionRecord(
                key=session_key(self._lifecycle.tenant, user, session),
                tenant=self._lifecycle.tenant,
                user_id=user,
                session_id=session,
                state=payload,
            )
        )
        if record is None:
            raise InputConflict(
                f"session {session!r} of user {user!r}",
                "there is one already",
                "Use another id, or get() it.",
            )
        info, state = info_of(record), decode(payload) if payload else {}
        return replace(info, state=state, updated_at=info.created_at)

    async def get(self, user_id: str, session_id: str) -> SessionInfo:
        """A session with its state after the last finished turn.

        Raises:
            NotFound: the user has no such session.
        """
        return (await self.past(user_id, session_id, num_recent_events=0)).info()

    async def list(
        self, *, user_id: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page[SessionInfo]:
        """Sessions, oldest first, without their state."""
        selection = Selection(
            tenant=self._lifecycle.tenant,
            user_id=checks.checked_optional_id("user_id", user_id),
            limit=checks.checked_limit(limit),
            cursor=None if cursor is None else checks.checked_text("cursor", cursor),
        )
        opened = await self._lifecycle.opened()
        found, following = await opened.store.list_sessions(selection)
        return Page(tuple((await infos_of(opened, found)).values()), following)

    async def events(
        self,
        user_id: str,
        session_id: str,
        *,
        num_recent_events: int | None = None,
        after_timestamp: float | datetime | None = None,
    ) -> tuple[Any, ...]:
        """Committed events of the session, as ADK's ``Event``, oldest first; a fork has its
        ancestors' too. Older turns than those that hold them are not read.

        Args:
            user_id: Whose.
            session_id: Which.
            num_recent_events: At most so many, the newest ones; None: all.
            after_timestamp: None before this time: seconds since the epoch, or an aware datetime.
                With both, those of the newest ones that are not before it.

        Raises:
            NotFound: the user has no such session.
        """
        past = await self.past(
            user_id,
            session_id,
            num_recent_events=num_recent_events,
            after_timestamp=after_timestamp,
        )
        return past.events

    async def turns(
        self, user_id: str, session_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ExecutionRecord]:
        """The executions of a session, newest first. Those of its ancestors that are its past come
        along: each names its own session.

        Raises:
            NotFound: the user has no such session.
        """
        return await list_turns(self._lifecycle, user_id, session_id, limit=limit, cursor=cursor)

    async def delete(self, user_id: str, session_id: str) -> None:
        """Remove a session with its executions, records and artifacts. Its ``user:`` state stays.

        What nobody runs goes with it: a suspended or queued execution is over.

        Raises:
            NotFound: the user has no such session.
            InputConflict: sessions that were forked from it depend on it; nothing was removed.
            SessionBusy: an execution of it is running; nothing was removed.
        """
        await deleting.delete(self._lifecycle, user_id, session_id)

    async def delete_user(self, user_id: str) -> int:
        """Remove all sessions of a user, forks first, and the user's ``user:`` state.

        Returns: how many sessions were removed. Cut off, the same call again removes the rest;
            two calls at once both remove what they find.

        Raises:
            SessionBusy: an execution of one is running; those before it are removed.
        """
        return await deleting.delete_user(self._lifecycle, user_id)

    async def prune(
        self,
        user_id: str,
        session_id: str,
        *,
        turns: int | None = None,
        age: timedelta | str | float | None = None,
    ) -> Pruned:
        """Remove the oldest finished turns of a session. What is left goes on as before: the state,
        the number of the next turn, and to the model the turns that are left.

        They are marked first; a call that comes an hour later (or a worker, or ``retain``)
        removes them. Never while an execution of the session is active (``Pruned.blocked_by`` names
        it), and never a turn that a fork stands on. A removed turn's execution is ``NotFound``, and
        its ``execution_id`` begins a new execution. Artifacts, ``user:`` and ``app:`` state stay.

        Args:
            user_id: Whose.
            session_id: Which.
            turns: All but the newest so many go.
            age: Those go that ended so long ago: a ``timedelta``, seconds, or text (``90d``). With
                both, a turn goes when either says so. With neither, as ``agent.yaml`` says.

        Raises:
            NotFound: the user has no such session.
            ConfigError: an argument is malformed, or nothing says what should go.
            CorruptHistory: a turn is missing that was not removed so; nothing more is removed.
        """
        return await retaining.prune(self._lifecycle, user_id, session_id, turns=turns, age=age)

    async def fork(
        self,
        user_id: str,
        session_id: str,
        *,
        before: str | None = None,
        after: str | None = None,
        idempotency_key: str | None = None,
    ) -> SessionFork:
        """A new session that shares the past of this one up to a cut. This one does not change.

        One document is inserted, whatever the length of the session. Shared ``user:`` and ``app:``
        state is not part of a session: it is not rewound. The fork has a session id of its own: a
        recorded call whose arguments hold that of the source stands for one that holds the fork's.

        Args:
            user_id: Whose session.
            session_id: Which one; a turn of an ancestor is cut by forking the ancestor.
            before: Leave this out and what follows it. An execution id: fork whole turns. A wait
                id: the fork is suspended on the same frontier, and asks again. A timer, or what is
                asked beside one: the fork is ``queued``, its first run sleeps anew for the whole
                time (``until=``: until then), and asks again. The id of another activity: the fork
                goes on from the record before it.
            after: The same, with this kept: a turn, a frontier with its answers, or a record;
                a timer only when it is over.
                With neither, all finished turns are kept.
            idempotency_key: The same fork for the same key, whoever asks and how often.

        Raises:
            NotFound: the user has no such session, or it has no such turn, wait or record.
            ConfigError: the cut is in an ancestor, in a turn that is not finished, or after answers
                that were not given.
            InputConflict: the key made a fork with another cut.
        """
        return await forking.fork(
            self._lifecycle,
            user_id=user_id,
            session_id=session_id,
            before=before,
            after=after,
            idempotency_key=idempotency_key,
        )

    async def tree(self, user_id: str, session_id: str | None = None) -> tuple[SessionNode, ...]:
        """A user's sessions, each below the one that it was forked from; oldest first.

        Args:
            user_id: Whose.
            session_id: Only the tree that holds this one.

        Returns: The roots. A fork whose parent is gone is one.

        Raises:
            NotFound: the user has no such session.
        """
        return await load_tree(self._lifecycle, user_id, session_id)

    def export(self, user_id: str, session_id: str) -> AsyncIterator[str]:
        """A session as lines of JSON, without line ends: a header, then its finished turns.

        A fork has its ancestors' turns, so that the lines stand alone. An open execution is not
        among them; the header names it (``open``). Shared ``user:`` and ``app:`` state stays
        here, and so do the contents of artifacts; their versions are in the lines.

        Raises:
            NotFound: the user has no such session.
        """
        return exchange.export(self._lifecycle, user_id, session_id)

    async def import_(
        self,
        source: object,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
    ) -> SessionInfo:
        """Make a session of what another App, or ADK, has of it; its next message goes on with it.

        It is there whole or not at all: until it is, ``invoke`` and reads refuse it, and the same
        call again goes on where the last one stopped. An execution keeps its id unless the App
        has one with it.

        Args:
            source: The lines of ``export`` (an iterable, an async one, a text, or the path of a
                file), a ``Session`` of ADK, or the JSON of one. It is read whole.
            user_id: Whose it becomes; by default as in the source.
            session_id: Its id here; by default as in the source.

        Returns: The session; that of an earlier import of the same, if there was one.

        Raises:
            ConfigError: the source is none of these, cut off, or has an id that cannot be one.
            InputConflict: there is another session with these ids.
            NotStorable: a value in it cannot be recorded.
        """
        checks.checked_optional_id("user_id", user_id)
        checks.checked_optional_id("session_id", session_id)
        portable = await sources.portable_source(source)
        stored, _was_here = await exchange.take_in(
            self._lifecycle, portable, user_id=user_id, session_id=session_id
        )
        return await self.get(stored.user_id, stored.session_id)

    def import_from(
        self, service: Any, *, app_name: str, user_id: str | None = None
    ) -> AsyncIterator[SessionImport]:
        """Import the sessions of a session service of ADK, and say what became of each.

        Args:
            service: Any ``BaseSessionService``. It is only read.
            app_name: Its sessions of this app are wanted; here they are sessions of this App.
            user_id: Only this user's; None: everybody's.
        """
        return sources.import_all(self._lifecycle, service, app_name=app_name, user_id=user_id)

    async def past(
        self,
        user_id: str,
        session_id: str,
        *,
        num_recent_events: int | None = None,
        after_timestamp: float | datetime | None = None,
    ) -> Past:
        """A session with its state and the events of ``events``.

        Raises:
            NotFound: the user has no such session.
        """
        return await load_past(
            self._lifecycle,
            user_id,
            session_id,
            num_recent_events=num_recent_events,
            after_timestamp=after_timestamp,
        )
