"""A session with its finished turns, apart from where it is stored: what is moved elsewhere."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

from durable_adk.model import codec
from durable_adk.model.activity import Payload
from durable_adk.model.execution import (
    FAR,
    Execution,
    SessionRecord,
    Status,
    StepDocument,
    StepRef,
    StoredError,
    Turn,
)
from durable_adk.model.identity import FencingToken, Nonce, RunId, SessionKey, execution_key

_FIRST = StepRef(1, FencingToken(1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableTurn:
    """One finished turn.

    Attributes:
        execution_id: The id that its execution should have; empty if it has none.
        events: Payload of the list of event envelopes, each with its id.
        state: Payload of the session state after it.
        artifacts: Payload of ``{file name: newest version}`` after it, or None.
        created_at, ended_at: Milliseconds since the epoch.
    """

    execution_id: str
    invocation_id: str
    status: Status
    input: Payload
    events: Payload
    state: Payload
    artifacts: Payload | None = None
    result: Payload | None = None
    error: StoredError | None = None
    version: str | None = None
    created_at: int
    ended_at: int

    def parts(self) -> Iterator[str]:
        """What makes it the same turn as another one."""
        yield self.execution_id
        yield self.invocation_id
        yield self.status.value
        yield json.dumps([self.version, self.created_at, self.ended_at])
        yield json.dumps(None if self.error is None else dataclasses.asdict(self.error))
        for text in (self.input, self.events, self.state, self.artifacts, self.result):
            yield "" if text is None else codec.digest(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortableSession:
    """A conversation without an open turn.

    Attributes:
        state: Payload of the initial state, or None.
        shared: Payload of the ``user:`` and ``app:`` entries that come along, or None.
        closed: Names of the calls that had no response and got a closing one.
        created_at, shared_at: Milliseconds since the epoch; the latter says how new ``shared`` is.
    """

    user_id: str
    session_id: str
    state: Payload | None
    turns: tuple[PortableTurn, ...]
    created_at: int
    shared: Payload | None = None
    shared_at: int = 0
    closed: tuple[str, ...] = ()

    def digest(self) -> str:
        """32 hex digits: equal for equal conversations, whosever and under whichever id."""
        whole = hashlib.sha256()
        state = "" if self.state is None else codec.digest(self.state)
        for part in (state, *(part for turn in self.turns for part in turn.parts())):
            whole.update(json.dumps(part).encode())
        return whole.hexdigest()[:32]


def stored_turns(portable: PortableSession, session: SessionRecord, digest: str) -> list[Turn]:
    """The turns as the executions of a session; the same ones whenever it is imported again."""
    return [
        _stored(turn, session, number, _name(session.key, digest, number))
        for number, turn in enumerate(portable.turns, 1)
    ]


def run_of_turn(key: SessionKey, digest: str, number: int) -> RunId:
    """The prefix of what is stored of an imported turn."""
    return RunId(_name(key, digest, number)[:24])


def _name(key: SessionKey, digest: str, number: int) -> str:
    return hashlib.sha256(f"{key}|{digest}|{number}".encode()).hexdigest()


def _stored(turn: PortableTurn, session: SessionRecord, number: int, name: str) -> Turn:
    run, nonce = RunId(name[:24]), Nonce(name[24:40])
    execution_id = turn.execution_id or spare_id(run)
    execution = Execution(
        key=execution_key(session.tenant, execution_id),
        execution_id=execution_id,
        tenant=session.tenant,
        user_id=session.user_id,
        session_id=session.session_id,
        session_key=session.key,
        turn=number,
        run=run,
        invocation_id=turn.invocation_id,
        input=turn.input,
        input_digest=codec.digest(turn.input),
        status=turn.status,
        token=_FIRST.token,
        claim=None,
        attempt=1,
        step=_FIRST.step,
        last_step=_FIRST,
        wake_at=FAR,
        error=turn.error,
        version=turn.version,
        result=turn.result,
        created_at=turn.created_at,
        ended_at=turn.ended_at,
    )
    step = StepDocument(
        run=run,
        step=_FIRST.step,
        token=_FIRST.token,
        prev=None,
        events=turn.events,
        finished=codec.encode({}),
        state=turn.state,
        artifacts=turn.artifacts,
        nonce=nonce,
    )
    return Turn(execution=execution, steps=(step,))


def spare_id(run: RunId) -> str:
    """The id of an imported execution whose own is taken, or that had none."""
    return f"imported-{run}"
