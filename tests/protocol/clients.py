"""What clients do: answer a frontier, ask to cancel. They read first, and write what they read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.protocol.turn import Move
from tests.protocol.world import Answer, Client, Program, Rules, World


def ask_to_cancel(program: Program, world: World) -> Iterator[Move]:
    execution = world.execution
    asked = execution.cancel or execution.given_up
    if program.may_cancel and execution.status == "running" and not asked:
        yield "somebody asks to cancel", world._replace(execution=execution._replace(cancel=True))


def answer(program: Program, rules: Rules, world: World, index: int) -> Iterator[Move]:
    client, answerer = world.clients[index], program.answerers[index]

    def move(label: str, client: Client, **changes: Any) -> Move:
        clients = list(world.clients)
        clients[index] = client
        return f"client {index} {label}", world._replace(clients=tuple(clients), **changes)

    if client.state == "idle":
        state, seen = _read(program, world, index)
        if state != "idle":
            yield move(f"reads: {state}", client._replace(state=state, seen=seen))
        return
    if client.state != "seen" or client.seen is None:
        return
    step, rev, answers = client.seen
    frontier = world.execution.frontier
    again = client._replace(state="idle", seen=None)
    matches = (
        world.execution.status == "suspended"
        and frontier is not None
        and (frontier.step == step or not rules.frontier_guard)
        and (frontier.rev == rev or not rules.rev_guard)
        and not frontier.doubts
    )
    if program.expires and rules.expiry_by_server:
        matches = matches and world.expired == answerer.by_expiry
    if not matches or frontier is None:
        yield move("must read again", again)
        return
    missing = dict(answerer.values).keys() - {answer.wait for answer in answers}
    new = [Answer(wait, value, index) for wait, value in answerer.values if wait in missing]
    if not rules.whole_map:
        new = new[:1]
    kept = [answer for answer in frontier.answers if answer.wait not in missing]
    after = world.execution._replace(
        frontier=frontier._replace(rev=frontier.rev + 1, answers=tuple(sorted([*kept, *new])))
    )
    yield move("answers", client._replace(state="accepted", seen=None), execution=after)
    if program.lost_replies:
        yield move("answers, unheard", again, execution=after)


def _read(
    program: Program, world: World, index: int
) -> tuple[str, tuple[int, int, tuple[Answer, ...]] | None]:
    """What a client makes of what it reads: ``idle`` when there is nothing to answer yet."""
    answerer, execution = program.answerers[index], world.execution
    frontier = execution.frontier
    if frontier is not None and frontier.doubts:
        frontier = None
    if frontier is not None and frontier.step == answerer.step:
        known = {answer.wait: answer.value for answer in frontier.answers}
        unanswered = set(frontier.waits) - known.keys()
    else:
        known = {wait: value for step, wait, value in world.wait_records if step == answerer.step}
        unanswered = set()
        if not known:
            return ("closed" if execution.is_over else "idle"), None
    wanted = dict(answerer.values)
    if any(known[wait] != value for wait, value in wanted.items() if wait in known):
        return "conflict", None
    if not unanswered & wanted.keys():
        return "accepted", None
    if execution.status != "suspended" or frontier is None:
        return ("closed" if execution.is_over or execution.given_up else "idle"), None
    if answerer.is_map and not unanswered <= wanted.keys():
        return "conflict", None
    return "seen", (frontier.step, frontier.rev, frontier.answers)
