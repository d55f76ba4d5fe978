"""An answer that looks like JSON changes its type."""

from __future__ import annotations

import json
from typing import Any

from durable_adk.adk._patches.patch import Patch

PATCH = Patch(
    symptom='The answer `"42"` reaches a node as the number 42.',
    target="`adk/waits.py` `_response`: what ADK decodes is encoded once before",
    proof="test_an_answer_that_looks_like_json_changes_its_type",
    until="ADK hands an answer to `RequestInput` on as it was given",
)


def as_response(value: Any) -> dict[str, Any]:
    """The response from which ADK reads just this value."""
    return {"result": json.dumps(value)}
