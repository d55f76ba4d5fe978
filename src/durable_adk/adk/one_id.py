"""Questions that one run of a node asks under one id: ADK has one answer for all of them."""

from __future__ import annotations

from google.adk.events import Event
from google.genai import types

from durable_adk.adk.stage import Stage


class AskedHere:
    """What one run of a node has asked so far. One that is tried again asks anew."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._calls: dict[tuple[str | None, str], types.FunctionCall] = {}

    def note(self, key: tuple[str | None, str], call: types.FunctionCall, event: Event) -> None:
        """The same question again is one; another one would take the place of the first, which
        nobody would see (``waits.open_waits`` refuses it).

        The key is that of ``Stage.asked_by``.
        """
        if event.partial or call.id not in (event.long_running_tool_ids or ()):
            return
        first = self._calls.setdefault(key, call)
        if first is call:
            self._stage.asked_two.discard(key)
        elif (first.name, first.args) != (call.name, call.args):
            self._stage.asked_two.add(key)
