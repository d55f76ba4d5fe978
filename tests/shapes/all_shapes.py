"""All shapes by name."""

from __future__ import annotations

from tests.shapes import (
    agents,
    around,
    composite,
    credentials,
    delegation,
    dynamic,
    resumable,
    tools,
    workflows,
)
from tests.shapes.shape import Shape

SHAPES: dict[str, Shape] = {
    **agents.SHAPES,
    **composite.SHAPES,
    **workflows.SHAPES,
    **dynamic.SHAPES,
    **delegation.SHAPES,
    **resumable.SHAPES,
    **tools.SHAPES,
    **credentials.SHAPES,
    **around.SHAPES,
}
