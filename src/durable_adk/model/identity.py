"""Who and what: tenants, sessions, executions, and the keys they are stored under.

A stored key is a digest, so no user text ever shapes a key range, and the tenant
(namespace and app) is part of every key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import NewType

from durable_adk.errors import ConfigError

ExecutionKey = NewType("ExecutionKey", str)
"""32 hex digits: digest of namespace, app and execution id."""

SessionKey = NewType("SessionKey", str)
"""32 hex digits: digest of namespace, app, user id and session id."""

RunId = NewType("RunId", str)
"""24 hex digits, random, chosen when the execution document is inserted."""

Nonce = NewType("Nonce", str)
"""16 hex digits, fresh for each logical write and the same in all its retries."""

FencingToken = NewType("FencingToken", int)
"""A number that only grows per execution; a commit under an old one fails."""

MAX_ID_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Tenant:
    """Whose data: every read and every claim filters on both."""

    namespace: str
    app: str


def _digest(*parts: str) -> str:
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def execution_key(tenant: Tenant, execution_id: str) -> ExecutionKey:
    return ExecutionKey(_digest(tenant.namespace, tenant.app, execution_id))


def session_key(tenant: Tenant, user_id: str, session_id: str) -> SessionKey:
    return SessionKey(_digest(tenant.namespace, tenant.app, user_id, session_id))


def scope_key(tenant: Tenant, user_id: str, key: str) -> str:
    """The key of one ``user:`` or (with an empty ``user_id``) ``app:`` state entry."""
    return _digest(tenant.namespace, tenant.app, user_id, key)


def artifact_scope(tenant: Tenant, user_id: str, session_id: str | None) -> str:
    """What the keys of a session's (None: the user's own) artifacts begin with."""
    return _digest(tenant.namespace, tenant.app, user_id, session_id or "", "artifacts")


def artifact_series(scope: str, name: str) -> str:
    """What the keys of an artifact's versions begin with."""
    return f"{scope}:{_digest(name)}"


def new_run_id() -> RunId:
    return RunId(secrets.token_hex(12))


def new_nonce() -> Nonce:
    return Nonce(secrets.token_hex(8))


def checked_id(what: str, value: object) -> str:
    """Return ``value`` if it may name a user, session or execution.

    Raises:
        ConfigError: not text, empty, over 256 characters, not printable, or with a ``~``.
    """
    remedy = f"Use 1 to {MAX_ID_CHARACTERS} printable characters without '~'."
    if not isinstance(value, str):
        raise ConfigError(what, f"expected text, got {type(value).__name__}", remedy)
    if not value:
        raise ConfigError(what, "is empty", remedy)
    if len(value) > MAX_ID_CHARACTERS:
        raise ConfigError(what, f"has {len(value)} characters", remedy)
    if not value.isprintable() or "~" in value:
        raise ConfigError(what, f"{value!r} has a character that is not allowed", remedy)
    return value
