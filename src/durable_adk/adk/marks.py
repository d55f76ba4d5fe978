"""What ``durable_tool`` put on functions and tools, and where a ``reconcile`` callback is found.

A callback is asked before ADK starts, so it has to be found without running anything: by the name
of a tool of the App, on what the topology shows, on a function that a module has under its own
name (one that ``step()`` records), or on one that the app's functions hold.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType, ModuleType
from typing import Any

from google.adk.workflow import BaseNode
from pydantic import BaseModel

from durable_adk.adk import _seam, tree
from durable_adk.model.activity import POLICY_MARK, Record, UnknownOutcome
from durable_adk.model.doubt import RECONCILE_MARK, Doubt, Terms

Reconcile = Callable[[Doubt], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """What an App and its configuration say by tool name; it comes before a mark.

    Attributes:
        outcomes: ``on_unknown_outcome`` by tool name.
        reconcilers: ``reconcile`` by tool name.
    """

    outcomes: Mapping[str, UnknownOutcome] = field(default_factory=dict)
    reconcilers: Mapping[str, Reconcile] = field(default_factory=dict)

    def of(self, name: str, *marked: object) -> tuple[UnknownOutcome, Reconcile | None, str]:
        """The policy; the ``reconcile`` callback, if there is one; and where its marked function
        is, which is empty where the name alone finds it."""
        found = (getattr(one, POLICY_MARK, None) for one in marked)
        marks = (mark for mark in found if isinstance(mark, UnknownOutcome))
        policy = self.outcomes.get(name) or next(marks, UnknownOutcome.RERUN)
        if name in self.reconcilers:
            return policy, self.reconcilers[name], ""
        one = next(filter(_has_callback, marked), None)
        return policy, getattr(one, RECONCILE_MARK, None), place_of(one) if one is not None else ""

    def reconciler(self, root: BaseNode, intent: Record) -> Reconcile | None:
        """The callback for a call that an intent is of; None if the code has none that is found."""
        named = self.reconcilers.get(intent.name)
        if named is not None:
            return named
        marked = Terms.of(intent.body).marked
        found = [one for name, one in _marked_in(root) if name == intent.name]
        if not found and marked:
            found = [one for one in (_imported(marked),) if one is not None] or _held_in(
                root, marked
            )
        found.sort(key=lambda one: place_of(one) != marked)  # of two of a name, the very one
        callback: Reconcile | None = getattr(found[0], RECONCILE_MARK) if found else None
        return callback


def positional_of(function: Any) -> list[str]:
    """Names of the parameters that take arguments by place, ``*`` before that of the rest; none
    where one cannot see them."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    marks = {
        inspect.Parameter.POSITIONAL_ONLY: "",
        inspect.Parameter.POSITIONAL_OR_KEYWORD: "",
        inspect.Parameter.VAR_POSITIONAL: "*",
    }
    return [f"{marks[one.kind]}{one.name}" for one in parameters if one.kind in marks]


def place_of(marked: object) -> str:
    """Where a function is defined; empty for what has no such place."""
    module = getattr(marked, "__module__", None)
    name = getattr(marked, "__qualname__", None)
    return f"{module}:{name}" if module and name else ""


def _has_callback(one: object) -> bool:
    return getattr(one, RECONCILE_MARK, None) is not None


def _marked_in(root: BaseNode) -> Iterator[tuple[str, object]]:
    """Everything with a callback that the topology shows, by the name that its intent has."""
    return ((name, one) for name, one in _shown_in(root) if _has_callback(one))


def _shown_in(root: BaseNode) -> Iterator[tuple[str, object]]:
    for node in tree.walk(root):
        for tool in getattr(node, "tools", None) or ():
            name = str(getattr(tool, "name", None) or getattr(tool, "__name__", ""))
            yield name, tool
            yield name, getattr(tool, "func", None)
        yield node.name, node
        yield node.name, _seam.function_of(node)
        node_tool = _seam.tool_of(node)
        yield node.name, node_tool
        yield node.name, getattr(node_tool, "func", None)
        executor = getattr(node, "code_executor", None)
        yield type(executor).__name__, executor


def _imported(place: str) -> object:
    """A marked function of a module that is loaded; None if there is none of that name."""
    module, _, name = place.partition(":")
    found = functools.reduce(
        lambda one, part: getattr(one, part, None), name.split("."), sys.modules.get(module)
    )
    return found if _has_callback(found) else None


MOST_HELD = 10_000
"""How many things a search through what code holds looks at."""


def _held_in(root: BaseNode, place: str) -> list[object]:
    """The marked function of a place that the app's own functions hold: in closures, defaults,
    attributes of objects, lists and dicts. The nearest; none of two that are equally near: whose
    callback would know is not known."""
    level: list[object] = list(tree.walk(root))
    seen: dict[int, object] = {}
    while level and len(seen) < MOST_HELD:
        new = {id(one): one for one in level if id(one) not in seen}
        seen |= new  # kept: an id that is free again would be another thing's
        found = [one for one in new.values() if _is_at(place, one)]
        if found:
            return found if len(found) == 1 else []
        level = [held for one in new.values() for held in _held_by(one)]
    return []


def _is_at(place: str, one: object) -> bool:
    # Not by getattr: what code holds may be anything, and make attributes of any name.
    return RECONCILE_MARK in getattr(one, "__dict__", ()) and (
        _has_callback(one) and place_of(one) == place
    )


def _held_by(one: object) -> Iterator[object]:
    if isinstance(one, list | tuple | set | frozenset):
        yield from one
    elif isinstance(one, dict):
        yield from one.values()
    elif isinstance(one, functools.partial):
        yield from (one.func, *one.args, *one.keywords.values())
    elif isinstance(one, MethodType):
        yield from (one.__func__, one.__self__)
    elif isinstance(one, FunctionType):
        for cell in one.__closure__ or ():
            with contextlib.suppress(ValueError):  # nothing is in it yet
                yield cell.cell_contents
        yield from (*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values())
        yield one.__dict__.get("__wrapped__")
    elif not isinstance(one, type | ModuleType):
        yield from dict(getattr(one, "__dict__", None) or {}).values()
        yield getattr(one, "__pydantic_private__", None) if isinstance(one, BaseModel) else None
