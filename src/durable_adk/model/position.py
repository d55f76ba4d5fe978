"""Where an activity sits in an execution.

A position is the identity that replay matches on. The same code reaching the same
place gets the same position on every attempt, whatever order its siblings finish in.

Operation paths are text::

    agent#1/inner#1/review#2      node runs, the root is always called ``agent``
    agent#1/seq~1                 an agent that is not run as a node
    agent#1/:m3.0                 the call at place 0 of model call 3 of the step
    agent#1/:m3.0/st#1            a node run inside that tool call
    agent#1/:m3.0.s1/st#1         the same in a later step: step 1 had asked for the call

Positions are values: nothing here touches MongoDB, a clock, or ADK. ADK's own path
text (``outer@1/review@1``) is read in ``adk/paths.py`` and nowhere else.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Self

from durable_adk.errors import CorruptHistory
from durable_adk.model.activity import Kind

ROOT = "agent"

_RESERVED = str.maketrans({c: f"%{ord(c):02X}" for c in "%/#~:|"})


def escape(name: str) -> str:
    """Percent-encode the characters that shape an operation path."""
    return name.translate(_RESERVED)


def node_segment(name: str, run: str) -> str:
    """A node run: ``run`` is ADK's run id, or a task's call id in its place."""
    return f"{escape(name)}#{escape(run)}"


def agent_segment(name: str, ordinal: int) -> str:
    """An agent that is not run as a node."""
    return f"{escape(name)}~{ordinal}"


def call_segment(model_ordinal: int, index: int) -> str:
    """The call at place ``index`` (from 0) of model call ``model_ordinal`` (from 1)."""
    return f":m{model_ordinal}.{index}"


def known_later(path: str, step: int) -> str:
    """The path as later steps know it: the calls that this step asked for carry its number.

    Calls are counted anew in each step, so without it the call at place 0 of the first model call
    would be the same in every step.
    """
    return re.sub(r"(:m\d+\.\d+)(?=/|$)", rf"\1.s{step}", path)


def known_in(path: str, step: int) -> str:
    """Undo ``known_later``: the path as that step knew it."""
    return re.sub(rf"(:m\d+\.\d+)\.s{step}(?=/|$)", r"\1", path)


def join(parent: str, segment: str) -> str:
    return f"{parent}/{segment}" if parent else segment


def parent_of(path: str) -> str:
    """The path one segment up; empty for a root."""
    return path.rpartition("/")[0]


def is_under(path: str, ancestor: str) -> bool:
    """Whether ``path`` is ``ancestor`` or lies below it."""
    return path == ancestor or path.startswith(ancestor + "/")


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The identity of one activity within an execution.

    Attributes:
        step: Counts from 1.
        path: Operation path.
        entry: The k-th time the path was entered in this step, from 1.
        kind: What is recorded there.
        ordinal: Counts from 1 per step, path, entry and kind; model calls 1, 2, 3.
        label: Only for ``step()`` calls: their name; else empty.
    """

    step: int
    path: str
    entry: int
    kind: Kind
    ordinal: int
    label: str = ""

    @property
    def text(self) -> str:
        """The full text, checked on every read of a record."""
        label = f"|{escape(self.label)}" if self.label else ""
        return f"{self.step}|{self.path}|{self.entry}|{self.kind.value}|{self.ordinal}{label}"

    @property
    def digest(self) -> str:
        """20 hex digits: what keys, activity ids and wait ids are made of."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:20]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form back.

        Raises:
            CorruptHistory: the text is no position.
        """
        match text.split("|"):
            case [step, path, entry, kind, ordinal, *label] if len(label) < 2:
                try:
                    return cls(
                        int(step),
                        path,
                        int(entry),
                        Kind(kind),
                        int(ordinal),
                        unescape(label[0]) if label else "",
                    )
                except ValueError as error:
                    raise CorruptHistory(f"position {text!r}", str(error)) from error
            case _:
                raise CorruptHistory(f"position {text!r}", "expected five or six fields")


def unescape(text: str) -> str:
    """Undo ``escape``."""
    return re.sub(r"%([0-9A-F]{2})", lambda m: chr(int(m[1], 16)), text)


def activity_id(execution_id: str, digest: str) -> str:
    """The public id of an activity or a wait: idempotency key and link."""
    return f"{execution_id}~{digest}"


def split_activity_id(text: str) -> tuple[str, str] | None:
    """Execution id and position digest of a public id, or None if it is none."""
    execution_id, mark, digest = text.rpartition("~")
    if not (mark and execution_id and re.fullmatch(r"[0-9a-f]{20}", digest)):
        return None
    return execution_id, digest
