"""Sessions as lines of JSON, out of this App and into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from typing import Any, Final

from durable_adk.app.lifecycle import Lifecycle
from durable_adk.app.past import find
from durable_adk.errors import ConfigError, CorruptHistory, InputConflict, Unavailable
from durable_adk.model.codec import decode, encode
from durable_adk.model.exchange import PortableSession, PortableTurn, stored_turns
from durable_adk.model.execution import Imported, SessionRecord, Status, StoredError, Turn
from durable_adk.model.identity import checked_id, session_key

FORMAT: Final = "durable-adk session"
VERSION: Final = 1
"""Grows when a reader of the version before would read something wrong."""
_TURNS_AT_ONCE: Final = 20


# ---------------------------------------------------------------- out


async def export(lifecycle: Lifecycle, user_id: str, session_id: str) -> AsyncIterator[str]:
    """The lines of ``Sessions.export``."""
    opened, record = await find(lifecycle, user_id, session_id)
    store, key = opened.store, record.key
    latest = await store.latest_execution(key)
    is_open = latest is not None and latest.is_active
    last = record.ground if latest is None else latest.turn - is_open
    floor = record.floor
    header = {
        "format": FORMAT,
        "version": VERSION,
        "app": record.tenant.app,
        "user_id": record.user_id,
        "session_id": record.session_id,
        "created_at": int(record.created_at),  # a driver's own class
        "turns": last - floor,
        "open": latest.execution_id if latest is not None and is_open else None,
        "state": _decoded(record.first_state),
        "removed": floor,
    }
    yield encode(header, where="session")
    for first in range(floor + 1, last + 1, _TURNS_AT_ONCE):
        size = min(_TURNS_AT_ONCE, last + 1 - first)
        history = await store.load_history(key, before=first + size, max_turns=size)
        if history.session.floor != floor:
            raise Unavailable(
                f"session {session_id!r} of user {user_id!r}",
                "turns of it were removed by retention while it was exported",
                "Export it again.",
            )
        for turn in history.turns:
            yield _line(turn, turn.execution.turn - floor)


def _line(turn: Turn, number: int) -> str:
    execution, last = turn.execution, turn.steps[-1]
    events = import_module("durable_adk.adk.exchange").portable_events(execution, turn.steps)
    return encode(
        {
            "turn": number,
            "execution_id": execution.execution_id,
            "invocation_id": execution.invocation_id,
            "status": execution.status.value,
            "created_at": int(execution.created_at),
            "ended_at": int(execution.ended_at or execution.created_at),
            "version": execution.version,
            "error": None if execution.error is None else asdict(execution.error),
            "input": decode(execution.input),
            "result": _decoded(execution.result),
            "events": decode(events),
            "state": _decoded(last.state) or {},
            "artifacts": _decoded(last.artifacts),
        },
        where="turn",
    )


def _decoded(payload: str | None) -> Any:
    return None if payload is None else decode(payload)


# ---------------------------------------------------------------- in


def portable_of(lines: Sequence[str]) -> PortableSession:
    """The session that was exported as these lines.

    Raises:
        ConfigError: a line is missing, or cannot be read.
    """
    header = header_of(lines[0]) or {}
    found = header.get("version")
    if found != VERSION:
        raise ConfigError(
            "source",
            f"is an export of version {found!r}, this code reads {VERSION}",
            "Use the version of durable-adk that wrote it, or a newer one.",
        )
    with _reading(1, "the header"):
        if header["turns"] != len(lines) - 1:
            raise ValueError(f"{len(lines) - 1} of {header['turns']} turns follow")
        return PortableSession(
            user_id=header["user_id"],
            session_id=header["session_id"],
            state=_encoded(header["state"], "state"),
            turns=tuple(_turn(line, number) for number, line in enumerate(lines[1:], 1)),
            created_at=header["created_at"],
        )


@contextmanager
def _reading(line: int, what: str) -> Iterator[None]:
    """Turn what is wrong with a line into an error that names it."""
    try:
        yield
    except (CorruptHistory, KeyError, TypeError, ValueError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ConfigError(
            f"source: line {line}", f"cannot be {what}: {reason}", "Export it again."
        ) from error


def header_of(line: str) -> dict[str, Any] | None:
    """The header of an export; None if the line is none."""
    try:
        header = decode(line)
    except CorruptHistory:
        return None
    is_one = isinstance(header, dict) and header.get("format") == FORMAT
    return header if is_one else None


def _turn(line: str, number: int) -> PortableTurn:
    with _reading(number + 1, f"turn {number}"):
        data = decode(line)
        if data["turn"] != number:
            raise ValueError(f"it is turn {data['turn']}")
        return PortableTurn(
            execution_id=checked_id("execution_id", data["execution_id"]),
            invocation_id=data["invocation_id"],
            status=_final(data["status"]),
            input=encode(data["input"], where="input"),
            events=encode(data["events"], where="events"),
            state=encode(data["state"], where="state"),
            artifacts=_encoded(data["artifacts"], "artifacts"),
            result=_encoded(data["result"], "result"),
            error=None if data["error"] is None else StoredError(**data["error"]),
            version=data["version"],
            created_at=data["created_at"],
            ended_at=data["ended_at"],
        )


def _final(status: str) -> Status:
    found = Status(status)
    if not found.is_final:
        raise ValueError(f"its status is {status}")
    return found


def _encoded(value: Any, where: str) -> str | None:
    return None if value is None else encode(value, where=where)


async def take_in(
    lifecycle: Lifecycle,
    portable: PortableSession,
    *,
    user_id: str | None = None,
    session_id: str | None = None,
) -> tuple[SessionRecord, bool]:
    """Store a session, whole or not at all.

    Returns: the stored one, and whether it was here before.

    Raises:
        ConfigError: an id that cannot be one here.
        InputConflict: there is another session with its ids.
    """
    user = checked_id("user_id", portable.user_id if user_id is None else user_id)
    session = checked_id("session_id", portable.session_id if session_id is None else session_id)
    opened = await lifecycle.opened()
    store, key = opened.store, session_key(lifecycle.tenant, user, session)
    own = portable.digest()
    digests = store.hidden(own)
    digest = digests[0]
    record = SessionRecord(
        key=key,
        tenant=lifecycle.tenant,
        user_id=user,
        session_id=session,
        state=portable.state,
        created_at=portable.created_at,
        imported=Imported(digest=digest, is_whole=False, own="" if digest == own else own),
    )
    stored = await store.begin_import(record)
    there = stored.imported
    if there is None or not (there.own == own or there.digest in digests):
        raise InputConflict(
            f"session {session!r} of user {user!r}",
            "there is one already, and it is not this one, or as this one was when it was imported",
            "Stop the program that writes the source; import under another session_id=, or delete"
            " the one here first.",
        )
    if there.is_whole:
        return stored, True
    digest = there.digest
    await store.import_turns(stored_turns(portable, record, digest))
    if portable.shared is not None:
        stamp = f"{portable.shared_at:015d}:{session}"
        await store.put_scopes(lifecycle.tenant, user, portable.shared, stamp=stamp)
    await store.finish_import(key, digest)
    return stored, False
