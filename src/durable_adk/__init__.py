"""Durable execution for Google ADK agents and workflows, on your own MongoDB.

Names are loaded when they are first used: the parts that need no ADK stay free of it.
"""

from __future__ import annotations

import importlib
import typing

if typing.TYPE_CHECKING:
    from durable_adk.adk.expiring import expiring as expiring
    from durable_adk.adk.recorded import current_activity_id as current_activity_id
    from durable_adk.adk.recorded import current_fencing_token as current_fencing_token
    from durable_adk.adk.recorded import now as now
    from durable_adk.adk.recorded import random as random
    from durable_adk.adk.recorded import step as step
    from durable_adk.adk.recorded import uuid4 as uuid4
    from durable_adk.adk.timers import sleep as sleep
    from durable_adk.app.app import App as App
    from durable_adk.app.artifacts import MongoArtifactService as MongoArtifactService
    from durable_adk.app.outcome import AnswerReceipt as AnswerReceipt
    from durable_adk.app.outcome import ErrorInfo as ErrorInfo
    from durable_adk.app.outcome import ExecutionRecord as ExecutionRecord
    from durable_adk.app.outcome import Outcome as Outcome
    from durable_adk.app.outcome import Page as Page
    from durable_adk.app.outcome import Pruned as Pruned
    from durable_adk.app.outcome import SessionFork as SessionFork
    from durable_adk.app.outcome import SessionImport as SessionImport
    from durable_adk.app.outcome import SessionInfo as SessionInfo
    from durable_adk.app.outcome import SessionNode as SessionNode
    from durable_adk.app.outcome import StreamEvent as StreamEvent
    from durable_adk.app.outcome import ToolCall as ToolCall
    from durable_adk.app.outcome import Wait as Wait
    from durable_adk.app.replay import ReplayDifference as ReplayDifference
    from durable_adk.app.replay import ReplayReport as ReplayReport
    from durable_adk.app.runner import DurableRunner as DurableRunner
    from durable_adk.app.session_source import DurableSessionService as DurableSessionService
    from durable_adk.app.tools import durable_tool as durable_tool
    from durable_adk.errors import AnswerConflict as AnswerConflict
    from durable_adk.errors import ConfigError as ConfigError
    from durable_adk.errors import CorruptHistory as CorruptHistory
    from durable_adk.errors import DurabilityDisabled as DurabilityDisabled
    from durable_adk.errors import DurableError as DurableError
    from durable_adk.errors import ExecutionFailed as ExecutionFailed
    from durable_adk.errors import InputConflict as InputConflict
    from durable_adk.errors import InvalidAnswer as InvalidAnswer
    from durable_adk.errors import LeaseLost as LeaseLost
    from durable_adk.errors import NotFound as NotFound
    from durable_adk.errors import NotStorable as NotStorable
    from durable_adk.errors import OutcomeUnknown as OutcomeUnknown
    from durable_adk.errors import ReplayMismatch as ReplayMismatch
    from durable_adk.errors import SessionBusy as SessionBusy
    from durable_adk.errors import Unavailable as Unavailable
    from durable_adk.errors import UnsupportedNode as UnsupportedNode
    from durable_adk.errors import WaitClosed as WaitClosed
    from durable_adk.errors import WriteUnknown as WriteUnknown
    from durable_adk.model.activity import ActivityInfo as ActivityInfo
    from durable_adk.model.doubt import Doubt as Doubt

__version__ = "0.1.0"

__all__ = [
    "ActivityInfo",
    "AnswerConflict",
    "AnswerReceipt",
    "App",
    "ConfigError",
    "CorruptHistory",
    "Doubt",
    "DurabilityDisabled",
    "DurableError",
    "DurableRunner",
    "DurableSessionService",
    "ErrorInfo",
    "ExecutionFailed",
    "ExecutionRecord",
    "InputConflict",
    "InvalidAnswer",
    "KeyMissing",
    "LeaseLost",
    "MongoArtifactService",
    "NotFound",
    "NotStorable",
    "Outcome",
    "OutcomeUnknown",
    "Page",
    "Pruned",
    "ReplayDifference",
    "ReplayMismatch",
    "ReplayReport",
    "SessionBusy",
    "SessionFork",
    "SessionImport",
    "SessionInfo",
    "SessionNode",
    "StreamEvent",
    "ToolCall",
    "Unavailable",
    "UnsupportedNode",
    "Wait",
    "WaitClosed",
    "WriteUnknown",
    "current_activity_id",
    "current_fencing_token",
    "durable_tool",
    "expiring",
    "now",
    "random",
    "sleep",
    "step",
    "uuid4",
]

_MODULES = {
    "adk.expiring": "expiring",
    "adk.timers": "sleep",
    "adk.recorded": "current_activity_id current_fencing_token now random step uuid4",
    "app.app": "App",
    "app.artifacts": "MongoArtifactService",
    "app.outcome": (
        "AnswerReceipt ErrorInfo ExecutionRecord Outcome Page Pruned SessionFork SessionImport"
        " SessionInfo SessionNode StreamEvent ToolCall Wait"
    ),
    "app.replay": "ReplayDifference ReplayReport",
    "app.runner": "DurableRunner",
    "app.session_source": "DurableSessionService",
    "app.tools": "durable_tool",
    "errors": (
        "AnswerConflict ConfigError CorruptHistory DurabilityDisabled DurableError ExecutionFailed"
        " InputConflict InvalidAnswer KeyMissing LeaseLost NotFound NotStorable OutcomeUnknown"
        " ReplayMismatch SessionBusy Unavailable UnsupportedNode WaitClosed WriteUnknown"
    ),
    "model.activity": "ActivityInfo",
    "model.doubt": "Doubt",
}
_WHERE = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Load a public name, once."""
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
