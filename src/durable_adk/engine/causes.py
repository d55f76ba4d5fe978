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
        self.note(error, record)
        return error

    def note(self, error: BaseException, record: Record) -> None:
        """Note that an error is of the call that a record is of."""
        self._records.append((error, record))

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

    def position_of(self, error: BaseException) -> str:
        """Where the call stands that raised an error, the innermost one that raised this very
        error; of one that no call raised, where what it was raised from came from. Empty: nowhere.
        """
        return self._position_of(error, set())

    def _position_of(self, error: BaseException, seen: set[int]) -> str:
        at = ""
        one: BaseException | None = error
        while one is not None and id(one) not in seen:
            seen.add(id(one))
            found = self._noted(one)
            if found is not None:
                # A recorded failure was raised from what the body raised: that may be another's.
                at, one = found[1].position, found[0].__cause__
            elif isinstance(one, BaseExceptionGroup):
                inside = (self._position_of(member, seen) for member in one.exceptions)
                return next(filter(None, inside), at)
            else:
                one = _held(one) or (None if at else one.__cause__)
        return at

    def _noted(self, error: BaseException) -> tuple[BaseException, Record] | None:
        is_it = ((n, r) for n, r in self._records if n is error or _held(n) is error)
        return next(is_it, None)


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
