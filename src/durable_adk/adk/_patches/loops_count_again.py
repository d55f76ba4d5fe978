"""A `LoopAgent` starts counting again after a wait."""

from __future__ import annotations

from durable_adk.adk._patches.patch import Patch

PATCH = Patch(
    symptom="`max_iterations` is counted from the start on every resume: a loop with a wait in each"
    " round never ends.",
    target="`adk/agents.py` `_in_scope`: rounds that have finished are passed, and counted",
    proof="test_a_loop_counts_its_rounds_from_the_start_after_a_wait",
    until="ADK keeps the count of a loop in an app that is not resumable",
)
