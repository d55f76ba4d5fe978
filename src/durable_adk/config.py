"""Settings: ``agent.yaml``, a mapping or the environment, read strictly.

Everything that is no key is an error that names file, key and rule. A duration is text with a
unit (500ms, 30s, 10m, 1h, 7d) or seconds; ``${NAME}`` in a text is an environment variable.

Settings, with their defaults; "-" is none:

    version                        -            Text that new executions record. A worker and
                                                recover() take only those of its version, or with
                                                none; without one they take all. A call takes any.
    namespace                      default      Separates tenants in one database.
    mongodb.uri                    -            Connection string. Else: MONGODB_URI.
    mongodb.database               -            Else: the path of the connection string, unless
                                                it is admin, config or local; else durable_adk.
    mongodb.collection_prefix      durable_     What the names of all collections begin with.
    mongodb.create_indexes         true         false: opening names the missing ones and fails.
    features.durable_workflow      false        Required to be true.
    lease.ttl                      30s          After a crash others wait this long; 3s at least.
    lease.max_block                10m          For so long may code block the event loop; then
                                                the lease is not renewed, and another process
                                                goes on when it has run out.
    retry.max_attempts             5            Failed attempts in a row without a new record;
                                                then the execution has failed.
    retry.runner_attempts          1            The same for DurableRunner.
    retry.backoff                  1s           Pause before the second attempt; it doubles.
    retry.backoff_max              60s          The longest pause.
    replay.mode                    restore      restore: go on from the committed steps. walk:
                                                run the message again over the records, to see
                                                where changed code differs from its history.
    replay.input_mismatch.model    warn         warn or error: a recorded response is asked for
                                                with another prompt.
    replay.input_mismatch.tool     error        error only: other arguments.
    replay.input_mismatch.wait     error        error only: another question.
    session.max_turns              -            How many finished turns an attempt loads.
    redact                         -            Names of fields whose values people are not shown in
                                                waits and in texts about changed code. Records and
                                                events keep them: encrypt.
    payload.compress_above         2KB          Larger payloads are compressed (characters); never.
    payload.spill_above            1MB          Larger payloads are stored in chunks; 1KB to 8MB.
    payload.max                    64MB         Larger values are refused; 1KB to 1024MB, or never.
    encryption.keys                -            Key id: 32 bytes in base64, usually ${NAME}. The
                                                first one encrypts, every one decrypts.
    encryption.read_plain          true         false: content that is not encrypted is refused.
    retention.turns                -            A worker removes finished turns of a session but
                                                for the newest so many; 1 at least.
    retention.age                  -            And those that ended so long ago; 1h at least.
                                                Without both nothing is ever removed.
    tools.<name>.on_unknown_outcome  rerun      rerun, fail or ask, when a process died in the tool.
    tools.<name>.expires_after     -            For so long its confirmation, or the answer of a
                                                tool that runs long, is waited for.
    tools.<name>.on_expiry         denied       What counts then: {confirmed: false} by default. A
                                                tool that runs long needs one, as its answer; its
                                                confirmation is denied.
    shutdown.grace                 10s          For so long close() lets attempts go on.

Reserved, and refused until it is built: record_requests.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from durable_adk._config_keys import (
    GROUPS,
    KEYS,
    TOOL_KEYS,
    FromEnvironment,
    Parse,
    Refused,
    checked_uri,
    named,
    retention_age,
)
from durable_adk._yaml import parse as parse_yaml
from durable_adk.errors import ConfigError

DEFAULT_FILE = "agent.yaml"
DEFAULT_DATABASE = "durable_adk"

_REMEDY = 'help("durable_adk.config") shows every key with its default.'


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be set, checked. Times are in the unit their field names end with.

    Attributes:
        source: Where it came from, as errors name it: a file, ``config=``, or the defaults.
        found: Whether ``source`` is something the user wrote.
        version: The agent version that new executions record, or None.
        namespace: Separates tenants; part of every key.
        uri: Connection string, or None. Not in ``repr``: it may hold a password.
        database: Its name, or None: the connection string may have one.
        max_turns: How many finished turns an attempt loads; None for all.
        redact: Names of fields whose values people are not shown.
        compress_above: Characters above which a payload is compressed; None for never.
        retention_turns, retention_age_ms: What a worker leaves of sessions; None: everything.
        spill_above: Bytes above which a payload is stored in chunks.
        payload_max: Bytes above which a value is refused; None for never.
        encryption_keys: 32 bytes each, by id; the first one encrypts. Not in ``repr``.
        read_plain: Whether content that is not encrypted is read where there are keys.
        tools: Policy by tool name: ``rerun``, ``fail`` or ``ask``.
        expiries: ``expires_after`` (seconds) and ``on_expiry`` by tool name.
    """

    source: str
    found: bool = True
    version: str | None = None
    namespace: str = "default"
    uri: str | None = field(default=None, repr=False)
    database: str | None = None
    collection_prefix: str = "durable_"
    create_indexes: bool = True
    durable_workflow: bool = False
    lease_ttl_ms: int = 30_000
    max_block_s: float = 600.0
    max_attempts: int = 5
    runner_attempts: int = 1
    backoff_ms: int = 1_000
    backoff_max_ms: int = 60_000
    mode: Literal["restore", "walk"] = "restore"
    model_mismatch: Literal["warn", "error"] = "warn"
    tool_mismatch: Literal["error"] = "error"
    wait_mismatch: Literal["error"] = "error"
    max_turns: int | None = None
    redact: frozenset[str] = frozenset()
    compress_above: int | None = 2_048
    retention_turns: int | None = None
    retention_age_ms: int | None = None
    spill_above: int = 1_048_576
    payload_max: int | None = 64 * 1_048_576
    encryption_keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    read_plain: bool = True
    tools: Mapping[str, str] = field(default_factory=dict)
    expiries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grace_s: float = 10.0


def checked_age(argument: str, value: object) -> int:
    """Milliseconds of what ``retention.age`` may be, given to a call.

    Raises:
        ConfigError: naming the argument and the rule.
    """
    try:
        return retention_age(value)
    except Refused as rule:
        raise ConfigError(argument, str(rule), "Pass a timedelta, or text as '90d'.") from None


# ---------------------------------------------------------------- reading


def load(
    config: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    default_file: str | None = DEFAULT_FILE,
) -> Settings:
    """Read the settings of an App.

    ``config`` replaces the default file, nothing is merged. ``MONGODB_URI`` of the
    environment is used when no ``mongodb.uri`` is set.

    Args:
        config: A mapping shaped like the file, the path of a file, or None for the default file.
        environment: Where ``${VARS}`` come from; the process environment by default.
        default_file: Read when ``config`` is None and it exists; None reads no file.

    Raises:
        ConfigError: naming file, key and rule.
    """
    environment = os.environ if environment is None else environment
    source, found, document = _document(config, default_file)
    values = _Reader(source, environment).read(document)
    if values.get("uri") is None and (uri := environment.get("MONGODB_URI")):
        try:
            values["uri"] = checked_uri(uri)
        except Refused as rule:
            raise ConfigError("environment: MONGODB_URI", str(rule), "Correct it.") from None
    settings = Settings(source=source, found=found, **values)
    if not settings.read_plain and not settings.encryption_keys:
        raise ConfigError(
            f"{source}: encryption.read_plain",
            "is false, and there are no encryption.keys",
            "Give the keys: nothing would be encrypted, and all of it would be refused.",
        )
    if settings.backoff_max_ms < settings.backoff_ms:
        raise ConfigError(
            f"{source}: retry.backoff_max",
            f"{settings.backoff_max_ms} ms is less than retry.backoff ({settings.backoff_ms} ms)",
            "Raise retry.backoff_max or lower retry.backoff.",
        )
    return settings


def _document(
    config: Mapping[str, Any] | str | os.PathLike[str] | None, default_file: str | None
) -> tuple[str, bool, Mapping[Any, object]]:
    """Where the settings come from, whether the user wrote it, and what it says."""
    match config:
        case None:
            if default_file is None:
                return "the defaults", False, {}
            path = Path(default_file)
            return (str(path), True, _read_file(path)) if path.exists() else (str(path), False, {})
        case Mapping():
            return "config=", True, config
        case str() | os.PathLike():
            return str(config), True, _read_file(Path(config))
    raise ConfigError(
        "config=", f"expected a mapping or a path, got {named(config)}", "Pass one of them."
    )


def _read_file(path: Path) -> dict[Any, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            str(path), "there is no such file", "Write it, or pass config=."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}", "Give a UTF-8 file.") from error
    document = parse_yaml(text, source=str(path))
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(
            str(path),
            f"expected a mapping of keys at the top, got {named(document)}",
            _REMEDY,
        )
    return document


class _Reader:
    """Turns one document into the fields of ``Settings``."""

    def __init__(self, source: str, environment: Mapping[str, str]) -> None:
        self._source = source
        self._environment = environment
        self._values: dict[str, Any] = {}
        self._tools: dict[str, str] = {}
        self._expiries: dict[str, dict[str, Any]] = {}

    def read(self, document: Mapping[Any, object]) -> dict[str, Any]:
        self._group("", document)
        return {**self._values, "tools": self._tools, "expiries": self._expiries}

    def _group(self, prefix: str, group: Mapping[Any, object]) -> None:
        for name, value in group.items():
            if not isinstance(name, str):
                raise self._error(f"{prefix}{name}", f"a key is text, not {named(name)}")
            key = prefix + name
            if "." in name:
                raise self._error(key, "a key holds no dot: write each part below the one before")
            if key in KEYS:
                field_name, parse = KEYS[key]
                self._values[field_name] = self._value(key, value, parse)
            elif key == "tools":
                self._tool_policies(self._mapping(key, value))
            elif key in GROUPS:
                self._group(f"{key}.", self._mapping(key, value))
            else:
                raise self._unknown(key, [*KEYS, *GROUPS, "tools"])

    def _tool_policies(self, tools: Mapping[Any, object]) -> None:
        for name, policy in tools.items():
            key = f"tools.{name}"
            if not isinstance(name, str) or not name:
                raise self._error(key, f"a tool's name is text, not {named(name)}")
            for rule, value in self._mapping(key, policy).items():
                if rule not in TOOL_KEYS:
                    raise self._unknown(f"{key}.{rule}", [f"{key}.{known}" for known in TOOL_KEYS])
                parsed = self._value(f"{key}.{rule}", value, TOOL_KEYS[rule])
                if rule == "on_unknown_outcome":
                    self._tools[name] = str(parsed)
                else:
                    self._expiries.setdefault(name, {})[rule] = parsed
            expiry = self._expiries.get(name, {})
            if "on_expiry" in expiry and "expires_after" not in expiry:
                raise self._error(f"{key}.on_expiry", "needs expires_after beside it")

    def _mapping(self, key: str, value: object) -> Mapping[Any, object]:
        if not isinstance(value, Mapping):
            raise self._error(key, f"expected keys below it, got {named(value)}")
        return value

    def _value(self, key: str, value: object, parse: Parse) -> object:
        try:
            return parse(self._with_variables(key, value))
        except Refused as rule:
            raise self._error(key, str(rule)) from None

    def _with_variables(self, key: str, value: object) -> object:
        if isinstance(value, str) and "${" in value:
            return FromEnvironment(self._expanded(key, value))
        if isinstance(value, Mapping):
            return {name: self._with_variables(f"{key}.{name}", v) for name, v in value.items()}
        return value

    def _expanded(self, key: str, text: str) -> str:
        """``text`` with each ``${NAME}`` replaced; ``$${`` stands for itself."""

        def replace(match: re.Match[str]) -> str:
            if match[1]:
                return "${"
            name = match[2]
            if name is None:
                raise self._error(key, "'${' without a name and '}': write ${NAME}, or $${ for it")
            if name not in self._environment:
                raise self._error(key, f"the environment variable {name} is not set")
            return self._environment[name]

        # The lookbehind keeps the name of an escaped one as it is written.
        return re.sub(r"\$(\$)?\{(?:(?<!\$\$\{)([A-Za-z_][A-Za-z0-9_]*)\})?", replace, text)

    def _unknown(self, key: str, known: list[str]) -> ConfigError:
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return self._error(key, f"there is no such key{hint}")

    def _error(self, key: str, rule: str) -> ConfigError:
        return ConfigError(f"{self._source}: {key}", rule, _REMEDY)
