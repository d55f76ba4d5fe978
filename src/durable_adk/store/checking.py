"""Whether what commits rest on is there, without reading it whole."""

from __future__ import annotations

from durable_adk.errors import CorruptHistory
from durable_adk.model.execution import Execution
from durable_adk.model.wait import WaitKind
from durable_adk.store import checking_filters
from durable_adk.store.core import ACTIVITIES, Part, Session

_FIELDS = {"place": 1, "wait.kind": 1}


class Checking(Part):
    """See ``engine.read_ports.ReadStore``."""

    async def check_waits(self, execution: Execution) -> None:
        """Look whether every answer is there that a committed step was left with."""
        core = self._core
        steps: dict[str, tuple[int, int]] = {}  # of whom: from which to which
        for step in range(1, execution.step):
            run, _id = execution.answers_of(step)
            steps[run] = (steps.get(run, (step, step))[0], step)
        if not steps:
            return

        async def once(session: Session) -> dict[tuple[str, int], list[tuple[int, int]]]:
            found: dict[tuple[str, int], list[tuple[int, int]]] = {}
            for doc in await core.find(
                session, ACTIVITIES, checking_filters.places_of(steps), fields=_FIELDS
            ):
                if doc["wait"]["kind"] != WaitKind.IN_DOUBT.value:  # they end no step
                    run, number, _slot = doc["_id"].split(":")
                    found.setdefault((run, int(number)), []).append(tuple(doc["place"]))
            return found

        found = await core.read(f"answers of {execution.execution_id!r}", once)
        for step in range(1, execution.step):
            run, _id = execution.answers_of(step)
            there = sorted(found.get((run, step), ()))
            if not there or [place for place, _ in there] != list(range(there[0][1])):
                raise CorruptHistory(
                    f"step {step} of execution {execution.execution_id!r}",
                    f"has {len(there)} of its answers, and not all",
                    "Records were removed; give the execution up or restore them.",
                )
