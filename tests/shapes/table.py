"""The table of shapes: from the results of a run, for a person and for README's support table."""

from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.shapes.all_shapes import SHAPES
from tests.support.mongo import ROOT

BEGIN, END = "<!-- shapes: begin -->", "<!-- shapes: end -->"
VERSION = re.compile(r"shapes-(.+)\.xml$")


@dataclass
class Result:
    """What became of one shape under one ADK."""

    lives: int = 0
    kills: int = 0
    modes: int = 0
    clean: bool = True


def results_of(path: Path) -> dict[str, Result]:
    """Results by shape, read from pytest's XML."""
    results: dict[str, Result] = {}
    for case in ET.parse(path).iter("testcase"):
        named = {p.get("name"): p.get("value") for p in case.iter("property")}
        found = re.search(r"a_kill_changes_nothing\[(.*)\]$", case.get("name", ""))
        if found is not None:
            results[found[1]] = Result(
                lives=int(named.get("shapes: lives") or 0),
                kills=int(named.get("shapes: kills") or 0),
                modes=int(named.get("shapes: modes") or 0),
                clean=not any(child.tag in ("failure", "error", "skipped") for child in case),
            )
    return results


def by_version(paths: Iterable[Path]) -> dict[str, dict[str, Result]]:
    found = {}
    for path in paths:
        version = VERSION.search(path.name)
        assert version is not None, f"{path.name} names no version"
        found[version[1]] = results_of(path)
    return found


def mark(result: Result | None) -> str:
    return "not run" if result is None else "yes" if result.clean else "NO"


def person_table(found: Mapping[str, Mapping[str, Result]]) -> list[str]:
    """One line for each shape that was run: under the lowest ADK, under the newest one, what was
    killed."""
    floor, newest = min(found, key=_order), max(found, key=_order)
    names = [name for name in SHAPES if any(name in one for one in found.values())]
    width = max(map(len, [*names, "shape"]))
    head = f"{'shape':{width}}  {'ADK floor ' + floor:18}  {'ADK newest ' + newest:18}"
    lines = [f"{head}  replay clean: lives (of them killed once), replay modes"]
    for name in names:
        ran = [one[name] for one in found.values() if name in one]
        clean = "yes" if all(result.clean for result in ran) else "NO"
        lives, kills = sum(r.lives for r in ran), sum(r.kills for r in ran)
        low, high = mark(found[floor].get(name)), mark(found[newest].get(name))
        told = f"{clean}: {lives} ({kills}), {min(r.modes for r in ran)}"
        lines.append(f"{name:{width}}  {low:18}  {high:18}  {told}")
    every = [result for one in found.values() for result in one.values()]
    lines.append(
        f"{len(names)} of {len(SHAPES)} shapes, {sum(r.lives for r in every)} lives,"
        f" {sum(r.kills for r in every)} kills, {sum(not r.clean for r in every)} not clean"
    )
    return lines


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def support_table(versions: Sequence[str], bad: Iterable[str] = ()) -> list[str]:
    """README's table: one line a feature, with the number of shapes that stand for it."""
    unclean = set(bad)
    columns = "".join(f" ADK {version} |" for version in versions)
    lines = [f"| ADK feature | shapes |{columns}", f"|---|---|{'---|' * len(versions)}"]
    features: dict[str, list[str]] = {}
    for name, shape in SHAPES.items():
        features.setdefault(shape.feature, []).append(name)
    for feature, names in features.items():
        verdict = "NO" if unclean & set(names) else "yes"
        lines.append(f"| {feature} | {len(names)} |" + f" {verdict} |" * len(versions))
    return lines


def write_into(page: Path, lines: Sequence[str]) -> None:
    text = page.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text("\n".join([before + BEGIN, *lines, END]) + after, "utf-8")


def read_from(page: Path) -> list[str]:
    return page.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip().splitlines()


def versions_under_test() -> list[str]:
    lines = (ROOT / ".ci" / "adk-versions").read_text("utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--floor", required=True, help="lowest version that pyproject.toml takes")
    parser.add_argument("--readme", type=Path)
    asked = parser.parse_args(given)
    found = by_version(asked.results)
    print("\n".join(person_table(found)))
    if not any(version.startswith(asked.floor) for version in found):
        print(f"the lowest version that pyproject.toml takes, {asked.floor}, was not run")
        return 1
    if asked.readme is not None:
        missing = [name for name in SHAPES if any(name not in one for one in found.values())]
        if missing:
            print(f"README.md stays as it is: {len(missing)} shapes were not run")
            return 1
        bad = [n for n in SHAPES if not all(n in o and o[n].clean for o in found.values())]
        write_into(asked.readme, support_table(list(found), bad))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
