"""Each remedy says what it is for, what proves the fault, and when it can go."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

import pytest

from durable_adk.adk import _patches
from durable_adk.adk._patches.patch import Patch, _never

HERE = Path(__file__).parent
PACKAGE = Path(_patches.__file__).parent
PAGE = PACKAGE / "README.md"
NAMES = sorted(_patches.PATCHES)


def proofs() -> dict[str, Path]:
    """The tests beside this one that run with and without the wrappers, and their files."""
    found = {}
    for path in HERE.glob("test_faults_*.py"):
        text = path.read_text("utf-8")
        assert 'pytestmark = pytest.mark.usefixtures("inert")' in text, path.name
        for node in ast.parse(text).body:
            if isinstance(node, ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found[node.name] = path
    return found


def row(name: str, patch: Patch) -> str:
    return f"| {patch.symptom} | `{name}` | `{patch.proof}` | {patch.until} |"


def table() -> str:
    """The table of the page; what is missing from it is in the failure of the test below."""
    lines = ["| symptom | module | proof | until |", "|---|---|---|---|"]
    return "\n".join([*lines, *(row(name, _patches.PATCHES[name]) for name in NAMES)])


def test_every_module_of_a_fault_is_in_the_list() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "patch"}
    assert set(NAMES) == modules


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_filled(name: str) -> None:
    patch = _patches.PATCHES[name]
    empty = [f.name for f in dataclasses.fields(patch) if not getattr(patch, f.name)]
    assert empty in ([], ["needs"])
    assert bool(patch.needs) == (patch.needed_by is not _never)


@pytest.mark.parametrize("name", NAMES)
def test_the_proof_exists_and_runs_with_and_without_the_wrappers(name: str) -> None:
    assert _patches.PATCHES[name].proof in proofs()


def test_no_two_remedies_have_one_proof() -> None:
    assert len({patch.proof for patch in _patches.PATCHES.values()}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_remedy_needs_is_there(name: str) -> None:
    assert [need.path for need in _patches.PATCHES[name].needs if not need.exists()] == []


def test_the_page_lists_them() -> None:
    assert table() in PAGE.read_text("utf-8")
