"""What has finished is entered again when something beside it is answered."""

from __future__ import annotations

from durable_adk.adk._patches.patch import Patch

PATCH = Patch(
    symptom="A function node without output, or an agent of a `ParallelAgent`, that finished"
    " beside one that waits runs again on resume.",
    target="`adk/nodes.py` `_durable`, `adk/agents.py` `_in_scope`: a run that finished in an"
    " earlier step is never entered",
    proof="test_a_finished_function_node_without_output_runs_again_on_resume",
    until="ADK knows what has finished from more than its output",
)
