"""Ids of function calls that a model left without one.

They are derived from where the model call stands and the call's place in it, before anything is
yielded or recorded: the same call has one id in every partial, in the final response, and on
every attempt. A partial does not say which call it belongs to; what ADK's own aggregator takes
for the same call is the same call here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from google.adk.models.llm_response import LlmResponse
from google.genai import types


class Fit(IntEnum):
    """How the arguments of a call continue those seen before."""

    NOT = 0
    GROWN = 1
    SAME = 2


UNKNOWN = object()
"""Arguments that came in pieces (``partial_args``): any may be theirs."""


@dataclass(eq=False, slots=True)
class _Seen:
    """One call of the response, as far as it is known.

    Attributes:
        is_given: The id is the model's.
        is_open: More of it was announced (``will_continue``).
        is_whole: It was in a response that is not partial.
    """

    id: str
    name: str
    args: Any
    is_given: bool
    is_open: bool
    is_whole: bool = False

    def may_be(self, call: types.FunctionCall) -> bool:
        return not (call.id and self.is_given) or call.id == self.id

    def fit(self, call: types.FunctionCall) -> Fit:
        if (call.name or self.name) != self.name:
            return Fit.NOT
        return Fit.GROWN if self.args is UNKNOWN else fit_of(self.args, call.args or {})


class CallIds:
    """The calls of one model call, in the order in which they appear.

    Args:
        derive: Makes the id of the call that appears as the n-th.
    """

    def __init__(self, derive: Callable[[int], str]) -> None:
        self._derive = derive
        self._seen: list[_Seen] = []

    def filled(self, response: LlmResponse) -> LlmResponse:
        """The response with an id for each of its calls; the given one is left as it is, and may be
        what is returned: a whole one that lacks none. A partial one is always a copy."""
        if response.partial:
            copied = response.model_copy(deep=True)
        else:
            copied = _with_own_calls(response)
        self.fill(copied)
        return copied

    def fill(self, response: LlmResponse) -> None:
        """Give an id to each call of the response that has none."""
        parts = (response.content.parts if response.content else None) or ()
        calls = [part.function_call for part in parts if part.function_call]
        if not calls:
            return
        found = self._partial(calls) if response.partial else self._whole(calls)
        for call, seen in zip(calls, found, strict=True):
            if not call.id:
                call.id = seen.id

    # ---------------------------------------------------------------- responses that are whole

    def _whole(self, calls: Sequence[types.FunctionCall]) -> list[_Seen]:
        """The calls seen in partials that no response has had yet, in their order if that fits,
        else the most alike first; the rest are new."""
        pending = list(self._pending())
        in_order = list(zip(pending, calls, strict=False))
        if all(_fits(seen, call) for seen, call in in_order):
            found = {index: seen for index, (seen, _call) in enumerate(in_order)}
        else:
            found = _most_alike(pending, calls)
        result = [found.get(index) or self._new(call) for index, call in enumerate(calls)]
        for seen in result:
            seen.is_whole = True
        return result

    # ---------------------------------------------------------------- partials

    def _partial(self, calls: Sequence[types.FunctionCall]) -> list[_Seen]:
        before = list(self._pending())
        if len(calls) > 1 and 0 < len(before) <= len(calls):
            pairs = list(zip(before, calls, strict=False))
            if all(seen.fit(call) is not Fit.NOT for seen, call in pairs):  # all over again
                for seen, call in pairs:
                    _go_on(seen, call)
                return before + [self._new(call) for call in calls[len(before) :]]
        return [self._one(call) for call in calls]

    def _one(self, call: types.FunctionCall) -> _Seen:
        pending = list(self._pending())
        open_one = next((seen for seen in reversed(pending) if seen.is_open), None)
        if call.id:
            seen = next((seen for seen in pending if seen.id == call.id), None)
        elif open_one is not None and _continues(open_one, call):
            seen = open_one
        else:
            latest = next((seen for seen in reversed(pending) if seen.name == call.name), None)
            seen = latest if latest is not None and _is_more_of(latest, call) else None
        if seen is None:
            for other in pending:
                other.is_open = False  # models send one call after the other
            return self._new(call)
        return _go_on(seen, call)

    def _pending(self) -> Iterable[_Seen]:
        return (seen for seen in self._seen if not seen.is_whole)

    def _new(self, call: types.FunctionCall) -> _Seen:
        args = UNKNOWN if _is_piece(call) and not call.args else call.args or {}
        seen = _Seen(
            id=call.id or self._derive(len(self._seen)),
            name=call.name or "",
            args=args,
            is_given=bool(call.id),
            is_open=bool(call.will_continue),
        )
        self._seen.append(seen)
        return seen


def _with_own_calls(response: LlmResponse) -> LlmResponse:
    """The response, or a copy as deep as the calls in it that have no id."""
    content = response.content
    parts = (content.parts if content else None) or []
    if content is None or not any(_lacks_id(part) for part in parts):
        return response
    own = [
        part.model_copy(update={"function_call": part.function_call.model_copy()})
        if part.function_call and _lacks_id(part)
        else part
        for part in parts
    ]
    return response.model_copy(update={"content": content.model_copy(update={"parts": own})})


def _lacks_id(part: types.Part) -> bool:
    return part.function_call is not None and not part.function_call.id


def _most_alike(pending: list[_Seen], calls: Sequence[types.FunctionCall]) -> dict[int, _Seen]:
    """The call seen for each of the calls, by the latter's index."""
    found: dict[int, _Seen] = {}
    for test in (_has_its_id, _equals, _fits, _has_its_name):
        for index, call in enumerate(calls):
            if index not in found:
                left = (seen for seen in pending if seen not in found.values())
                one = next((seen for seen in left if test(seen, call)), None)
                if one is not None:
                    found[index] = one
    return found


def _has_its_id(seen: _Seen, call: types.FunctionCall) -> bool:
    return bool(call.id) and seen.id == call.id


def _equals(seen: _Seen, call: types.FunctionCall) -> bool:
    return seen.may_be(call) and seen.fit(call) is Fit.SAME


def _fits(seen: _Seen, call: types.FunctionCall) -> bool:
    return seen.may_be(call) and seen.fit(call) is not Fit.NOT


def _has_its_name(seen: _Seen, call: types.FunctionCall) -> bool:
    return seen.may_be(call) and seen.name == call.name


def _is_piece(call: types.FunctionCall) -> bool:
    """Whether it says itself that it is a piece of a call."""
    return bool(call.partial_args) or call.will_continue is not None


def _continues(seen: _Seen, call: types.FunctionCall) -> bool:
    if (call.name or seen.name) != seen.name:
        return False
    return not call.args or seen.fit(call) is not Fit.NOT


def _is_more_of(seen: _Seen, call: types.FunctionCall) -> bool:
    """Of a call that did not announce more: an equal one is a second call."""
    return not _is_piece(call) and seen.args is not UNKNOWN and seen.fit(call) is Fit.GROWN


def _go_on(seen: _Seen, call: types.FunctionCall) -> _Seen:
    seen.is_open = bool(call.will_continue)
    seen.name = seen.name or call.name or ""
    if call.args and not call.partial_args:
        seen.args = call.args
    return seen


def fit_of(old: Any, new: Any) -> Fit:
    """Whether ``new`` is ``old``, or what it becomes when more of its JSON text has come: only the
    end of a text grows, so only the last entry may differ, and a number does not grow."""
    if old == new and type(old) is type(new):
        return Fit.SAME
    if old is None:
        return Fit.GROWN
    if isinstance(old, str) and isinstance(new, str):
        return Fit.GROWN if new.startswith(old) else Fit.NOT
    if isinstance(old, dict) and isinstance(new, dict):
        if list(new)[: len(old)] != list(old):
            return Fit.NOT
        return _entries(list(old.values()), list(new.values()))
    if isinstance(old, list) and isinstance(new, list):
        return _entries(old, new)
    return Fit.NOT


def _entries(old: list[Any], new: list[Any]) -> Fit:
    if len(old) > len(new) or old[:-1] != new[: max(len(old) - 1, 0)]:
        return Fit.NOT
    if not old or old[-1] == new[len(old) - 1]:
        return Fit.GROWN
    return fit_of(old[-1], new[len(old) - 1])
