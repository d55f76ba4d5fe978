"""Which recorded failures an error carries.

A failed attempt opens a recorded failure again (the next attempt tries it anew) only if that
failure left the root: the error itself, what it was raised from, what it holds or was held by, or
a member of a group. One that the program handled stays: bodies may have been entered because of
it, and their effects rest on it.
"""

from __future__ import annotations

from durable_adk.model import failure
from durable_adk.model.activity import Record


class Causes:
    """The failures that one attempt handed to its program."""

    def __init__(self) -> None:
        self._records: list[tuple[BaseException, Record]] = []

    def failure_of(self, record: Record) -> Exception:
        """The recorded failure, fresh, as every attempt hands it to the program."""
        error = failure.decode_failure(record.body or "")
        self._records.append((error, record))
        return error

    def of(self, error: BaseException) -> list[Record]:
        """The records whose failure this error is, was raised from, or was held by."""
        carried: dict[int, BaseException] = {}
        _carry(error, carried)
        known = 0
        while known != len(carried):
            known = len(carried)
            for noted, _record in self._records:
                if id(_held(noted)) in carried:
                    _carry(noted, carried)
        return [record for noted, record in self._records if id(noted) in carried]


def _held(error: BaseException) -> BaseException | None:
    """ADK's error of a node that a node ran has the first one as ``error``, and no cause; of the
    recorded one, ADK raises what it holds."""
    held = getattr(error, "error", None)
    return held if isinstance(held, BaseException) else None


def _carry(error: BaseException, carried: dict[int, BaseException]) -> None:
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in carried:
            continue
        carried[id(one)] = one
        waiting += [one.__cause__, _held(one)]
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)
