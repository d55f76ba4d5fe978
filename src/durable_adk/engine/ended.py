"""What is recorded of an execution that was ended before its program came to its end.

What ended it is in no record, so a replay walks its last step as an open one. Of that step counts
what its document names: no failure that was tried anew, and nothing that a stale owner put there
after the end. All of it is part of the log, and none of it is missing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from durable_adk.engine.activities import Recorded, StepRecords
from durable_adk.model.activity import Record, slot_of
from durable_adk.model.execution import StepDocument


class EndedRecorded(Recorded):
    """As ``Recorded``, of an execution whose last step that ran is ``ended``."""

    def __init__(
        self,
        ended: StepDocument,
        *,
        records: Sequence[Record],
        steps: Sequence[StepDocument],
        voided: Iterable[str],
    ) -> None:
        self._ended = ended
        self._named = frozenset(ended.records)
        # A fork does not know what its parent voided in a step that it took over as committed.
        before = {
            slot_of(record.step, record.digest, k)
            for record in records
            if record.slot in self._named
            for k in range(1, record.attempt_try)
        }
        super().__init__(
            open_step=ended.step, records=records, steps=steps, voided=before.union(voided)
        )

    def _counting(self, step: int) -> list[Record]:
        there = super()._counting(step)
        if step != self._ended.step:
            return there
        # What has no place in the log says which tries are settled.
        return [record for record in there if record.slot in self._named or not record.seq]

    def _sort(self, step: int) -> StepRecords:
        found = super()._sort(step)
        if step == self._ended.step:
            found.abandoned = frozenset(self._ended.abandoned)
        return found


def recorded_of(
    open_step: int,
    records: Sequence[Record],
    steps: Sequence[StepDocument],
    voided: Iterable[str],
    ended: StepDocument | None,
) -> Recorded:
    """What is recorded of an execution; of one that was ended early with its last step.

    Raises:
        CorruptHistory: as ``Recorded``.
    """
    if ended is not None:
        return EndedRecorded(ended, records=records, steps=steps, voided=voided)
    return Recorded(open_step=open_step, records=records, steps=steps, voided=voided)
