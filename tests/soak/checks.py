"""What must be true after a soak, as functions of what was written down and what is stored.

Rows of the ledger are ``(seconds, pid, "began" | "ended", key, policy, activity id)``; those of
the trouble are ``(from, to, what, pid or None)``, None for what hit the servers.
"""

from __future__ import annotations

import collections
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.soak.programs import ONCE, POLICY_OF, RERUN
from tests.support.lives import by_place

Rows = Sequence[Sequence[Any]]
Sessions = Mapping[str, Mapping[str, Any]]

SLACK_S = 6.0
"""A lease and a second: trouble before a body may cost the lease in it."""
RECORDED_WITHIN_S = 30.0
"""How long the outcome of a body may be on its way: the store's patience with its servers."""
UNKNOWN = "OutcomeUnknown"


@dataclass
class Found:
    """What is wrong, by kind; ``figures`` to be printed."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not any((self.lost, self.doubled, self.unexplained, self.differences, self.wrong))


def lost(sessions: Sessions) -> list[str]:
    """Executions that have not ended."""
    return [
        f"{execution} of session {session} is {status}"
        for session, kept in sessions.items()
        for execution, status in zip(kept["executions"], kept["status"], strict=True)
        if status not in ("completed", "failed", "cancelled")
    ]


def _entered(rows: Rows) -> dict[str, list[Sequence[Any]]]:
    """Each key with its entries, in time."""
    found: dict[str, list[Sequence[Any]]] = collections.defaultdict(list)
    for row in sorted(rows, key=lambda row: row[0]):
        if row[2] == "began":
            found[row[3]].append(row)
    return found


def doubled(rows: Rows) -> list[str]:
    """Bodies that must not run twice and did."""
    return [
        f"{key} ({entries[0][4]}) ran {len(entries)} times"
        for key, entries in _entered(rows).items()
        if len(entries) > 1 and entries[0][4] != RERUN
    ]


def is_explained(trouble: Rows, pid: int | None, since: float, until: float) -> bool:
    """Whether something happened to a process, or to the servers, in that time."""
    return any(
        start <= until and end >= since - SLACK_S
        for start, end, _what, whom in trouble
        if whom is None or pid is None or whom == pid
    )


def repeated(rows: Rows) -> int:
    """How often a ``rerun`` body was entered again."""
    return sum(len(e) - 1 for e in _entered(rows).values() if e[0][4] == RERUN)


def unexplained(rows: Rows, trouble: Rows) -> list[str]:
    """Repeats that the promise does not allow: of a body whose process nothing had happened to
    between that entry and the next, or under another idempotency key."""
    wrong = []
    for key, entries in _entered(rows).items():
        if len({row[5] for row in entries}) > 1:
            wrong.append(f"{key} ran again under another idempotency key")
        for one, following in itertools.pairwise(entries):
            pid, since, until = one[1], one[0], following[0]
            others = [
                row[1] for row in rows if _turn_of(row[3]) == _turn_of(key) and row[0] < until
            ]
            if not is_explained(trouble, pid, since, until) and not any(
                is_woken(trouble, other, since, until) for other in {*others} - {pid}
            ):
                wrong.append(f"{key} ran again, and nothing had happened to process {pid}")
    return wrong


def is_woken(trouble: Rows, pid: int, since: float, until: float) -> bool:
    """Whether an earlier owner woke up in that time: an outcome that it records late takes its
    slot, and ends the attempt of the next owner, which runs that very body."""
    return any(
        whom == pid and what in ("pause", "stall") and since - SLACK_S <= end <= until
        for _start, end, what, whom in trouble
    )


def _turn_of(key: str) -> str:
    return ".".join(key.split(".", 2)[:2])


# -------------------------------------------------------------------- unknown outcomes


def doubts(kept: Mapping[str, Any]) -> dict[str, str]:
    """The calls that executions of a session failed with, as unknown: ``{execution: key}``.

    A tool that must not run twice is called alone: it is the last such call of its turn.
    """
    found = {}
    for execution, error in zip(kept["executions"], kept["error"], strict=True):
        if error == UNKNOWN:
            found[execution] = [
                call["args"]["key"]
                for event in kept["events"]
                if event.get("invocation_id") == execution
                for call in _calls(event)
                if POLICY_OF.get(call["name"]) == ONCE
            ][-1]
    return found


def _calls(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = (event.get("content") or {}).get("parts") or ()
    return [part["function_call"] for part in parts if part.get("function_call")]


def wrong_doubts(sessions: Sessions, rows: Rows, trouble: Rows) -> list[str]:
    """Executions that failed with an unknown outcome although nothing had happened to them."""
    wrong, entered = [], _entered(rows)
    for session, kept in sessions.items():
        for execution, key in doubts(kept).items():
            entries = entered.get(key)
            if entries:  # it ran once, in that process
                pid, since = entries[0][1], entries[0][0]
            else:  # it died between the intent and the body
                turn = key.rsplit(".", 2)[0] + "."
                of_turn = [row for row in rows if row[3].startswith(turn)]
                pid, since = None, max((row[0] for row in of_turn), default=0.0)
            if not is_explained(trouble, pid, since, since + RECORDED_WITHIN_S):
                wrong.append(f"{execution} of {session}: {key} is in doubt without a reason")
    return wrong


# -------------------------------------------------------------------- against the twin


def differences(name: str, ours: Mapping[str, Any], twin: Mapping[str, Any]) -> list[str]:
    """How a session differs from its undisturbed twin."""
    found = [
        f"session {name}: {what} {ours[what]!r}, not {twin[what]!r}"
        for what in ("status", "error", "output", "state")
        if ours[what] != twin[what]
    ]
    left, right = _comparable(ours), _comparable(twin)
    for place in sorted(set(left) | set(right), key=str):
        pairs = itertools.zip_longest(left.get(place, ()), right.get(place, ()))
        for number, (one, other) in enumerate(pairs):
            if one != other:
                found.append(f"session {name}: event {number} of {place}: {one}, not {other}")
                break
    ids = [event["id"] for event in ours["events"]]
    if len(set(ids)) != len(ids):
        found.append(f"session {name}: event ids repeat")
    return found


def _comparable(kept: Mapping[str, Any]) -> dict[Any, list[Any]]:
    """Events by who and where; ids that come of a drawn execution id are numbered."""
    places = by_place(kept["events"])
    text = json.dumps([[list(place), places[place]] for place in sorted(places, key=str)])
    if kept.get("drawn") is not None:
        for number, one in enumerate(_ids(kept["drawn"], places)):
            text = text.replace(json.dumps(one)[1:-1], f"id-{number}")
    found = {tuple(place): events for place, events in json.loads(text)}
    for events in found.values():
        for event in events:  # a set
            event["long_running_tool_ids"] = sorted(event.get("long_running_tool_ids", ()))
    return found


def _ids(drawn: str, places: Mapping[Any, Sequence[Mapping[str, Any]]]) -> list[str]:
    found = {}
    for place in sorted(places, key=str):
        for event in places[place]:
            if event.get("invocation_id") != drawn:
                continue
            found[event["id"]] = None
            for part in (event.get("content") or {}).get("parts") or ():
                for kind in ("function_call", "function_response"):
                    if part.get(kind, {}).get("id"):
                        found[part[kind]["id"]] = None
    return [*found, drawn]


def effects(rows: Rows, twin_rows: Rows, in_doubt: Iterable[str]) -> list[str]:
    """Bodies that ran in one of the two worlds only. One that is in doubt may have run or not."""
    ours, twins = set(_entered(rows)), set(_entered(twin_rows))
    allowed = set(in_doubt)
    return [f"{key} never ran" for key in sorted(twins - ours - allowed)] + [
        f"{key} ran, and never in the twin" for key in sorted(ours - twins - allowed)
    ]


def check(ours: Sessions, twins: Sessions, rows: Rows, twin_rows: Rows, trouble: Rows) -> Found:
    """All of it."""
    found = Found(
        lost=lost(ours),
        doubled=doubled(rows),
        unexplained=unexplained(rows, trouble) + wrong_doubts(ours, rows, trouble),
    )
    found.lost += [f"session {name} is missing" for name in twins if name not in ours]
    for name, kept in ours.items():
        if name not in twins:
            found.differences.append(f"session {name} has no twin")
            continue
        found.differences += differences(name, kept, twins[name])
    in_doubt = [key for kept in ours.values() for key in doubts(kept).values()]
    found.differences += effects(rows, twin_rows, in_doubt)
    return found
