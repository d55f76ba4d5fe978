"""Filters of reads that only look whether something is there."""

from __future__ import annotations

from collections.abc import Mapping

from durable_adk.store.filters import Filter, text


def places_of(runs: Mapping[str, tuple[int, int]]) -> Filter:
    """The wait records of runs, of steps from one to another one, both included."""
    ranges = [
        {"_id": {"$gte": f"{text('run', run)}:{first:06d}:", "$lt": f"{run}:{last:06d};"}}
        for run, (first, last) in runs.items()
    ]
    return {"$or": ranges, "wait": {"$exists": True}}
