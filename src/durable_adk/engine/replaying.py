"""Does today's code still fit a recorded execution? A walk over its records that changes nothing.

No lease is taken, nothing is written, and no model, tool, leaf node or ``step()`` body runs. As in
any walk orchestrators (workflows, agents, nodes that ran others) and hooks do.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from durable_adk.engine import ends, mismatch
from durable_adk.engine.activities import Recorded
from durable_adk.engine.attempt import Attempt
from durable_adk.engine.checking import CheckingAttempt
from durable_adk.engine.closing import NothingNew
from durable_adk.engine.ended import recorded_of
from durable_adk.engine.ports import Clock, NoFaults, Store
from durable_adk.engine.program import Play, Program, Quiet
from durable_adk.engine.reads import committed_steps
from durable_adk.engine.recent import history_for
from durable_adk.engine.results import check_result
from durable_adk.engine.settings import EngineSettings
from durable_adk.engine.settle import until_ended
from durable_adk.engine.settled import asked_waits, entered_before
from durable_adk.errors import ConfigError, CorruptHistory, ReplayMismatch
from durable_adk.model.activity import Payload, Record
from durable_adk.model.execution import Execution, History, Status, StepDocument
from durable_adk.model.wait import AnsweredWait, WaitRequest

READS = 3
"""Of an execution that is running: a read may meet a late record and miss an earlier one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What came of it.

    Attributes:
        matched, recorded: How many recorded calls were asked for, and how many could be.
        difference: The first one, or None.
        error: What else ended the walk before its end, or None.
        warnings: Recorded model responses that are used for other prompts.
        unchecked: Positions of recorded calls of the open step that nobody could ask for: inside
            bodies that were not entered, behind a call that was cut off, left by an attempt that a
            later one did without.
    """

    execution: Execution
    matched: int = 0
    recorded: int = 0
    difference: ReplayMismatch | None = None
    error: Exception | None = None
    warnings: tuple[ReplayMismatch, ...] = ()
    unchecked: tuple[str, ...] = ()


async def replay(
    execution: Execution,
    *,
    store: Store,
    program: Program,
    clock: Clock,
    settings: EngineSettings,
) -> Replay:
    """Walk a recorded execution, whatever its status, over its records with this program.

    Raises:
        Unavailable: MongoDB does not answer.
    """
    try:
        past = await _load(store, execution)
        history = await history_for(store, execution, max_turns=settings.max_turns)
    except CorruptHistory as error:
        return Replay(execution=execution, error=error)
    prompts: Literal["warn", "error"] = settings.model_mismatch
    if _was_cut(history):
        prompts = "warn"
    walk = dataclasses.replace(settings, mode="walk", model_mismatch=prompts)
    attempt = CheckingAttempt(
        # One more than recorded: what was waited for in recorded attempts is not waited for again.
        dataclasses.replace(execution, attempt=execution.attempt + 1),
        past.recorded,
        store=store,
        permit=_NoLease(),
        clock=clock,
        settings=walk,
        faults=NoFaults(),
    )
    found: Exception | None = None
    try:
        play = program.begin(attempt, history)
        await until_ended(attempt, _walk(attempt, play, past, store))
    except ConfigError as error:  # the code, or ADK, is refused as it is now
        found = error
    except NothingNew:
        pass
    except Exception as error:  # whatever hooks raise
        found = None if past.is_at_open_step(attempt) and not _decides(error) else error
    finally:
        attempt.close()
    if found is None:
        found = attempt.passed_over()
    difference: ReplayMismatch | None = None
    other: Exception | None = None
    if isinstance(found, ReplayMismatch):
        found = attempt.in_its_words(found)
        difference = mismatch.with_versions(found, execution, settings)
    else:
        other = found
    return Replay(
        execution=execution,
        matched=len(attempt.matched),
        recorded=past.size(),
        difference=difference,
        error=other,
        warnings=tuple(attempt.warnings),
        unchecked=attempt.unchecked(),
    )


def _was_cut(history: History) -> bool:
    """Whether retention may have removed what the prompts were made with."""
    floor = history.session.floor
    return floor > 0 and all(turn.execution.turn == floor + 1 for turn in history.turns[:1])


def _decides(error: Exception) -> bool:
    """Whether it is no failure that the history may have ended with, too."""
    return isinstance(ends.principal(error), ReplayMismatch | CorruptHistory)


class _NoLease:
    def may_start(self) -> bool:
        return False


@dataclass(slots=True, kw_only=True)
class _Past:
    """What is walked: committed steps, perhaps one that is not, and how it went on or ended.

    Attributes:
        open_step: The step whose program did not run to its quiet end, or None.
        asks: The open frontier's step and waits, or None.
    """

    execution: Execution
    recorded: Recorded
    steps: tuple[StepDocument, ...]
    open_step: int | None
    asks: tuple[int, tuple[WaitRequest, ...]] | None

    def is_at_open_step(self, attempt: Attempt) -> bool:
        return attempt.step == self.open_step

    def size(self) -> int:
        numbers = [step.step for step in self.steps]
        if self.open_step is not None:
            numbers.append(self.open_step)
        return sum(len(self.recorded.step(number).to_hand_out()) for number in numbers)

    async def waits_of(self, step: int, store: Store) -> tuple[AnsweredWait, ...]:
        waits = await _asked_in(step, self.execution, store)
        if not waits:
            raise CorruptHistory(f"step {step}", "its answers are missing", "Restore them.")
        return waits


async def _load(store: Store, execution: Execution) -> _Past:
    for reads_left in range(READS if execution.status is Status.RUNNING else 1, 0, -1):
        try:
            return await _loaded(store, execution)
        except CorruptHistory:
            if reads_left == 1:
                raise
    raise AssertionError("unreachable")


async def _loaded(store: Store, execution: Execution) -> _Past:
    steps = await committed_steps(store, execution)
    records: Sequence[Record] = await store.load_records(
        execution.run, from_step=1, parents=execution.parents
    )
    frontier, open_step = execution.frontier, execution.step
    asks = None
    if frontier is not None and steps and steps[-1].step == frontier.step:
        asks, open_step = (frontier.step, frontier.waits), frontier.step + 1
    ended: StepDocument | None = None
    is_closed = execution.status in (Status.FAILED, Status.CANCELLED)
    if is_closed and steps:  # what ended the last step is in no record
        ended = steps[-1]
        if len(steps) > 1 and not await _asked_in(ended.step - 1, execution, store):
            ended = steps[-2]  # nobody had answered: it is not known what it had asked
        open_step = ended.step
        steps = tuple(step for step in steps if step.step < open_step)
    elif execution.status is Status.COMPLETED:
        open_step = execution.step + 1
    records = [*records, *await entered_before(execution, open_step, store)]
    return _Past(
        execution=execution,
        recorded=recorded_of(open_step, records, steps, execution.voided, ended),
        steps=steps,
        open_step=None if asks or execution.status is Status.COMPLETED else open_step,
        asks=asks,
    )


async def _asked_in(step: int, execution: Execution, store: Store) -> tuple[AnsweredWait, ...]:
    """The answered waits that ended a step; none if nobody had answered them all."""
    run, _execution_id = execution.answers_of(step)
    return asked_waits(await store.load_waits(run, step=step))


async def _walk(attempt: CheckingAttempt, play: Play, past: _Past, store: Store) -> Quiet | None:
    try:
        answered: tuple[AnsweredWait, ...] = ()
        for document in past.steps:
            answered = await _committed(attempt, play, past, document, answered, store)
        if past.open_step is None:
            return None
        attempt.open_step(past.open_step)
        attempt.look = None
        return await play.run_step(past.open_step, answered, _shared(attempt))
    finally:
        await play.aclose()


async def _committed(
    attempt: CheckingAttempt,
    play: Play,
    past: _Past,
    document: StepDocument,
    answered: tuple[AnsweredWait, ...],
    store: Store,
) -> tuple[AnsweredWait, ...]:
    step = document.step
    is_end = past.execution.status is Status.COMPLETED and step == past.execution.step
    following: tuple[AnsweredWait, ...] = ()
    waits: tuple[WaitRequest, ...] = ()
    if past.asks is not None and past.asks[0] == step:
        waits = past.asks[1]
    elif not is_end:
        following = await past.waits_of(step, store)
        waits = tuple(one.wait for one in following)
    attempt.open_step(step, [wait.operation_path for wait in waits])
    attempt.look = functools.partial(play.check, document, waits)
    try:
        quiet = await play.run_step(step, answered, _shared(attempt))
    except Exception:
        attempt.look()
        raise
    attempt.check_walked()
    attempt.look()
    mismatch.check_frontier(quiet.waits, waits)
    if not is_end and not following:  # nobody has answered: no call shows what would run
        play.check_asks(quiet.waits, waits)
    if is_end and past.execution.result is not None:
        check_result(
            step,
            past.execution.result,
            quiet.result,
            texts=lambda: (play.texts(past.steps), play.texts()),
            redact=attempt.redact,
        )
    return following


def _shared(attempt: CheckingAttempt) -> dict[str, Payload]:
    """What the step saw of shared state, as recorded."""
    shared = attempt.records.shared
    return ends.shared_from(shared.body) if shared is not None else {}
