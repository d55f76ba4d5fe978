"""Which sessions an attempt's session was forked from, as far as calls are compared by it.

A fork made inside a turn runs over records of its source. A call whose arguments hold the id of
its own session asks there with another id than was recorded, and means the same: it is compared as
the source would have asked. We make a fork's id, so that where it stands nothing else is meant.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from durable_adk.model import codec
from durable_adk.model.activity import Payload
from durable_adk.model.execution import Execution, SessionRecord


@dataclass(frozen=True, slots=True)
class Lineage:
    """The id of the session, and those of the sessions that its records are of."""

    session_id: str = ""
    sources: tuple[str, ...] = ()

    def alike(self, payload: Payload) -> tuple[str, ...]:
        """Digests of the same request in the sources; none if it does not name its session."""
        own = _written(self.session_id)
        if not self.sources or own not in payload:
            return ()
        return tuple(
            codec.digest(payload.replace(own, _written(source))) for source in self.sources
        )


def of(session: SessionRecord, execution: Execution) -> Lineage:
    """That of an execution that was begun in another session; else an empty one."""
    if not execution.parents:
        return Lineage()
    return Lineage(session.session_id, tuple(one.session_id for one in session.lineage))


def _written(session_id: str) -> str:
    """As it stands in a payload."""
    return json.dumps(session_id, ensure_ascii=False)[1:-1]
