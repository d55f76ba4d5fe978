"""Numbers of entries: a node that is retried, or run in a loop, is entered again within a step.

What a node runs counts its own entries apart for each entry of the node, so that the number of an
inner entry says in which of the node's entries it was.
"""

from __future__ import annotations

from collections.abc import Iterable

APART = 1000
"""Between the numbers of entries in one entry of what is around them and in the next."""


def number(around: int, count: int) -> int:
    """Of the ``count``-th entry of a path, from 1, in an entry of what is around it."""
    return (around - 1) * APART + count


def has_later(places: Iterable[tuple[str, int]], path: str, entry: int) -> bool:
    """Whether something at or below a path is of a later entry of it than this one, in the same
    entry of what is around it. ``places`` are operation paths and entries of what is recorded.
    """
    last = number(around_of(entry), APART)
    return any(entry < at(path, found, inner) <= last for found, inner in places)


def has(places: Iterable[tuple[str, int]], path: str, entry: int) -> bool:
    """Whether one of the places, each at or below a path, is in this entry of it."""
    return any(at(path, found, inner) == entry for found, inner in places)


def ran_others(places: Iterable[tuple[str, int]], path: str, entry: int) -> bool:
    """Whether an entry of a node ran nodes below it, which may have left nothing themselves: ADK
    counts the runs of one name on over the entries, so that later ones tell. ``places`` are at or
    below the path."""
    runs: dict[str, set[str]] = {}
    for found, inner in places:
        if found == path:
            continue
        if at(path, found, inner) == entry:
            return True
        name, _, run = found[len(path) + 1 :].partition("/")[0].rpartition("#")
        if run.isdecimal():
            runs.setdefault(name, set()).add(run)
    return any(max(map(int, found)) > len(found) for found in runs.values())


def around_of(entry: int) -> int:
    """The entry of what is around an entry."""
    return (entry - 1) // APART + 1


def at(path: str, below: str, entry: int) -> int:
    """The entry of a path in which an entry below it was. A call has the number of who makes it."""
    for segment in below[len(path) :].split("/"):
        if segment and not segment.startswith((":", "%3A")):
            entry = around_of(entry)
    return entry
