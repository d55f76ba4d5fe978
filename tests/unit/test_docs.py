"""What the pages show works: Python is run, settings are loaded, commands exist."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.parse
import uuid
from pathlib import Path

import pytest
import yaml

from tests.support import forks, run_blocks
from tests.support.mongo import ROOT
from tests.support.run_blocks import Block, blocks_of

PAGES = [ROOT / "README.md", *sorted((ROOT / "src").rglob("README.md"))]
# A settings block says which file it shows in its first line.
SETTINGS_MARK = "# agent.yaml"
README_PROSE_LINES = 170
PAGE_LINES = 100
# Programs that a reader has, whether or not the machine that runs the tests does.
COMMON_PROGRAMS = {"cd", "docker", "export", "git", "pip", "python", "uv"}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.language == language]


def settings_of(page: Path) -> list[str]:
    found = blocks(page, "yaml")
    return [block.text for block in found if block.text.startswith(SETTINGS_MARK)]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_python_on_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, replica_set_uri: str, database: str
) -> None:
    for text in settings_of(page):
        settings = yaml.safe_load(text)
        # As shown, but in a database of this run: the server may be somebody's own.
        settings["mongodb"]["database"] = f"{database}_{page.parent.name}"
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "GOOGLE_API_KEY"}
    environment["MONGODB_URI"] = replica_set_uri

    def run_it() -> None:
        os.chdir(tmp_path)
        os.environ.clear()
        os.environ.update(environment)
        run_blocks.main(page)

    done = forks.run(run_it)
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(600)
@pytest.mark.parametrize("side", "-+")
@pytest.mark.parametrize("page", pages_with("diff"), ids=name_of)
def test_a_change_shown_on_a_page_runs_before_and_after_it(
    page: Path, side: str, tmp_path: Path, replica_set_uri: str, database: str
) -> None:
    (change,) = blocks(page, "diff")
    changed = [line for line in change.text.splitlines() if line[:1] in ("-", "+")]
    assert [line[0] for line in changed] == ["-", "+", "-", "+"], "one import and one line"
    given = blocks(page, "python")[0].text.partition("async def main")[0]
    shown = [line[1:] for line in change.text.splitlines() if line[:1] in (side, " ")]
    program = tmp_path / "program.py"
    program.write_text("\n".join([given, *shown]), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "MONGODB_URI": in_database(replica_set_uri, f"{database}_{uuid.uuid4().hex[:8]}"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['refunds', 'refunds', 'refunds']\n"


def in_database(uri: str, database: str) -> str:
    address = urllib.parse.urlsplit(uri)
    return address._replace(path=f"/{database}").geturl()


@pytest.mark.parametrize("page", [p for p in PAGES if settings_of(p)], ids=name_of)
def test_settings_on_a_page_are_accepted(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from durable_adk import App

    monkeypatch.setenv("MONGODB_URI", "mongodb://localhost:27017")
    for number, text in enumerate(settings_of(page)):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, "utf-8")
        App("documented", config=str(path))


@pytest.mark.parametrize("page", pages_with("console"), ids=name_of)
def test_commands_on_a_page_exist(page: Path) -> None:
    unknown = [
        f"line {block.line}: {command}"
        for block in blocks(page, "console")
        for command in commands_in(block.text)
        if not exists(command)
    ]
    assert unknown == []


def commands_in(text: str) -> list[list[str]]:
    """The commands typed after ``$``, without the variables set for them."""
    typed = re.findall(r"^\$ (.+?)(?:\s+#.*)?$", text, re.MULTILINE)
    commands = [shlex.split(part) for line in typed for part in re.split(r"&&|\|", line)]
    return [[w for w in command if not re.match(r"[A-Z_]+=", w)] for command in commands]


def exists(command: list[str]) -> bool:
    match command:
        case []:  # only variables were set
            return True
        case ["python", "-m", module, *_]:
            return importlib.util.find_spec(module) is not None
        case ["pip", "install", *requirements]:
            return all(is_installable(requirement) for requirement in requirements)
        case ["docker", "compose", *_]:
            return bool(yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8")))
        case [program, *_] if program.startswith(("./", "scripts/")):
            return os.access(ROOT / program, os.X_OK)
        case [program, *_]:
            return program in COMMON_PROGRAMS or shutil.which(program) is not None
    return False


def is_installable(requirement: str) -> bool:
    """Whether our own extras named in a requirement exist."""
    extras = re.fullmatch(r"(?:durable-adk|\.)\[([\w,]+)\]", requirement)
    if extras is None:
        return True
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return set(extras[1].split(",")) <= set(project["optional-dependencies"])


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_stay_short(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    prose = [line for line in text.splitlines() if line.strip() and not line.startswith("|")]
    assert len(prose) <= (README_PROSE_LINES if page.parent == ROOT else PAGE_LINES)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_example_settings_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    from durable_adk import App

    monkeypatch.setenv("MONGODB_URI", "mongodb://localhost:27017")
    App("example", config=str(ROOT / "agent.yaml.example"))


def test_the_checks_see_what_is_wrong() -> None:
    """The checks are worth what they catch."""
    text = (
        "$ ./scripts/test.sh -k x  # all\n"
        "$ A=1 ./scripts/none.sh\n"
        "some output\n"
        "$ pip install 'durable-adk[nope]'\n"
    )
    assert [exists(command) for command in commands_in(text)] == [True, False, False]
