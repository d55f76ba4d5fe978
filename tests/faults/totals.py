"""The one line at the end of a full run: what was tried, summed over all test results.

``python -m tests.faults.totals results.xml ...`` reads JUnit files. A test adds to a figure by
``record_property("faults: failovers", 1)``; the names are those of ``FIGURES``.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable

PREFIX = "faults: "
FIGURES = (
    "scenarios",
    "points",
    "kills",
    "raises",
    "lost replies",
    "SIGKILLs",
    "SIGSTOPs",
    "failovers",
    "mismatches",
)


def line(properties: Iterable[tuple[str, object]]) -> str:
    """The line, in the order of ``FIGURES``; what tests recorded beside them follows."""
    totals: Counter[str] = Counter(dict.fromkeys(FIGURES, 0))
    for name, value in properties:
        if name.startswith(PREFIX):
            totals[name.removeprefix(PREFIX)] += int(str(value))
    return "faults: " + ", ".join(f"{value} {name}" for name, value in totals.items())


def main(paths: list[str]) -> int:
    """Print the line. Returns: 1 if a test failed, or recorded a mismatch."""
    found: list[tuple[str, object]] = []
    failed = 0
    for path in paths:
        for suite in ET.parse(path).getroot().iter("testsuite"):
            failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            found += [(p.get("name", ""), p.get("value", "")) for p in suite.iter("property")]
    shown = line(found)
    print(shown)
    return int(failed > 0 or ", 0 mismatches" not in shown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
