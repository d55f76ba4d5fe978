"""Say at the end how much was killed."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    totals: dict[str, int] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name.startswith("faults: ") and getattr(report, "when", "") == "call":
                    totals[name] = totals.get(name, 0) + value
    if totals:
        shown = ", ".join(
            f"{value} {name.removeprefix('faults: ')}" for name, value in totals.items()
        )
        terminalreporter.write_line(f"faults: {shown}")
