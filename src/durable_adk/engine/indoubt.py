"""What becomes of calls that are in doubt: found out, asked, or the end. Decided before ADK starts.

A doubt is settled by the answer to its wait: a person's, or that of the ``reconcile`` callback.
Either is a wait record of the open step. ``not_done`` opens the next try of the position, under the
same activity id; ``done`` does too, and its result is put there at once, so that it has a place in
the log like any other outcome.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from durable_adk.engine.activities import Recorded
from durable_adk.engine.answers import problem_with_result, stored_answer
from durable_adk.engine.causes import Causes
from durable_adk.engine.doubts import Undecided, decide_all, unknown
from durable_adk.engine.ending import too_late
from durable_adk.engine.exits import asked, result_of
from durable_adk.engine.fault_points import reach_body
from durable_adk.engine.loading import Past
from durable_adk.engine.ports import Clock, Faults, Store
from durable_adk.engine.reads import moment
from durable_adk.engine.settled import answer_schema, problem_with_settlement
from durable_adk.errors import InvalidAnswer, NotStorable
from durable_adk.model import codec
from durable_adk.model.activity import Record, UnknownOutcome
from durable_adk.model.doubt import Doubt, Terms, wait_position
from durable_adk.model.execution import FAR, Execution, Lease, Status
from durable_adk.model.identity import new_nonce
from durable_adk.model.position import Position, activity_id
from durable_adk.model.redaction import redacted, redacted_at
from durable_adk.model.shown import shown
from durable_adk.model.wait import Frontier, StoredAnswer, WaitKind, WaitRequest, frontier_id

__all__ = ["Deciding", "Undecided"]

_log = logging.getLogger("durable_adk.engine")

BY_RECONCILE = "reconcile"
"""Who gave an answer that the callback of a call gave."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Open:
    """A verdict that nothing has settled, with what its intent says."""

    verdict: Record
    terms: Terms
    intent: Record
    told: Doubt
    answer: StoredAnswer | None = None


class Deciding:
    """Settles what is in doubt in one attempt, under its lease.

    Args:
        reconciler: Finds the callback for the call that an intent is of.
        check: Raises why the attempt is over, if it is.
        may_start: Whether a body may start now.
        before_commit: Called before the lease is given up by a commit.
        is_last: If this attempt fails, so does the execution: a callback that fails does not know.
        redact: Names of arguments whose values a person is not shown.
        payload_max: Bytes of the largest answer of a callback; None for any.
        causes: Where the errors of callbacks are noted, with the calls that they are about.
    """

    def __init__(
        self,
        past: Past,
        *,
        lease: Lease,
        store: Store,
        clock: Clock,
        faults: Faults,
        reconciler: Callable[[Record], Callable[[Doubt], Any] | None],
        check: Callable[[], None],
        may_start: Callable[[], bool],
        before_commit: Callable[[], None],
        is_last: bool,
        redact: Set[str] = frozenset(),
        payload_max: int | None = None,
        causes: Causes | None = None,
    ) -> None:
        self._past = past
        self._lease = lease
        self._store = store
        self._clock = clock
        self._faults = faults
        self._reconciler = reconciler
        self._check = check
        self._may_start = may_start
        self._before_commit = before_commit
        self._is_last = is_last
        self._redact = redact
        self._payload_max = payload_max
        self._causes = causes or Causes()
        self._asking: asyncio.Task[Any] | None = None

    async def decide(self, recorded: Recorded) -> Recorded | Execution:
        """Settle every doubt of the open step, or ask.

        Returns: the records to run over; or the execution, suspended on its doubts.
        Raises:
            OutcomeUnknown: a call whose policy is ``fail`` stays in doubt.
            InvalidAnswer: a callback gave something else than an answer.
            NotStorable: a callback gave more than can be stored.
            Exception: whatever a callback raised.
        """
        verdicts = await decide_all(recorded, self._past.execution, self._store)
        if not verdicts:
            return recorded
        records = recorded.step(recorded.open_step)
        found = [self._open(verdict, records.intent_of(verdict)) for verdict in verdicts]
        doubts = [await self._found_out(doubt) for doubt in found]
        for doubt in doubts:
            self._check_size(doubt)
            if doubt.answer is None and doubt.terms.policy is UnknownOutcome.FAIL:
                raise unknown(doubt.verdict)
        frontier = self._frontier(doubts, recorded)
        if frontier.open:
            self._before_commit()  # a renewal must not race the commit
        await self._store.commit_doubts(
            self._lease, run=self._past.execution.run, frontier=frontier, nonce=new_nonce()
        )
        if frontier.open:
            return self._suspended(frontier)
        self._past.execution = dataclasses.replace(self._past.execution, frontier=frontier)
        await self._past.continue_answered()
        return await self._past.load(again=True)

    def _suspended(self, frontier: Frontier) -> Execution:
        return dataclasses.replace(
            self._past.execution,
            status=Status.SUSPENDED,
            claim=None,
            frontier=frontier,
            failures=0,
            error=None,
            wake_at=FAR if frontier.deadline is None else frontier.deadline,
            waiting_since=self._clock.estimate(),
        )

    # ---------------------------------------------------------------- the callback

    async def _found_out(self, doubt: _Open) -> _Open:
        """With the answer of the call's ``reconcile`` callback, if it has one that knows."""
        if doubt.intent.body is None:
            return doubt
        ask = self._reconciler(doubt.intent)
        if ask is None:
            return doubt
        self._check()
        if not self._may_start():
            raise too_late(self._past.execution.execution_id)
        try:
            await self._reach(doubt, ran=False)
            value = await self._said(ask, doubt.told)
            await self._reach(doubt, ran=True)
            self._check()
            return doubt if value is None else self._taken(doubt, value)
        except Exception as error:  # whatever user code raises
            self._check()
            self._causes.note(error, doubt.verdict)
            if not self._is_last:
                raise
            _log.warning(
                "reconcile of %s failed in the last attempt: it counts as not known",
                doubt.verdict.name,
                extra={"execution_id": self._past.execution.execution_id},
                exc_info=True,
            )
            return doubt

    def _taken(self, doubt: _Open, value: object) -> _Open:
        """Raises: InvalidAnswer: the callback gave none."""
        wait = activity_id(self._past.execution.execution_id, _position_of(doubt.verdict).digest)
        answer = stored_answer(wait, value, by=BY_RECONCILE, at=self._clock.estimate())
        given, schema = codec.decode(answer.value), answer_schema(doubt.terms.returns)
        name = doubt.verdict.name or "it"
        if problem := problem_with_settlement(given) or problem_with_result(name, schema, given):
            raise InvalidAnswer(
                f"what reconcile of {doubt.verdict.name} returned",
                {wait: problem},
                "Let the callback return one of the two, or None where it does not know.",
            )
        return dataclasses.replace(doubt, answer=answer)

    def _check_size(self, doubt: _Open) -> None:
        """Refuse what is no more storable in another attempt. Raises: NotStorable."""
        if doubt.answer is not None:
            where = f"what reconcile of {doubt.verdict.name} returned"
            try:
                codec.check_size(doubt.answer.value, self._payload_max, where=where)
            except NotStorable as error:
                self._causes.note(error, doubt.verdict)
                raise

    async def _reach(self, doubt: _Open, *, ran: bool) -> None:
        await reach_body(
            self._faults, "reconcile", doubt.verdict.name, ran=ran, on_death=lambda _death: None
        )

    async def _said(self, ask: Callable[[Doubt], Any], told: Doubt) -> Any:
        """What a callback says. It has a task of its own, so that it is known who cancelled what.

        Raises:
            Exception: what it raised, or that it exited or was cancelled from inside.
        """
        asking = self._asking = asyncio.get_running_loop().create_task(asked(ask, told))
        try:
            await asyncio.wait({asking})
        except asyncio.CancelledError:  # this process lets go
            asking.cancel()
            await asyncio.wait({asking})
            raise
        finally:
            self._asking = None
            if asking.done() and not asking.cancelled():
                asking.exception()  # asyncio would complain that nobody asked
        self._check()
        return result_of(asking, f"reconcile of {told.name}")

    def stop(self) -> None:
        """Cancel the callback that is being asked: the attempt is over."""
        if self._asking is not None:
            self._asking.cancel()

    # ---------------------------------------------------------------- the waits

    def _open(self, verdict: Record, intent: Record | None) -> _Open:
        intent, execution = intent or verdict, self._past.execution
        terms = Terms.of(intent.body)
        was_cancelled = verdict.token == intent.token and intent is not verdict
        ended = None if was_cancelled else execution.lease_ended
        position = Position.parse(verdict.position)
        told = Doubt(
            activity_id=activity_id(execution.id_of(verdict.step), verdict.digest),
            kind=position.kind.value,
            name=verdict.name or position.label,
            args=terms.args or {},
            execution_id=execution.execution_id,
            user_id=execution.user_id,
            session_id=execution.session_id,
            attempt=intent.attempt,
            started_at=moment(intent.started_at or None),
            lease_ended_at=moment(ended),
        )
        return _Open(verdict, terms, intent, told)

    def _frontier(self, doubts: Sequence[_Open], recorded: Recorded) -> Frontier:
        execution, step = self._past.execution, recorded.open_step
        ordinal = recorded.step(step).next_frontier
        ordered = sorted(doubts, key=lambda doubt: doubt.verdict.position)
        answers = {
            place: doubt.answer for place, doubt in enumerate(ordered) if doubt.answer is not None
        }
        waits = tuple(
            _wait_of(doubt, self._shown(doubt), recorded.last_seq, ordinal) for doubt in ordered
        )
        slept = execution.frontier  # one of timers: what it came to stays with the step
        if slept is not None:
            waits += slept.waits
            answers |= {len(ordered) + place: one for place, one in slept.answers.items()}
        return Frontier(
            id=frontier_id(execution.execution_id, step, ordinal),
            step=step,
            step_token=execution.token,
            waits=waits,
            open=len(waits) - len(answers),
            rev=0,
            answers=answers,
            deadline=execution.deadline,
        )

    def _shown(self, doubt: _Open) -> dict[str, Any]:
        """The arguments as a person is shown them: plain JSON, with nothing that is redacted."""
        args = shown(codec.encode(dict(doubt.told.args)))
        if doubt.terms.names and "args" in args:
            args["args"] = redacted_at(args["args"], doubt.terms.names, self._redact)
        found: dict[str, Any] = redacted(args, self._redact)
        return found


def _position_of(verdict: Record) -> Position:
    return wait_position(Position.parse(verdict.position), verdict.attempt_try)


def _wait_of(doubt: _Open, args: dict[str, Any], last_seq: int, frontier: int) -> WaitRequest:
    """What a person is asked. ``doubt`` in the content is for the engine: where a fork at this wait
    cuts the log, what the call was, and how a tool took it."""
    verdict, told = doubt.verdict, doubt.told
    position = _position_of(verdict)
    content = {
        "message": _message(told, args),
        "payload": {
            "activity_id": told.activity_id,
            "kind": told.kind,
            "attempt": told.attempt,
            "started_at": told.started_at and told.started_at.isoformat(),
            "lease_ended_at": told.lease_ended_at and told.lease_ended_at.isoformat(),
        },
        "tool_call": {"id": doubt.terms.call_id, "name": told.name, "args": args},
        "response_schema": answer_schema(doubt.terms.returns),
        "shown": verdict.request,
        "doubt": {
            "seq": last_seq,
            "frontier": frontier,
            "request": verdict.request,
            "fit": doubt.terms.fit,
        },
    }
    return WaitRequest(
        digest=position.digest,
        position=position.text,
        kind=WaitKind.IN_DOUBT,
        call_name=WaitKind.IN_DOUBT.value,
        call_id=position.digest,
        node_path=verdict.node_path,
        operation_path=position.path,
        branch=None,
        isolation_scope=None,
        author=told.name,
        content=codec.encode(content, where="wait"),
    )


def _message(told: Doubt, args: Mapping[str, Any]) -> str:
    text = json.dumps(args, ensure_ascii=False, default=str)
    shown = text if len(text) <= 500 else f"{text[:497]}..."
    if told.lease_ended_at is None:
        end = "It was cancelled there, or its process gave it back."
    else:
        at = told.lease_ended_at.isoformat(timespec="seconds")
        end = f"The lease of its owner ended by {at}; its body may still be running."
    return (
        f"Did {told.name}({shown}) happen? Attempt {told.attempt} entered this {told.kind}, and it"
        f" left no result. {end} Its idempotency key is {told.activity_id}. Answer"
        ' {"outcome": "done", "result": what it returned}; or {"outcome": "not_done"}, and it runs'
        " again under the same key."
    )
