"""Modules that are loaded at the first use of an App, not when the package is imported.

``from durable_adk import App`` costs what ADK's runner and PyMongo cost. What needs more of ADK,
or a driver, is named here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from durable_adk.model.identity import Tenant

if TYPE_CHECKING:
    from durable_adk.adk.adapter import Adapter


def make_adapter(root: object, **parts: Any) -> Adapter:
    """The program around a root; ``parts`` are the keywords of ``Adapter``."""
    adapter: Adapter = import_module("durable_adk.adk.adapter").Adapter(root, **parts)
    return adapter


def toolsets_opened(user: object, root: object, plugins: Sequence[Any]) -> None:
    """An App runs this root with these plugins from now on."""
    import_module("durable_adk.adk.open_toolsets").opened(user, root, plugins)


async def toolsets_closed(user: object) -> None:
    """An App is done with its root: the toolsets are closed, but for those of other open Apps."""
    await import_module("durable_adk.adk.open_toolsets").closed(user)


async def plugins_closed(plugins: Sequence[Any]) -> None:
    """An App is closed: its plugins are, but for those of other open Apps."""
    await import_module("durable_adk.adk.open_toolsets").plugins_closed(plugins)


def artifacts_of_app(service: Any, opened: Callable[[], Awaitable[Any]], tenant: Tenant) -> Any:
    """The artifact service of an App; see ``app.artifacts``. None stays None."""
    if service is None:
        return None
    return import_module("durable_adk.app.artifacts").artifacts_of_app(service, opened, tenant)


def make_llm(name: str) -> Any:
    """The model that ADK knows under a name."""
    return import_module("durable_adk.adk.llm").make_llm(name)
