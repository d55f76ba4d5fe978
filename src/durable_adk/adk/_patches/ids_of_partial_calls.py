"""A call that is streamed has one id in its partials and another at the end."""

from __future__ import annotations

from durable_adk.adk._patches.patch import Patch

PATCH = Patch(
    symptom="A listener of a stream sees a call that is waited for under an id that no answer can"
    " name.",
    target="`adk/call_ids.py`: ids are given before a response is yielded, by place",
    proof="test_a_streamed_call_changes_its_id_between_partial_and_final",
    until="ADK gives a call its id once for a model call",
)
