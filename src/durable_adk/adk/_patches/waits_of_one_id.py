"""Of two open waits with one id only one gets its answer."""

from __future__ import annotations

from google.genai import types

from durable_adk.adk._patches.patch import Patch
from durable_adk.errors import UnsupportedNode

PATCH = Patch(
    symptom="Two nodes ask at once with one `interrupt_id`: one of them never goes on, though both"
    " are answered.",
    target="`adk/waits.py` `open_waits`: refused when both have asked; so are two questions of one"
    " node, of which the last would hide the others (`one_id.py`)",
    proof="test_of_two_waits_with_one_id_one_is_never_answered",
    until="ADK tells waits of different branches apart",
)


def refusal(path: str, call: types.FunctionCall) -> UnsupportedNode:
    own = call.name in ("adk_request_input", "adk_request_confirmation")
    return UnsupportedNode(
        path,
        because=f"two open waits have the id {call.id!r}",
        instead="give each RequestInput its own interrupt_id, or none"
        if own
        else "let the models give each call an id of its own, or none",
    )
