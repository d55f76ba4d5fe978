"""An answer that breaks its schema ends a run for good."""

from __future__ import annotations

from durable_adk.adk._patches.patch import Patch

PATCH = Patch(
    symptom="An answer that is not of the `response_schema` is found when it is in the session: the"
    " run fails then, and on every answer after it.",
    target="`engine/answers.py`: an answer is checked before anything is stored",
    proof="test_an_answer_that_breaks_its_schema_ends_the_run_for_good",
    until="ADK refuses such an answer before it appends it",
)
