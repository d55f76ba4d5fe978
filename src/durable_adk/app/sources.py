"""What a session can be imported from."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from durable_adk.app.exchange import header_of, portable_of, take_in
from durable_adk.app.lifecycle import Lifecycle
from durable_adk.app.outcome import SessionImport
from durable_adk.errors import ConfigError, DurableError, Unavailable, WriteUnknown
from durable_adk.model.exchange import PortableSession

_HOW: Final = (
    "Pass the lines of sessions.export() (or the path of a file of them), an ADK Session, or the"
    " JSON of one."
)


async def portable_source(source: object) -> PortableSession:
    """The session that something holds.

    Args:
        source: Lines or a path of ``Sessions.export``, a session of ADK, or its JSON.

    Raises:
        ConfigError: it is none of these, or cannot be read.
        NotStorable: a value in it cannot be recorded.
    """
    adk: Any = import_module("durable_adk.adk.exchange")
    if adk.is_session(source):
        session = source
    else:
        lines = [line for line in await _lines(source) if line.strip()]
        if not lines:
            raise ConfigError("source", "is empty", _HOW)
        if header_of(lines[0]) is not None:
            return portable_of(lines)
        session = adk.session_of("\n".join(lines))
    portable: PortableSession = adk.portable_session(session)
    return portable


async def _lines(source: object) -> list[str]:
    if isinstance(source, os.PathLike) or (
        isinstance(source, str) and not source.lstrip().startswith("{")
    ):
        source = await _text_in(Path(source))
    if isinstance(source, str):
        return source.split("\n")
    if isinstance(source, AsyncIterable):
        found = [line async for line in source]
    elif isinstance(source, Iterable) and not isinstance(source, bytes | dict):
        found = list(source)
    else:
        raise ConfigError("source", f"got {type(source).__name__}", _HOW)
    for line in found:
        if not isinstance(line, str):
            raise ConfigError("source", f"holds a {type(line).__name__}, not lines of text", _HOW)
    return found


async def _text_in(path: Path) -> str:
    try:
        return await asyncio.to_thread(path.read_text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"source: {str(path)[:300]!r}", f"cannot be read: {type(error).__name__}", _HOW
        ) from error


async def import_all(
    lifecycle: Lifecycle, service: Any, *, app_name: str, user_id: str | None
) -> AsyncIterator[SessionImport]:
    """What became of each session of a session service of ADK, one after the other."""
    if not callable(getattr(service, "list_sessions", None)):
        raise ConfigError(
            "service", f"got {type(service).__name__}", "Pass a session service of ADK."
        )
    await lifecycle.opened()  # what is wrong with this App is no session's fault
    adk: Any = import_module("durable_adk.adk.exchange")
    listed = await service.list_sessions(app_name=app_name, user_id=user_id)
    for each in listed.sessions:
        session = await service.get_session(
            app_name=app_name, user_id=each.user_id, session_id=each.id
        )
        if session is None:
            continue  # deleted since
        ids = {"user_id": each.user_id, "session_id": each.id}
        try:
            portable: PortableSession = adk.portable_session(session)
            _stored, was_here = await take_in(lifecycle, portable)
        except (Unavailable, WriteUnknown):
            raise
        except DurableError as error:
            yield SessionImport(**ids, status="refused", reason=str(error))
        else:
            yield SessionImport(
                **ids, status="skipped" if was_here else "imported", reason=_closed(portable)
            )


def _closed(portable: PortableSession) -> str | None:
    """What became of questions that were open."""
    if not portable.closed:
        return None
    return (
        f"nobody had answered {', '.join(sorted(set(portable.closed)))}: closed, and in no inbox."
        " Ask again; or send the answer through DurableRunner, as a function response to the call"
    )
