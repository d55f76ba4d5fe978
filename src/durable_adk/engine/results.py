"""The result of an execution, as a replay compares and shows it.

The output has to be equal. The response is the text that came last, and which one of parallel
branches comes last is an order: an orchestrator that is recorded whole is handed out at its end,
with all that it ran. So it has to be among the texts that came, on either side.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from typing import Any

from durable_adk.errors import ReplayMismatch
from durable_adk.model import codec
from durable_adk.model.activity import Payload
from durable_adk.model.redaction import REDACTED


def check_result(
    step: int,
    recorded: Payload,
    asked: Payload,
    *,
    texts: Callable[[], tuple[Set[str], Set[str]]],
    redact: Set[str],
) -> None:
    """Refuse another result than the recorded one.

    Args:
        step: The last one.
        recorded: As ``Quiet.result``.
        asked: The same as it is now.
        texts: Gives what may be the response, if it comes last: as recorded, and now.
        redact: Names of fields whose values are not shown.

    Raises:
        ReplayMismatch: with both.
    """
    if codec.digest(recorded) == codec.digest(asked):
        return
    then, now = json.loads(recorded), json.loads(asked)
    if _is_same(then["output"], now["output"]):
        before, after = texts()
        if then["response"] in after and now["response"] in before:
            return
    shown, shows = _shown(then, redact), _shown(now, redact)
    if shown == shows:
        shows += ", which differs in what is not shown"
    raise ReplayMismatch(
        f"the end of step {step}", recorded=f"the result {shown}", asked=f"the result {shows}"
    )


def _is_same(then: Any, now: Any) -> bool:
    return codec.digest(json.dumps(then)) == codec.digest(json.dumps(now))


def _shown(result: Any, names: Set[str]) -> str:
    return json.dumps(_hidden(result, names), ensure_ascii=False, separators=(",", ":"))


def _hidden(structure: Any, names: Set[str]) -> Any:
    """A recorded structure without the values of fields with these names, in JSON texts too: what
    an agent with an output schema answers is one."""
    if not names:
        return structure
    if isinstance(structure, str):
        return _hidden_in_text(structure, names)
    if isinstance(structure, list):
        if len(structure) == 2 and isinstance(structure[0], str) and structure[0] in names:
            return [structure[0], REDACTED]  # a dict with other keys than texts is made of pairs
        return [_hidden(item, names) for item in structure]
    if isinstance(structure, dict):
        return {
            key: REDACTED if key in names else _hidden(item, names)
            for key, item in structure.items()
        }
    return structure


def _hidden_in_text(text: str, names: Set[str]) -> str:
    try:
        structure = json.loads(text)
    except (ValueError, RecursionError):
        return text
    hidden = _hidden(structure, names)
    return text if hidden == structure else json.dumps(hidden, ensure_ascii=False)
