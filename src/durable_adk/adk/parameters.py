"""How the arguments of a call fit the parameters of the tool that it is of."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool

from durable_adk.adk import _seam
from durable_adk.errors import NotStorable
from durable_adk.model import codec
from durable_adk.model.activity import Record
from durable_adk.model.doubt import Terms


class Callee(Protocol):
    """A tool, or what stands for one: its ``func`` is looked at if it has one."""

    @property
    def name(self) -> str: ...


SinceEntered = Callable[[Record], tuple[str, str] | None]
"""``Call.since_entered``."""


class Fit(NamedTuple):
    """How a call and a tool fit each other, as far as one can see.

    Attributes:
        fits: The tool has parameters of all the names that it is called with.
        lacks: What it needs and is not called with: ADK answers such a call with an error. None:
            that was not looked at when the call was shown.
        unknown: What it is called with and does not get. None: as for ``lacks``.
    """

    fits: bool
    lacks: tuple[str, ...] | None = ()
    unknown: tuple[str, ...] | None = ()

    def is_worse_than(self, shown: Fit) -> bool:
        """Whether a call that ran, or would have, as it was shown does not any more."""
        return (shown.fits and not self.fits) or bool(self.lost(shown) or self.new_needs(shown))

    def told(self) -> dict[str, Any]:
        """As an intent holds it."""
        return {
            "fits": self.fits,
            "lacks": list(self.lacks or ()),
            "unknown": list(self.unknown or ()),
        }

    @classmethod
    def from_told(cls, told: Mapping[str, Any]) -> Fit:
        """From what an intent or a wait holds, of whatever version."""
        lacks, unknown = told.get("lacks"), told.get("unknown")
        return cls(
            told["fits"],
            None if lacks is None else tuple(lacks),
            None if unknown is None else tuple(unknown),
        )

    def lost(self, shown: Fit) -> list[str]:
        """What it does not get now, and did when the call was shown."""
        then = shown.unknown
        return [] if then is None else [name for name in self.unknown or () if name not in then]

    def new_needs(self, shown: Fit) -> list[str]:
        """What is needed now and was not when the call was shown."""
        then = shown.lacks
        return [] if then is None else [name for name in self.lacks or () if name not in then]


def fit_of(tool: Callee, args: Mapping[str, Any]) -> Fit:
    """How a tool, as it is now, takes these arguments."""
    needs = _seam.needs(tool) if isinstance(tool, FunctionTool) else ()
    lacks = tuple(name for name in needs if name not in args)
    fits = takes(tool, args)
    # ADK hands over what there are parameters for by name, also where there is one for all others.
    is_lost = not fits or (type(tool) in _PLAIN and _parameters(tool) is not None)
    unknown = tuple(sorted(set(args) - set(names_of(tool)))) if is_lost else ()
    return Fit(fits, lacks, unknown)


_PLAIN = (FunctionTool, LongRunningFunctionTool)


def takes(tool: Callee, args: Mapping[str, Any]) -> bool:
    """Whether the tool's function has parameters of these names, as far as one can see: a function
    without any takes no arguments, a tool without a function that can be looked at takes all."""
    parameters = _parameters(tool)
    if parameters is None or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return True
    return set(args) <= set(parameters)


def names_of(tool: Callee) -> list[str]:
    """Names of the parameters of a tool's function; none where one cannot see them."""
    return [name for name in _parameters(tool) or () if name != "tool_context"]


def _parameters(tool: Callee) -> Mapping[str, inspect.Parameter] | None:
    """Of a tool's function; None where one cannot see them."""
    func = getattr(tool, "func", None)
    try:
        return None if func is None else inspect.signature(func).parameters
    except (TypeError, ValueError):
        return None


def copied(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call as they are now: the tool may change them.

    Raises:
        NotStorable: a callback put something among them that no record can hold.
    """
    try:
        return copy.deepcopy(dict(args))
    except Exception as error:  # whatever a class of the user's own raises
        where = f"{name} arguments"
        codec.digest_of([name, args], where=where)  # which says what it is, and where
        raise NotStorable(where, f"cannot be copied: {error}") from error


def since_entered(tool: Callee, now: Fit, text: str) -> SinceEntered:
    """Compares a call with the intent that its body was entered with before: what that was and what
    would run now, for people; None if it runs as it did. ``text``: the call, for people."""

    def differs(intent: Record) -> tuple[str, str] | None:
        told = Terms.of(intent.body).fit
        if told is None:  # of before it was looked at
            return None
        then = Fit.from_told(told)
        if not now.is_worse_than(then):
            return None
        return f"entered {text}", misfit(tool.name, then, now)

    return differs


def unlike(shown: str, asked: str) -> str:
    """What is asked, for people, so that it can be told from what was ``shown``."""
    return f"{asked}, which differs in what is not shown" if asked == shown else asked


def misfit(name: str, shown: Fit, now: Fit) -> str:
    """Why the tool of this name cannot run with the arguments that were shown, for people."""
    if lost := now.lost(shown) or (shown.fits and not now.fits and now.unknown):
        return f"{name} without {', '.join(lost)}"
    return f"{name}, which needs {', '.join(now.new_needs(shown))}"
