"""All shapes by name."""

from __future__ import annotations

from tests.shapes import agents, composite, delegation, dynamic, resumable, workflows
from tests.shapes.shape import Shape

SHAPES: dict[str, Shape] = {
    **agents.SHAPES,
    **composite.SHAPES,
    **workflows.SHAPES,
    **dynamic.SHAPES,
    **delegation.SHAPES,
    **resumable.SHAPES,
}
