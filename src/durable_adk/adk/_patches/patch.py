"""What is said of each fault of ADK that has a remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.adk.workflow import BaseNode

from durable_adk.adk._seam import Private


def _never(root: BaseNode) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A fault of ADK, and its remedy.

    Attributes:
        symptom: What a user of plain ADK sees.
        target: Where the remedy acts, and what it does there.
        proof: The test in ``tests/adk_bugs`` that shows the fault on plain ADK.
        until: When the remedy can go.
        needs: What it needs of ADK beyond what every app needs.
        needed_by: Whether an app needs the remedy, by its root; asked if something is missing.
    """

    symptom: str
    target: str
    proof: str
    until: str
    needs: tuple[Private, ...] = ()
    needed_by: Callable[[BaseNode], bool] = _never
