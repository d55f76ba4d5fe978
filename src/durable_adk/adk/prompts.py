"""A model request in about 60 bytes, such that what differs in another one can be named.

Requests are not stored: history must not grow with its square. What is kept has a part for the
instruction, one for the tools, one for the contents::

    i214:1a2b3c t2:9f03aa c12:4c5d.6e7f
    |           |         '- how many contents, and the newest two
    |           '- how many tools, and each of up to 16, in the order of their names
    '- length of the system instruction in characters

Only the newest contents are read: hashing the whole conversation at each turn would cost its
square.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from itertools import zip_longest
from typing import NamedTuple

from google.adk.models.llm_request import LlmRequest
from google.genai import types

TOOLS_APART = 16
"""Of more tools, one digest for all."""
NEWEST = 2

_TOOL_DIGITS = 3
_DIGEST = re.compile(r"i(\d+):(\S+) t(\d+):(\S+) c(\d+):(\S+)")


class _Parts(NamedTuple):
    length: int
    instruction: str
    tool_count: int
    tools: str
    content_count: int
    contents: list[str]


def digest(request: LlmRequest) -> str:
    """What is asked."""
    instruction = str(request.config.system_instruction or "")
    tools = sorted(request.tools_dict)
    return (
        f"i{len(instruction)}:{_short(instruction, 6)}"
        f" t{len(tools)}:{_tools(tools)}"
        f" c{len(request.contents)}:{_contents(request.contents[-NEWEST:])}"
    )


def difference(recorded: str, request: LlmRequest) -> tuple[str, str] | None:
    """What a recorded request had that this one has not, and the other way round.

    None: the recorded digest is of another form, and says nothing about this request.
    """
    then, now = _parsed(recorded), _parsed(digest(request))
    if then is None or now is None:
        return None
    found: list[tuple[str, str]] = []
    if (then.length, then.instruction) != (now.length, now.instruction):
        found.append((_instruction(then), _instruction(now)))
    if (then.tool_count, then.tools) != (now.tool_count, now.tools):
        found.append(_tools_differ(then, now, sorted(request.tools_dict)))
    if (then.content_count, then.contents) != (now.content_count, now.contents):
        found.append(_contents_differ(then, now, request.contents))
    return " and ".join(one for one, _ in found), " and ".join(other for _, other in found)


def _instruction(parts: _Parts) -> str:
    if not parts.length:
        return "no system instruction"
    return f"a system instruction of {parts.length} characters ({parts.instruction})"


def _tools_differ(then: _Parts, now: _Parts, names: list[str]) -> tuple[str, str]:
    if max(then.tool_count, now.tool_count) > TOOLS_APART:
        return f"{then.tool_count} tools ({then.tools})", f"{now.tool_count} tools ({now.tools})"
    before = Counter(re.findall("." * _TOOL_DIGITS, then.tools))
    added = []
    for name in names:
        mark = _short(name, _TOOL_DIGITS)
        if before[mark]:
            before[mark] -= 1
        else:
            added.append(name)
    gone = before.total() if then.tool_count else 0
    recorded = f"{then.tool_count} tools"
    if gone:
        recorded += f", {gone} of which are gone"
    return recorded, f"{now.tool_count} tools" + (f", new: {', '.join(added)}" if added else "")


def _contents_differ(then: _Parts, now: _Parts, contents: list[types.Content]) -> tuple[str, str]:
    if then.content_count != now.content_count:
        return f"{then.content_count} contents", f"{now.content_count} contents"
    first = now.content_count - len(now.contents)
    for place, (old, new) in enumerate(zip_longest(then.contents, now.contents)):
        if old != new:
            number = first + place
            role = contents[number].role or "unknown"
            which = f"content {number + 1} of {now.content_count}"
            return f"another {which} ({old})", f"{which}, of role {role} ({new})"
    raise AssertionError("the contents do not differ")


def _parsed(text: str) -> _Parts | None:
    match = _DIGEST.fullmatch(text)
    if match is None:
        return None
    length, instruction, tool_count, tools, content_count, contents = match.groups()
    return _Parts(
        int(length), instruction, int(tool_count), tools, int(content_count), contents.split(".")
    )


def _tools(names: list[str]) -> str:
    if len(names) > TOOLS_APART:
        return _short(",".join(names), 6)
    return "".join(_short(name, _TOOL_DIGITS) for name in names) or "-"


def _contents(newest: list[types.Content]) -> str:
    return ".".join(_short(_text_of(content), 4) for content in newest) or "-"


def _text_of(content: types.Content) -> str:
    try:
        return content.model_dump_json(exclude_none=True)
    except ValueError:  # a value without a JSON form, or a lone surrogate
        return repr(content)


def _short(text: str, digits: int) -> str:
    if not text:
        return "-"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
