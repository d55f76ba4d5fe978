"""``app.sessions.prune`` and ``app.retain``: the oldest turns of sessions go."""

from __future__ import annotations

from datetime import timedelta

from durable_adk.app.lifecycle import Lifecycle
from durable_adk.app.outcome import Pruned
from durable_adk.config import checked_age
from durable_adk.engine.retention import (
    Policy,
    Retention,
    Swept,
    policy_of,
    prune_session,
    sweep_shared,
)
from durable_adk.engine.settings import EngineSettings
from durable_adk.errors import ConfigError
from durable_adk.model.identity import checked_id, session_key


async def prune(
    lifecycle: Lifecycle, user_id: object, session_id: object, *, turns: object, age: object
) -> Pruned:
    """See ``Sessions.prune``."""
    user, session = checked_id("user_id", user_id), checked_id("session_id", session_id)
    policy = Policy(turns=_checked_turns(turns), age_ms=_checked_age(age))
    opened = await lifecycle.opened()
    if not policy.is_set:
        policy = _configured(opened.engine.settings)
    key = session_key(lifecycle.tenant, user, session)
    shown = f"{session!r} of user {user!r}"
    return _shown(await prune_session(opened.store, lifecycle.tenant, key, policy, shown))


async def retain(lifecycle: Lifecycle) -> Pruned:
    """See ``App.retain``."""
    opened = await lifecycle.opened()
    policy = _configured(opened.engine.settings)
    await sweep_shared(opened.store, lifecycle.tenant)
    return _shown(await Retention(opened.store, lifecycle.tenant, policy).all_sessions())


def _configured(settings: EngineSettings) -> Policy:
    policy = policy_of(settings)
    if not policy.is_set:
        raise ConfigError(
            "retention",
            "neither retention.turns nor retention.age is set, so nothing is ever removed",
            "Set one in agent.yaml, or pass turns= or age= to sessions.prune().",
        )
    return policy


def _checked_turns(turns: object) -> int | None:
    if turns is None:
        return None
    if isinstance(turns, int) and not isinstance(turns, bool) and turns >= 1:
        return turns
    raise ConfigError(
        "turns",
        f"expected a whole number from 1, got {turns!r}",
        "Say how many turns stay; sessions.delete() removes all.",
    )


def _checked_age(age: object) -> int | None:
    if age is None:
        return None
    return checked_age("age", age.total_seconds() if isinstance(age, timedelta) else age)


def _shown(swept: Swept) -> Pruned:
    return Pruned(
        sessions=swept.sessions,
        removed=swept.removed,
        expiring=swept.expiring,
        blocked=swept.blocked,
        blocked_by=swept.blocked_by,
        forked=swept.forked,
    )
