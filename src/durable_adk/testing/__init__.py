"""For tests of programs that use this package: a MongoDB in memory, a clock, faults, a model.

``App("test", root_agent=agent, config={...}, mongodb=memory_client(), clock=ManualClock())``
runs a durable agent without a server. What needs ADK is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from durable_adk.model.store_results import Write
from durable_adk.store.clock import ManualClock, ServerClock
from durable_adk.store.memory import memory_client
from durable_adk.testing.faults import FaultPlan, Held

if TYPE_CHECKING:
    from durable_adk.adk.scripted_model import ScriptedModel as ScriptedModel
    from durable_adk.adk.scripted_model import calls as calls
    from durable_adk.adk.scripted_model import says as says

__all__ = [
    "FaultPlan",
    "Held",
    "ManualClock",
    "ScriptedModel",
    "ServerClock",
    "Write",
    "calls",
    "memory_client",
    "says",
]

_OF_ADK = frozenset({"ScriptedModel", "calls", "says"})


def __getattr__(name: str) -> object:
    """Load a name that needs ADK, once."""
    if name not in _OF_ADK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module("durable_adk.adk.scripted_model")
    value = globals()[name] = getattr(module, name)
    return value
