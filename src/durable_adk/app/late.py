"""Modules that are loaded at the first use of an App, not when the package is imported.

``from durable_adk import App`` costs what ADK's runner and PyMongo cost. What needs more of ADK,
or a driver, is named here and nowhere else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from durable_adk.adk.adapter import Adapter


def make_adapter(root: object, **parts: Any) -> Adapter:
    """The program around a root; ``parts`` are the keywords of ``Adapter``."""
    adapter: Adapter = import_module("durable_adk.adk.adapter").Adapter(root, **parts)
    return adapter


def make_llm(name: str) -> Any:
    """The model that ADK knows under a name."""
    return import_module("durable_adk.adk.llm").make_llm(name)
