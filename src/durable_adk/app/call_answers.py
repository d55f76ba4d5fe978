"""Function responses of a message, as the resume map of an execution."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from durable_adk.adk.runner_base import Response, answer_of
from durable_adk.engine.answers import open_wait_ids, wait_id
from durable_adk.engine.ports import Store
from durable_adk.errors import ConfigError, NotFound, WaitClosed
from durable_adk.model.execution import Execution, Status
from durable_adk.model.wait import WaitKind, WaitRequest


@dataclass(frozen=True, slots=True)
class FoundAnswers:
    """What the responses answer.

    Attributes:
        answers: By wait id.
        call_ids: ADK's ids of the answered calls.
        beside: Responses that answer no wait: later results of long-running tools, if anything.
        adds: Whether a wait among them is still open.
    """

    execution_id: str
    answers: Mapping[str, object]
    call_ids: frozenset[str]
    beside: tuple[Response, ...] = ()
    adds: bool = True


async def answers_to(
    store: Store, execution: Execution | None, session_id: str, responses: Sequence[Response]
) -> FoundAnswers:
    """Match responses to waits of the session's last execution, the newest first.

    A response names its wait by ADK's call id or by our wait id.

    Raises:
        NotFound: no response answers a wait of that execution; or one does not, and another says
            what became of a call in doubt.
        WaitClosed: likewise, and the execution was cancelled or has failed.
        ConfigError: two responses to one wait, or one id for several open waits.
    """
    if execution is None:
        raise nowhere(responses[0].id, session_id)
    missing = {response.id: response for response in responses}
    if len(missing) < len(responses):
        raise ConfigError("new_message", "answers one call twice", "Send one response per call.")
    answers: dict[str, object] = {}
    call_ids: set[str] = set()
    in_doubt = False
    async for waits in _frontiers(store, execution):
        for name, response in list(missing.items()):
            found = [w for w in waits if name in (w.call_id, wait_id(execution, w))]
            if len(found) > 1:
                raise ConfigError(
                    f"new_message: {name!r}",
                    "is the id of several open waits",
                    "Use the wait ids: app.waits.list().",
                )
            if found:
                answers[wait_id(execution, found[0])] = answer_of(found[0], response.response)
                call_ids.add(found[0].call_id)
                in_doubt = in_doubt or found[0].kind is WaitKind.IN_DOUBT
                del missing[name]
        if not missing:
            return FoundAnswers(execution.execution_id, answers, frozenset(call_ids))
    if answers and not in_doubt and execution.status not in (Status.CANCELLED, Status.FAILED):
        return FoundAnswers(
            execution.execution_id,
            answers,
            frozenset(call_ids),
            beside=tuple(missing.values()),
            adds=not answers.keys().isdisjoint(open_wait_ids(execution)),
        )
    if execution.status in (Status.CANCELLED, Status.FAILED):
        reason = f": {execution.error.message}" if execution.error else ""
        raise WaitClosed(
            f"execution {execution.execution_id!r}",
            f"takes no more answers; it is {execution.status.value}{reason}",
            "Send a new message to the session.",
        )
    raise nowhere(next(iter(missing)), session_id)


async def _frontiers(store: Store, execution: Execution) -> AsyncIterator[Sequence[WaitRequest]]:
    """The waits of each frontier, the newest first: an answer may come again later.

    What a fork has of its source was answered there.
    """
    if execution.frontier is not None:
        yield execution.frontier.waits
    for step in range(execution.step, 0, -1):
        run, owner = execution.answers_of(step)
        if owner != execution.execution_id:
            return
        answered = await store.load_waits(run, step=step)
        if answered:
            yield [each.wait for each in answered]


def nowhere(name: str, session_id: str) -> NotFound:
    """The error of a response to nothing."""
    return NotFound(
        f"function response {name!r}",
        f"answers no wait of the last execution of session {session_id!r}",
        "Copy the id of the function call that asked, or a wait id. A long-running tool that"
        " returned a value waits for nothing: send its later result beside answers, or alone after"
        " the turn.",
    )
