"""An agent that is no `LlmAgent` can be resumed by a message only."""

from __future__ import annotations

from durable_adk.adk._patches.patch import Patch

PATCH = Patch(
    symptom="`run_async(invocation_id=...)` without a message fails if the root is a"
    " `SequentialAgent` or its like.",
    target="`adk/play.py` `_feed`: the last branch's answers are the message",
    proof="test_a_sequence_cannot_be_resumed_without_a_message",
    until="ADK resumes any root by its invocation id",
)
