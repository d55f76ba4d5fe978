"""``app.sessions.fork``: a fork of a session, made from outside of it."""

from __future__ import annotations

import hashlib
import json
import uuid

from durable_adk.app import checks
from durable_adk.app.lifecycle import Lifecycle
from durable_adk.app.outcome import SessionFork
from durable_adk.engine.cuts import Cut
from durable_adk.errors import ConfigError
from durable_adk.model.execution import SessionRecord
from durable_adk.model.identity import checked_id, session_key
from durable_adk.model.position import split_activity_id


async def fork(
    lifecycle: Lifecycle,
    *,
    user_id: str,
    session_id: str,
    before: str | None = None,
    after: str | None = None,
    idempotency_key: str | None = None,
) -> SessionFork:
    """See ``Sessions.fork``."""
    key = session_key(
        lifecycle.tenant, checked_id("user_id", user_id), checked_id("session_id", session_id)
    )
    cut = _checked_cut(before, after)
    if idempotency_key is None:
        new_id = str(uuid.uuid4())
    else:
        new_id = derived_id("fork", key, checks.checked_text("idempotency_key", idempotency_key))
    opened = await lifecycle.opened()
    source = f"{session_id!r} of user {user_id!r}"
    return shown(await opened.engine.forking.fork(key, cut, session_id=new_id, shown=source))


def _checked_cut(before: object, after: object) -> Cut:
    """Raises: ConfigError: both are given, or one is no id."""
    if before is not None and after is not None:
        raise ConfigError("fork", "before= and after= are given", "Give one, or none.")
    name, target = ("before", before) if before is not None else ("after", after)
    if target is None:
        return Cut()
    text = checks.checked_text(name, target)
    if split_activity_id(text) is None:
        checked_id(name, text)
    return Cut(side="before" if name == "before" else "after", target=text)


def shown(record: SessionRecord) -> SessionFork:
    assert record.next is not None  # every fork has one
    return SessionFork(session_id=record.session_id, execution_id=record.next.execution_id)


def derived_id(*parts: str) -> str:
    """A session id that is the same for the same parts."""
    return str(uuid.UUID(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]))
