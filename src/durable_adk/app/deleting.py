"""``app.sessions.delete`` and ``delete_user``."""

from __future__ import annotations

from durable_adk.app.checks import MAX_PAGE
from durable_adk.app.lifecycle import Lifecycle, Opened
from durable_adk.engine.removing import delete_session
from durable_adk.errors import NotFound
from durable_adk.model.execution import SessionRecord
from durable_adk.model.identity import checked_id
from durable_adk.model.store_results import Selection


async def delete(lifecycle: Lifecycle, user_id: object, session_id: object) -> None:
    """See ``Sessions.delete``."""
    user, session = checked_id("user_id", user_id), checked_id("session_id", session_id)
    await _delete(await lifecycle.opened(), lifecycle, user, session)


async def delete_user(lifecycle: Lifecycle, user_id: object) -> int:
    """See ``Sessions.delete_user``."""
    user = checked_id("user_id", user_id)
    opened = await lifecycle.opened()
    removed = 0
    found = await _all_of(lifecycle, opened, user)
    # A fork has more ancestors than any of them, so the first ones have no forks here.
    for record in sorted(found, key=lambda one: len(one.lineage), reverse=True):
        try:
            await _delete(opened, lifecycle, user, record.session_id)
        except NotFound:
            continue  # another deletion was faster
        removed += 1
    await opened.store.delete_artifacts(lifecycle.tenant, user, None)
    await opened.store.remove_user_scopes(lifecycle.tenant, user)
    return removed


async def _all_of(lifecycle: Lifecycle, opened: Opened, user: str) -> list[SessionRecord]:
    found: list[SessionRecord] = []
    cursor: str | None = None
    while True:
        selection = Selection(tenant=lifecycle.tenant, user_id=user, limit=MAX_PAGE, cursor=cursor)
        page, cursor = await opened.store.list_sessions(selection)
        found += page
        if cursor is None:
            return found


async def _delete(opened: Opened, lifecycle: Lifecycle, user: str, session: str) -> None:
    await delete_session(opened.store, lifecycle.tenant, user, session)
