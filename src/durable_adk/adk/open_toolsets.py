"""Which open App uses a toolset: the last one that closes closes it, as ADK's runner does.

A toolset that several agents share, of one App or of several in this process, is closed once, when
nobody that is open has it any more. Toolsets of agents that are made at run time are in no topology
and stay with whoever made them. Plugins are closed by the same rule, by ADK's plugin manager.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

from google.adk.apps import App as AdkApp
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.plugins.plugin_manager import PluginManager
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import BaseNode

from durable_adk.adk import tree

logger = logging.getLogger("durable_adk.adk")

CLOSING_S = 10.0
"""For how long one toolset may close; ADK's runner waits as long."""

_open: WeakKeyDictionary[object, list[BaseToolset]] = WeakKeyDictionary()
_plugins: WeakKeyDictionary[object, list[BasePlugin]] = WeakKeyDictionary()
_lock = threading.Lock()  # Apps may be open on several loops


def opened(user: object, root: object, plugins: Sequence[BasePlugin] = ()) -> None:
    """Somebody runs this root with these plugins from now on."""
    found = list(_of(root))
    with _lock:
        _open[user] = found
        _plugins[user] = list(plugins)


async def closed(user: object) -> None:
    """Somebody is done with its root: close the toolsets that nobody else has open, each once.

    What a toolset raises is logged: the others are closed all the same.
    """
    with _lock:
        own = _open.pop(user, [])
        _plugins.pop(user, None)
        others = {id(toolset) for toolsets in _open.values() for toolset in toolsets}
    for toolset in own:
        if id(toolset) not in others:
            await _close(toolset)


async def plugins_closed(plugins: Sequence[BasePlugin]) -> None:
    """Close the plugins that nobody has open, each once, as ADK's runner does.

    Raises:
        RuntimeError: some failed to close; the others are closed.
    """
    manager = PluginManager()
    with _lock:
        others = {id(plugin) for of_one in _plugins.values() for plugin in of_one}
        own = {id(plugin): plugin for plugin in plugins if id(plugin) not in others}
    manager.plugins = list(own.values())
    await manager.close()


async def _close(toolset: BaseToolset) -> None:
    name = type(toolset).__name__
    try:
        await asyncio.wait_for(toolset.close(), CLOSING_S)
    except TimeoutError:
        logger.warning("toolset %s did not close within %s s", name, CLOSING_S)
    except Exception:  # whatever a transport raises
        logger.warning("toolset %s failed to close", name, exc_info=True)


def _of(root: object) -> Iterator[BaseToolset]:
    node = root.root_agent if isinstance(root, AdkApp) else root
    assert isinstance(node, BaseNode)  # the App has checked it
    seen: set[int] = set()
    for one in tree.walk(node):
        for tool in getattr(one, "tools", None) or ():
            if isinstance(tool, BaseToolset) and id(tool) not in seen:
                seen.add(id(tool))
                yield tool
