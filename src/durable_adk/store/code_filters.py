"""What an execution keeps of the code that it was run by.

``codes`` has each text of versions once, in the order of first use. ``refused`` has the agent
versions under which it got stuck: a worker of one of them leaves it alone, or two versions that
are deployed side by side would try in turn for ever.
"""

from __future__ import annotations

from typing import Any

from durable_adk.model.execution import Status

_STUCK = Status.STUCK.value


def ran_under(code: str) -> list[dict[str, Any]]:
    """A stage that notes a claim's versions; none where they are not to be noted."""
    if not code:
        return []
    known = {"$ifNull": ["$codes", []]}
    mine = {"$literal": [code]}
    noted = {"$cond": [{"$setIsSubset": [mine, known]}, known, {"$concatArrays": [known, mine]}]}
    return [{"$set": {"codes": noted}}]


def stuck_under_another(version: str) -> dict[str, Any]:
    """Stuck in a recorded agent version that is not this one, and never yet in this one.

    ``version`` is text that is safe in a filter.
    """
    return {
        "status": _STUCK,
        "version": {"$nin": [None, version]},
        "refused": {"$ne": version},
    }


def stuck_here(status: Status) -> dict[str, Any]:
    """What an attempt that ends stuck adds."""
    if status is not Status.STUCK:
        return {}
    return {"refused": {"$setUnion": [{"$ifNull": ["$refused", []]}, ["$version"]]}}


def anew() -> dict[str, Any]:
    """What a retry changes: of a stuck execution any worker may be asked to go on."""
    is_stuck = {"$eq": ["$status", _STUCK]}
    return {"refused": [], "version": {"$cond": [is_stuck, None, "$version"]}}
