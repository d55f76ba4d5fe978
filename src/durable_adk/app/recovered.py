"""What a recovery pass returns: one outcome that cannot be read whole must not cost the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from durable_adk.app import show
from durable_adk.app.lifecycle import Opened
from durable_adk.app.outcome import Outcome
from durable_adk.app.reads import events_of
from durable_adk.engine.ends import stored_error
from durable_adk.errors import CorruptHistory, KeyMissing, NotFound
from durable_adk.model.execution import Execution


async def recovered(opened: Opened, executions: Iterable[Execution]) -> tuple[Outcome, ...]:
    """The outcomes of a pass, without those of executions that were removed meanwhile."""
    found = [await _outcome_of(opened, execution) for execution in executions]
    return tuple(outcome for outcome in found if outcome is not None)


async def _outcome_of(opened: Opened, execution: Execution) -> Outcome | None:
    try:
        return show.outcome_of(execution, await events_of(opened, execution))
    except NotFound:
        return None
    except (CorruptHistory, KeyMissing) as error:
        told = dataclasses.replace(execution, error=execution.error or stored_error(error))
        return show.outcome_of(told, ())
