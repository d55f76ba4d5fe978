"""``app.runner.rewind_async``: a turn of a session makes a fork of it, without some last turns."""

from __future__ import annotations

from typing import Any

from durable_adk.adk.recorded import current_activity_id, step
from durable_adk.adk.scope import current
from durable_adk.app import checks
from durable_adk.app.forking import derived_id, shown
from durable_adk.app.lifecycle import Lifecycle, Opened
from durable_adk.app.outcome import SessionFork
from durable_adk.engine.cuts import Cut
from durable_adk.errors import ConfigError
from durable_adk.model.execution import Execution, SessionRecord
from durable_adk.model.identity import checked_id


async def rewind(
    lifecycle: Lifecycle,
    *,
    user_id: str,
    session_id: str,
    rewind_before_invocation_id: str,
    run_config: Any = None,
) -> SessionFork:
    """See ``DurableRunner.rewind_async``. Recorded: a later attempt gets the same fork."""
    checks.checked_run_config(run_config)
    user, session = checked_id("user_id", user_id), checked_id("session_id", session_id)
    target = checks.checked_text("rewind_before_invocation_id", rewind_before_invocation_id)
    scope = current()
    if scope is None:
        raise ConfigError(
            "runner.rewind_async",
            "is called outside a durable invocation",
            "Call it in a tool, a node or a callback of the session, or use app.sessions.fork().",
        )
    running = scope.stage.attempt.execution
    if running.tenant != lifecycle.tenant:
        raise ConfigError(
            "runner.rewind_async",
            f"is the runner of {lifecycle.name!r}, and this is an invocation of"
            f" {running.tenant.app!r}",
            "Use the runner of the App that runs.",
        )
    if (running.tenant, running.user_id, running.session_id) != (lifecycle.tenant, user, session):
        raise ConfigError(
            "runner.rewind_async",
            f"session {session!r} of user {user!r} is not the one of this invocation, which is"
            f" session {running.session_id!r} of user {running.user_id!r}",
            "Only an invocation of the session itself may rewind it.",
        )

    async def make(before: str) -> SessionFork:
        opened = await lifecycle.opened()
        source = await opened.engine.forking.session(running.session_key)
        execution = await _own_turn(opened, source, running, before)
        cut = Cut(side="before", target=execution.execution_id)
        new_id = derived_id("rewind", current_activity_id() or "")
        return shown(await opened.engine.forking.fork(source.key, cut, session_id=new_id))

    return await step("rewind_async", make, target)


async def _own_turn(
    opened: Opened, source: SessionRecord, running: Execution, target: str
) -> Execution:
    """The turn to cut before: one of this very session, and not its first.

    Raises:
        ConfigError: it is another one, or none.
    """
    found = running
    if target not in (running.execution_id, running.invocation_id):
        found = await _turn(opened, source, target)
    if found.session_key != source.key:
        ancestor = next((a for a in source.lineage if a.key == found.session_key), None)
        whose = "another session" if ancestor is None else f"its ancestor {ancestor.session_id!r}"
        raise ConfigError(
            f"invocation {target!r}",
            f"is a turn of {whose}, and not of session {source.session_id!r}",
            "A session rewinds its own turns only: invoke that one.",
        )
    if found.turn == 1:
        raise ConfigError(
            f"invocation {target!r}",
            "is the first turn: nothing would be left before it",
            "Start a new session.",
        )
    return found


async def _turn(opened: Opened, source: SessionRecord, target: str) -> Execution:
    """A turn by its execution id, or by its invocation id where that is another one.

    Raises:
        ConfigError: it is no turn, or the id of an event.
    """
    engine = opened.engine
    found = await engine.forking.turn(source, target)
    if found is not None:
        return found
    latest = await engine.store.latest_execution(source.key)
    before = source.ground + 1 if latest is None else latest.turn
    history = await engine.store.load_history(source.key, before=before, max_turns=None)
    for turn in history.turns:
        if any(e.id == target for e in opened.program.decode_events(turn.execution, turn.steps)):
            raise ConfigError(
                f"invocation {target!r}",
                "is the id of an event, and only whole turns can be rewound",
                f"Its turn is {turn.execution.execution_id!r}.",
            )
    raise ConfigError(
        f"invocation {target!r}",
        f"is no turn of session {source.session_id!r}",
        "Use the invocation_id of one of its events.",
    )
