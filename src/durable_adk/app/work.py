"""A worker: goes on with whatever is due, until it is told to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from durable_adk.app.lifecycle import Lifecycle
from durable_adk.errors import ConfigError

if TYPE_CHECKING:
    from durable_adk.engine.worker import Worker


class AppWorker:
    """Runs submitted, answered, failed and abandoned executions of one App."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._worker: Worker | None = None
        self._is_stopped = False
        self._runs = False

    async def run(self) -> None:
        """Look for work until ``stop``. Opens the App if it is not open; does not close it.

        Raises:
            ConfigError: it runs already.
        """
        if self._runs:
            raise ConfigError("worker", "runs already", "Make another one with app.worker().")
        self._runs = True
        try:
            opened = await self._lifecycle.opened_to_run()
            if self._is_stopped:
                return
            self._worker = opened.engine.worker()
            await self._worker.run()
        finally:
            self._runs = False

    def stop(self) -> None:
        """Take nothing new; ``run`` returns when what it runs has come to its next stop."""
        self._is_stopped = True
        if self._worker is not None:
            self._worker.stop()
