"""ADK warns of tasks that a Workflow leaves behind. Those of an attempt that falls asleep are meant
to end there, as those of a run that was aborted are."""

from __future__ import annotations

from typing import Any

from durable_adk.adk.scope import current
from durable_adk.engine.timing import Asleep


def wrap(adk_cleanup: Any) -> Any:
    """How a Workflow ends what still runs in it; in all else it is ADK's."""

    async def _cleanup_all_tasks(self: Any, *args: Any, **named: Any) -> None:
        scope = current()
        if scope is not None and isinstance(scope.stage.attempt.fatal, Asleep):
            named["aborted"] = True  # decides at which level it logs, nothing else
        await adk_cleanup(self, *args, **named)

    return _cleanup_all_tasks
