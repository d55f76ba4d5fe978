"""Artifacts that are saved between recorded calls: by ADK, a callback or a plugin.

Those run again on a later attempt over recorded calls, and another save would make another
version. So a save outside of a recorded body is recorded: its version comes back. What a tool or
a node saves is part of its own record.

``Versions`` keeps which version of each file of the session is the newest: events say so, and
saves that no event tells of. A fork begins with what they are at its cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.adk.events import Event

from durable_adk.adk import events as stored
from durable_adk.adk.artifact_lineage import LineageArtifacts, Passing, is_of_session
from durable_adk.adk.outcomes import is_recording, once
from durable_adk.adk.scope import current
from durable_adk.errors import CorruptHistory
from durable_adk.model import codec, failure
from durable_adk.model.activity import Kind, Payload, Record, RecordStatus
from durable_adk.model.execution import Execution, History, StepDocument
from durable_adk.model.position import Position

Noted = Callable[[str, int], None]
"""Takes the name of a file and the version of it that was saved."""

BETWEEN = ""
"""Key of what is between steps (open calls, hand-overs) among what finished; no path is empty."""
_SAVED = "artifacts"
_SAVE = "save_artifact "


class Versions:
    """The newest version of each artifact of one session.

    Attributes:
        newest: ``{file name: version}`` without the user's files, which are never rewound.
        saved: What of it this turn saved outside of recorded bodies.
    """

    def __init__(self, newest: Mapping[str, int] | None = None) -> None:
        self.newest = dict(newest or {})
        self.saved: dict[str, int] = {}

    def note(self, delta: Mapping[str, int]) -> None:
        """Take what an event or a record says was saved. Order does not matter: parallel
        branches may tell of their saves in another order than they made them in."""
        for filename, version in delta.items():
            if is_of_session(filename):
                self.newest[filename] = max(version, self.newest.get(filename, 0))

    def note_saved(self, filename: str, version: int) -> None:
        """Take a save that no event may tell of."""
        if is_of_session(filename):
            self.note({filename: version})
            self.saved[filename] = self.newest[filename]

    @classmethod
    def read(cls, payload: Payload | None) -> Versions:
        return cls(None if payload is None else codec.decode(payload))

    def between(self) -> dict[str, Any]:
        """What a suspended step keeps beside its events."""
        return {_SAVED: dict(self.saved)} if self.saved else {}

    def payload(self) -> Payload | None:
        return codec.encode(self.newest, where="artifacts") if self.newest else None


def versions_before(history: History, events: Iterable[tuple[int, Event]]) -> Versions:
    """The newest versions before an execution; ``events`` are the history's, with their turn.

    The last step of a turn says what they are after it. Turns of before that was recorded have
    only their events.
    """
    record = history.session
    own = [turn for turn in history.turns if turn.execution.turn > record.base]
    retained = record.retained if record.floor >= record.base else None
    if record.lineage and not own:
        return Versions.read(record.artifacts if not retained else retained.artifacts)
    known, after = (retained.artifacts, record.floor) if retained else (None, -1)
    for turn in own:
        if turn.steps and turn.steps[-1].artifacts is not None:
            known, after = turn.steps[-1].artifacts, turn.execution.turn
    found = Versions.read(known)
    for turn_number, event in events:
        if turn_number > after:
            found.note(event.actions.artifact_delta)
    return found


def versions_at(
    before: Payload | None,
    execution: Execution,
    steps: Sequence[StepDocument],
    records: Sequence[Record],
) -> Payload | None:
    """``{file name: newest version}`` inside an execution: what it was at its start, and what
    committed steps and records of the open one add. None if there is nothing."""
    found = Versions.read(before)
    for step in steps:
        found.note(saved_between(codec.decode(step.finished)))
        for event in stored.decode_step(execution, step):
            found.note(event.actions.artifact_delta)
    for delta in saved_in(records):
        found.note(delta)
    return found.payload()


def saved_between(finished: Mapping[str, Any]) -> dict[str, int]:
    """The saves that a suspended step tells of beside its events."""
    saved: dict[str, int] = finished.get(BETWEEN, {}).get(_SAVED, {})
    return saved


def saved_in(records: Iterable[Record]) -> Iterator[Mapping[str, int]]:
    """The versions that recorded bodies saved, and saves that were recorded by themselves."""
    for record in records:
        kind = Position.parse(record.position).kind
        if record.body is None or kind not in (Kind.TOOL, Kind.NODE, Kind.STEP):
            continue
        if kind is Kind.STEP:
            if record.name.startswith(_SAVE) and record.status is RecordStatus.COMPLETED:
                yield {record.name.removeprefix(_SAVE): codec.decode(record.body)["result"]}
            continue
        body = _left_by(record, record.body)
        yield (body.get("actions") or {}).get("artifact_delta") or {}
        yield body.get("artifacts") or {}
        for _own, data in body.get("log", ()):
            yield stored.from_data(data).actions.artifact_delta
            _state, pending = data.get("pending", ({}, {}))
            yield pending


def _left_by(record: Record, body: Payload) -> dict[str, Any]:
    if record.status is not RecordStatus.FAILED:
        left: dict[str, Any] = codec.decode(body)
        return left
    try:
        return failure.left_behind(body)
    except CorruptHistory:  # of a class that is gone; the turn must still be possible to close
        return {}


class AttemptArtifacts(Passing):
    """The user's artifact service as an attempt sees it; it passes for one of its class."""

    def __init__(self, service: Any, noted: Noted = lambda _filename, _version: None) -> None:
        super().__init__(service)
        self._noted = noted

    async def save_artifact(self, **given: Any) -> Any:
        """Save, or hand out the version that was made of it before."""
        scope = current()
        if scope is None or not is_recording(scope):
            return await self._service.save_artifact(**given)
        filename: str = given["filename"]
        label = f"{_SAVE}{filename}"
        position = scope.stage.position(scope, Kind.STEP, scope.count(f"step:{label}"), label=label)
        version = await once(
            scope,
            position,
            lambda: self._service.save_artifact(**given),
            name=label,
            request=filename,
            asked=label,
            durable=True,  # done again it would be another version
        )
        if given.get("session_id") is not None:
            self._noted(filename, version)
        return version


def recorded(service: Any, noted: Noted = lambda _filename, _version: None) -> Any:
    """An artifact service for attempts; None stays None."""
    if service is None:
        return None
    if type(service) is LineageArtifacts:
        service = service.remembering()
    return AttemptArtifacts(service, noted)
