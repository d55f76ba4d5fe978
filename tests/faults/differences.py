"""How two lives of one program differ, but for what a fault is allowed to change."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tests.shapes.shape import Shape
from tests.support.lives import Case, Life, by_place


def differences(
    case: Case,
    undisturbed: Life,
    life: Life,
    cut: str,
    *,
    repeats: Mapping[tuple[Any, ...], int] | None = None,
) -> list[str]:
    """How a killed life differs from the undisturbed one.

    Args:
        cut: The point of the kill.
        repeats: Rows of bodies that run at once and look the same, and how many.
    """
    found = []
    if life.status != undisturbed.status:
        found.append(f"status {life.status}, not {undisturbed.status}")
    if life.output != undisturbed.output:
        found.append(f"output {life.output}, not {undisturbed.output}")
    if life.state != undisturbed.state:
        found.append(f"state {life.state}, not {undisturbed.state}")
    if life.forks != undisturbed.forks:
        found.append(f"forks {life.forks}, not {undisturbed.forks}")
    found += _asked_otherwise(case, undisturbed, life)
    ours, theirs = by_place(life.events), by_place(undisturbed.events)
    for place in sorted(set(ours) | set(theirs), key=str):
        if ours.get(place) != theirs.get(place):
            found.append(f"events of {place}: {ours.get(place)}, not {theirs.get(place)}")
    ids = [event["id"] for event in life.events]
    if len(set(ids)) != len(ids):
        found.append("event ids repeat")
    missing = undisturbed.ledger - life.ledger
    again = life.ledger - undisturbed.ledger
    kills = max(1, life.died)
    if missing:
        found.append(f"never ran: {dict(missing)}")
    alike = repeats or {}
    again = collections.Counter(
        {row: n for row, n in again.items() if not {row[:1], row[:2]} & set(case.reentered)}
    )
    too_often = any(n > kills * alike.get(row, 1) for row, n in again.items())
    if sum(again.values()) > kills * case.in_flight or too_often:
        found.append(f"ran again: {dict(again)} (killed {cut})")
    return found


def _asked_otherwise(case: Case, undisturbed: Life, life: Life) -> Iterator[str]:
    """People answer the same, and of a call in doubt once for each death, if at all."""
    theirs, ours = _answered(undisturbed), _answered(life)
    if ours != theirs:
        yield f"asked {ours}, not {theirs}"
    doubts = in_doubt(life)
    if len(doubts) > max(1, life.died) * (case.settle is not None) or in_doubt(undisturbed):
        yield f"in doubt after {life.died} deaths: {doubts}"


def _answered(life: Life) -> list[tuple[str, str, str]]:
    """What is no doubt, by ids that all lives have: those of forks derive from the namespace."""
    return sorted(
        (kind, wait.partition("~")[2] if wait.startswith("fork-") else wait, call)
        for kind, wait, call in life.asked
        if kind != "in_doubt"
    )


def in_doubt(life: Life) -> list[str]:
    """The calls that somebody was asked about."""
    return [call for kind, _id, call in life.asked if kind == "in_doubt"]


def after_a_kill(shape: Shape, undisturbed: Life, life: Life, cut: str) -> list[str]:
    """What a kill changed, but for the bodies that were in flight."""
    if shape.bumps:
        undisturbed, life = _without_versions(undisturbed), _without_versions(life)
    undisturbed, life = _with_sorted_interrupts(undisturbed), _with_sorted_interrupts(life)
    if shape.checkpoints:
        undisturbed, life = _with_last_checkpoint(undisturbed), _with_last_checkpoint(life)
    return differences(shape, undisturbed, life, cut, repeats=shape.repeats)


def _without_versions(life: Life) -> Life:
    events = copy.deepcopy(life.events)
    for event in events:
        saved = event.get("actions", {}).get("artifact_delta", {})
        saved.update(dict.fromkeys(saved, "saved"))
    return dataclasses.replace(life, events=events)


def _with_sorted_interrupts(life: Life) -> Life:
    """Checkpoints of a resumable app list what its branches ask in the order in which they did."""
    events = copy.deepcopy(life.events)
    for event in events:
        state = event.get("actions", {}).get("agent_state") or {}
        for node in (state.get("nodes") or {}).values():
            node.get("interrupts", []).sort()
    return dataclasses.replace(life, events=events)


def _with_last_checkpoint(life: Life) -> Life:
    """Without the ids of checkpoints, which count them."""
    found = [event for event in life.events if event.get("actions", {}).get("agent_state")]
    kept = [event for event in life.events if event not in found[:-1]]
    return dataclasses.replace(
        life, events=[{**e, "id": "last"} if e in found else e for e in kept]
    )
