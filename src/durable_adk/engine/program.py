"""The program that runs, as the engine sees it: implemented by ``durable_adk.adk`` by shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Protocol

from durable_adk.model.activity import Payload, Record
from durable_adk.model.doubt import Doubt
from durable_adk.model.execution import Execution, History, StepDocument
from durable_adk.model.wait import AnsweredWait, WaitRequest


@dataclass(frozen=True, slots=True)
class Quiet:
    """What a step left when ADK had nothing more to do.

    Attributes:
        waits: Open waits in frontier order; empty at the end.
        events: Payload of the list of event envelopes of this step.
        finished: Payload of ``{operation path: what a finished node run left}``.
        state: Payload of the whole session state (no ``temp:``, ``user:``, ``app:`` keys).
        scopes: Payload of the step's ``user:``/``app:`` writes (None as value: deleted), or None.
        result: Payload of ``{"response", "output"}`` of the execution so far.
        refs: Slots of records whose content the events refer to (``StepDocument.refs``).
        artifacts: Payload of ``{file name: newest version}`` of the session's artifacts, or None.
    """

    waits: tuple[WaitRequest, ...]
    events: Payload
    finished: Payload
    state: Payload
    scopes: Payload | None
    result: Payload
    refs: tuple[str, ...] = ()
    artifacts: Payload | None = None


class Play(Protocol):
    """One attempt's live session of the program. Used by one task, once per step, in order."""

    async def run_step(
        self, step: int, answered: Sequence[AnsweredWait], shared: Mapping[str, Payload]
    ) -> Quiet:
        """Run until quiet. Step 1 takes the execution's input, later ones the answers.

        ``shared`` is the ``user:``/``app:`` state that the step's start saw.

        Raises: whatever leaves the root; LeaseLost, ReplayMismatch as they come.
        """
        ...

    def restore(self, step: StepDocument) -> None:
        """Take a committed step as done instead of running it."""
        ...

    def check(self, step: StepDocument, asked: Sequence[WaitRequest] = ()) -> None:
        """Refuse a committed step that ran on a program with another topology, or that ``asked``
        what this one cannot be told; else go on from the state that it left. For a walk, which does
        not restore it; ``run_step`` looks by itself at what was restored.

        Raises: ReplayMismatch.
        """
        ...

    def check_asks(self, asked: Sequence[WaitRequest], recorded: Sequence[WaitRequest]) -> None:
        """Refuse open questions that this program shows otherwise: what a person agreed to is not
        what would run. For the replay check, which answers nothing. Both are the same frontier, in
        its order.

        Raises: ReplayMismatch.
        """
        ...

    def texts(self, steps: Sequence[StepDocument] = ()) -> Set[str]:
        """The texts of the execution of which the last one is its response: as these committed
        steps have them; without any, of what this play ran. For the replay check."""
        ...

    def close_turn(
        self, note: str, records: Sequence[Record], answered: Sequence[AnsweredWait] = ()
    ) -> Quiet:
        """The end of the open step as it stands: one closing response per unanswered call of the
        turn. ``records`` are those of the open step, in log order.

        On a play whose open step was run: after what it appended, however the run ended. On one
        that only restored the steps before: after events made of ``answered``, what the step began
        with, and of the records.
        """
        ...

    async def aclose(self) -> None:
        """Let go of what the attempt holds. Repeat: yes."""
        ...


class Program(Protocol):
    """The agent, as the engine sees it."""

    def begin(self, attempt: Any, history: History) -> Play:
        """Start an attempt (``attempt`` is an ``engine.attempt.Attempt``) over a session's past."""
        ...

    def reconciler(self, intent: Record) -> Callable[[Doubt], Any] | None:
        """The user's callback that finds out about a call of which an intent is left, or None.

        It returns, or gives as an awaitable, what an in-doubt wait is answered with; None if it
        does not know.
        """
        ...

    def artifacts_at(
        self,
        before: Payload | None,
        execution: Execution,
        steps: Sequence[StepDocument],
        records: Sequence[Record],
    ) -> Payload | None:
        """The newest artifact versions somewhere inside an execution: those at its start, and what
        these steps of it and these records behind them saved."""
        ...


Sink = Callable[[str, object], None]
"""Takes ``("token", str)`` and ``("partial", Event)``, the event that the token's text comes in,
at once; and ``("event", Event)`` when all it rests on is durable."""
