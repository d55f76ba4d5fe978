"""What ``durable_tool`` put on functions and tools, and where a ``reconcile`` callback is found.

A callback is asked before ADK starts, so it has to be found without running anything: by the name
of a tool of the App, on what the topology shows, or on a function that a module has under its own
name (one that ``step()`` records).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from google.adk.workflow import BaseNode

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

    def of(self, name: str, *marked: object) -> tuple[UnknownOutcome, str | None]:
        """The policy; and where the marked function is if there is a ``reconcile`` callback for it,
        which is empty where the name alone finds it (None: there is no callback)."""
        found = (getattr(one, POLICY_MARK, None) for one in marked)
        marks = (mark for mark in found if isinstance(mark, UnknownOutcome))
        policy = self.outcomes.get(name) or next(marks, UnknownOutcome.RERUN)
        if name in self.reconcilers:
            return policy, ""
        with_callback = (one for one in marked if getattr(one, RECONCILE_MARK, None) is not None)
        return policy, next(map(place_of, with_callback), None)

    def reconciler(self, root: BaseNode, intent: Record) -> Reconcile | None:
        """The callback for a call that an intent is of; None if the code has none that is found."""
        named = self.reconcilers.get(intent.name)
        if named is not None:
            return named
        marked = Terms.of(intent.body).marked
        found = [one for name, one in _marked_in(root) if name == intent.name]
        if not found and marked:
            found = [one for one in (_imported(marked),) if one is not None]
        found.sort(key=lambda one: place_of(one) != marked)  # of two of a name, the very one
        callback: Reconcile | None = getattr(found[0], RECONCILE_MARK) if found else None
        return callback


def place_of(marked: object) -> str:
    """Where a function is defined; empty for what has no such place."""
    module = getattr(marked, "__module__", None)
    name = getattr(marked, "__qualname__", None)
    return f"{module}:{name}" if module and name else ""


def _marked_in(root: BaseNode) -> Iterator[tuple[str, object]]:
    """Everything with a callback that the topology shows, by the name that its intent has."""
    return (
        (name, one)
        for name, one in _shown_in(root)
        if getattr(one, RECONCILE_MARK, None) is not None
    )


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
    return found if getattr(found, RECONCILE_MARK, None) is not None else None
