"""How the arguments of a call fit the parameters of the tool that it is of."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.function_tool import FunctionTool

from durable_adk.adk import _seam


class Fit(NamedTuple):
    """How a call and a tool fit each other, as far as one can see.

    Attributes:
        fits: The tool has parameters of all the names that it is called with.
        lacks: What it needs and is not called with: ADK answers such a call with an error. None:
            that was not looked at when the call was shown.
        strange: Names that it is called with and has no parameters of; for texts.
    """

    fits: bool
    lacks: tuple[str, ...] | None = ()
    strange: tuple[str, ...] = ()

    def is_worse_than(self, shown: Fit) -> bool:
        """Whether a call that ran, or would have, as it was shown does not any more."""
        return (shown.fits and not self.fits) or bool(self.new_needs(shown))

    def new_needs(self, shown: Fit) -> list[str]:
        """What is needed now and was not when the call was shown."""
        then = shown.lacks
        return [] if then is None else [name for name in self.lacks or () if name not in then]


def fit_of(tool: BaseTool, args: Mapping[str, Any]) -> Fit:
    """How a tool, as it is now, takes these arguments."""
    needs = _seam.needs(tool) if isinstance(tool, FunctionTool) else ()
    fits, lacks = takes(tool, args), tuple(name for name in needs if name not in args)
    strange = () if fits else tuple(sorted(set(args) - set(names_of(tool))))
    return Fit(fits, lacks, strange)


def takes(tool: BaseTool, args: Mapping[str, Any]) -> bool:
    """Whether the tool's function has parameters of these names, as far as one can see."""
    func = getattr(tool, "func", None)
    try:
        parameters = inspect.signature(func).parameters if func is not None else {}
    except (TypeError, ValueError):
        return True
    if not parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return True
    return set(args) <= set(parameters)


def names_of(tool: BaseTool) -> list[str]:
    """Names of the parameters of a tool's function; none where one cannot see them."""
    func = getattr(tool, "func", None)
    try:
        parameters = inspect.signature(func).parameters if func is not None else {}
    except (TypeError, ValueError):
        return []
    return [name for name in parameters if name != "tool_context"]


def unlike(shown: str, asked: str) -> str:
    """What is asked, for people, so that it can be told from what was ``shown``."""
    return f"{asked}, which differs in what is not shown" if asked == shown else asked


def misfit(name: str, shown: Fit, now: Fit) -> str:
    """Why a tool cannot run with the arguments that were shown, for people."""
    if shown.fits and not now.fits:
        return f"{name} without {', '.join(now.strange)}"
    return f"{name}, which needs {', '.join(now.new_needs(shown))}"
