"""One pass over a list of what is due, past what cannot be read: that stays due, and with a limit
it would take the places of all others, in every pass.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from durable_adk.model.execution import Execution
from durable_adk.model.identity import ExecutionKey

T = TypeVar("T", Execution, ExecutionKey)


async def passed(
    listed: Callable[[int], Awaitable[Sequence[T]]],
    settled: Callable[[Sequence[T]], Awaitable[Sequence[bool]]],
    *,
    limit: int,
) -> None:
    """Settle up to ``limit`` of a list, in whatever order it is.

    Args:
        listed: Gives up to so many of what is due now.
        settled: Settles these; says of each whether it did, or it stays as it is.
        limit: How many, at most; what stays does not count.
    """
    stays: set[ExecutionKey] = set()
    left = limit
    while left > 0:
        asked = left + len(stays)
        found = await listed(asked)
        new = [one for one in found if _key(one) not in stays][:left]
        if not new:
            return
        done = await settled(new)
        stays |= {_key(one) for one, is_done in zip(new, done, strict=True) if not is_done}
        left -= sum(done)
        if len(found) < asked:
            return


def _key(one: Execution | ExecutionKey) -> ExecutionKey:
    return one.key if isinstance(one, Execution) else one
