"""Checked by mypy, never run: calls that must type-check, and calls that must not.

A wrong call carries the code of the error it must give; mypy reports an ignore that is not
needed, so a wrong call that becomes accepted fails the check.
"""

from __future__ import annotations

from durable_adk import (
    App,
    Doubt,
    Outcome,
    StreamEvent,
    Wait,
    durable_tool,
    now,
    random,
    step,
    uuid4,
)
from durable_adk.engine.ports import Clock, Faults, NoFaults
from durable_adk.errors import DurableError, InvalidAnswer, SessionBusy, UnsupportedNode
from durable_adk.model.identity import ExecutionKey, Tenant, execution_key, session_key


def errors_carry_typed_fields(error: DurableError) -> str:
    match error:
        case SessionBusy():
            return ", ".join(error.waits) + error.execution_id
        case InvalidAnswer():
            return "".join(f"{wait}: {problem}" for wait, problem in error.problems.items())
        case UnsupportedNode():
            return error.node_path + error.instead
    return error.remedy


def an_unsupported_node_names_its_alternative() -> tuple[UnsupportedNode, ...]:
    right = UnsupportedNode("wf@1/live@1", because="it streams audio", instead="use text")
    wrong = UnsupportedNode("wf@1/live@1", because="it streams audio")  # type: ignore[call-arg]
    return right, wrong


def production_runs_without_faults() -> Faults:
    return NoFaults()


def time_is_asked_of_a_clock(clock: Clock) -> tuple[int, float]:
    return clock.estimate(), clock.elapsed()


def keys_of_different_things_do_not_mix(tenant: Tenant) -> ExecutionKey:
    right = execution_key(tenant, "e")
    wrong: ExecutionKey = session_key(tenant, "u", "s")  # type: ignore[assignment]
    return right or wrong


async def an_app_runs_resumes_and_is_read(app: App) -> Outcome:
    outcome = await app.invoke(user_id="u", message="refund order 7", timeout=30)
    if outcome.status == "suspended":
        answers = {wait.id: {"confirmed": True} for wait in outcome.waits}
        outcome = await app.resume(outcome.execution_id, answers, by="reviewer")
    receipt = await app.answer(outcome.waits[0].id, "yes", by="reviewer")
    left: int = receipt.open
    page = await app.executions.list(user_id="u", limit=left + 1)
    status: str = page.items[0].status
    return outcome.raise_for_status() if status else outcome


async def a_stream_is_iterated_and_not_awaited(app: App) -> list[StreamEvent]:
    await app.stream(user_id="u", message="hi")  # type: ignore[misc]
    return [item async for item in app.stream(user_id="u", message="hi")]


async def wrong_calls_of_an_app_are_type_errors(app: App, outcome: Outcome, wait: Wait) -> bool:
    await app.invoke("u", message="hi")  # type: ignore[call-arg]
    await app.invoke(user_id="u")  # type: ignore[call-arg]
    await app.invoke(user_id=7, message="hi")  # type: ignore[arg-type]
    await app.resume(outcome)  # type: ignore[arg-type]
    await app.answer(wait.id)  # type: ignore[call-arg]
    app.resume_stream(outcome.execution_id, by=3)  # type: ignore[arg-type]
    outcome.status = "completed"  # type: ignore[misc]
    return outcome.status == "done"  # type: ignore[comparison-overlap]


@durable_tool(on_unknown_outcome="fail")
def issue_refund(order_id: str, cents: int) -> dict[str, int]:
    return {order_id: cents}


async def _look(doubt: Doubt) -> dict[str, object] | None:
    return {"outcome": "done", "result": doubt.args} if doubt.attempt else None


@durable_tool(on_unknown_outcome="ask", reconcile=_look)
def pay(cents: int) -> int:
    return cents


def a_tool_keeps_its_signature(app: App) -> dict[str, int]:
    registered = app.tool(issue_refund)
    registered("7")  # type: ignore[call-arg]
    durable_tool(on_unknown_outcome="maybe")  # type: ignore[call-overload]
    return registered("7", 4200)


async def a_step_has_the_type_of_what_it_calls() -> int:
    async def count(text: str, *, times: int) -> int:
        return len(text) * times

    length: int = await step("length", len, "text")
    counted: int = await step("count", count, "text", times=2)
    wrong: str = await step("length", len, "text")  # type: ignore[arg-type]
    return length + counted + len(wrong)


def the_clock_and_the_dice_of_an_execution() -> str:
    return f"{now().isoformat()} {uuid4().hex} {random():.3f}"
