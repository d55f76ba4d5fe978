"""Of the answers in one message, those of all branches but one are lost."""

from __future__ import annotations

from collections.abc import Sequence

from durable_adk.adk._patches.patch import Patch
from durable_adk.model.wait import AnsweredWait

PATCH = Patch(
    symptom="A message is stamped with one branch: answers of parallel branches in one message"
    " are lost, but for one.",
    target="`adk/waits.py` `feed`: one user event for each branch",
    proof="test_answers_of_two_branches_in_one_message_lose_one",
    until="ADK hands each response of a message to the branch that asked",
)


def by_branch(answered: Sequence[AnsweredWait]) -> list[list[AnsweredWait]]:
    """The answers that may share a message, in frontier order."""
    groups: dict[tuple[str | None, str | None], list[AnsweredWait]] = {}
    for one in answered:
        groups.setdefault((one.wait.branch, one.wait.isolation_scope), []).append(one)
    return list(groups.values())
