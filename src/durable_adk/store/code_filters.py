"""What an execution keeps of the code that it was run by.

``codes`` has each text of versions once, in the order of first use. ``refused`` has the agent
versions whose workers took it by themselves while it was stuck: each does so once until there is
progress or a retry, or two versions that are deployed side by side would try in turn for ever.
"""

from __future__ import annotations

import re
from typing import Any

from durable_adk.model.execution import Status
from durable_adk.store.documents import SCHEMA_VERSION, UPGRADES

_STUCK = Status.STUCK.value


def readable() -> dict[str, Any]:
    """Documents that this code can read. Others are left to the code that wrote them: a claim would
    take a lease, fail, and be made again when it has run out."""
    return {"v": {"$in": [SCHEMA_VERSION, *UPGRADES]}}


def ran_under(code: str) -> list[dict[str, Any]]:
    """A stage that notes a claim's versions; none where they are not to be noted."""
    if not code:
        return []
    known = {"$ifNull": ["$codes", []]}
    is_known = {"$in": [{"$literal": code}, known]}
    noted = {"$cond": [is_known, known, {"$concatArrays": [known, {"$literal": [code]}]}]}
    return [{"$set": {"codes": noted}}]


def ran_under_agent(version: str) -> dict[str, Any]:
    """Executions with an attempt under an agent version: the last part of ``RanUnder.code``.

    ``version`` is text that is safe in a filter.
    """
    return {"codes": {"$regex": rf"^[^ ]+ [^ ]+ {re.escape(version)}$"}}


def stuck_under_another(version: str) -> dict[str, Any]:
    """Stuck in a recorded agent version that is not this one, and not yet taken by this one.

    ``version`` is text that is safe in a filter.
    """
    return {
        "status": _STUCK,
        "version": {"$nin": [None, version]},
        "refused": {"$ne": version},
    }


def served_by(version: str, now: Any) -> list[dict[str, Any]]:
    """What workers of a version go on with: what is theirs or nobody's, and what of any version is
    over, whoever says so: no code of its version has to run for that.

    ``version`` is text that is safe in a filter.
    """
    late = {"deadline": {"$gt": 0}, "$expr": {"$lte": ["$deadline", now]}}
    asked = [{"closing": {"$ne": None}}, {"cancel": {"$ne": None}}]
    return [{"version": {"$in": [None, version]}}, late, *asked]


def taking(version: str | None) -> list[dict[str, Any]]:
    """The stage before a claim: a worker takes a stuck execution by itself once."""
    if version is None:
        return []
    known = {"$ifNull": ["$refused", []]}
    more = {"$concatArrays": [known, {"$literal": [version]}]}
    return [{"$set": {"refused": {"$cond": [{"$eq": ["$status", _STUCK]}, more, known]}}}]


def anew() -> dict[str, Any]:
    """What a retry changes: of a stuck execution any worker may be asked to go on."""
    is_stuck = {"$eq": ["$status", _STUCK]}
    return {"refused": [], "version": {"$cond": [is_stuck, None, "$version"]}}
