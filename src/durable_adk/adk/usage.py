"""Tokens of an execution, counted once for each model outcome that it recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from durable_adk.model import codec
from durable_adk.model.activity import Kind, Record, RecordStatus
from durable_adk.model.position import Position

_FIELDS: Final = {
    "prompt_tokens": "prompt_token_count",
    "output_tokens": "candidates_token_count",
    "total_tokens": "total_token_count",
    "cached_tokens": "cached_content_token_count",
    "thoughts_tokens": "thoughts_token_count",
    "tool_prompt_tokens": "tool_use_prompt_token_count",
}
"""Ours, by the names that google-genai has for them."""


def none() -> dict[str, int]:
    return {"model_calls": 0, **dict.fromkeys(_FIELDS, 0)}


def of_reports(reports: Iterable[Any]) -> dict[str, int]:
    """The sum of reports of calls: ``usage_metadata`` as such, or as a mapping."""
    usage = none()
    for report in reports:
        usage["model_calls"] += 1
        for name, field in _FIELDS.items():
            usage[name] += _value(report, field)
    return usage


def of_records(records: Iterable[Record]) -> dict[str, int]:
    """What an execution spent, over all its attempts; a failed call counts without tokens."""
    return of_reports(_report(record) for record in _calls(records))


def by_model(records: Iterable[Record]) -> dict[str, dict[str, int]]:
    """The same for each model, by the name that its agent has for it, in the order of names."""
    calls: dict[str, list[Record]] = {}
    for record in _calls(records):
        calls.setdefault(record.name, []).append(record)
    return {name: of_records(calls[name]) for name in sorted(calls)}


def _calls(records: Iterable[Record]) -> Iterable[Record]:
    return (
        record
        for record in records
        if record.status in (RecordStatus.COMPLETED, RecordStatus.FAILED)
        and Position.parse(record.position).kind is Kind.MODEL
    )


def _report(record: Record) -> Any:
    """The newest report of a call: each one counts from its beginning."""
    if record.status is not RecordStatus.COMPLETED:
        return None
    responses = codec.decode(record.body or "{}").get("responses", ())
    reports = [_usage_of(response) for response in responses]
    return next((report for report in reversed(reports) if report is not None), None)


def _usage_of(response: Any) -> Any:
    """Of a response as JSON, or as itself where it has no JSON form."""
    if isinstance(response, Mapping) and "usage_metadata" in response:
        return response["usage_metadata"]
    values = response.values() if isinstance(response, Mapping) else (response,)
    found = (getattr(value, "usage_metadata", None) for value in values)
    return next((report for report in found if report is not None), None)


def _value(report: Any, field: str) -> int:
    value = report.get(field) if isinstance(report, Mapping) else getattr(report, field, None)
    return value if isinstance(value, int) else 0
