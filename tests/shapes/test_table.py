"""README's support table is what the shapes say, and what a failed shape looks like."""

from __future__ import annotations

from pathlib import Path

from tests.shapes import table
from tests.shapes.all_shapes import SHAPES
from tests.support.mongo import ROOT


def test_the_support_table_is_the_generated_one() -> None:
    wanted = table.support_table(table.versions_under_test())
    assert table.read_from(ROOT / "README.md") == wanted, "run scripts/shapes.sh --readme"


def test_a_shape_that_failed_or_did_not_run_is_not_clean(tmp_path: Path) -> None:
    first, second, *_ = SHAPES
    path = tmp_path / "shapes-2.13.0.xml"
    test = "test_each_body_runs_once_and_a_kill_changes_nothing"
    path.write_text(
        f'<testsuite><testcase name="{test}[{first}]"/>'
        f'<testcase name="{test}[{second}]"><failure/></testcase></testsuite>'
    )
    found = table.by_version([path])["2.13.0"]
    assert table.mark(found[first]) == "yes"
    assert table.mark(found[second]) == "NO"
    assert table.mark(found.get("none")) == "not run"
    page = tmp_path / "page"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write_into(page, table.support_table(["2.13.0"], [second]))
    assert any(line.endswith("| NO |") for line in table.read_from(page))
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")
