"""Deleting sessions: nothing that runs, and nothing that a fork stands on."""

from __future__ import annotations

import logging

from durable_adk.engine.ports import Store
from durable_adk.engine.reads import committed_steps
from durable_adk.errors import CorruptHistory, InputConflict, NotFound, SessionBusy
from durable_adk.model.execution import Execution, Status
from durable_adk.model.identity import SessionKey, Tenant, session_key
from durable_adk.model.store_results import Selection

_log = logging.getLogger("durable_adk.engine")


async def delete_session(store: Store, tenant: Tenant, user_id: str, session_id: str) -> None:
    """Remove a session with its executions, records and artifacts.

    What nobody runs goes with it: a suspended, queued or stuck execution is over. The user's
    shared state stays, where it can still be read. Cut off, the same call again finishes it.

    Raises:
        NotFound: there is no such session.
        InputConflict: forks depend on it. Nothing was removed.
        SessionBusy: an execution of it is running. Nothing was removed.
    """
    key = session_key(tenant, user_id, session_id)
    record, runs = await store.get_session(key), await store.runs_of(key)
    if record is None and not runs:
        raise NotFound(
            f"session {session_id!r}",
            "there is no such session",
            "app.sessions.list(user_id=...) shows those there are.",
        )
    whose = Selection(tenant, user_id=user_id, session_id=session_id, limit=1)
    while not await _decided(store, key, whose):
        pass  # another deletion, or a fork that waited for us, was faster: look again
    latest = await _latest(store, key, whose)
    if latest is not None:
        await _apply_shared(store, latest)
    await store.delete_artifacts(tenant, user_id, session_id)
    await store.remove_session(key, await store.runs_of(key))


async def _latest(store: Store, key: SessionKey, whose: Selection) -> Execution | None:
    """The last turn; what can be read of it, if something of it is gone."""
    try:
        return await store.latest_execution(key)
    except CorruptHistory as error:
        if not error.is_gone:
            raise
        found, _cursor = await store.list_executions(whose)
        return found[0] if found else None


async def _decided(store: Store, key: SessionKey, whose: Selection) -> bool:
    """Mark, look for what needs the session, decide. False: the mark was taken away meanwhile.

    Whoever forks inserts and then looks for the mark; whoever runs an attempt looks for it too. So
    what began before the mark is found here, and what began after it gives up, or takes the mark
    away: then nothing is decided.
    """
    session_id = whose.session_id or ""
    mark = await store.mark_going(key)
    record = await store.get_session(key)
    if record is None or record.is_removed:
        return True  # go on where it was cut off
    forks = await store.forks_of(key)
    if forks:
        await store.unmark_going(key, mark)
        shown = ", ".join(repr(fork) for fork in forks[:5])
        more = f" and {len(forks) - 5} more" if len(forks) > 5 else ""
        raise InputConflict(
            f"session {session_id!r}",
            f"has forks that depend on it: {shown}{more}",
            "Delete those first.",
        )
    latest = await _latest(store, key, whose)
    is_running = latest is not None and latest.status is Status.RUNNING
    if latest is not None and is_running and await store.is_held(latest.key):
        await store.unmark_going(key, mark)
        raise SessionBusy(session_id, execution_id=latest.execution_id, status=latest.status.value)
    return await store.decide_removal(key, mark)


async def _apply_shared(store: Store, latest: Execution) -> None:
    """What it wrote to shared state is committed, and stays."""
    if not latest.scopes_due:
        return
    try:
        steps = await committed_steps(store, latest)
    except NotFound:
        return  # another deletion was faster: it applied them before it removed the steps
    except CorruptHistory as error:
        if await store.get_outline(latest.key) is None:
            return  # likewise
        if not error.is_gone:
            raise
        _log.warning(
            "shared state of a deleted session is lost: %s",
            error,
            extra={"execution_id": latest.execution_id},
        )
        return
    if steps:
        await store.apply_scopes(latest, steps[-1])
