"""Which recorded failures an error carries.

A failed attempt opens a recorded failure again (the next attempt tries it anew) only if that
failure left the root: the error itself, what it was raised from, or a member of a group. One
that the program handled stays: bodies may have been entered because of it, and their effects
rest on it.
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
        """The records whose failure this error is, or was raised from."""
        carried = {id(one) for one in _carried(error)}
        return [record for noted, record in self._records if id(noted) in carried]


def _carried(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if any(one is known for known in found):
            continue
        found.append(one)
        if one.__cause__ is not None:
            waiting.append(one.__cause__)
        if isinstance(one, BaseExceptionGroup):
            waiting.extend(one.exceptions)
    return found
