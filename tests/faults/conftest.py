"""Say at the end what was tried."""

from __future__ import annotations

from typing import Any

from tests.faults.totals import PREFIX, line


def pytest_terminal_summary(terminalreporter: Any) -> None:
    properties = [
        (name, value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in getattr(report, "user_properties", ())
        if name.startswith(PREFIX)
    ]
    if properties:
        terminalreporter.write_line(line(properties))
