"""One owner about to move."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from tests.protocol.world import Owner, Phase, Program, Record, Result, Rules, World

Move = tuple[str, World]
"""What happens, and the world after it."""

DEAD = Owner(phase=Phase.DEAD)
_TOKEN = operator.attrgetter("token")


class Turn(NamedTuple):
    """One owner about to move, with what it may look at."""

    program: Program
    rules: Rules
    world: World
    place: int

    @property
    def owner(self) -> Owner:
        return self.world.owners[self.place]

    @property
    def is_current(self) -> bool:
        """Whether its token is the execution's, and the execution runs."""
        execution = self.world.execution
        return execution.token == self.owner.token and execution.status == "running"

    def move(self, label: str, owner: Owner, **changes: Any) -> Move:
        """``changes`` are fields of the world. Owners are kept sorted: which is which is shown by
        the token, and worlds that differ only in their order are one."""
        owners = list(self.world.owners)
        owners[self.place] = owner
        if len({each.token for each in owners}) == len(owners):
            owners.sort(key=_TOKEN)
        else:
            owners.sort(key=_order)
        token = owner.token or self.owner.token or self.owner.log[0].result.token
        return f"attempt {token} {label}", self.world._replace(owners=tuple(owners), **changes)

    def leave(self, label: str, log: tuple[Record, ...] = ()) -> Move:
        """Stop for good; what is in ``log`` may still arrive."""
        return self.move(label, DEAD._replace(log=log))


def _order(owner: Owner) -> tuple[int, str, tuple[Result, ...]]:
    return owner.token, owner.phase._value_, tuple(record.result for record in owner.log)
