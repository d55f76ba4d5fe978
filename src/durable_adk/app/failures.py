"""The exception that ended an attempt, for the caller who must see that very object.

The engine stores a failure and returns the execution. ``DurableRunner`` raises what ADK's
runner would have raised, so it listens to the program for the executions it runs itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from durable_adk.engine.attempt import Attempt
from durable_adk.engine.exits import Exited
from durable_adk.engine.program import Play, Program, Quiet
from durable_adk.model.activity import Payload, Record
from durable_adk.model.doubt import Doubt
from durable_adk.model.execution import History
from durable_adk.model.failure import RecordedFailure


class Failures(Program):
    """A program that remembers what left its root, for watched executions only."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._watched: dict[str, list[BaseException]] = {}

    @contextmanager
    def watch(self, execution_id: str) -> Iterator[list[BaseException]]:
        """Collect what leaves the root of this execution, in order, while the block runs."""
        outer = self._watched.get(execution_id)
        seen = self._watched.setdefault(execution_id, [])
        try:
            yield seen
        finally:
            if outer is None:
                del self._watched[execution_id]

    def artifacts_at(self, *given: Any) -> Payload | None:
        return self._program.artifacts_at(*given)

    def reconciler(self, intent: Record) -> Callable[[Doubt], Any] | None:
        return self._program.reconciler(intent)

    def begin(self, attempt: Attempt, history: History) -> Play:
        play = self._program.begin(attempt, history)
        seen = self._watched.get(attempt.execution.execution_id)
        return play if seen is None else _Watched(play, seen)


def original(error: BaseException) -> BaseException:
    """The object that user code raised, if this is what was recorded of it.

    A failure is handed on as its record tells it, raised from the one that was recorded.
    """
    if isinstance(error, Exited):
        return error.exit
    cause = error.__cause__
    while cause is not None and (
        isinstance(error, RecordedFailure)
        or (type(error) is type(cause) and error.args == cause.args)
    ):
        error, cause = cause, cause.__cause__
    return error


class _Watched:
    """A play that notes the exception of a step and lets it pass."""

    def __init__(self, play: Play, seen: list[BaseException]) -> None:
        self._play = play
        self._seen = seen
        self.restore = play.restore
        self.check = play.check
        self.check_asks = play.check_asks
        self.texts = play.texts
        self.close_turn = play.close_turn
        self.aclose = play.aclose

    async def run_step(self, *args: Any, **kwargs: Any) -> Quiet:
        try:
            return await self._play.run_step(*args, **kwargs)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever the user's agent raises
            self._seen.append(error)
            raise
