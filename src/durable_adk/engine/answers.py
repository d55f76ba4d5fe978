"""Answers: which values a wait accepts, and whether a resume map is whole.

An answer is plain JSON, stored as it was sent: ``"42"`` stays text. Two answers are the same
when their canonical payloads are. Everything is checked before anything is stored, because an
answer that the agent refuses later would fail its execution for ever.

Nothing here reads or writes; ``answering.py`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from durable_adk.engine.settled import problem_with_settlement, returned_in
from durable_adk.errors import (
    AnswerConflict,
    ConfigError,
    InvalidAnswer,
    NotStorable,
    WaitClosed,
)
from durable_adk.model.activity import Payload
from durable_adk.model.codec import decode, digest, encode, plain
from durable_adk.model.execution import Execution
from durable_adk.model.position import activity_id
from durable_adk.model.shown import content_of
from durable_adk.model.wait import BY_EXPIRY, Frontier, StoredAnswer, WaitKind, WaitRequest

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_NOT_NULL: dict[str, object] = {"not": {"type": "null"}}
_CONFIRMATION: dict[str, object] = {
    "type": "object",
    "properties": {"confirmed": {"type": "boolean"}, "payload": {}},
    "required": ["confirmed"],
    "additionalProperties": False,
}
_CREDENTIAL_KEYS = frozenset(
    {"exchangedAuthCredential", "exchanged_auth_credential", "authType", "auth_type"}
)
_CREDENTIALS = [{"type": "object", "required": [key]} for key in sorted(_CREDENTIAL_KEYS)]
_KEYS_TOO = [{"type": "string", "minLength": 1}, *_CREDENTIALS]
_LITERAL_KEYWORDS = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are data: a ``$ref`` in them is no reference."""
_NAMED_SCHEMAS = frozenset(
    {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
)
"""Keywords whose values map names, which may look like keywords, to schemas."""


# ---------------------------------------------------------------- one value


def problem_with(wait: WaitRequest, value: object) -> str | None:
    """Why a wait does not accept a plain JSON value, or None."""
    match wait.kind:
        case WaitKind.CONFIRMATION:
            problem = _confirmation_problem(value)
        case WaitKind.INPUT:
            problem = "null is no answer" if value is None else None
        case WaitKind.CREDENTIAL:
            problem = _credential_problem(wait, value)
        case WaitKind.IN_DOUBT:
            problem = problem_with_settlement(value) or problem_with_result(
                wait.author, _response_schema(wait), value
            )
        case WaitKind.TIMER:
            problem = "it is a timer, which is over by itself: leave it out"
    return problem or _schema_problem(_response_schema(wait), value)


def _confirmation_problem(value: object) -> str | None:
    expected = 'expected {"confirmed": true or false} with an optional "payload"'
    if not isinstance(value, dict):
        return f"{expected}, got {type(value).__name__}"
    if "confirmed" not in value:
        return f"{expected}; confirmed is missing"
    if type(value["confirmed"]) is not bool:
        return f"{expected}; confirmed is {value['confirmed']!r}"
    extra = sorted(value.keys() - {"confirmed", "payload"})
    return f"{expected}; unknown: {', '.join(extra)}" if extra else None


def _credential_problem(wait: WaitRequest, value: object) -> str | None:
    """Never with the value in it. A text is an API key, where one is asked for."""
    if isinstance(value, str) and value and _asks_for_key(wait):
        return None
    if isinstance(value, dict) and _CREDENTIAL_KEYS & value.keys():
        return None
    return (
        "expected ADK's AuthConfig with its exchangedAuthCredential, an AuthCredential with its"
        " authType, or, where an API key is asked for, that as text"
    )


def _asks_for_key(wait: WaitRequest) -> bool:
    content = content_of(wait)
    asked = content.get("payload") if isinstance(content, Mapping) else None
    if not isinstance(asked, Mapping):
        return False
    scheme, given = asked.get("authScheme") or {}, asked.get("rawAuthCredential") or {}
    return scheme.get("type") == "apiKey" or given.get("authType") == "apiKey"


def problem_with_result(name: str, schema: Any, settlement: Any) -> str | None:
    """Why what somebody says that a call returned is nothing that it returns, or None. ``schema``
    is that of its wait."""
    given = returned_in(schema)
    if given is None or "result" not in settlement:
        return None
    problem = _schema_problem(given, settlement["result"])
    return problem and f"result is nothing that {name} returns: {problem}"


def _response_schema(wait: WaitRequest) -> object:
    content = content_of(wait)
    return content.get("response_schema") if isinstance(content, Mapping) else None


def _schema_problem(schema: Any, value: Any) -> str | None:
    if schema is None:
        return None
    # Imported here: only a wait with a schema needs it, and importing the package must stay cheap.
    import jsonschema
    import referencing
    import referencing.exceptions as reference

    try:
        validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
        validator.check_schema(schema)
        # An empty registry: a ``$ref`` to some address must not make this process fetch it.
        found = validator(schema, registry=referencing.Registry()).iter_errors(value)
        best = jsonschema.exceptions.best_match(found)
    except jsonschema.exceptions.SchemaError as error:
        return f"its response schema is not valid: {error.message}"
    except reference.Unresolvable as error:
        return f"its response schema refers to {error.ref!r}, which it does not contain"
    except (re.error, RecursionError) as error:
        return f"its response schema cannot be used: {error}"
    if best is None:
        return None
    where = "".join(f"[{part!r}]" for part in best.absolute_path)
    return f"at answer{where}: {best.message}" if where else best.message


# ---------------------------------------------------------------- the map


def wait_id(execution: Execution, wait: WaitRequest) -> str:
    """The public id of a wait of this execution."""
    return activity_id(execution.execution_id, wait.digest)


def open_waits(execution: Execution) -> tuple[WaitRequest, ...]:
    """What is unanswered, in frontier order."""
    frontier = execution.frontier
    if frontier is None:
        return ()
    return tuple(w for place, w in enumerate(frontier.waits) if place not in frontier.answers)


def open_wait_ids(execution: Execution) -> tuple[str, ...]:
    return tuple(wait_id(execution, wait) for wait in open_waits(execution))


def asked_ids(execution: Execution) -> tuple[str, ...]:
    """The open waits that somebody has to answer: all but timers."""
    asked = (wait for wait in open_waits(execution) if wait.kind is not WaitKind.TIMER)
    return tuple(wait_id(execution, wait) for wait in asked)


def place_of(execution: Execution, wait: str) -> int | None:
    """The place of a public wait id in the current frontier, or None."""
    frontier = execution.frontier
    head = f"{execution.execution_id}~"
    if frontier is None or not wait.startswith(head):
        return None
    return frontier.place_of(wait.removeprefix(head))


def stored_answer(
    wait: str, value: object, *, by: str | None, at: int, most: int | None = None
) -> StoredAnswer:
    """One answer in the form that is stored and compared.

    Raises:
        ConfigError: ``by`` is no text.
        InvalidAnswer: the value is not plain JSON, or has more than ``most`` bytes.
    """
    _check_by(by)
    try:
        return _stored(value, by, at, most)
    except NotStorable as error:
        raise refused_answer(wait, f"{error.path}: {error.reason}") from None


def refused_answer(wait: str, problem: str) -> InvalidAnswer:
    """The error of one answer that its wait does not accept."""
    return InvalidAnswer(
        f"answer to wait {wait!r}",
        {wait: problem},
        "Send a value that the wait accepts; nothing was stored.",
    )


def _check_by(by: object) -> None:
    if by is not None and not isinstance(by, str):
        raise ConfigError("by", f"expected text, got {type(by).__name__}")


def _stored(value: object, by: str | None, at: int, most: int | None) -> StoredAnswer:
    payload = encode(plain(value, where="answer"), where="answer", most=most)
    return StoredAnswer(value=payload, digest=digest(payload), by=by, at=at)


MOST_STATE = 16 * 1024
"""Characters of state that may come with answers: renewals rewrite the document that holds them."""


def stored_answers(
    execution_id: str,
    answers: object,
    *,
    by: str | None,
    at: int,
    state: Payload | None = None,
    most: int | None = None,
) -> dict[str, StoredAnswer]:
    """The resume map in the form that is stored and compared, by wait id.

    ``state`` is a payload to set with the answers; ``most`` is how many bytes each may have.

    Raises:
        ConfigError: ``answers`` is no mapping, ``by`` is no text, or there is too much state.
        InvalidAnswer: a wait id is no text, or a value is not plain JSON or too large.
    """
    if not isinstance(answers, Mapping):
        raise ConfigError(
            "answers",
            f"expected a mapping of wait id to value, got {type(answers).__name__}",
            "Send {wait.id: value for each open wait}.",
        )
    _check_by(by)
    if state is not None and len(state) > MOST_STATE:
        raise ConfigError(
            "state_delta",
            f"has {len(state)} characters, and {MOST_STATE} may come with answers",
            "Set it with the next message.",
        )
    problems: dict[str, str] = {}
    stored: dict[str, StoredAnswer] = {}
    for wait, value in answers.items():
        if not isinstance(wait, str):
            problems[repr(wait)] = "is not a wait id"
            continue
        try:
            stored[wait] = replace(_stored(value, by, at, most), state=state)
        except NotStorable as error:
            problems[wait] = f"{error.path}: {error.reason}"
    if problems:
        raise InvalidAnswer(f"answers to execution {execution_id!r}", problems)
    return stored


def missing_answers(
    execution: Execution, frontier: Frontier, given: Mapping[str, StoredAnswer]
) -> dict[int, StoredAnswer]:
    """What a whole resume map adds to a frontier, by place.

    Raises:
        InvalidAnswer: an open wait is missing, an entry is unknown, or a value does not fit; all
            of them are listed.
        AnswerConflict: an answered wait is given another value.
        ConfigError: state comes with an answer about a call in doubt.
    """
    problems: dict[str, str] = {}
    conflicts: dict[str, StoredAnswer] = {}
    added: dict[int, StoredAnswer] = {}
    for wait, answer in given.items():
        place = place_of(execution, wait)
        if place is None:
            problems[wait] = "is not a wait of this frontier"
        elif place in frontier.answers:
            if frontier.answers[place].digest != answer.digest:
                conflicts[wait] = frontier.answers[place]
        elif problem := problem_with(frontier.waits[place], decode(answer.value)):
            problems[wait] = problem
        else:
            added[place] = answer
    for wait in asked_ids(execution):
        if wait not in given:
            problems[wait] = "is missing"
    if problems:
        raise InvalidAnswer(f"answers to execution {execution.execution_id!r}", problems)
    if conflicts:
        raise conflict(conflicts)
    for place, answer in added.items():
        if answer.state is not None and frontier.waits[place].kind is WaitKind.IN_DOUBT:
            raise ConfigError(
                "state_delta",
                "comes with an answer about a call in doubt, which leaves no event to set it",
                "Answer without it; set it with the next message.",
            )
    return added


def conflict(waits: Mapping[str, StoredAnswer]) -> AnswerConflict | WaitClosed:
    """The error of other answers than these, which are stored."""
    expired = [wait for wait, stored in waits.items() if stored.by == BY_EXPIRY]
    if expired:
        return has_expired(expired)
    return AnswerConflict(
        f"wait {', '.join(waits)}",
        "is already answered with another value",
        "An answer is final. The same value again is accepted, and changes nothing.",
    )


def has_expired(waits: Iterable[str]) -> WaitClosed:
    return WaitClosed(
        f"wait {', '.join(waits)}",
        "expired before this answer came",
        "The answer that it carries for that case applies. Nothing of yours was stored; resume()"
        " without it, or a worker, goes on.",
    )


# ---------------------------------------------------------------- the map's schema


def resume_schema(execution: Execution) -> dict[str, object]:
    """The JSON schema of the whole resume map; of the empty map when nothing is open.

    An answered wait may be repeated with its own value; an open one is required.
    """
    frontier = execution.frontier
    properties: dict[str, object] = {}
    if frontier is not None and open_waits(execution):
        for place, wait in enumerate(frontier.waits):
            if wait.kind is WaitKind.TIMER:
                continue
            key = wait_id(execution, wait)
            answer = frontier.answers.get(place)
            if answer is None or wait.kind is WaitKind.CREDENTIAL:  # it is shown to nobody
                properties[key] = _value_schema(wait, key)
            else:
                properties[key] = {"const": decode(answer.value)}
    return {
        "$schema": DIALECT,
        "type": "object",
        "properties": properties,
        "required": list(asked_ids(execution)),
        "additionalProperties": False,
    }


def _value_schema(wait: WaitRequest, key: str) -> object:
    if wait.kind is WaitKind.CREDENTIAL:
        return {"anyOf": list(_KEYS_TOO if _asks_for_key(wait) else _CREDENTIALS)}
    base = _CONFIRMATION if wait.kind is WaitKind.CONFIRMATION else _NOT_NULL
    given = _response_schema(wait)
    if given is None or given is True:
        return dict(base)
    pointer = "#/properties/" + quote(key.replace("~", "~0").replace("/", "~1"), safe="~")
    if base is _NOT_NULL and isinstance(given, dict) and "not" not in given:
        return {**_moved(given, pointer), **base}
    return {"allOf": [base, _moved(given, f"{pointer}/allOf/1")]}


def _moved(schema: Any, pointer: str) -> Any:
    """A schema for use at ``pointer`` of another one: its local references point there."""
    if isinstance(schema, list):
        return [_moved(item, pointer) for item in schema]
    if not isinstance(schema, dict) or "$id" in schema:
        return schema  # under an ``$id``, ``#`` means that schema wherever it stands
    return {key: _moved_keyword(key, value, pointer) for key, value in schema.items()}


def _moved_keyword(key: str, value: Any, pointer: str) -> Any:
    if key == "$ref" and isinstance(value, str) and value.startswith("#"):
        return pointer + value.removeprefix("#")
    if key in _NAMED_SCHEMAS and isinstance(value, dict):
        return {name: _moved(schema, pointer) for name, schema in value.items()}
    return value if key in _LITERAL_KEYWORDS else _moved(value, pointer)
