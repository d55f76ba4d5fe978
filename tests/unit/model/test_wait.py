from __future__ import annotations

from durable_adk.model.identity import FencingToken
from durable_adk.model.wait import Frontier, WaitKind, WaitRequest, frontier_id


def _wait(digest: str) -> WaitRequest:
    return WaitRequest(
        digest=digest,
        position="",
        kind=WaitKind.INPUT,
        call_name=WaitKind.INPUT.value,
        call_id="c",
        node_path="",
        operation_path="agent#1",
        branch=None,
        isolation_scope=None,
        author="agent",
        content="{}",
    )


def test_a_wait_is_found_by_its_digest_and_never_by_its_call_id() -> None:
    frontier = Frontier(
        id=frontier_id("x", 1),
        step=1,
        step_token=FencingToken(1),
        waits=(_wait("a" * 20), _wait("b" * 20)),
        open=2,
        rev=0,
    )
    assert frontier.place_of("a" * 20) == 0
    assert frontier.place_of("b" * 20) == 1
    assert frontier.place_of("c") is None


def test_every_frontier_of_every_step_has_its_own_id() -> None:
    ids = {frontier_id(x, step, k) for x in ("x", "x|1") for step in (1, 11) for k in (1, 11)}
    assert len(ids) == 8
    assert frontier_id("x", 1) == frontier_id("x", 1, 1)


def test_kinds_that_adk_has_carry_its_function_names() -> None:
    from google.adk.flows.llm_flows.functions import (
        REQUEST_CONFIRMATION_FUNCTION_CALL_NAME,
        REQUEST_EUC_FUNCTION_CALL_NAME,
        REQUEST_INPUT_FUNCTION_CALL_NAME,
    )

    assert WaitKind.CONFIRMATION.value == REQUEST_CONFIRMATION_FUNCTION_CALL_NAME
    assert WaitKind.CREDENTIAL.value == REQUEST_EUC_FUNCTION_CALL_NAME
    assert WaitKind.INPUT.value == REQUEST_INPUT_FUNCTION_CALL_NAME
