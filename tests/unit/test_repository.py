"""What a reader of the repository may rely on: its layout, its sizes, what it never contains."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.mongo import ROOT

TOP_LEVEL = {
    "LICENSE",
    "README.md",
    "agent.yaml.example",
    "docker-compose.yml",
    "pyproject.toml",
    "scripts",
    "src",
    "tests",
}
SOURCES = sorted((ROOT / "src").rglob("*.py"))
SCRIPTS = sorted((ROOT / "scripts").glob("*.sh"))
MODULE_LINES = 400
FUNCTION_LINES = 80
USUAL_FUNCTION_LINES = 40
MACHINE_PATHS = re.compile("|".join(["/wo" + "rk/", "/ro" + "ot/", "/tmp/" + "s/", "/ho" + "me/"]))
UNFINISHED = re.compile("TO" + "DO|FIX" + "ME|NotImplemented" + "Error")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """What git tracks, or without git (an unpacked archive) everything that is not hidden."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        return [p for p in ROOT.rglob("*") if p.is_file() and "/." not in f"/{relative(p)}"]
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_the_top_level_is_as_laid_out_and_nothing_else() -> None:
    top = {relative(path).split("/")[0] for path in tracked_files()}
    assert {name for name in top if not name.startswith(".")} == TOP_LEVEL


def test_no_file_names_a_path_of_somebody_s_machine() -> None:
    found = []
    for path in tracked_files():
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            if MACHINE_PATHS.search(line):
                found.append(f"{relative(path)}:{number}")
    assert found == []


def test_the_license_is_apache_2_in_full() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    for section in range(1, 10):
        assert re.search(rf"^ +{section}\. [A-Z]", text, re.MULTILINE), f"section {section}"
    assert "END OF TERMS AND CONDITIONS" in text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_parse_and_say_what_they_do(path: Path) -> None:
    subprocess.run(["bash", "-n", path], check=True)
    lines = path.read_text("utf-8").splitlines()
    if path.name == "lib.sh":  # sourced by the others, never run
        assert lines[0].startswith("# ")
        return
    assert path.stat().st_mode & 0o111 == 0o111, "no run bit"
    assert lines[0] == "#!/usr/bin/env bash"
    assert lines[1].startswith("# ")
    assert "set -euo pipefail" in lines


def test_continuous_integration_runs_the_test_script() -> None:
    run = ROOT / ".ci" / "run"
    assert run.stat().st_mode & 0o111 == 0o111
    assert "./scripts/test.sh" in run.read_text("utf-8")


def test_the_adk_versions_under_test_are_those_the_package_admits() -> None:
    lines = (ROOT / ".ci" / "adk-versions").read_text("utf-8").splitlines()
    versions = [line for line in lines if line and not line.startswith("#")]
    assert versions
    for version in versions:
        assert re.fullmatch(r"2\.(1[3-9]|[2-9]\d)\.\d+", version)


def test_ci_versions_and_dependencies_are_named_once() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == "durable-adk"
    assert project["requires-python"] == ">=3.11"
    assert project["license"] == "Apache-2.0"
    assert {"google-adk>=2.13,<3", "pymongo>=4.13"} <= set(project["dependencies"])
    assert {"motor", "server", "testing", "local", "dev"} <= set(project["optional-dependencies"])


def executed(tree: ast.Module) -> set[str]:
    """Names of what a module imports or calls."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=str(module)):
                names.add(module)
            case ast.Call(func=ast.Name(id=name)):
                names.add(name)
    return names


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_no_code_is_loaded_from_data(path: Path) -> None:
    forbidden = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "eval", "exec"}
    assert not executed(ast.parse(path.read_text("utf-8"))) & forbidden


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_nothing_is_left_unfinished(path: Path) -> None:
    assert UNFINISHED.search(path.read_text("utf-8")) is None


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_modules_and_functions_stay_readable(path: Path) -> None:
    text = path.read_text("utf-8")
    lines = text.count("\n")
    assert lines <= MODULE_LINES, "would two names explain it better?"
    sizes = function_sizes(text)
    too_long = [f"{name}: {size} lines" for name, size in sizes if size > FUNCTION_LINES]
    assert too_long == []


def function_sizes(text: str) -> list[tuple[str, int]]:
    """Each function and its lines, from its ``def`` to its end."""
    return [
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def test_most_functions_fit_on_a_screen() -> None:
    sizes = sorted(size for path in SOURCES for _, size in function_sizes(path.read_text("utf-8")))
    assert sizes[int(len(sizes) * 0.95)] <= USUAL_FUNCTION_LINES


def bare_skips(tree: ast.Module) -> list[int]:
    """Lines of skips and expected failures that give no reason."""
    lines = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            lines += [node.lineno] * is_skip(node.func)
        for decorator in getattr(node, "decorator_list", []):
            lines += [decorator.lineno] * is_skip(decorator)
    return lines


def is_skip(node: ast.expr) -> bool:
    return re.fullmatch(r"pytest\.(mark\.)?(skip|skipif|xfail)", ast.unparse(node)) is not None


def test_skipped_tests_say_what_is_missing() -> None:
    found = {
        relative(path): lines
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if (lines := bare_skips(ast.parse(path.read_text("utf-8"))))
    }
    assert found == {}


def test_the_compose_file_is_one_replica_set_with_a_health_check() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    assert list(compose["services"]) == ["mongodb"]
    service = compose["services"]["mongodb"]
    assert "--replSet" in service["command"]
    assert "rs.initiate" in service["healthcheck"]["test"][1]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
