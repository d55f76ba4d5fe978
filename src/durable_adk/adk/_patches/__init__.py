"""Remedies for faults of ADK, one module each; every one is inert outside an attempt.

``README.md`` has the list. A remedy that is a few lines in the middle of a wrapper stays there;
its module then says where.
"""

from __future__ import annotations

from google.adk.workflow import BaseNode

from durable_adk.adk import versions
from durable_adk.adk._patches import (
    agent_tool_waits,
    answer_as_output,
    answers_of_branches,
    answers_that_break_a_schema,
    answers_that_look_like_json,
    asks_below_tasks,
    finished_nodes_run_again,
    ids_of_partial_calls,
    interrupts_below_tools,
    loops_count_again,
    new_invocations_of_composites,
    no_queue_below_composites,
    replays_out_of_time,
    resume_at_the_asker,
    resume_of_composites,
    siblings_cancelled,
    transfers_inside_composites,
    transfers_processed_twice,
    two_runs_at_one_place,
    waits_of_one_id,
)
from durable_adk.adk._patches.patch import Patch as Patch

_MODULES = (
    agent_tool_waits,
    answer_as_output,
    answers_of_branches,
    answers_that_break_a_schema,
    answers_that_look_like_json,
    asks_below_tasks,
    finished_nodes_run_again,
    ids_of_partial_calls,
    interrupts_below_tools,
    loops_count_again,
    new_invocations_of_composites,
    no_queue_below_composites,
    replays_out_of_time,
    resume_at_the_asker,
    resume_of_composites,
    siblings_cancelled,
    transfers_inside_composites,
    transfers_processed_twice,
    two_runs_at_one_place,
    waits_of_one_id,
)

PATCHES: dict[str, Patch] = {
    module.__name__.rpartition(".")[2]: module.PATCH for module in _MODULES
}
"""By the name of the module."""


def check(root: BaseNode) -> None:
    """Refuse an app that needs a remedy which the installed ADK does not allow.

    Raises:
        ConfigError: with what is missing, the installed and the tested versions.
    """
    missing = [
        name.path
        for patch in PATCHES.values()
        for name in patch.needs
        if not name.exists() and patch.needed_by(root)
    ]
    if missing:
        raise versions.lacks(missing)
