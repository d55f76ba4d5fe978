"""Checked by mypy, never run: calls that must type-check, and calls that must not.

A wrong call carries the code of the error it must give; mypy reports an ignore that is not
needed, so a wrong call that becomes accepted fails the check.
"""

from __future__ import annotations

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
